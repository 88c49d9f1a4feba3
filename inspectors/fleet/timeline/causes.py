"""Why a group rebalanced: the words of `rebalances.cause`, and how they are found.

With the request log the first thing that happened after the last rebalance is the cause: somebody
left, a new member's join began, or a member rejoined and said why (KIP-800). Without it only what
the records show counts: who is new, who is gone, and what else is different. None: cannot tell.
"""

from typing import Final, Literal

Cause = Literal[
    "first member joined",
    "member joined",
    "member left",
    "members joined and left",
    "session expired",
    "poll timeout expired",
    "static member replaced",
    "assignor list changed",
    "subscription changed",
    "topics changed",
    "cooperative follow-up",
    "last rebalance failed",
    "leader rejoined",
    "member rejoined",
]
"""Why a group rebalanced, in `rebalances.cause`."""

RESTARTED: Final = "replaced by a restart of the same instance"
FENCED: Final = "fenced: another process joined with the same group.instance.id"
"""Why a member went, in `members.left_reason`, beside what it said itself. The broker answered
FENCED_INSTANCE_ID to a member after another one took its instance id (KIP-345): its process was
alive. Only a request log shows it."""

_NOTHING: Final = (
    "group is already rebalancing",
    "need to re-join with the given member-id",
    "beginning to manage the group lifecycle",
)
_SAID: Final[tuple[tuple[str, Cause], ...]] = (
    ("need to revoke partitions", "cooperative follow-up"),
    ("after revoking what we lost", "cooperative follow-up"),
    ("followup rebalance", "cooperative follow-up"),
    ("cached metadata has changed", "topics changed"),
    ("metadata has changed", "topics changed"),
    ("subscription", "subscription changed"),
    ("rebalance failed", "last rebalance failed"),
)


def is_slow(reason: str | None) -> bool:
    """Return whether a member left because it was past max.poll.interval.ms."""
    return reason is not None and "poll timeout" in reason


def of_rejoin(reason: str | None, leads: bool) -> Cause | None:
    """Return the cause that a known member's join gives; None: it only followed.

    Clients before KIP-800 say nothing, and then it is not known whether they followed.
    """
    if not reason or reason.startswith(_NOTHING):
        return None
    for text, cause in _SAID:
        if text in reason.lower():
            return cause
    return "leader rejoined" if leads else "member rejoined"
