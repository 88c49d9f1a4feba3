"""Columns of the tables as Python values, and their rows by group.

Equal lists of texts, and equal lists of partition numbers, are made once. Times stay microseconds
since 1970: `clock.moment` makes one of them a datetime.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rebal.groups.compact import Partitions

if TYPE_CHECKING:
    import pyarrow as pa

_Row = TypeVar("_Row")
Row = dict[str, Any]
"""A row's values by the names of its columns."""
_partitions: Final = lru_cache(maxsize=16_384)(Partitions)


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Return the rows of `table`, each a tuple in the order of its columns.

    Lists of texts are tuples, partition lists dicts of topic → `Partitions`, times microseconds.
    """
    return zip(*(values(column) for column in table.columns), strict=True)


def named_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of `table`, with the values that `rows_of` gives."""
    for values in rows_of(table):
        yield dict(zip(table.column_names, values, strict=True))


def by_group(table: pa.Table, kind: Callable[..., _Row]) -> defaultdict[str, list[_Row]]:
    """Return the rows of `table`, each as this `kind` made of its columns, by their group."""
    made: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in named_rows(table):
        made[row["group_id"]].append(kind(**row))
    return made


def values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return one column's values; null is None."""
    from rebal.inspectors.fleet.schemas import PARTITIONS, TEXTS, values_of

    found = values_of(column)
    if column.type == TEXTS:
        texts = [None if one is None else tuple(one) for one in found]
        same = {one: one for one in texts}
        return [same[one] for one in texts]
    if column.type == PARTITIONS:
        return [None if one is None else dict(map(_of_topic, one)) for one in found]
    return found


def _of_topic(one: Row) -> tuple[str, Partitions]:
    return one["topic"], _partitions(tuple(one["partitions"] or ()))
