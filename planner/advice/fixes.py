"""Fixes of findings that restart members: each asks the admission check first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rebal.groups.model import Tri
from rebal.planner.advice import wording as text
from rebal.planner.advice.actions import TRIED, cut_over_of, restart_of, start_of, starts_with, wait
from rebal.planner.advice.remedies import cure_of
from rebal.planner.context import Context, Facts
from rebal.planner.verdict import worst


def restart_fix(
    context: Context,
    members: Sequence[Facts],
    assignors: tuple[str, ...] = (),
    *,
    change: str = "",
    then: str = "",
) -> str:
    """Return the fix that restarts `members`, if each of the restarts is admitted.

    `change` is a sentence to put before it, `then` are words to add. If a restart is not admitted,
    the fix says not to restart that member, and why.
    """
    refusing = [f for f in members if starts_with(context, f, assignors) is not Tri.YES]
    if refusing:
        return (
            f"Do not restart {context.named(refusing)} with [{', '.join(assignors)}] yet: not "
            "every client starts with a list of eager and cooperative assignors, and this one is "
            "not known to (RB104, RB906)."
        )
    found = [restart_of(context, facts, assignors) for facts in members[:TRIED]]
    answer = worst(one.verdict for one in found)
    if answer is not Tri.YES:
        return text.sentence(next(one for one in found if one.verdict is answer))
    each = ", one at a time" if len(found) > 1 else ""
    return text.restart_these(context.named(members), assignors, before=change, after=each + then)


def cut_over_fix(
    context: Context, members: Sequence[Facts], assignors: tuple[str, ...] = (), *, change: str = ""
) -> str:
    """Return the fix that stops `members` together and then starts them, if their start is
    admitted.
    """
    made = cut_over_of(context, members, assignors)
    return text.sentence(replace(made, change=change, text=""))


def cure_fix(context: Context) -> str:
    """Return the fix that makes the coordinator remember every list again (RB113)."""
    return text.sentence(cure_of(context))


def start_fix(context: Context, names: Sequence[str], step_list: tuple[str, ...] = ()) -> str:
    """Return the fix that starts clients which are not in the group."""
    elected = context.memory.elected
    if elected is None:
        return text.sentence(wait("nothing is elected: look again when the group is Stable"))
    wanted = [step_list] if step_list else []
    return text.sentence(start_of(context, names, [*wanted, (elected,)]))
