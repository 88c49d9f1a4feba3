"""Records that captured Parquet files hold twice: ruled out by partitions and offsets alone.

Those two columns are read in a hundredth of the time that the records take. Where they do not rule
it out, Spark has to bring equal offsets together, which takes a multiple of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROWS: Final = 1 << 17
_PLACE: Final = ("partition", "offset")
_Span = tuple[int, int, int]
"""A partition, and the first and the last offset of a stretch in which each is larger than the one
before."""


def may_repeat(paths: Sequence[str]) -> bool:
    """Return whether a record may come twice in local files.

    It cannot if offsets grow within each file, and no two files hold the same stretch of a
    partition.
    """
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(find_spans, paths))
    spans = sorted(span for one in found if one is not None for span in one)
    return None in found or any(a[0] == b[0] and b[1] <= a[2] for a, b in pairwise(spans))


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
