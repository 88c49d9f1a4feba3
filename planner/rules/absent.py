"""Members that are not in the group now: unseen ones, and departed ones.

A departed member is one that a log shows in the group, that is not in it now, and that no other
client replaced. Two rules ask about them: RB120 where their return is admitted, RB121 where a step
has it rejected.
"""

from datetime import timedelta
from typing import Final

from rebal.groups.classes import borrowed_in
from rebal.groups.clients import assignor_of
from rebal.groups.commands import options
from rebal.groups.model import Departed, Refusal
from rebal.planner.admission.check import JoinEvent, admitted
from rebal.planner.admission.rejected import still_out
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import Context, Findings, Severity, Trait, Tri, found, rule
from rebal.planner.rules.scope import by_lists, classic, planning, unfinished, with_lists

NAMED: Final = 3
"""So many departed members are named in a text."""


def unexplained(context: Context) -> list[Departed]:
    """Return the departed members, newest first, without those whose client is rejected now; none
    where the number of members is known.
    """
    if context.counted:
        return []
    gone = list(context.snapshot.departed)[::-1]
    for out in still_out(context.snapshot):
        earlier = next((one for one in gone if _is_same(one, out)), None)
        if earlier is not None:
            gone.remove(earlier)
    return gone


def _is_same(one: Departed, out: Refusal) -> bool:
    if one.instance_id or out.instance_id:
        return one.instance_id == out.instance_id
    return bool(out.client_id) and (one.client_id, one.host) == (out.client_id, out.host)


def endangering_step(one: Departed, context: Context) -> int | None:
    """Return the number of the step after which this member's return is rejected; None if no step
    has it rejected, or none is left.

    The return is admitted after every step if its list holds the target, and until the last one if
    it holds the old assignor that the first bounce keeps. A list that is not known may hold that
    one alone.
    """
    no_lists = context.goal == CONSUMER or not context.classic
    if no_lists or not unfinished(context) or context.target in one.list:
        return None
    kept = not one.list or context.keep is None or context.keep in one.list
    if kept or admitted(context.memory, [JoinEvent(assignors=one.list)]).verdict is Tri.NO:
        return context.leaving_step
    return 1


def said(one: Departed, context: Context) -> str:
    """Return what a log shows of it: `a2 left 4 min ago with [range]`."""
    name = _name(one)
    at = one.left_at if one.left else one.last_seen
    shown = f" with [{', '.join(one.list)}]" if one.list else ""
    custom = [each for each in one.classes if assignor_of(each) is None]
    shown += f" (class {', '.join(custom)})" if custom else ""
    if at is not None and at > context.snapshot.captured_at:
        return f"{name} {'left' if one.left else 'joined'}{shown} after this look at the group"
    ago = "" if at is None else f" {_time(context.snapshot.captured_at - at)} ago"
    if one.left:
        return f"{name} left{ago}{shown}"
    seen = f"was last seen{ago}" if ago else "was in the group before"
    return f"{name} {seen}{shown} and is not in the group"


def said_of_all(gone: list[Departed], context: Context) -> str:
    """Return what logs show of them, the newest first."""
    more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
    return ", ".join(said(one, context) for one in gone[:NAMED]) + more


def answers(gone: list[Departed], context: Context) -> tuple[str, tuple[NamedCommand, ...]]:
    """Return the two answers to the question whether they belong to the service, as a text and as
    commands.
    """
    here, one = context.expected or len(context.members), len(gone) == 1
    names = [_name(each) for each in gone]
    ids = [each.member_id for each in gone]
    known = options("--departed", names if len({*names}) == len(names) else ids)
    left = known if len(gone) <= NAMED else ("--expect-members", str(here))
    counted = f"--expect-members {here + len(gone)}"
    who, whose = ("it", "belongs") if one else ("they", "belong")
    uses = f"if {who} {whose} to the service", f"if {who} left for good"
    text = f"Add {counted} {uses[0]}, {' '.join(left)} {uses[1]}."
    return text, (
        context.answering(uses[0], expected=here + len(gone)),
        context.answering(uses[1], *left),
    )


def _name(one: Departed) -> str:
    return one.instance_id or one.client_id or one.member_id


def _time(passed: timedelta) -> str:
    minutes = round(passed.total_seconds() / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"


@rule(
    "RB114",
    Severity.ASK,
    "Does anything else join this group from time to time?",
    reference="Kafka: group coordinator (only present members count)",
    applies=(planning, by_lists, unfinished),
)
def absent_members(context: Context) -> Findings:
    """No source of evidence shows members that are not in the group now; only people know them.

    Why it matters: a deployment scaled to zero, a standby site, a nightly job, a canary, or an old
    image that a rollback starts joins later with the old list. After the second bounce it is
    rejected. If it is the first to join after a full stop, its list decides for the group.

    How to find out: search for the group id in every repository, deployment and scheduler, in the
    other sites too.

    How to answer it: change those configurations with the first bounce, and drop the old assignor
    there with the second one.
    """
    yield found(
        "does anything else use this group id (a deployment scaled to zero, a standby site, a "
        "scheduled job, a canary, an old image)? It would rejoin with the old list and be "
        "rejected.",
        before_step=context.narrow_step,
    )


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
