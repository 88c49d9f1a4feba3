"""Rows of the timeline's tables, gathered as tuples, made into Arrow batches by the column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rebal.inspectors.fleet.schemas import PARTITIONS, TABLES
from rebal.inspectors.fleet.timeline_values import PartitionList

MADE: Final = ("groups", "members", "assignor_lists", "rebalances", "incidents", "errors")
"""The tables that the timeline makes, all but `commits`."""
_AT_ONCE: Final = 16_384


class Rows:
    """Rows waiting to be written: tuples in the order of the table's columns.

    Times are microseconds since 1970, partition lists `PartitionList`; a list of text is a tuple.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in MADE}
        self.add_member = self._held["members"].append

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """One row of `table`."""
        self._held[table].append(row)

    def __len__(self) -> int:
        return len(self._held["members"])

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The tables that have gathered enough rows for a batch."""
        for table, rows in self._held.items():
            if len(rows) >= _AT_ONCE:
                yield table, _batch(table, rows)
                rows.clear()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All that is left."""
        for table, rows in self._held.items():
            if rows:
                yield table, _batch(table, rows)
                rows.clear()


def _batch(table: str, rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    schema = TABLES[table]
    arrays = [
        _partition_lists(column) if field.type == PARTITIONS else pa.array(column, field.type)
        for field, column in zip(schema, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _partition_lists(column: tuple[PartitionList | None, ...]) -> pa.Array:
    """A list that several rows share is made once, and taken for each row."""
    codes: dict[int, int] = {}
    distinct: list[PartitionList] = []
    taken: list[int | None] = []
    for one in column:
        code = codes.get(id(one))
        if code is None and one is not None:
            code = codes[id(one)] = len(distinct)
            distinct.append(one)
        taken.append(code)
    ends = [0]
    topics: list[str] = []
    raws: list[bytes] = []
    for one in distinct:
        topics += one.topics
        raws += one.numbers
        ends.append(len(topics))
    numbers = np.frombuffer(b"".join(raws), dtype=">i4").astype(np.int32)
    bounds = np.zeros(len(raws) + 1, dtype=np.int32)
    np.cumsum([len(raw) // 4 for raw in raws], out=bounds[1:])
    structs = pa.StructArray.from_arrays(
        [
            pa.array(topics, pa.string()),
            pa.ListArray.from_arrays(pa.array(bounds), pa.array(numbers)),
        ],
        names=["topic", "partitions"],
    )
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)
    return lists.take(pa.array(taken, pa.int32())).cast(PARTITIONS)
