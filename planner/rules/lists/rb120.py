"""RB120: members that left the group a short while ago."""

from rebal.groups.classes import borrowed_in
from rebal.groups.model import Departed
from rebal.planner.context import CONSUMER
from rebal.planner.rules.departed import (
    NAMED,
    answers,
    endangering_step,
    said_of_all,
    unexplained,
)
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import unfinished, with_lists


@rule(
    "RB120",
    Severity.ASK,
    "Does a member that left belong to the service?",
    reference="Kafka: group coordinator (only present members count); JOIN_GROUP and LEAVE_GROUP "
    "in the request log",
    applies=(with_lists,),
    traits={Trait.FACT},
)
def departed_members(context: Context) -> Findings:
    """A log shows members that are not in the group now, and no client that replaced them.

    Why it matters: a plan counts the members that it sees. One that crashed, is scaled down or is
    being moved rejoins with its old list: it stops the whole group at each rebalance again, or it
    makes the group elect the old assignor. After a move to KIP-848 it is a classic member again.

    How to find out: look for the named client in its deployment. A member that was killed leaves
    without a request; one that was shut down sends LEAVE_GROUP.

    How to answer it: if it belongs to the service, start it again, or plan with --expect-members so
    that no gate holds before it is there. If it left for good, name it with --departed.

    It does not fire where the number of members is given on the command line or in a file, and
    not for a member whose client is rejected now: that client is counted already. Where
    all present members are done, it asks only about members whose last list was another one, or
    whose class behind the target's name is not, or may not be, Kafka's own; in a move to KIP-848
    about all that had a list. RB121 asks where a step of the plan has the return rejected.
    """
    gone = unexplained(context)
    if not unfinished(context):
        gone = [one for one in gone if not _is_done(one, context)]
    if not gone or (context.planning and any(endangering_step(one, context) for one in gone)):
        return
    text, commands = answers(gone, context)
    yield found(
        f"{said_of_all(gone, context)}: {'does it' if len(gone) == 1 else 'do they'} belong to the "
        "service?",
        result=Tri.YES,
        evidence=[each.evidence for each in gone[:NAMED]],
        fix=text if context.planning else "",
        commands=commands if context.planning else (),
    )


def _is_done(one: Departed, context: Context) -> bool:
    """Return whether it ran what the goal asks for, or nothing shows what it ran."""
    if not one.list:
        return not one.classes
    own = context.borrowed | borrowed_in(one)
    return context.goal != CONSUMER and one.list == (context.target,) and context.target not in own
