"""Rows of one Parquet file of the lake: of some groups, and since some time, alone.

Files are sorted by group, and the statistics of their row groups tell which of these may hold a
row that is wanted: the others are not read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.schemas import SCAN, in_columns

_T = TypeVar("_T", str, int)
_ROWS: Final = 4096
_LARGE: Final = {"rows", "document"}
_FEW: Final = 64
"""Rows of a batch, and of one with large values: a run may have a megabyte."""


class Wanted(NamedTuple):
    """The rows of a file that are wanted: of `groups` (None: of all), runs that last up to the time
    `since` or later (microseconds since 1970; None: whenever), or only those without a time.

    Of `newest` (`group_id`, `scan_id`) are each group's rows that this scan wrote (None: all are).
    """

    groups: pa.Array | None = None
    since: int | None = None
    timeless: bool = False
    newest: pa.Table | None = None

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return those of these rows that are wanted."""
        if self.groups is not None:
            rows = rows.filter(pc.is_in(rows["group_id"], self.groups))
        if self.newest is not None:
            place = pc.index_in(rows["group_id"], self.newest["group_id"])
            rows = rows.filter(pc.equal(rows[SCAN.name], self.newest[SCAN.name].take(place)))
        if self.since is not None:
            rows = rows.filter(pc.greater_equal(rows["until"].cast(pa.int64()), self.since))
        return rows.filter(pc.is_null(rows["at"])) if self.timeless else rows


ALL: Final = Wanted()


@contextmanager
def opened(place: Place, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file of the lake.

    Raises:
        LakeError: the store does not give the file.
    """
    with place.errors(), place.files().open_input_file(path) as found:
        yield pq.ParquetFile(found)


def rows_in(file: pq.ParquetFile, columns: pa.Schema, wanted: Wanted = ALL) -> Iterator[pa.Table]:
    """Rows of an open file in these columns; one that the file does not have is null."""
    found = _row_groups(file.metadata, wanted)
    at_once = _ROWS if _LARGE.isdisjoint(columns.names) else _FEW
    for batch in file.iter_batches(at_once, row_groups=found, columns=columns.names):
        rows = wanted.rows(in_columns(batch, columns))
        if len(rows):
            yield rows


def read_rows(
    place: Place, path: str, columns: pa.Schema, wanted: Wanted = ALL
) -> Iterator[pa.Table]:
    """Rows of a file of the lake, as `rows_in`.

    Raises:
        LakeError: the store does not give the file.
    """
    with opened(place, path) as file:
        yield from rows_in(file, columns, wanted)


def may_hold(low: _T | None, high: _T | None, names: Sequence[_T]) -> bool:
    """Return whether one of the sorted `names` is from `low` to `high` (None: not known)."""
    if low is None or high is None:
        return bool(names)
    place = bisect_left(names, low)
    return place < len(names) and names[place] <= high


def sorted_names(groups: pa.Array) -> list[str]:
    """Return the groups as `may_hold` takes them."""
    return sorted(groups.to_pylist())


def _row_groups(about: pq.FileMetaData, wanted: Wanted) -> list[int]:
    """Return the numbers of the row groups that may hold a row that is wanted."""
    found = set(range(about.num_row_groups))
    if wanted.groups is not None:
        names = sorted_names(wanted.groups)
        for number, known in _statistics(about, "group_id"):
            if known.has_min_max and not may_hold(known.min, known.max, names):
                found.discard(number)
    if wanted.newest is not None:
        scans = sorted(pc.unique(wanted.newest[SCAN.name]).to_pylist())
        for number, known in _statistics(about, SCAN.name):
            if known.has_min_max and not may_hold(known.min, known.max, scans):
                found.discard(number)
    if wanted.since is not None:
        for number, known in _statistics(about, "until"):
            if known.has_min_max and known.max_raw < wanted.since:
                found.discard(number)
    if wanted.timeless:
        for number, known in _statistics(about, "at"):
            if known.null_count == 0:
                found.discard(number)
    return sorted(found)


def _statistics(about: pq.FileMetaData, name: str) -> Iterator[tuple[int, pq.Statistics]]:
    """Yield each row group's number and its statistics of a column, where it has them."""
    leaf = [about.schema.column(place).path for place in range(about.num_columns)].index(name)
    for number in range(about.num_row_groups):
        known = about.row_group(number).column(leaf).statistics
        if known is not None:
            yield number, known
