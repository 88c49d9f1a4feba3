"""Departed members: a log shows them in the group, they are not in it now, and no other client
replaced them. Two rules ask about them: RB120 where their return is admitted, RB121 where a step
has it rejected.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from rebal.groups.clients import assignor_of
from rebal.groups.commands import options
from rebal.groups.model import Departed, Refusal, Tri
from rebal.planner.admission.check import Join, admitted
from rebal.planner.admission.rejected import still_out
from rebal.planner.commands import NamedCommand
from rebal.planner.context import CONSUMER, Context
from rebal.planner.rules.scope import unfinished

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
    if context.goal == CONSUMER or not context.classic or not unfinished(context):
        return None
    if context.target in one.list:
        return None
    kept = not one.list or context.keep is None or context.keep in one.list
    if kept or admitted(context.memory, [Join(assignors=one.list)]).verdict is Tri.NO:
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
    if len(set(names)) < len(names):
        names = [each.member_id for each in gone]
    left = [*options("--departed", names)]
    if len(gone) > NAMED:
        left = ["--expect-members", str(here)]
    counted = ["--expect-members", str(here + len(gone))]
    text = (
        f"Add {' '.join(counted)} if {'it belongs' if one else 'they belong'} to the service, "
        f"{' '.join(left)} if {'it' if one else 'they'} left for good."
    )
    if context.anew:
        lines = context.given.verify(*counted), context.given.verify(*left)
    else:
        lines = context.replan(expected=here + len(gone)), context.replan(*left)
    uses = "if it belongs to the service", "if it left for good"
    if not one:
        uses = "if they belong to the service", "if they left for good"
    return text, tuple(map(NamedCommand, uses, lines))


def _name(one: Departed) -> str:
    return one.instance_id or one.client_id or one.member_id


def _time(passed: timedelta) -> str:
    minutes = round(passed.total_seconds() / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"
