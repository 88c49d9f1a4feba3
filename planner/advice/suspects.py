"""Members whose list the coordinator may remember shorter than they sent it (memory.py).

After a load they are all that have not joined again. A rebalance has every running member join; a
static member that was down during it keeps what the load left.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rebal.groups.model import Knowledge
from rebal.planner.context import Context, Facts

# The answers of one rebalance are logged together.
_TOGETHER: Final = timedelta(seconds=2)


def short(context: Context, static: Sequence[Facts]) -> list[Facts]:
    """Return the static members whose list the coordinator may still hold as a load left it."""
    open_ = {e.member_id for case in context.memory.cases for e in case if len(e.lists) > 1}
    return [facts for facts in static if facts.member.member_id in open_]


def shortened(context: Context) -> bool:
    """Return whether a probe denies an assignor that every member sent: a load came later."""
    known = [facts.member.assignors for facts in context.members]
    exact = all(one.knowledge is Knowledge.EXACT for one in known)
    denied = context.memory.not_in_all
    return exact and any(all(name in one.list for one in known) for name in denied)


def undated(context: Context) -> bool:
    """Return whether logs show each member's list, and their zone alone would show when."""
    members = [facts.member for facts in context.members]
    return context.snapshot.undated_logs and all(
        m.assignors.knowledge is Knowledge.EXACT and m.joined_at is None for m in members
    )


def left_behind(context: Context, found: Sequence[Facts]) -> list[Facts]:
    """Return those of `found` that did not join in the newest rebalance that the logs show.

    A single join, such as a static member's restart, is no rebalance.
    """
    joined = [f.member.joined_at for f in context.members if f.member.joined_at is not None]
    newest = max(joined, default=None)
    if newest is None or sum(newest - at <= _TOGETHER for at in joined) < 2:
        return []
    return [
        facts
        for facts in found
        if facts.member.joined_at is None or newest - facts.member.joined_at > _TOGETHER
    ]
