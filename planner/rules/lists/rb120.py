"""RB120: members that left the group a short while ago."""

from datetime import timedelta
from typing import Final

from rebal.groups.classes import borrowed_in
from rebal.groups.clients import assignor_of
from rebal.groups.model import Departed, Refusal
from rebal.planner.admission.rejected import still_out
from rebal.planner.context import CONSUMER
from rebal.planner.rules.registry import Context, Findings, Severity, Tri, found, rule
from rebal.planner.rules.scope import narrowing_step, planning, unfinished, with_lists

_NAMED: Final = 3


@rule(
    "RB120",
    Severity.ASK,
    "Does a member that left belong to the service?",
    reference="Kafka: group coordinator (only present members count); JOIN_GROUP and LEAVE_GROUP "
    "in the request log",
    applies=(planning, with_lists),
)
def departed_members(context: Context) -> Findings:
    """A log shows members that are not in the group now, and no client that replaced them.

    Why it matters: a plan counts the members that it sees. One that crashed, is scaled down or is
    being moved rejoins with its old list: after the second bounce it is rejected, or it makes the
    group elect the old assignor again. After a move to KIP-848 it is a classic member again.

    How to find out: look for the named client in its deployment. A member that was killed leaves
    without a request; one that was shut down sends LEAVE_GROUP.

    How to answer it: if it belongs to the service, start it again, or plan with --expect-members so
    that no gate holds before it is there. If it does not, give the number of members without it.

    It does not fire where the number of members is given on the command line or in a file, and
    not for a member whose client is rejected now: that client is counted already. Where
    all present members are done, it asks only about members whose last list was another one, or
    whose class behind the target's name is not, or may not be, Kafka's own; in a move to KIP-848
    about all that had a list.
    """
    gone = _unexplained(context)
    if not unfinished(context):
        gone = [one for one in gone if not _is_done(one, context)]
    if not gone or context.counted:
        return
    newest = gone[::-1]
    said = ", ".join(_said(one, context) for one in newest[:_NAMED])
    more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
    here, one = context.expected or len(context.members), len(gone) == 1
    yield found(
        f"{said}{more}: {'does it' if one else 'do they'} belong to the service? Add "
        f"--expect-members {here + len(gone)} if {'it does' if one else 'they do'}, "
        f"--expect-members {here} if not.",
        result=Tri.YES,
        evidence=[each.evidence for each in newest[:_NAMED]],
        before_step=narrowing_step(context),
    )


def _is_done(one: Departed, context: Context) -> bool:
    """Return whether it ran what the goal asks for, or nothing shows what it ran."""
    if not one.list:
        return not one.classes
    own = context.borrowed | borrowed_in(one)
    return context.goal != CONSUMER and one.list == (context.target,) and context.target not in own


def _unexplained(context: Context) -> list[Departed]:
    """Return the departed members, oldest first, without those whose client is rejected now."""
    gone = list(context.snapshot.departed)
    for out in still_out(context.snapshot):
        same = (one for one in reversed(gone) if _is_same(one, out))
        earlier = next(same, None)
        if earlier is not None:
            gone.remove(earlier)
    return gone


def _is_same(one: Departed, out: Refusal) -> bool:
    if one.instance_id or out.instance_id:
        return one.instance_id == out.instance_id
    return bool(out.client_id) and (one.client_id, one.host) == (out.client_id, out.host)


def _said(one: Departed, context: Context) -> str:
    """`a2 left 4 min ago with [range]`."""
    name = one.instance_id or one.client_id or one.member_id
    at = one.left_at if one.left else one.last_seen
    shown = f" with [{', '.join(one.list)}]" if one.list else ""
    custom = [each for each in one.classes if assignor_of(each) is None]
    shown += f" (class {', '.join(custom)})" if custom else ""
    ago = "" if at is None else f" {_time(context.snapshot.captured_at - at)} ago"
    if one.left:
        return f"{name} left{ago}{shown}"
    seen = f"was last seen{ago}" if ago else "was in the group before"
    return f"{name} {seen}{shown} and is not in the group"


def _time(passed: timedelta) -> str:
    minutes = max(0, round(passed.total_seconds() / 60))
    if minutes < 120:
        return f"{minutes} min"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"
