"""Kinds of records, by the first two bytes of their keys, named as Kafka names them.

Offset commits that can be read are reduced (`commits`), group and member records go to the
timeline's inputs, unknown kinds are counted, and what is broken becomes a row of `errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
_SHORTEST: Final = np.array([20, 28, 20, 24, 24])
"""Bytes of an offset commit's value with empty metadata, by its version."""
_NONE: Final = -1
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
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    # A key begins with its kind and the length of the group's name, a value with its version.
    (kinds, names), (versions, _) = _first_words(keys), _first_words(values)
    kinds = np.where(np.asarray(problems.is_null()) & (key_sizes >= 2), kinds, _NONE)
    known_version = (versions >= 0) & (versions < len(_SHORTEST))
    long_enough = known_version & (value_sizes >= _SHORTEST.take(versions, mode="clip"))
    commits = np.isin(kinds, OFFSET_COMMITS) & (np.asarray(values.is_null()) | long_enough)
    history = np.isin(kinds, list(HISTORY)) & (names >= 0) & (key_sizes >= 4 + names)
    history &= np.asarray(rows.column("timestamp").is_valid())
    known = np.isin(kinds, [_NONE, *OFFSET_COMMITS, *HISTORY])
    return Sorted(kinds, commits, history, known & ~commits & ~history)


def _first_words(values: pa.Array) -> Ints:
    """Return the first and the second 16-bit number of each value; zeros follow a shorter one."""
    first = pc.fill_null(pc.binary_slice(values, 0, 4), b"")
    whole = pc.binary_slice(pc.binary_join_element_wise(first, bytes(4), b""), 0, 4)
    words = np.frombuffer(b"".join(whole.to_pylist()), ">i2").reshape(-1, 2)
    return words.T.astype(np.int64)


def _sizes(values: pa.Array) -> Ints:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0))


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
