"""Who still has something to do on the way to the goal, and which step a finding gates."""

from __future__ import annotations

from rebal.planner.context import CONSUMER, Context, Facts
from rebal.planner.rules.kip848.online import still_classic


def ahead(context: Context) -> tuple[Facts, ...]:
    """The members that the plan's steps are still to change."""
    if context.goal == CONSUMER:
        return still_classic(context)
    return tuple(facts for facts in context.members if facts not in context.settled)


def narrowing_step(context: Context) -> int | None:
    """The step that drops the old assignor; None (every step) where none is dropped (KIP-848)."""
    return None if context.goal == CONSUMER else context.narrow_step
