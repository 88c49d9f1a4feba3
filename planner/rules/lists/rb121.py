"""RB121: members that left and whose return a step has rejected."""

from rebal.planner.rules.departed import (
    NAMED,
    answers,
    endangering_step,
    said_of_all,
    unexplained,
)
from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import classic, planning, unfinished


@rule(
    "RB121",
    Severity.BLOCK,
    "A member that left is rejected when it returns",
    reference="Kafka: group coordinator (only present members count); JOIN_GROUP and LEAVE_GROUP "
    "in the request log; KIP-429",
    applies=(planning, classic, unfinished),
)
def returning_members(context: Context) -> Findings:
    """A log shows a member that left, and a step of the plan drops what its list holds.

    Why it matters: a plan counts the members that it sees. One that crashed, is scaled down or is
    being moved rejoins with its old list. Once another member has dropped the old assignor, the
    coordinator rejects it (INCONSISTENT_GROUP_PROTOCOL): a Java or kafka-python client stops.

    How to find out: look for the named client in its deployment. A member that was killed leaves
    without a request; one that was shut down sends LEAVE_GROUP.

    How to answer it: if it belongs to the service, give --expect-members, so that no gate holds
    before it is there. If it left for good, name it with --departed. `verify` takes both
    answers as well, and its journal keeps them.

    It does not fire for a member whose list holds the target, which is admitted after every step
    (RB120 asks about it), nor where the number of members is given on the command line or in a
    file. A list that is not known may hold the old assignor alone.
    """
    gone = unexplained(context)
    steps = [step for one in gone if (step := endangering_step(one, context)) is not None]
    if not steps:
        return
    one = len(gone) == 1
    text, commands = answers(gone, context)
    yield found(
        f"{said_of_all(gone, context)}: {'does it' if one else 'do they'} belong to the service? "
        f"{'Its' if one else 'A'} return is rejected once step {min(steps)} has begun.",
        result=Tri.CANNOT_TELL,
        evidence=[each.evidence for each in gone[:NAMED]],
        fix=text,
        commands=commands,
        before_step=min(steps),
    )
