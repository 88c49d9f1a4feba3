"""Rows of the timeline's tables, gathered as tuples, made into Arrow batches by the column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.fleet.timeline.member_rows import member_batch

MADE: Final = ("groups", "members", "assignor_lists", "rebalances", "incidents", "errors")
"""The tables that the timeline makes, all but `commits`."""
_AT_ONCE: Final = 16_384


class Rows:
    """Rows waiting to be written: tuples in the order of the table's columns, of `members`
    those of `timeline_member_rows`.

    Times are microseconds since 1970; a list of text is a tuple.
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


def _batch(table: str, rows: Sequence[Any]) -> pa.RecordBatch:
    if table == "members":
        return member_batch(rows)
    schema = TABLES[table]
    arrays = [
        pa.array(column, field.type)
        for field, column in zip(schema, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
