"""A classic group's record as a generation of the group."""

from __future__ import annotations

from rebal.inspectors.fleet.timeline.log import MILLI
from rebal.inspectors.fleet.timeline.reader import Value


def ended(at: int, value: Value) -> int:
    """When the rebalance ended of a group's first record, which may be a later rewrite of it.

    The state's time is then far before the record's, for a static member's restart keeps it.
    """
    stamp = (value.state_timestamp_ms or -1) * MILLI
    if not value.members or not 0 < stamp <= at:
        return at
    longest = max(
        one.head.rebalance_timeout_ms or one.head.session_timeout_ms or 0 for one in value.members
    )
    return stamp if at - stamp > longest * MILLI else at
