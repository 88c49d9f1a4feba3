"""Rows of the timeline's tables, gathered by name, made into Arrow batches by the column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import STATES, TABLES
from rebal.inspectors.fleet.timeline.member_rows import member_batch

MADE: Final = ("groups", "members", "assignor_lists", "rebalances", "incidents", "errors")
"""The tables that the timeline makes, all but `commits`."""
DAMAGED: Final = "damaged"
"""The kind of rows that name groups whose states are damaged; no other row of them is made."""
_SCHEMAS: Final = {
    **{name: TABLES[name] for name in MADE},
    "states": STATES,
    DAMAGED: pa.schema([STATES.field("group_id")]),
}
_AT_ONCE: Final = 16_384

OPEN: Final = "open_"
"""How the kinds of rows begin that a later scan may replace: what is said of a group as of now."""


class Rows:
    """Rows of one group after another waiting to be written, each column by its name.

    Of `members` they are what `member_batch` takes. Times are microseconds since 1970; a column
    that is not told is null. Rows are settled, or open, which is what is said of a group as if no
    row of it were to come: `of_now` says which follow.
    """

    def __init__(self) -> None:
        self.group_id: str | None = None
        self._settled: dict[str, list[Any]] = {name: [] for name in _SCHEMAS}
        self._open: dict[str, list[Any]] = {name: [] for name in _SCHEMAS}
        self.of_now(False)

    def of_now(self, yes: bool) -> None:
        """Take the rows that follow as open ones, or as settled ones."""
        self._held = self._open if yes else self._settled

    def add(self, table: str, **columns: Any) -> None:
        """One row of `table`, of the group that is told, unless `group_id` says another one."""
        self._held[table].append({"group_id": self.group_id, **columns})

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The kinds that have gathered enough rows for a batch."""
        yield from self._take(_AT_ONCE)

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All that is left."""
        yield from self._take(1)

    def _take(self, least: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        for before, held in (("", self._settled), (OPEN, self._open)):
            for table, rows in held.items():
                if len(rows) >= least:
                    yield before + table, _batch(table, rows)
                    rows.clear()


def _batch(table: str, rows: Sequence[Any]) -> pa.RecordBatch:
    if table == "members":
        return member_batch(rows)
    schema = _SCHEMAS[table]
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
