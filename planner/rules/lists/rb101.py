"""RB101: the list of a member's next start has nothing in common with the group."""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.model import Tri
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules.next_start import Mistake, next_starts
from rebal.planner.rules.registry import Trait, found, rule


@rule(
    "RB101",
    Severity.BLOCK,
    "The list of a member's next start has no assignor in common with the group",
    reference="Kafka, group coordinator: ClassicGroup.supportsProtocols; IBM/sarama#2136",
    traits={Trait.NEXT_START},
)
def nothing_common(context: Context) -> Iterator[Finding]:
    """A member's configuration holds a list that the group refuses today.

    Why it matters: the coordinator admits a member only if one of its assignors is in every other
    member's list. Otherwise the join is refused with INCONSISTENT_GROUP_PROTOCOL. A Java consumer
    dies of that; others try again for ever while their process looks alive. A crash or a routine
    restart is enough to set it off.

    How to find out: compare the configuration of the next start (--inventory) with the lists that
    run (--request-log, --client-log, --probe).

    How to fix it: put the elected assignor back into that list until every member holds another
    one that is common to all.
    """
    for start in next_starts(context, Mistake.NOTHING_COMMON):
        yes = start.refused is Tri.YES
        yield found(
            f"the next start of {start.facts.name} uses [{', '.join(start.list)}], "
            + (
                "and no assignor of that is in every other member's list: it will be refused."
                if yes
                else "and whether every other member supports one of those is not known."
            ),
            result=start.refused,
            members=(start.facts,),
            fix=f"Add {context.elected} to that list before the member restarts.",
        )
