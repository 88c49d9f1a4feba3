"""RB107: the order of a mixed assignor list."""

from rebal.planner.commands import read_more
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import by_lists, planning


@rule(
    "RB107",
    Severity.WARN,
    "The target does not come first in a mixed assignor list",
    reference="Kafka: GroupMetadataManager (what a load restores), consumer configuration "
    "(partition.assignment.strategy); KIP-429; KIP-726",
    applies=(planning, by_lists),
    traits={Trait.PASSING},
)
def target_not_first(context: Context) -> Findings:
    """A member lists the old assignor before the target.

    Why it matters: when the coordinator reloads the group (a broker restart, a new leader of the
    offsets partition), it remembers only [the elected assignor] for every member until the next
    rebalance. With the target first, the target is elected once every member supports both, and a
    reload keeps it for the next bounce. With the old assignor first, a reload keeps only the old
    one, and a member restarted with the target alone is rejected although every configuration
    allows it. The default of Java 3.0 and later, [range, cooperative-sticky], has this weakness
    (KIP-726).

    Documents with the opposite order: Kafka's documentation of partition.assignment.strategy, whose
    default is [RangeAssignor, CooperativeStickyAssignor], and KIP-726 behind it; versions of the
    pages of KIP-429 and KIP-726 have had both orders. Range comes first there so that a new version
    of the library alone does not change the elected assignor. They do not speak of a reload between
    the last rebalance and the bounce that removes range.

    How to find out: the members' exact lists.

    How to fix it: use [cooperative-sticky, old] in an upgrade and [old, cooperative-sticky] in a
    downgrade. Or, before the bounce that drops the old assignor begins, make sure that a rebalance
    has completed since the coordinator loaded the group (RB113).

    It does not fire while the target is elected anyway: a reload then leaves the target.
    """
    if context.elected == context.target:
        return
    named = []
    for facts in context.members:
        names = facts.member.assignors.list
        olds = [names.index(name) for name in names if context.old(name) is Tri.YES]
        if context.target in names and olds and min(olds) < names.index(context.target):
            named.append(facts)
    if named:
        yield found(
            f"members restarted with [{context.target}] can be rejected after a coordinator "
            f"reload: {context.named(named)} {'lists' if len(named) == 1 else 'list'} the old "
            "assignor first, so it stays elected, and a reload keeps only the elected one.",
            members=named,
            fix="Before you drop the old assignor, make sure that a rebalance has completed since "
            "the coordinator loaded the group (RB113).",
            commands=[read_more("RB113")],
            before_step=context.narrow_step,
        )
