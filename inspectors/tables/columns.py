"""Columns of the tables as Python values, a whole column at a time.

pyarrow's own `to_pylist` makes one object after the other, a dict for each struct: here lists of
texts and of partitions are cut out of their flat arrays, and equal ones are made once. Times stay
microseconds since 1970: `clock.moment` makes one of them a datetime.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rebal.groups.compact import Partitions

if TYPE_CHECKING:
    import pyarrow as pa

_Row = TypeVar("_Row", bound=NamedTuple)


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Return the rows of `table`, each a tuple in the order of its columns.

    Lists of texts are tuples, partition lists dicts of topic → `Partitions`, times microseconds.
    """
    return zip(*(values(column) for column in table.columns), strict=True)


def by_group(table: pa.Table, kind: type[_Row]) -> dict[str, list[_Row]]:
    """Return the rows of `table` as this kind of named tuple, by its first column, the group id."""
    made: dict[str, list[_Row]] = defaultdict(list)
    for row in map(kind._make, rows_of(table)):
        made[row[0]].append(row)
    return made


def values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return one column's values; null is None."""
    import pyarrow as pa

    from rebal.inspectors.fleet.schemas import PARTITIONS, TEXTS

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.type == TEXTS:
        return _texts(column.combine_chunks())
    if column.type == PARTITIONS:
        return _partitions(column.combine_chunks())
    # Not by way of numpy: pyarrow imports pandas for that.
    found: Sequence[Any] = column.to_pylist()
    return found


def _texts(column: pa.ListArray) -> list[tuple[str, ...] | None]:
    flat = values(_chunked(column.values))
    same: dict[tuple[str, ...], tuple[str, ...]] = {}
    made: list[tuple[str, ...] | None] = []
    for bounds in _bounds(column):
        if bounds is None:
            made.append(None)
            continue
        found = tuple(flat[bounds[0] : bounds[1]])
        made.append(same.setdefault(found, found))
    return made


def _partitions(column: pa.ListArray) -> list[dict[str, Partitions] | None]:
    structs = column.values
    topics = values(_chunked(structs.field("topic")))
    lists = structs.field("partitions")
    numbers = array("i", lists.values.to_pylist())
    inner = list(_bounds(lists))
    same: dict[bytes, Partitions] = {}

    def entry(number: int) -> Partitions:
        low, high = inner[number] or (0, 0)
        cut = numbers[low:high]
        key = cut.tobytes()
        if key not in same:
            same[key] = Partitions(cut)
        return same[key]

    return [
        None if bounds is None else {topics[n]: entry(n) for n in range(*bounds)}
        for bounds in _bounds(column)
    ]


def _bounds(column: pa.ListArray) -> Iterator[tuple[int, int] | None]:
    """Return the bounds of each list in `column.values`; None for a null one."""
    pairs, valid = pairwise(column.offsets.to_pylist()), column.is_valid().to_pylist()
    return (pair if there else None for pair, there in zip(pairs, valid, strict=True))


def _chunked(values_: pa.Array) -> pa.ChunkedArray:
    import pyarrow as pa

    return pa.chunked_array([values_])
