"""RB101: the assignor list of a member's next start has nothing in common with the group."""

from rebal.planner.rules.next_start import Mistake, next_starts
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule


@rule(
    "RB101",
    Severity.BLOCK,
    "The next start of a member has no assignor in common with the group",
    reference="Kafka, group coordinator: ClassicGroup.supportsProtocols; IBM/sarama#2136",
    traits={Trait.NEXT_START},
)
def nothing_common(context: Context) -> Findings:
    """A member is configured with an assignor list that the group rejects today.

    Why it matters: the coordinator admits a member only if one of its assignors is in every other
    member's list. Otherwise it rejects the join with INCONSISTENT_GROUP_PROTOCOL. A Java consumer
    stops then; other clients retry without end while their process looks alive. A crash or a
    routine restart is enough to cause this.

    How to find out: compare the configuration of the next start (--inventory) with the lists that
    the members run (--request-log, --client-log, --probe).

    How to fix it: put the elected assignor back into that list until every member has another
    assignor in common.
    """
    for start in next_starts(context, Mistake.NOTHING_COMMON):
        yes = start.rejected is Tri.YES
        yield found(
            f"{start.facts.name} {'will' if yes else 'may'} be rejected at its next start: it is "
            f"configured with [{', '.join(start.list)}], and "
            + (
                "none of these assignors is in every other member's list."
                if yes
                else "it is unknown whether one of these assignors is in every other member's list."
            ),
            result=start.rejected,
            members=(start.facts,),
            fix=f"Add {context.elected} to that list before the member restarts.",
        )
