"""Kinds of records, by the first two bytes of their keys, named as Kafka names them.

Offset commits that can be read are reduced (`commits`), group and member records go to the
timeline's inputs, unknown kinds are counted, and what is broken becomes a row of `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.errors import WireError
from rebal.groups.wire.offsets_topic import (
    KINDS,
    OFFSET_COMMITS,
    decode_key,
    decode_offset_commit,
    kind_name,
)
from rebal.inspectors.fleet.sources.source import SKIPPED
from rebal.inspectors.fleet.writer import PartWriter

UNREADABLE: Final = "UNREADABLE"
REPEATED: Final = "REPEATED"
HISTORY: Final = frozenset(KINDS) - frozenset(OFFSET_COMMITS)
"""The kinds that the timeline is made of."""
_SHORTEST: Final = {0: 20, 1: 28, 2: 20, 3: 24, 4: 24}
"""Bytes of an offset commit's value with empty metadata, by its version."""
_NONE: Final = -1
_ENDLESS: Final = 2**31
Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Sorted(NamedTuple):
    """Masks over the rows of a batch; a row that is in none of them is only counted."""

    kinds: Ints
    commits: Mask
    history: Mask
    doubtful: Mask


def sort_out(rows: pa.RecordBatch) -> Sorted:
    """Return the kind of each row of a source, by the first bytes of its key.

    Commits are those that can be reduced: a tombstone, or a value of a known version that is long
    enough. A doubtful row has a problem, is not what its key says, or tells of a group and has no
    time.
    """
    keys, values, problems = (rows.column(name) for name in ("key", "value", "problem"))
    heads, versions = _heads(keys, 4), _heads(values, 2)
    kinds = np.where(problems.is_null(), _of_each(heads, _kind), _NONE)
    of_commit = np.isin(kinds, OFFSET_COMMITS)
    long_enough = _sizes(values) >= _of_each(versions, _shortest)
    commits = of_commit & (np.asarray(values.is_null()) | long_enough)
    history = np.isin(kinds, list(HISTORY)) & (_sizes(keys) >= _of_each(heads, _end_of_group))
    history &= np.asarray(rows.column("timestamp").is_valid())
    known = np.isin(kinds, [_NONE, *OFFSET_COMMITS, *HISTORY])
    return Sorted(kinds, commits, history, known & ~commits & ~history)


def _heads(values: pa.Array, size: int) -> pa.DictionaryArray:
    """Return the first bytes of each value: there are few different ones."""
    return pc.fill_null(pc.binary_slice(values, 0, size), b"").dictionary_encode()


def _of_each(heads: pa.DictionaryArray, number: Callable[[bytes], int]) -> Ints:
    """Return a number for each value by its first bytes."""
    found = np.array([number(head) for head in heads.dictionary.to_pylist()], np.int64)
    return np.asarray(found[heads.indices])


def _sizes(values: pa.Array) -> Ints:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0))


def _kind(head: bytes) -> int:
    """Return the kind of a key that begins so; `_NONE` where it is too short to have one."""
    return int.from_bytes(head[:2], "big", signed=True) if len(head) >= 2 else _NONE


def _shortest(head: bytes) -> int:
    """Return the least size, in bytes, of an offset commit's value of this version."""
    return _SHORTEST.get(int.from_bytes(head, "big"), _ENDLESS)


def _end_of_group(head: bytes) -> int:
    """Return the least size, in bytes, of a key with this kind and length of a group's name."""
    length = int.from_bytes(head[2:], "big", signed=True)
    return 4 + length if len(head) == 4 and length >= 0 else _ENDLESS


def group_in(key: bytes) -> bytes:
    """Return the group that a key names, as written; for keys that `sort_out` calls history."""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")]


def explain(writer: PartWriter, rows: pa.Table) -> None:
    """Count rows that are not plain history, and say what is wrong with the broken ones."""
    skipped = pc.fill_null(pc.starts_with(rows["problem"], SKIPPED), False)
    for problem in rows["problem"].filter(skipped).to_pylist():
        writer.said.skipped[problem.removeprefix(SKIPPED)] += 1
    broken = rows.filter(pc.invert(skipped))
    writer.said.records[UNREADABLE] += len(broken)
    writer.add("broken", [_explained(row) for row in broken.to_pylist()])


def _explained(row: Mapping[str, Any]) -> dict[str, Any]:
    what, group_id, error = "record", None, row["problem"]
    if error is None:
        try:
            if row["key"] is None:
                raise WireError("The record has no key.")
            key = decode_key(row["key"])
            what, group_id = kind_name(key.version), getattr(key, "group_id", None)
            if key.version in OFFSET_COMMITS:
                decode_offset_commit(row["value"])
            if key.version in HISTORY and row["timestamp"] is None:
                raise WireError("The record has no time.")
            error = f"These bytes are not a record of the kind {what}."
        except WireError as wrong:
            error = str(wrong)
    return error_row(row, what, group_id, error)


def error_row(
    row: Mapping[str, Any], what: str, group_id: str | None, error: str
) -> dict[str, Any]:
    """Return a row of `errors` for a row of a source."""
    return {
        "source": row["source"],
        "partition": row["partition"],
        "offset": row["offset"],
        "at": row["timestamp"],
        "group_id": group_id,
        "what": what,
        "error": error,
        "key": row["key"],
        "value": row["value"],
    }
