"""What becomes of each record: told by its key's first two bytes in SQL, named as Kafka names it.

Offset commits that can be read are reduced in SQL (`commits`); everything else comes here: group
and member records go to the timeline's inputs, share and streams groups' ones and unknown kinds
are counted, what is broken becomes a row of `errors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.errors import WireError
from rebal.groups.wire.offset_commit import decode_offset_commit
from rebal.groups.wire.offsets_key import (
    KINDS,
    OFFSET_COMMITS,
    decode_key,
    kind_name,
)
from rebal.inspectors.fleet.parts import PartWriter
from rebal.inspectors.fleet.sources import SKIPPED

if TYPE_CHECKING:
    from pyspark.sql import Column

UNREADABLE: Final = "UNREADABLE"
REPEATED: Final = "REPEATED"
HISTORY: Final = frozenset(KINDS) - frozenset(OFFSET_COMMITS)
"""The kinds that the timeline is made of."""
_SHORTEST: Final = {0: 20, 1: 28, 2: 20, 3: 24, 4: 24}
"""Bytes of an offset commit's value with empty metadata, by its version."""


def is_commit() -> Column:
    """Whether a row of a source is an offset commit or its tombstone that `commits` can reduce."""
    from pyspark.sql import functions as sql

    kinds = [bytes((0, version)) for version in OFFSET_COMMITS]
    version = sql.substring("value", 1, 2)
    readable = sql.col("value").isNull()
    for number, shortest in _SHORTEST.items():
        readable |= (version == sql.lit(bytes((0, number)))) & (
            sql.octet_length("value") >= shortest
        )
    return (
        sql.col("problem").isNull()
        & sql.col("key").isNotNull()
        & sql.substring("key", 1, 2).isin(kinds)
        & readable
    )


def sort_out(batches: Iterable[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """Rows of a source that are no readable commits → reports (`parts.REPORT`).

    History goes to `records` files in `folder`, broken records to `errors` files.
    """
    writer = PartWriter(folder)
    for batch in batches:
        if not batch.num_rows:
            continue
        _note_extent(writer, batch)
        kinds = _kinds(batch.column("key"), batch.column("problem"))
        named = _names_a_group(batch.column("key"))
        keep = np.isin(kinds, list(HISTORY)) & named
        counted = kinds[keep | ~np.isin(kinds, [-1, *OFFSET_COMMITS, *HISTORY])]
        for kind, amount in zip(*np.unique(counted, return_counts=True), strict=True):
            writer.count(kind_name(int(kind)), int(amount))
        if keep.any():
            kept = batch.filter(pa.array(keep)).drop_columns(["problem"])
            writer.write("records", kept)
        doubtful = ~keep & np.isin(kinds, [-1, *OFFSET_COMMITS, *HISTORY])
        if doubtful.any():
            for row in batch.filter(pa.array(doubtful)).to_pylist():
                _explain(writer, row)
    yield from writer.report()


def _kinds(keys: pa.Array, problems: pa.Array) -> np.ndarray[Any, Any]:
    """Each key's kind; -1 for a row with a problem, a null key or one of less than two bytes."""
    good = pc.and_(
        pc.is_null(problems), pc.fill_null(pc.greater_equal(pc.binary_length(keys), 2), False)
    ).to_numpy(zero_copy_only=False)
    made = np.full(len(keys), -1, np.int32)
    if good.any():
        heads = pc.binary_slice(pc.filter(keys, pa.array(good)), 0, 2)
        flat = b"".join(heads.to_pylist())
        made[good] = np.frombuffer(flat, ">i2").astype(np.int32)
    return made


def _names_a_group(keys: pa.Array) -> np.ndarray[Any, Any]:
    """Whether a key is long enough for the group's name that its bytes 2 and 3 announce."""
    sizes = pc.fill_null(pc.binary_length(keys), 0).to_numpy(zero_copy_only=False)
    made = sizes >= 4
    if made.any():
        heads = b"".join(pc.binary_slice(pc.filter(keys, pa.array(made)), 2, 4).to_pylist())
        group = np.frombuffer(heads, ">i2").astype(np.int32)
        made[made] = (group >= 0) & (sizes[made] >= 4 + group)
    return np.asarray(made)


def _explain(writer: PartWriter, row: Mapping[str, Any]) -> None:
    """Count a row that is not plain history, and say what is wrong with a broken one."""
    problem: str | None = row["problem"]
    if problem is not None and problem.startswith(SKIPPED):
        writer.count(problem)
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
    writer.add("errors", [error_row(row, what, group_id, error or "")])


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


def _note_extent(writer: PartWriter, batch: pa.RecordBatch) -> None:
    """Report the last offset of each partition, and the first and last time of records."""
    seen = pa.table({"p": batch.column("partition"), "o": batch.column("offset")})
    for row in seen.group_by("p").aggregate([("o", "max")]).to_pylist():
        if row["p"] is not None and row["o_max"] is not None:
            writer.reach(str(row["p"]), row["o_max"])
    batch = batch.filter(pc.is_null(batch.column("problem")))
    times = pc.min_max(
        batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    )
    if times["min"].as_py() is not None:
        writer.span(times["min"].as_py(), times["max"].as_py())
