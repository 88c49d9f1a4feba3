"""OffsetCommitValue v0..v4 of a whole Arrow column at once, by numpy over the column's buffers.

What does not have the plain shape that brokers write (long metadata, a tagged field that is not
the topic id, broken bytes) goes to the one codec in `groups/wire`, so both always agree.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_topic import decode_offset_commit
from rebal.groups.wire.schema import uuid_text
from rebal.inspectors.fleet.binary_columns import Ints, Mask, buffers, numbers, raw_bytes

VALUES: Final = pa.schema(
    [
        ("version", pa.int32()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("committed_ms", pa.int64()),
        ("expires_ms", pa.int64()),
        ("topic_id", pa.string()),
        ("error", pa.string()),
    ]
)
"""One row a value, in order; all null for a null value, all but `error` for one that is broken.
Times are milliseconds since 1970, as written."""
_TAGGED_TOPIC_ID: Final = np.frombuffer(b"\x01\x00\x10", np.uint8)


def decode_values(values: pa.Array) -> pa.Table:
    """A binary column (32- or 64-bit offsets, nulls allowed, sliced or not) → `VALUES`."""
    bounds, data = buffers(values)
    start, end = bounds[:-1], bounds[1:]
    size = len(values)
    given: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    fast = given & (end - start >= 20)
    version = np.where(fast, numbers(data, start, "i2"), -1)
    newer, flexible = version >= 3, version == 4
    fast &= (version >= 0) & (version <= 4) & (end - start >= np.where(newer, 24, 20))
    length_at = start + np.where(newer, 14, 10)
    length = np.where(flexible, numbers(data, length_at, "u1") - 1, numbers(data, length_at, "i2"))
    # A compact length of two bytes or more is left to the codec.
    fast &= (length >= 0) & (~flexible | (length < 127))
    length = np.where(fast, length, 0)
    text_at = length_at + np.where(flexible, 1, 2)
    after = text_at + length
    tail = after + 8
    fast &= tail + np.select([version == 1, flexible], [8, 1], 0) <= end
    after, tail = np.where(fast, after, 0), np.where(fast, tail, 0)
    tags = numbers(data, tail, "u1")
    with_id = fast & flexible & (tags == 1) & (tail + 19 <= end)
    with_id &= (raw_bytes(data, np.where(with_id, tail, 0), 3) == _TAGGED_TOPIC_ID).all(axis=1)
    fast &= ~flexible | (tags == 0) | with_id
    columns: dict[str, list[Any] | pa.Array] = {
        "version": _masked(version, fast, pa.int32()),
        "offset": _masked(numbers(data, start + 2, "i8"), fast, pa.int64()),
        "leader_epoch": _masked(numbers(data, start + 10, "i4"), fast & newer, pa.int32()),
        "metadata": _texts(data, text_at, length, fast),
        "committed_ms": _masked(numbers(data, after, "i8"), fast, pa.int64()),
        "expires_ms": _masked(numbers(data, tail, "i8"), fast & (version == 1), pa.int64()),
        "topic_id": _topic_ids(data, tail + 3, with_id, size),
        "error": pa.nulls(size, pa.string()),
    }
    metadata = columns["metadata"]
    slow = given & (~fast | np.array([text is _BAD for text in metadata], dtype=bool))
    if slow.any():
        return _with_slow(columns, values, np.flatnonzero(slow))
    return pa.table([_array(columns[field.name], field.type) for field in VALUES], VALUES)


class _Bad:
    """Stands for text that is not UTF-8: the codec says so in its own words."""


_BAD: Final = _Bad()


def _masked(numbers: Ints, good: Mask, kind: pa.DataType) -> pa.Array:
    return pa.array(np.where(good, numbers, 0), mask=~good).cast(kind)


def _texts(data: np.ndarray[Any, Any], at: Ints, length: Ints, good: Mask) -> list[Any]:
    """The metadata texts; nearly all are empty, so only the others are looked at one by one."""
    made: list[Any] = ["" if each else None for each in good.tolist()]
    known: dict[bytes, Any] = {}
    for row in np.flatnonzero(good & (length > 0)).tolist():
        raw = data[at[row] : at[row] + length[row]].tobytes()
        if raw not in known:
            try:
                known[raw] = raw.decode("utf-8")
            except UnicodeDecodeError:
                known[raw] = _BAD
        made[row] = known[raw]
    return made


def _topic_ids(data: np.ndarray[Any, Any], at: Ints, good: Mask, size: int) -> list[str | None]:
    made: list[str | None] = [None] * size
    known: dict[bytes, str] = {}
    rows = np.flatnonzero(good)
    for row, raw in zip(rows.tolist(), raw_bytes(data, at[rows], 16), strict=True):
        key = raw.tobytes()
        if key not in known:
            known[key] = uuid_text(key)
        made[row] = known[key]
    return made


def _with_slow(
    columns: dict[str, list[Any] | pa.Array], values: pa.Array, rows: np.ndarray[Any, Any]
) -> pa.Table:
    made = {
        name: column if isinstance(column, list) else column.to_pylist()
        for name, column in columns.items()
    }
    for row in rows.tolist():
        found: dict[str, Any] = dict.fromkeys(VALUES.names)
        try:
            value = decode_offset_commit(values[row].as_py())
        except WireError as error:
            found["error"] = str(error)
        else:
            found |= {
                "version": value.version,
                "offset": value.offset,
                "leader_epoch": value.leader_epoch,
                "metadata": value.metadata,
                "committed_ms": value.commit_timestamp_ms,
                "expires_ms": value.expire_timestamp_ms,
                "topic_id": value.topic_id,
            }
        for name, each in found.items():
            made[name][row] = each
    return pa.table([_array(made[field.name], field.type) for field in VALUES], VALUES)


def _array(column: list[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array(column, kind) if isinstance(column, list) else column
