"""Runs of one group's rows as one row each, packed, so that little passes through the JVM.

A group's records say nearly the same again and again, so a run of them packs to a few hundredths.
Spark sorts runs by their first row; `unpack` gives the rows themselves in order, where runs of
different files overlap too. It holds no more of a group than runs that overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.schemas import LONG, OF_RECORDS, PACKED, TIMELINE, YES_NO
from rebal.inspectors.fleet.timeline.timeline import ORDER

SORTED_BY: Final = ("group_id", "told", *ORDER[1:])
HELD: Final = 64 << 20
"""Bytes of rows that a task packs at once."""
_RUN_BYTES: Final = 1 << 20
_RUN_ROWS: Final = 1024
_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 32 << 20
_BY: Final = [(name, "ascending") for name in ORDER]


def pack(rows: pa.Table) -> pa.RecordBatch:
    """Rows of `TIMELINE`, or of `OF_RECORDS`, in any order → rows of `PACKED`."""
    whole = "api" in rows.column_names and rows["api"].null_count < len(rows)
    schema = TIMELINE if whole else OF_RECORDS
    given = rows.select(schema.names).combine_chunks().to_batches()[0]
    order = pc.sort_indices(given, sort_keys=_BY)
    places = order.to_numpy()
    codes = given["group_id"].dictionary_encode().indices
    groups = np.asarray(codes.fill_null(-1))[places]
    sizes = np.cumsum(_bytes(given)[places])
    states = np.asarray(given["state"].is_valid())[places]
    cuts = (np.diff(groups) != 0) | (np.diff(states) != 0) | (np.diff(sizes // _RUN_BYTES) != 0)
    starts = np.union1d(np.flatnonzero(cuts) + 1, np.arange(0, len(given), _RUN_ROWS)).tolist()
    runs = [
        given.take(order.slice(start, end - start)).serialize()
        for start, end in zip(starts, [*starts[1:], len(given)], strict=True)
    ]
    first = given.select(ORDER).take(order.take(pa.array(starts, pa.int64())))
    columns = {
        **{name: first[name] for name in ORDER},
        "told": pa.array(~states[starts]),
        "whole": pa.array([whole] * len(runs), YES_NO),
        "size": pa.array([run.size for run in runs], LONG),
        "rows": pa.array([pa.compress(run, "zstd", asbytes=True) for run in runs], pa.binary()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in PACKED.names], schema=PACKED)


class Packer:
    """Rows as they come → rows of `PACKED`, many at once."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows that `pack` takes; what is packed by it."""
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= HELD:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """All that is left."""
        if self._held:
            yield pack(pa.concat_tables(self._held, promote_options="default"))
        self._held, self._bytes = [], 0


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
    """The runs, those that overlap as one."""
    open_: pa.Table | None = None
    for batch in batches:
        columns = [batch[name].to_pylist() for name in ("whole", "size", "rows")]
        for whole, size, data in zip(*columns, strict=True):
            raw = pa.decompress(data, size, "zstd")
            found = pa.ipc.read_record_batch(raw, TIMELINE if whole else OF_RECORDS)
            run = pa.Table.from_batches([found])
            if open_ is not None:
                done, open_ = _before(open_, run)
                if len(done):
                    yield done
            if open_ is None or not len(open_):
                open_ = run
                continue
            both = pa.concat_tables([open_, run], promote_options="default")
            open_ = both.take(pc.sort_indices(both, sort_keys=_BY))
    if open_ is not None:
        yield open_


def _before(rows: pa.Table, run: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that come before all of the run, and those that may not."""
    if rows["group_id"][-1] != run["group_id"][0] or rows["state"][0].is_valid:
        return rows, rows.slice(0, 0)
    first, last = run["at"][0], rows["at"][-1]
    if first.is_valid and last.is_valid and last.value < first.value:
        return rows, rows.slice(0, 0)
    earlier = pc.less(rows["at"], first) if first.is_valid else pc.is_valid(rows["at"])
    count = pc.sum(pc.fill_null(earlier, False)).as_py() or 0
    return rows.slice(0, count), rows.slice(count)


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
