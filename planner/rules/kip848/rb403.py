"""RB403: assignments with user data are not converted to KIP-848."""

from rebal.planner.commands import COOPERATIVE, NamedCommand
from rebal.planner.kip848 import user_data
from rebal.planner.rules.registry import Context, Findings, PathKind, Severity, Tri, rule
from rebal.planner.rules.scope import classic, to_consumer, unless_allowed


@rule(
    "RB403",
    Severity.BLOCK,
    "The assignor adds user data to the members' assignments",
    reference="KAFKA-18134; apache/kafka#18046; Kafka: ConsumerGroup.fromClassicGroup",
    applies=(to_consumer, classic),
    answered_by={PathKind.KIP848_OFFLINE},
)
def assignment_user_data(context: Context) -> Findings:
    """A custom assignor sends its members more than partitions, and KIP-848 has no field for it.

    Why it matters: the coordinator does not convert a group in which any member's assignment holds
    user data: it rejects the first member with group.protocol=consumer. An application that reads
    that data would get none.

    How to find out: describing the group returns the bytes of every assignment. The assignors of
    Kafka's own clients add none.

    How to fix it: move the classic group to one of Kafka's own assignors first (two bounces), check
    that the application works without the data, and then move to KIP-848. Or stop all members
    first: an empty group has no assignments, and is replaced.

    Cannot tell: the bytes of a member were not read.
    """
    answer = user_data(context)
    if answer.allows is Tri.CANNOT_TELL:
        yield from unless_allowed(
            answer, "Take the snapshot again, live, with DESCRIBE on the group."
        )
        return
    fix = "Move to one of Kafka's own assignors first."
    plan = NamedCommand("plan that move", context.replan(to=COOPERATIVE))
    yield from unless_allowed(answer, fix, [plan])
