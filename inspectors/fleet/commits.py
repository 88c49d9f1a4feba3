"""Offset commits, reduced to one row for each group and partition, for the table `commits`.

Offset commits are nearly all of `__consumer_offsets`. Each task reduces them as Arrow columns,
before it decodes any. It keeps the newest and the first commit of each partition, and their number.
The results of all tasks and of earlier scans are then merged into the table.

The table also shows groups that only commit offsets: programs that assign partitions to themselves.
Such a group has no members and no group metadata record, so no timeline row comes of it. The
coordinator keeps it as a classic group in the state Empty. The same holds for a group whose
metadata record is deleted while its offsets have not expired yet.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.errors import WireError
from rebal.groups.model import GroupState, GroupType
from rebal.groups.wire.offsets_topic import (
    OffsetCommitKey,
    decode_key,
    decode_offset_commit,
    kind_name,
)
from rebal.inspectors.fleet.lake.writer import PartWriter
from rebal.inspectors.fleet.schemas import COMMIT_PARTS, COMMITS, GROUPS, in_columns
from rebal.inspectors.fleet.sources.source import UNREADABLE, error_row
from rebal.inspectors.fleet.timeline.facts import TOPIC

Ints = np.ndarray[Any, np.dtype[np.int64]]
_AT_ONCE: Final = 1 << 18
_DECODED_AT_ONCE: Final = 1 << 16
# Bytes of a key but for its version, which may differ in keys of one partition.
_NAMED: Final = slice(2, 1 << 20)
_LATEST_MS: Final = 253_402_300_799_999
_NEWEST: Final = ("key", "value", "timestamp", "partition", "offset", "source")


class CommitSums:
    """Buffer that reduces offset commits and tombstones to one row per group and partition."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []
        self._limit = _AT_ONCE

    def add(self, rows: pa.Table) -> None:
        """Add rows of a source that are offset commits or their tombstones."""
        alive = pc.is_valid(rows["value"])
        columns = {
            **{name: rows[name] for name in _NEWEST},
            "first_value": rows["value"],
            "first_record": pc.if_else(alive, rows["offset"], pa.scalar(None, pa.int64())),
            "commits": alive.cast(pa.int64()),
            "records": pa.array(np.ones(len(rows), np.int64)),
        }
        self._held.append(pa.table(columns))
        if sum(map(len, self._held)) >= self._limit:
            self._reduce()

    def parts(self) -> pa.Table:
        """Return the reduced rows, with decoded values, as rows of `schemas.COMMIT_PARTS`."""
        self._reduce()
        batches = [one for rows in self._held for one in rows.to_batches(_DECODED_AT_ONCE)]
        return pa.concat_tables([COMMIT_PARTS.empty_table(), *map(_decoded, batches)])

    def _reduce(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held = [reduced(rows, pc.binary_slice(rows["key"], _NAMED.start, _NAMED.stop))]
        self._limit = _AT_ONCE + 2 * len(self._held[0])


def reduced(rows: pa.Table, partitions: pa.ChunkedArray) -> pa.Table:
    """Return, for each distinct value in `partitions`, its row with the highest `offset`.

    `partitions` has one value for each row. In the result, columns that begin with `first_` are
    those of the row with the lowest `first_record`, and `commits` and `records` are sums.
    """
    rows = rows.combine_chunks()
    codes: Ints = partitions.combine_chunks().dictionary_encode().indices.to_numpy()
    newest = _last_of_each(codes, pc.fill_null(rows["offset"], -1).to_numpy())
    first_by = pc.fill_null(rows["first_record"], np.iinfo(np.int64).max).to_numpy()
    first = len(rows) - 1 - _last_of_each(codes[::-1], -first_by[::-1])
    made = rows.take(pa.array(newest))
    for at, name in enumerate(rows.column_names):
        if name.startswith("first_"):
            made = made.set_column(at, rows.field(name), rows[name].take(pa.array(first)))
        elif name in ("commits", "records"):
            summed = np.bincount(
                codes, weights=pc.fill_null(rows[name], 0).to_numpy(), minlength=len(made)
            )
            made = made.set_column(at, rows.field(name), pa.array(summed.astype(np.int64)))
    return made


def _last_of_each(codes: Ints, by: Ints) -> Ints:
    """Return, for each code from 0 on, the index of its row with the highest value in `by`.

    `codes` and `by` have one item for each row. Of rows with an equal value the last one is taken.
    """
    found = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    order = np.argsort(by, kind="stable")
    # Of the rows that are written to one place the last one stays.
    found[codes[order]] = order
    return found


def _decoded(rows: pa.RecordBatch) -> pa.Table:
    raw = zip(*(rows[name].to_pylist() for name in ("key", "value", "first_value")), strict=True)
    made = pa.Table.from_pylist([_read(*one) for one in raw], COMMIT_PARTS)
    kept = set(rows.schema.names) - {"key", "value"}
    return pa.table(
        [rows[one.name] if one.name in kept else made[one.name] for one in COMMIT_PARTS],
        COMMIT_PARTS,
    )


def _read(key: bytes, value: bytes | None, first_value: bytes | None) -> dict[str, Any]:
    """Return the columns that are decoded from one partition's commits.

    `key` and `value` are those of the newest record (`value` None: a tombstone), `first_value` is
    the value of the first commit (None: there is none). If `key` or `value` cannot be decoded, the
    columns also have their raw bytes and the error.
    """
    made: dict[str, Any] = {"tombstone": value is None}
    try:
        about = decode_key(key)
        assert isinstance(about, OffsetCommitKey)
        made |= {
            "group_id": about.group_id,
            "topic": about.topic,
            "topic_partition": about.partition,
        }
        if value is not None:
            newest = decode_offset_commit(value)
            made |= {
                "committed_offset": newest.offset,
                "leader_epoch": newest.leader_epoch,
                "metadata": newest.metadata,
                "topic_id": newest.topic_id,
                "committed_at": _micros(newest.commit_timestamp_ms),
                "expires_at": _micros(newest.expire_timestamp_ms),
                "value_version": newest.version,
            }
    except WireError as error:
        made |= {"key": key, "value": value, "error": str(error)}
    with contextlib.suppress(WireError):
        if first_value is not None:
            first = decode_offset_commit(first_value)
            made |= {"first_offset": first.offset, "first_at": _micros(first.commit_timestamp_ms)}
    return made


def _micros(milliseconds: int | None) -> int | None:
    """Return milliseconds since 1970 as microseconds.

    None: they are None, negative or after the year 9999.
    """
    at = -1 if milliseconds is None else milliseconds
    return at * 1000 if 0 <= at <= _LATEST_MS else None


_ABOUT: Final = ("group_id", "topic", "topic_partition")
# No name of a topic holds it.
_BETWEEN: Final = "\0"
_ZERO: Final = ("members", "rebalance_total", "failed_rebalance_total")


def as_parts(rows: pa.Table) -> pa.Table:
    """Return the previous scan's rows of `commits` as rows of `COMMIT_PARTS`, to be merged.

    `records` is null in them: the previous scan's manifest has counted these records already.
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
    """Add the topic names by id that commits show (Kafka 4.1 and later) to the writer's report."""
    named = parts.filter(pc.is_valid(parts["topic_id"])).select(["topic_id", "topic"])
    rows = named.group_by(["topic_id", "topic"]).aggregate([]).to_pylist()
    writer.task_report.topics |= {row["topic_id"]: row["topic"] for row in rows if row["topic"]}


def merge_commits(parts: Sequence[pa.Table]) -> pa.Table:
    """Merge tables with the columns `COMMIT_PARTS` into one row for each group and partition.

    A row has the newest value and the counts of all records. The result has the same columns and is
    sorted. Records whose key cannot be decoded are merged if their keys are equal.
    """
    whole = pa.concat_tables([COMMIT_PARTS.empty_table(), *parts])
    partitions = pc.binary_join_element_wise(
        *[whole[name].cast(pa.string()) for name in _ABOUT], _BETWEEN
    ).cast(pa.binary())
    # A broken key stands for itself.
    return reduced(whole, pc.coalesce(partitions, whole["key"])).sort_by(
        [(name, "ascending") for name in _ABOUT]
    )


def write_commits(merged: pa.Table, writer: PartWriter) -> pa.Table:
    """Write the rows of `merged` that have a group id to the table `commits`; return those rows.

    `merged` has one row for each group and partition, with its newest value. A row whose key or
    value cannot be decoded is written to the table `errors` too.
    """
    rows = merged.filter(pc.is_valid(merged["group_id"])).select(COMMITS.names)
    writer.write("commits", rows)
    broken = merged.filter(pc.is_valid(merged["error"])).to_pylist()
    writer.add("broken", [_explained(row, writer) for row in broken])
    return rows


def _explained(row: Mapping[str, Any], writer: PartWriter) -> dict[str, Any]:
    what = kind_name(int.from_bytes(row["key"][:2], "big"))
    # A broken key is that of all its records; of a broken value only the newest was looked at.
    broken = row["records"] if row["group_id"] is None else 1
    writer.task_report.records[UNREADABLE] += broken
    writer.task_report.records[what] -= broken
    more = f" {broken} records have this key." if broken > 1 else ""
    return error_row(row, what, row["group_id"], row["error"] + more)


def commit_groups(commits: pa.Table, known: pa.Array, *, log: bool) -> pa.Table:
    """Return rows of `groups` for the groups that have a commit and are not in `known` (group ids).

    A partition whose newest record is a tombstone has no commit. `log` is whether a request log was
    read: then `refused_total` is 0 and not null.
    """
    found = (
        commits.filter(
            pc.invert(pc.or_(commits["tombstone"], pc.is_in(commits["group_id"], known)))
        )
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
