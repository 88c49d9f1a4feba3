"""RB107: the order in a mixed list."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import CONSUMER, Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB107",
    Severity.WARN,
    "The target does not come first in a mixed list",
    reference="Kafka: GroupMetadataManager (what a load restores); KIP-429",
    traits={Trait.PASSING},
)
def target_not_first(context: Context) -> Iterator[Finding]:
    """A member prefers the old assignor to the target in its mixed list.

    Why it matters: when the coordinator loads the group again (a broker restart, a leader that
    moved), every list in its memory becomes just [the elected assignor], until the next
    rebalance. With the target first, the target is elected once every member holds both, and it
    is what such a load leaves behind: just what the next bounce needs. With the old one first,
    the old one is left, and a member restarted with the target alone is refused although every
    configuration allows it. The default of Java 3.0 and later, [range, cooperative-sticky], has
    this weakness (KIP-726).

    How to find out: the members' exact lists.

    How to fix it: [cooperative-sticky, old] on the way up, [old, cooperative-sticky] on the way
    down; or see to it that a rebalance has completed since the coordinator loaded the group
    before the narrowing bounce begins (RB113).

    It does not fire while the target is elected all the same: a reload then leaves the target.
    """
    if not context.planning or not context.classic or context.goal == CONSUMER:
        return
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
            f"{context.named(named)}: the old assignor stands before {context.target}, so it stays "
            "elected, and a reload of the coordinator leaves nothing else in its memory.",
            members=named,
            fix="Before the narrowing bounce, see that a rebalance has completed since the "
            "coordinator loaded the group: rebal explain RB113.",
            before_step=context.narrow_step,
        )
