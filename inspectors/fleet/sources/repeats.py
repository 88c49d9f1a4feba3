"""Records that captured Parquet files hold twice: ruled out by partitions and offsets alone.

Those two columns are read in a hundredth of the time that the records take. Where they do not rule
it out, Spark has to bring equal offsets together, which takes a multiple of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet.tasks import in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS: Final = 1 << 17
_PLACE: Final = ("partition", "offset")
_Span = tuple[int, int, int]
"""A partition, and the first and the last offset of a stretch in which each is larger than the one
before."""
_UNKNOWN: Final = (None, None, None)
_SPANS: Final = pa.schema([(name, pa.int64()) for name in ("partition", "first", "last")])


def may_repeat(spark: SparkSession, paths: Sequence[str]) -> bool:
    """Return whether a record may come twice: False if offsets grow within each file, and no two
    files hold the same stretch of a partition."""
    numbers = spark.range(0, len(paths), 1, len(paths))
    ddl = ", ".join(f"{name} bigint" for name in _SPANS.names)
    rows = in_tasks(numbers, partial(_look, paths=paths), ddl).collect()
    return overlap([tuple(row) for row in rows])


def overlap(spans: Sequence[_Span | tuple[None, None, None]]) -> bool:
    """Return whether two of the stretches share an offset, or one is unknown."""
    known = sorted(span for span in spans if span[0] is not None)
    return len(known) < len(spans) or any(a[0] == b[0] and b[1] <= a[2] for a, b in pairwise(known))


def find_spans(path: str) -> list[_Span] | None:
    """Return the stretch of each partition in a file; None if one does not grow.

    Of a damaged file there is None too: the tasks that read its records tell what it is.
    """
    inside: dict[int, tuple[int, int]] = {}
    try:
        for partition, first, last in _spans(path):
            begin, end = inside.get(partition, (first, first - 1))
            if first <= end:
                return None
            inside[partition] = begin, last
    except (pa.ArrowException, OSError):
        return None
    return [(partition, *span) for partition, span in inside.items()]


def _look(batches: Iterable[pa.RecordBatch], paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            spans = find_spans(paths[number])
            rows = [_UNKNOWN] if spans is None else spans
            made = [dict(zip(_SPANS.names, row, strict=True)) for row in rows]
            yield pa.RecordBatch.from_pylist(made, schema=_SPANS)


def _spans(path: str) -> Iterator[_Span]:
    """Yield the stretches in the order of the file."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=list(_PLACE), use_threads=False):
            columns = [batch[name].cast(pa.int64()) for name in _PLACE]
            # Rows without a place are no records, and none of them is dropped.
            whole = pc.and_(*(pc.is_valid(column) for column in columns))
            partitions, offsets = (column.filter(whole).to_numpy() for column in columns)
            if not len(offsets):
                continue
            order = np.argsort(partitions, kind="stable")
            partitions, offsets = partitions[order], offsets[order]
            ends = partitions[1:] != partitions[:-1]
            ends |= offsets[1:] <= offsets[:-1]
            last = np.flatnonzero(np.append(ends, True))
            first = np.concatenate(([0], last[:-1] + 1))
            yield from zip(
                partitions[first].tolist(),
                offsets[first].tolist(),
                offsets[last].tolist(),
                strict=True,
            )
