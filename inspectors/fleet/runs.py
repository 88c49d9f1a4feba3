"""Runs of one group's rows as one row each, packed, so that little passes through the JVM.

A group's records say nearly the same again and again, so a run of them packs to a few hundredths.
Spark sorts runs by their first row; `unpack` gives the rows themselves in order, where runs of
different files overlap too. It holds no more of a group than runs that overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.schemas import LONG, OF_RECORDS, PACKED, TIMELINE, YES_NO
from rebal.inspectors.fleet.timeline.timeline import ORDER

SORTED_BY: Final = ("group_id", "told", *ORDER[1:])
HELD: Final = 64 << 20
"""Bytes of rows that a task sorts at once."""
_RUN_BYTES: Final = 1 << 20
_RUN_ROWS: Final = 1024
_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 32 << 20
_LAST: Final = np.iinfo(np.int64).max
_NEVER: Final = -_LAST
_CODEC: Final = "zstd"
_BY: Final = [(name, "ascending") for name in ORDER]


class Sorter:
    """Rows as they come → the same rows by group and in `ORDER`, many at once."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Take rows; gives what is sorted by it."""
        if len(rows):
            self._held.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= HELD:
            yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """All that is left."""
        if self._held:
            yield _sorted(self._held)
        self._held, self._bytes = [], 0


def pack(rows: pa.Table) -> pa.RecordBatch:
    """Rows of `TIMELINE`, or of `OF_RECORDS`, of a `Sorter` → rows of `PACKED`."""
    whole = "api" in rows.column_names and rows["api"].null_count < len(rows)
    schema = TIMELINE if whole else OF_RECORDS
    given = rows.select(schema.names).combine_chunks().to_batches()[0]
    groups = np.asarray(given["group_id"].dictionary_encode().indices.fill_null(-1))
    states = np.asarray(given["state"].is_valid())
    sizes = np.cumsum(_bytes(given)) // _RUN_BYTES
    cuts = (np.diff(groups) != 0) | (np.diff(states) != 0) | (np.diff(sizes) != 0)
    starts = np.union1d(np.flatnonzero(cuts) + 1, np.arange(0, len(given), _RUN_ROWS)).tolist()
    runs = [
        given.slice(start, end - start).serialize()
        for start, end in zip(starts, [*starts[1:], len(given)], strict=True)
    ]
    first = given.select(ORDER).take(pa.array(starts, pa.int64()))
    columns = {
        **{name: first[name] for name in ORDER},
        "told": pa.array(~states[starts]),
        "whole": pa.array([whole] * len(runs), YES_NO),
        "size": pa.array([run.size for run in runs], LONG),
        "rows": pa.array([pa.compress(run, _CODEC, asbytes=True) for run in runs], pa.binary()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in PACKED.names], schema=PACKED)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `PACKED`, as `SORTED_BY` → their rows, in batches of some thousand."""
    held: list[pa.Table] = []
    count = size = 0
    for rows in _in_order(batches):
        held.append(rows)
        count, size = count + len(rows), size + rows.nbytes
        if count >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(held)
            held, count, size = [], 0, 0
    if held:
        yield _batch(held)


def _in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The runs' rows in order; runs that overlap are sorted as one."""
    held: list[pa.Table] = []
    end, count, enough = _NEVER, 0, _BATCH_ROWS
    for is_state, run in _runs(batches):
        first, last = _time(run["at"][0]), _time(run["at"][-1])
        if held and (is_state or first > end or run["group_id"][0] != held[0]["group_id"][0]):
            yield _merged(held)
            held, end, count, enough = [], _NEVER, 0, _BATCH_ROWS
        if is_state:
            yield run
            continue
        held.append(run)
        end, count = max(end, last), count + len(run)
        if count >= enough:
            # What is before the newest run is before all that follow. The rows that stay have to
            # double before all are sorted again: else many runs that overlap take time squared.
            done, rest = _before(_merged(held), first)
            yield done
            held, count, enough = [rest], len(rest), max(_BATCH_ROWS, 2 * len(rest))
    if held:
        yield _merged(held)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bool, pa.Table]]:
    """Each run's rows, and whether it is a state."""
    for batch in batches:
        columns = [batch[name].to_pylist() for name in ("told", "whole", "size", "rows")]
        for told, whole, size, data in zip(*columns, strict=True):
            raw = pa.decompress(data, size, _CODEC)
            rows = pa.ipc.read_record_batch(raw, TIMELINE if whole else OF_RECORDS)
            yield not told, pa.Table.from_batches([rows])


def _before(rows: pa.Table, time: int) -> tuple[pa.Table, pa.Table]:
    """The sorted rows before this time, and the others."""
    at = pc.fill_null(rows["at"].cast(pa.int64()), _LAST)
    count = pc.sum(pc.less(at, time)).as_py() or 0
    return rows.slice(0, count), rows.slice(count)


def _time(at: pa.Scalar) -> int:
    """A time as it sorts: none comes last."""
    return at.value if at.is_valid else _LAST


def _merged(held: Sequence[pa.Table]) -> pa.Table:
    return held[0] if len(held) == 1 else _sorted(held)


def _sorted(held: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(held, promote_options="default")
    return rows.take(pc.sort_indices(rows, sort_keys=_BY))


def _bytes(rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    lengths = [np.full(len(rows), 64, np.int64)]
    for name in ("value", "state"):
        found = pc.fill_null(pc.binary_length(rows[name]), 0)
        lengths.append(np.asarray(found.to_numpy(), np.int64))
    total: np.ndarray[tuple[int], np.dtype[np.int64]] = np.sum(lengths, axis=0)
    return total


def _batch(held: list[pa.Table]) -> pa.RecordBatch:
    whole = pa.concat_tables(held, promote_options="default").combine_chunks()
    return whole.to_batches()[0]
