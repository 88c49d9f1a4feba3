"""Why a group rebalanced: the words of `rebalances.cause`, and how they are found.

With the request log the first thing that happened after the last rebalance is the cause: somebody
left, a new member's join began, or a member rejoined and said why (KIP-800). Without it only what
the records show counts: who is new, who is gone, and what else is different. None: cannot tell.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = "first member joined"
JOINED: Final = "member joined"
LEFT: Final = "member left"
BOTH: Final = "members joined and left"
EXPIRED: Final = "session expired"
SLOW: Final = "poll timeout expired"
REPLACED: Final = "static member replaced"
LISTS: Final = "assignor list changed"
SUBSCRIPTION: Final = "subscription changed"
TOPICS: Final = "topics changed"
FOLLOW_UP: Final = "cooperative follow-up"
REBALANCED_AGAIN: Final = "last rebalance failed"
LEADER: Final = "leader rejoined"
REJOINED: Final = "member rejoined"

NOT_REJOINED: Final = "did not rejoin in time"
"""Why a member went, in `members.left_reason`, beside `EXPIRED`, `LEFT` and what it said itself."""
DELETED: Final = "group deleted"
RESTARTED: Final = "replaced by a restart of the same instance"
FENCED: Final = "fenced: another process joined with the same group.instance.id"
"""The broker answered FENCED_INSTANCE_ID to a member after another one took its instance id
(KIP-345): its process was alive. Only a request log shows it."""

_TIMED_OUT: Final = "poll timeout"
_NOTHING: Final = (
    "group is already rebalancing",
    "need to re-join with the given member-id",
    "beginning to manage the group lifecycle",
)
_SAID: Final = (
    ("need to revoke partitions", FOLLOW_UP),
    ("after revoking what we lost", FOLLOW_UP),
    ("followup rebalance", FOLLOW_UP),
    ("cached metadata has changed", TOPICS),
    ("metadata has changed", TOPICS),
    ("subscription", SUBSCRIPTION),
    ("rebalance failed", REBALANCED_AGAIN),
)


def is_slow(reason: str | None) -> bool:
    """Return whether a member left because it was past max.poll.interval.ms."""
    return reason is not None and _TIMED_OUT in reason


def of_rejoin(reason: str | None, leads: bool) -> str | None:
    """Return the cause that a known member's join gives; None: it only followed.

    Clients before KIP-800 say nothing, and then it is not known whether they followed.
    """
    if not reason:
        return None
    if any(reason.startswith(text) for text in _NOTHING):
        return None
    for text, cause in _SAID:
        if text in reason.lower():
            return cause
    return LEADER if leads else REJOINED
