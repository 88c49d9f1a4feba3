"""RB108: an eager-only list in a group that runs a cooperative assignor."""

from rebal.planner.rules.next_start import Mistake, next_starts
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule


@rule(
    "RB108",
    Severity.BLOCK,
    "An eager-only list is about to join a cooperative group",
    reference="KIP-429, compatibility and migration plan (downgrade); twmb/franz-go#384, #1367",
    traits={Trait.NEXT_START},
)
def straight_back(context: Context) -> Findings:
    """A member is configured with eager assignors only, while the group runs a cooperative one.

    Why it matters: this is what a hasty rollback does. In groups of Java, librdkafka or
    kafka-python members on [cooperative-sticky], an eager-only list has no assignor in common with
    them: the member is rejected and stops. In franz-go groups with mixed lists the group elects the
    eager assignor instead, and for a while a partition can have two owners.

    How to find out: read the configuration of the next start (--inventory), and what an automatic
    rollback of the deployment would restore.

    How to fix it: a downgrade takes two bounces too: first every member on [old,
    cooperative-sticky], and only then [old].
    """
    for start in next_starts(context, Mistake.STRAIGHT_BACK):
        yes = start.rejected is Tri.YES
        why = "" if yes else ", and it is unknown whether all other members still support one"
        yield found(
            f"{start.facts.name} {'will' if yes else 'may'} be rejected at its next start: it is "
            f"configured with [{', '.join(start.list)}], eager only, while the group runs "
            f"{context.elected}{why}.",
            result=start.rejected,
            members=(start.facts,),
            fix=f"Configure [{', '.join([*start.list, str(context.elected)])}] until every "
            "member has it.",
        )
