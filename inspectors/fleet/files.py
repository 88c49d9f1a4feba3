"""Rows of one Parquet file of the lake: all, or those that a condition wants.

Files are sorted by group, and Arrow tells by the statistics of their row groups which of these may
hold a row that is wanted: the others are not read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.schemas import SCAN, TEXT, in_columns

_ROWS: Final = 4096
_LARGE: Final = {"rows", "document"}
_FEW: Final = 64
"""Rows of a batch, and of one with large values: a run may have a megabyte."""
_BETWEEN: Final = "\0"
"""No name of a group holds it."""


@contextmanager
def opened(place: Place, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file of the lake.

    Raises:
        LakeError: the store does not give the file.
    """
    with place.errors(), place.files().open_input_file(path) as found:
        yield pq.ParquetFile(found)


def rows_in(file: pq.ParquetFile, columns: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of an open file in these columns; one that the file does not have is null."""
    for batch in file.iter_batches(_at_once(columns), columns=columns.names):
        yield in_columns(batch, columns)


def read_rows(
    place: Place, path: str, columns: pa.Schema, wanted: pc.Expression | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file of the lake in these columns: those `wanted` (None: all).

    Raises:
        LakeError: the store does not give the file.
    """
    if wanted is None:
        with opened(place, path) as file:
            yield from rows_in(file, columns)
        return
    # It loads pandas, which readers of whole tables do without.
    from pyarrow.dataset import ParquetFileFormat

    with place.errors():
        file = ParquetFileFormat().make_fragment(path, filesystem=place.files())
        found = file.to_batches(
            schema=columns, filter=wanted, batch_size=_at_once(columns), use_threads=False
        )
        for batch in found:
            if len(batch):
                yield in_columns(batch, columns)


def _at_once(columns: pa.Schema) -> int:
    return _ROWS if _LARGE.isdisjoint(columns.names) else _FEW


def of_groups(groups: pa.Array) -> pc.Expression:
    """Return the condition for rows of these groups."""
    return pc.field("group_id").isin(groups)


def of_scans(rows: pa.Table) -> pc.Expression:
    """Return the condition for rows of these groups by these scans (`group_id`, `scan_id`)."""
    scans = rows[SCAN.name].combine_chunks()
    written = _written(rows["group_id"].combine_chunks(), scans.cast(TEXT))
    one = _written(pc.field("group_id"), pc.field(SCAN.name).cast(TEXT))
    return pc.field(SCAN.name).isin(pc.unique(scans)) & one.isin(written)


def _written(group: pa.Array | pc.Expression, scan: pa.Array | pc.Expression) -> pa.Array:
    return pc.binary_join_element_wise(group, scan, _BETWEEN)


def may_hold(low: str | None, high: str | None, names: Sequence[str]) -> bool:
    """Return whether one of the sorted `names` is from `low` to `high` (None: not known)."""
    if low is None or high is None:
        return bool(names)
    place = bisect_left(names, low)
    return place < len(names) and names[place] <= high
