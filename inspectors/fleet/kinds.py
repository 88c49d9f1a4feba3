"""Kinds of records, by the first two bytes of their keys, named as Kafka names them.

Offset commits that can be read are reduced (`commits.sums`), group and member records go to the
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
from rebal.inspectors.fleet.binary_columns import Ints, Mask, buffers, numbers
from rebal.inspectors.fleet.reports import add_up
from rebal.inspectors.fleet.sources.source import SKIPPED
from rebal.inspectors.fleet.writer import PartWriter

UNREADABLE: Final = "UNREADABLE"
REPEATED: Final = "REPEATED"
HISTORY: Final = frozenset(KINDS) - frozenset(OFFSET_COMMITS)
"""The kinds that the timeline is made of."""
_SHORTEST: Final = {0: 20, 1: 28, 2: 20, 3: 24, 4: 24}
"""Bytes of an offset commit's value with empty metadata, by its version."""


class Sorted(NamedTuple):
    """Masks over the rows of a batch; a row that is in none of them is only counted."""

    kinds: Ints
    commits: Mask
    history: Mask
    doubtful: Mask


def sort_out(keys: pa.Array, values: pa.Array, problems: pa.Array) -> Sorted:
    """Return the kind of each row of a source, by the first bytes of its key.

    Commits are those that can be reduced: a tombstone, or a value of a known version that is long
    enough. A doubtful row has a problem, or is not what its key says.
    """
    sizes = pc.fill_null(pc.binary_length(keys), 0).to_numpy()
    bounds, data = buffers(keys)
    whole = pc.is_null(problems).to_numpy(zero_copy_only=False) & (sizes >= 2)
    kinds = np.where(whole, numbers(data, bounds[:-1], "i2"), -1)
    of_commit = np.isin(kinds, OFFSET_COMMITS)
    commits = of_commit.copy()
    commits[of_commit] = _readable(values.filter(pa.array(of_commit)))
    group = numbers(data, bounds[:-1] + 2, "i2")
    history = np.isin(kinds, list(HISTORY)) & (sizes >= 4) & (group >= 0) & (sizes >= 4 + group)
    known = np.isin(kinds, [-1, *OFFSET_COMMITS, *HISTORY])
    return Sorted(kinds, commits, history, known & ~commits & ~history)


def group_in(key: bytes) -> bytes:
    """The group that a key names, as it is written; for keys that `sort_out` calls history."""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")]


def _readable(values: pa.Array) -> Mask:
    """Return a mask of the commits' values: null, or of a known version and long enough for it."""
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    bounds, data = buffers(values)
    versions = numbers(data, bounds[:-1], "i2")
    least = np.full(len(values), np.iinfo(np.int32).max)
    for version, shortest in _SHORTEST.items():
        least[versions == version] = shortest
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False) | (sizes >= least))


def explain(writer: PartWriter, row: Mapping[str, Any]) -> None:
    """Count a row that is not plain history, and say what is wrong with a broken one."""
    problem: str | None = row["problem"]
    if problem is not None and problem.startswith(SKIPPED):
        add_up(writer.said.skipped, {problem.removeprefix(SKIPPED): 1})
        return
    writer.count(UNREADABLE)
    what, group_id, error = "record", None, problem
    if problem is None:
        try:
            if row["key"] is None:
                raise WireError("The record has no key.")
            key = decode_key(row["key"])
            what, group_id = kind_name(key.version), getattr(key, "group_id", None)
            if key.version in OFFSET_COMMITS:
                decode_offset_commit(row["value"])
            error = f"These bytes are not a record of the kind {what}."
        except WireError as wrong:
            error = str(wrong)
    writer.add("broken", [error_row(row, what, group_id, error or "")])


def error_row(
    row: Mapping[str, Any], what: str, group_id: str | None, error: str
) -> dict[str, Any]:
    """A row of `errors` for a row of a source."""
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
