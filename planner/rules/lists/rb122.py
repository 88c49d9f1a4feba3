"""RB122: a configured assignor list names an assignor twice."""

from rebal.planner.clients import stops_at_repeats
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, found, rule
from rebal.planner.rules.scope import with_lists


@rule(
    "RB122",
    Severity.WARN,
    "A configured assignor list names an assignor twice",
    reference="KIP-1161; Kafka: ConsumerPartitionAssignor.getAssignorInstances",
    traits={Trait.NEXT_START},
    applies=(with_lists,),
)
def named_twice(context: Context) -> Findings:
    """A Java member of 3.1 to 4.1 does not start with a list that names an assignor twice.

    Why it matters: the restarted member stops with "The assignor name … is used in more than one
    assignor". Clients before 3.1 do not check it; those of 4.2 and later drop the second one with a
    warning.

    How to find out: partition.assignment.strategy in the member's configuration (--inventory).

    How to fix it: name each assignor once, before the next restart.
    """
    hit = [
        facts
        for facts in context.members
        if stops_at_repeats(facts.family, facts.member.software)
        and (declared := facts.member.declared) is not None
        and len(declared.list) > len(set(declared.list))
    ]
    if hit:
        yield found(
            f"{context.named(hit)} {'is' if len(hit) == 1 else 'are'} configured with an assignor "
            "list that names an assignor twice: Java of 3.1 to 4.1 does not start with it.",
            members=hit,
            fix="Name each assignor once in partition.assignment.strategy.",
        )
