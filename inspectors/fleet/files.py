"""Rows of one Parquet file of the lake: all, or those that a condition wants.

Files are sorted by group, and Arrow tells by the statistics of their row groups which of these may
hold a row that is wanted: the others are not read.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.schemas import SCAN, in_columns

_ROWS: Final = 4096
_LARGE: Final = {"rows", "document"}
# Rows of a batch, and of one with large values: a run may have a megabyte.
_FEW: Final = 64


def read_rows(
    place: Place, path: str, columns: pa.Schema, wanted: pc.Expression | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file of the lake: those `wanted` (None: all), in these columns.

    A column that the file does not have is null. Rows may be wanted by their scan, too.

    Raises:
        LakeError: the store does not give the file.
    """
    at_once = _ROWS if _LARGE.isdisjoint(columns.names) else _FEW
    with place.errors():
        if wanted is None:
            with place.files().open_input_file(path) as opened:
                for batch in pq.ParquetFile(opened).iter_batches(at_once, columns=columns.names):
                    yield in_columns(batch, columns)
            return
        # It loads pandas, which readers of whole tables do without.
        from pyarrow.dataset import ParquetFileFormat

        file = ParquetFileFormat().make_fragment(path, filesystem=place.files())
        known = pa.unify_schemas([columns, pa.schema([SCAN])])
        for batch in file.to_batches(
            schema=known, filter=wanted, batch_size=at_once, use_threads=False
        ):
            if len(batch):
                yield in_columns(batch, columns)


def of_groups(groups: pa.Array) -> pc.Expression:
    """Return the condition for rows of these groups."""
    return pc.field("group_id").isin(groups)


def may_hold(low: str | None, high: str | None, names: Sequence[str]) -> bool:
    """Return whether one of the sorted `names` is from `low` to `high` (None: not known)."""
    if low is None or high is None:
        return bool(names)
    place = bisect_left(names, low)
    return place < len(names) and names[place] <= high
