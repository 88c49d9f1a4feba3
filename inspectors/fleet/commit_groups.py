"""Groups that only committed offsets: programs that assign partitions to themselves.

They have no members and no record of their own, so the timeline never hears of them. The
coordinator keeps such a group as a classic one that is Empty, and so does a group whose own record
has gone while its offsets have not expired yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.groups.model import GroupState, GroupType
from rebal.inspectors.fleet.schemas import COMMITS, GROUPS
from rebal.inspectors.fleet.timeline_rebalances import TOPIC

_READ: Final = ("group_id", "tombstone", "first_at", "committed_at", "partition")
_ZERO: Final = ("members", "rebalance_total", "failed_rebalance_total")


def commit_groups(
    commits: Iterable[Path],
    groups: Iterable[Path],
    observed: tuple[datetime, datetime] | None,
    *,
    log: bool,
) -> pa.Table:
    """Rows of `groups` for those in the `commits` files that are in none of the `groups` files.

    A commit that was deleted makes no group. `observed` is the time that all sources cover; with
    `log` a request log was read, which would have shown refused joins.
    """
    known = pa.concat_arrays(
        [pa.array([], pa.string())]
        + [
            chunk
            for path in groups
            for chunk in pq.read_table(path, columns=["group_id"])["group_id"].chunks
        ]
    )
    parts = [pa.schema([COMMITS.field(name) for name in _READ]).empty_table()]
    for path in commits:
        part = pq.read_table(path, columns=list(_READ))
        known_here = pc.is_in(part["group_id"], known)
        parts.append(part.filter(pc.invert(pc.or_(part["tombstone"], known_here))))
    found = (
        pa.concat_tables(parts)
        .group_by("group_id")
        .aggregate([("first_at", "min"), ("committed_at", "max"), ("partition", "max")])
        .sort_by("group_id")
    )
    return _rows(found, observed, (*_ZERO, "refused_total") if log else _ZERO)


def _rows(
    found: pa.Table, observed: tuple[datetime, datetime] | None, zero: tuple[str, ...]
) -> pa.Table:
    size = len(found)
    first, until = observed or (None, None)
    given: dict[str, pa.Array | pa.ChunkedArray] = {
        "group_id": found["group_id"],
        "type": pa.array([GroupType.CLASSIC.value] * size, pa.string()),
        "state": pa.array([GroupState.EMPTY.value] * size, pa.string()),
        "partition": found["partition_max"],
        "incarnation": pa.array([1] * size, pa.int32()),
        "first_seen": found["first_at_min"],
        "last_seen": found["committed_at_max"],
        "observed_from": pa.array([first] * size, GROUPS.field("observed_from").type),
        "observed_until": pa.array([until] * size, GROUPS.field("observed_until").type),
        "sources": pa.array([[TOPIC]] * size, GROUPS.field("sources").type),
        **{name: pa.array([0] * size, pa.int64()) for name in zero},
    }
    columns = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(size, field.type)
        for field in GROUPS
    ]
    return pa.table(columns, schema=GROUPS)
