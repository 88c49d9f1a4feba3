"""Groups that only committed offsets: programs that assign partitions to themselves.

They have no members and no record of their own, so the timeline never hears of them. The
coordinator keeps such a group as a classic one that is Empty, and so does a group whose own record
has gone while its offsets have not expired yet.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.model import GroupState, GroupType
from rebal.inspectors.fleet.schemas import GROUPS, in_columns
from rebal.inspectors.fleet.timeline.rebalances import TOPIC

_ZERO: Final = ("members", "rebalance_total", "failed_rebalance_total")


def commit_groups(
    commits: pa.Table,
    known: pa.Array,
    *,
    log: bool,
) -> pa.Table:
    """Rows of `groups` for those in `commits` that are not among the `known` group ids.

    A commit that was deleted makes no group. With `log` a request log was read, which would have
    shown rejected joins.
    """
    known_here = pc.is_in(commits["group_id"], known)
    found = (
        commits.filter(pc.invert(pc.or_(commits["tombstone"], known_here)))
        .group_by("group_id", use_threads=False)
        .aggregate([("first_at", "min"), ("committed_at", "max"), ("partition", "max")])
        .sort_by("group_id")
    )
    return _rows(found, (*_ZERO, "refused_total") if log else _ZERO)


def _rows(found: pa.Table, zero: tuple[str, ...]) -> pa.Table:
    size = len(found)
    given: dict[str, pa.Array | pa.ChunkedArray] = {
        "group_id": found["group_id"],
        "type": pa.array([GroupType.CLASSIC.value] * size, pa.string()),
        "state": pa.array([GroupState.EMPTY.value] * size, pa.string()),
        "partition": found["partition_max"],
        "incarnation": pa.array([1] * size, pa.int32()),
        "first_seen": found["first_at_min"],
        "last_seen": found["committed_at_max"],
        "sources": pa.array([[TOPIC]] * size, GROUPS.field("sources").type),
        **{name: pa.array([0] * size, pa.int64()) for name in zero},
    }
    return in_columns(pa.table(given), GROUPS)
