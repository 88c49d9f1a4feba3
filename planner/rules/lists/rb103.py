"""RB103: the first bounce drops the default `range` of Java below 3.0."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.next_start import Mistake, next_starts
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB103",
    Severity.BLOCK,
    "The first bounce drops range, which was only the default until now",
    reference="Kafka upgrade notes for 2.4 and 3.0 (KIP-726)",
    traits={Trait.NEXT_START},
)
def dropped_default(context: Context) -> Iterator[Finding]:
    """A Java client below 3.0 gets a list without `range`, while the others still need it.

    Why it matters: those clients use [range] while partition.assignment.strategy is not set. The
    moment it is set to [cooperative-sticky], range is gone from the list, nothing is common with
    the members that were not restarted yet, and the restarted member is refused and stops.

    How to find out: read the configuration of the next start (--inventory).

    How to fix it: name range in the first bounce, behind the target:
    partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor,\\
    org.apache.kafka.clients.consumer.RangeAssignor
    and drop it only in the second one.
    """
    for start in next_starts(context, Mistake.DROPPED_DEFAULT):
        yes = start.refused is Tri.YES
        why = (
            "members that still run [range] get it refused and stopped"
            if yes
            else f"whether every other member supports {context.target} is not known"
        )
        yield found(
            f"the next start of {start.facts.name} uses [{', '.join(start.list)}] without range, "
            f"the default of Java clients before 3.0: {why}.",
            result=start.refused,
            members=(start.facts,),
            fix=f"Use [{context.target}, range] until every member holds {context.target}.",
        )
