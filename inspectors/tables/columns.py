"""Columns of the tables as Python values, a whole column at a time.

pyarrow's own `to_pylist` makes one object after the other, a dict for each struct: here lists of
texts and of partitions are cut out of their flat arrays, and equal ones are made once. Times stay
microseconds since 1970: `clock.moment` makes one of them a datetime.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rebal.groups.compact import Partitions

if TYPE_CHECKING:
    import pyarrow as pa

_Row = TypeVar("_Row", bound=NamedTuple)
Row = dict[str, Any]
"""A row's values by the names of its columns."""


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Return the rows of `table`, each a tuple in the order of its columns.

    Lists of texts are tuples, partition lists dicts of topic → `Partitions`, times microseconds.
    """
    return zip(*(values(column) for column in table.columns), strict=True)


def named_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of `table`, with the values that `rows_of` gives."""
    for values in rows_of(table):
        yield dict(zip(table.column_names, values, strict=True))


def by_group(table: pa.Table, kind: type[_Row]) -> dict[str, list[_Row]]:
    """Return the rows of `table` as this kind of named tuple, by its first column, the group id."""
    made: dict[str, list[_Row]] = defaultdict(list)
    for row in map(kind._make, rows_of(table)):
        made[row[0]].append(row)
    return made


def values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return one column's values; null is None."""
    from rebal.inspectors.fleet.schemas import PARTITIONS, TEXTS, values_of

    if column.type == TEXTS:
        return _texts(column.combine_chunks())
    if column.type == PARTITIONS:
        return _partitions(column.combine_chunks())
    return values_of(column)


def _texts(column: pa.ListArray) -> list[tuple[str, ...] | None]:
    found = _cut(column, column.values.to_pylist(), tuple)
    same = {one: one for one in found}
    return [same[one] for one in found]


def _partitions(column: pa.ListArray) -> list[dict[str, Partitions] | None]:
    topics, lists = (column.values.field(name) for name in ("topic", "partitions"))
    numbers = [tuple(one or ()) for one in lists.to_pylist()]
    same = {one: Partitions(one) for one in set(numbers)}
    return _cut(column, list(zip(topics.to_pylist(), map(same.get, numbers), strict=True)), dict)


def _cut(column: pa.ListArray, items: Sequence[Any], kind: Callable[[Any], Any]) -> list[Any]:
    """Return the lists of a column, whose values are `items`, as this kind; null is None."""
    pairs, valid = pairwise(column.offsets.to_pylist()), column.is_valid().to_pylist()
    return [
        kind(items[low:high]) if there else None
        for (low, high), there in zip(pairs, valid, strict=True)
    ]
