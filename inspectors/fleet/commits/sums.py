"""Offset commits as a task reads them: of each partition's the newest, the first, and how many.

Commits are nearly all of `__consumer_offsets`; they are reduced over Arrow columns before any is
decoded, and only then named and decoded, one row a group and partition.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_topic import OffsetCommitKey, decode_key
from rebal.inspectors.fleet.binary_columns import Ints
from rebal.inspectors.fleet.commits.values import decode_values
from rebal.inspectors.fleet.schemas import COMMIT_PARTS, TIME

_AT_ONCE: Final = 1 << 18
_LATEST_MS: Final = 253_402_300_799_999
_NEVER: Final = np.iinfo(np.int64).max
_NEWEST: Final = ("key", "value", "timestamp", "partition", "offset", "source")


class CommitSums:
    """Commits and their tombstones, as they come; what is kept is one row a partition."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []
        self._rows = 0
        self._limit = _AT_ONCE

    def add(self, rows: pa.Table) -> None:
        """Rows of a source that are commits."""
        alive = pc.is_valid(rows["value"])
        columns = {name: rows[name] for name in _NEWEST}
        columns["first_value"] = rows["value"]
        columns["first_record"] = pc.if_else(alive, rows["offset"], pa.scalar(None, pa.int64()))
        columns["commits"] = alive.cast(pa.int64())
        columns["records"] = pa.array(np.ones(len(rows), np.int64))
        self._held.append(pa.table(columns))
        self._rows += len(rows)
        if self._rows >= self._limit:
            self._reduce()

    def parts(self) -> pa.Table:
        """Return the kept rows, named and decoded, as `schemas.COMMIT_PARTS` describes them."""
        self._reduce()
        return _decoded(self._held[0]) if self._held else COMMIT_PARTS.empty_table()

    def _reduce(self) -> None:
        if not self._held:
            return
        self._held = [_reduced(pa.concat_tables(self._held).combine_chunks())]
        self._rows = len(self._held[0])
        self._limit = _AT_ONCE + 2 * self._rows


def newest_and_first(codes: Ints, newest_by: Ints, first_by: Ints) -> tuple[Ints, Ints]:
    """For each code 0…n the row with the highest `newest_by`, and with the lowest `first_by`."""
    size = int(codes.max()) + 1 if len(codes) else 0
    newest, first = np.zeros(size, np.int64), np.zeros(size, np.int64)
    # Of the rows that are written to one place the last one stays.
    order = np.argsort(newest_by, kind="stable")
    newest[codes[order]] = order
    order = np.argsort(first_by, kind="stable")[::-1]
    first[codes[order]] = order
    return newest, first


def _reduced(rows: pa.Table) -> pa.Table:
    codes = _codes(_whole(rows["key"]))
    first_by = pc.fill_null(rows["first_record"], _NEVER).to_numpy()
    newest, first = newest_and_first(codes, rows["offset"].to_numpy(), first_by)
    kept = rows.select(_NEWEST).take(pa.array(newest))
    firsts = rows.select(["first_value", "first_record"]).take(pa.array(first))
    for name in firsts.column_names:
        kept = kept.append_column(name, firsts[name])
    for name in ("commits", "records"):
        amounts = np.bincount(codes, weights=rows[name].to_numpy(), minlength=len(kept))
        kept = kept.append_column(name, pa.array(amounts.astype(np.int64)))
    return kept


def _codes(keys: pa.Array) -> Ints:
    """A number for each group and partition: the key but for its version, the first two bytes."""
    encoded = keys.dictionary_encode()
    codes: Ints = encoded.indices.to_numpy()
    distinct = encoded.dictionary.to_pylist()
    if len({key[:2] for key in distinct}) > 1:
        numbers: dict[bytes, int] = {}
        codes = np.array([numbers.setdefault(key[2:], len(numbers)) for key in distinct])[codes]
    return codes


def _decoded(rows: pa.Table) -> pa.Table:
    rows = rows.combine_chunks()
    newest = decode_values(_whole(rows["value"]))
    first = decode_values(_whole(rows["first_value"]))
    names = _named(_whole(rows["key"]), newest["error"].to_pylist())
    broken = pc.is_valid(names["error"])
    columns = {name: rows[name] for name in rows.column_names} | names
    # Only an error's row is ever shown as it was.
    columns |= {
        name: pc.if_else(broken, rows[name], pa.scalar(None, pa.binary()))
        for name in ("key", "value")
    }
    columns |= {
        "committed_offset": newest["offset"],
        "leader_epoch": newest["leader_epoch"],
        "metadata": newest["metadata"],
        "committed_at": _time(newest["committed_ms"]),
        "expires_at": _time(newest["expires_ms"]),
        "first_offset": first["offset"],
        "first_at": _time(first["committed_ms"]),
        "value_version": newest["version"],
        "tombstone": pc.is_null(rows["value"]),
        "topic_id": newest["topic_id"],
    }
    arrays = [columns[field.name].cast(field.type) for field in COMMIT_PARTS]
    return pa.table(arrays, schema=COMMIT_PARTS)


def _named(keys: pa.Array, errors: list[str | None]) -> dict[str, pa.Array]:
    """Group, topic and partition of each key; null, with an error, where it is broken."""
    groups: dict[bytes, str | None] = {}
    topics: dict[bytes, str | None] = {}
    made: list[tuple[str | None, str | None, int | None]] = []
    for row, key in enumerate(keys.to_pylist()):
        group_end = 4 + int.from_bytes(key[2:4], "big", signed=True)
        topic_at = group_end + 2
        topic_end = topic_at + int.from_bytes(key[group_end:topic_at], "big", signed=True)
        group, topic = key[4:group_end], key[topic_at:topic_end]
        if group not in groups:
            groups[group] = _text(group)
        if topic not in topics:
            topics[topic] = _text(topic)
        group_id, name = groups[group], topics[topic]
        plain = 4 <= group_end <= topic_at <= topic_end <= len(key) - 4
        if plain and group_id is not None and name is not None:
            number = int.from_bytes(key[topic_end : topic_end + 4], "big", signed=True)
            made.append((group_id, name, number))
            continue
        try:
            read = decode_key(key)
            assert isinstance(read, OffsetCommitKey)
            made.append((read.group_id, read.topic, read.partition))
        except WireError as error:
            errors[row] = str(error)
            made.append((None, None, None))
    names = ("group_id", "topic", "topic_partition")
    columns = list(zip(*made, strict=True)) or [()] * len(names)
    found = {
        name: pa.array(column, COMMIT_PARTS.field(name).type)
        for name, column in zip(names, columns, strict=True)
    }
    return found | {"error": pa.array(errors, pa.string())}


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _time(milliseconds: pa.ChunkedArray) -> pa.Array:
    """Milliseconds since 1970 → a time; null for -1 and what no calendar holds."""
    numbers = _whole(milliseconds)
    sane = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, _LATEST_MS))
    safe = pc.if_else(sane, numbers, pa.scalar(None, pa.int64()))
    return safe.cast(pa.timestamp("ms", tz="UTC")).cast(TIME)


def _whole(column: pa.ChunkedArray) -> Any:
    return column.combine_chunks()
