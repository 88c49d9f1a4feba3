"""RB103: the first bounce drops the default `range` of Java below 3.0."""

from rebal.planner.rules.next_start import Mistake, next_starts
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule


@rule(
    "RB103",
    Severity.BLOCK,
    "The first bounce drops range, which was only the default until now",
    reference="Kafka upgrade notes for 2.4 and 3.0 (KIP-726)",
    traits={Trait.NEXT_START},
)
def dropped_default(context: Context) -> Findings:
    """A Java client below 3.0 gets an assignor list without `range`, which the others still need.

    Why it matters: these clients use [range] while partition.assignment.strategy is not set. Once
    it is set to [cooperative-sticky], range is no longer in the list. The restarted member has no
    assignor in common with the members that were not restarted yet, and it is rejected and stops.

    How to find out: read the configuration of the next start (--inventory).

    How to fix it: name range in the first bounce, behind the target, and drop it only in the second
    one:
    partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor,\\
    org.apache.kafka.clients.consumer.RangeAssignor
    """
    for start in next_starts(context, Mistake.DROPPED_DEFAULT):
        yes = start.rejected is Tri.YES
        why = (
            "members on [range] have no assignor in common with it"
            if yes
            else f"it is unknown whether every other member supports {context.target}"
        )
        yield found(
            f"{start.facts.name} {'will' if yes else 'may'} be rejected at its next start: it is "
            f"configured with [{', '.join(start.list)}] without range, the default of Java clients "
            f"before 3.0, and {why}.",
            result=start.rejected,
            members=(start.facts,),
            fix=f"Use [{context.target}, range] until every member holds {context.target}.",
        )
