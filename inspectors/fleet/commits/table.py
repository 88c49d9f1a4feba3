"""The table `commits`: what tasks and earlier scans found of each partition, put together.

It tells of groups that only committed offsets too: programs that assign partitions to themselves.
They have no members and no record of their own, so the timeline never hears of them. The
coordinator keeps such a group as a classic one that is Empty, and so does a group whose own record
has gone while its offsets have not expired yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.model import GroupState, GroupType
from rebal.groups.wire.offsets_topic import kind_name
from rebal.inspectors.fleet.commits.sums import reduced
from rebal.inspectors.fleet.kinds import UNREADABLE, error_row
from rebal.inspectors.fleet.schemas import COMMIT_PARTS, COMMITS, GROUPS, in_columns
from rebal.inspectors.fleet.timeline.rebalances import TOPIC
from rebal.inspectors.fleet.writer import PartWriter

_ABOUT: Final = ("group_id", "topic", "topic_partition")
_BETWEEN: Final = "\0"
"""No name of a topic holds it."""
_ZERO: Final = ("members", "rebalance_total", "failed_rebalance_total")
_HOUR_US: Final = 3_600_000_000
_MINUTE_US: Final = 60_000_000


def as_parts(rows: pa.Table) -> pa.Table:
    """Rows of `commits` of the scan before, as parts of this one.

    What they counted is in the manifest of that scan already.
    """
    given = {
        **{name: rows[name] for name in rows.column_names},
        # Before any record that is read now.
        "first_record": pc.if_else(
            pc.is_valid(rows["first_offset"]), pa.scalar(-1), pa.scalar(None, pa.int64())
        ),
    }
    return in_columns(pa.table(given), COMMIT_PARTS)


def name_topics(parts: pa.Table, writer: PartWriter) -> None:
    """Report the names of topics by their ids, as commits of Kafka 4.1 and later tell them."""
    told = parts.filter(pc.is_valid(parts["topic_id"])).select(["topic_id", "topic"])
    for row in told.group_by(["topic_id", "topic"]).aggregate([]).to_pylist():
        if row["topic"] is not None:
            writer.said.topics[row["topic_id"]] = row["topic"]


def merge_commits(parts: Sequence[pa.Table]) -> pa.Table:
    """Parts of any number of tasks → one row a partition, still in the form of parts."""
    whole = pa.concat_tables([COMMIT_PARTS.empty_table(), *parts])
    names = [whole[name].cast(pa.string()) for name in _ABOUT]
    partitions = pc.binary_join_element_wise(*names, _BETWEEN).cast(pa.binary())
    # A broken key stands for itself.
    merged = reduced(whole, pc.coalesce(partitions, whole["key"]))
    return merged.sort_by([(name, "ascending") for name in _ABOUT])


def write_commits(
    merged: pa.Table, writer: PartWriter, span: tuple[int, int] | None = None
) -> pa.Table:
    """Write the table's rows, and say what is wrong with those that cannot be read; gives them.

    `span` is the time that all sources cover, in microseconds since 1970; rates outside of it are
    null.
    """
    named = merged.filter(pc.is_valid(merged["group_id"]))
    rows = _with_rates(named, span)
    writer.write("commits", rows)
    broken = merged.filter(pc.is_valid(merged["error"])).to_pylist()
    writer.add("broken", [_explained(row, writer) for row in broken])
    return rows


def _with_rates(rows: pa.Table, span: tuple[int, int] | None) -> pa.Table:
    """Rows of `COMMITS`: the rates are null where one commit, or no time, is all there is."""
    first, last = (
        pc.fill_null(rows[name].cast(pa.int64()), 0).to_numpy()
        for name in ("first_at", "committed_at")
    )
    both = pc.and_(pc.is_valid(rows["first_at"]), pc.is_valid(rows["committed_at"]))
    told = both.to_numpy().copy()
    if span is not None:
        # a commit's time is the coordinator's, taken a little before its record's
        told &= (first >= span[0] - _MINUTE_US) & (last <= span[1] + _MINUTE_US)
    hours = np.where(told, (last - first) / _HOUR_US, 0.0)
    commits = rows["commits"].to_numpy()
    progress = pc.subtract(rows["committed_offset"], rows["first_offset"])
    moved = pc.fill_null(progress, -1).to_numpy()
    safe = np.where(hours > 0, hours, 1.0)
    derived = {
        "commits_per_hour": pa.array(
            (commits - 1) / safe, mask=~((hours > 0) & (commits > 1)), type=pa.float64()
        ),
        "records_per_second": pa.array(
            moved / (safe * 3600), mask=~((hours > 0) & (moved >= 0)), type=pa.float64()
        ),
    }
    columns = [derived[name] if name in derived else rows[name] for name in COMMITS.names]
    return pa.table(columns, schema=COMMITS)


def _explained(row: Mapping[str, Any], writer: PartWriter) -> dict[str, Any]:
    what = kind_name(int.from_bytes(row["key"][:2], "big"))
    # A broken key is that of all its records; of a broken value only the newest was looked at.
    broken = row["records"] if row["group_id"] is None else 1
    writer.count(UNREADABLE, broken)
    writer.count(what, -broken)
    more = f" {broken} records have this key." if broken > 1 else ""
    return error_row(row, what, row["group_id"], row["error"] + more)


def commit_groups(commits: pa.Table, known: pa.Array, *, log: bool) -> pa.Table:
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
    zero, size = (*_ZERO, "refused_total") if log else _ZERO, len(found)
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
