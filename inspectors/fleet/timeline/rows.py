"""Rows of the timeline's tables, gathered by name, made into Arrow batches by the column."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import STATES, TABLES, TIMELINE

MADE: Final = ("groups", "members", "assignor_lists", "rebalances", "incidents", "errors")
"""The tables that the timeline makes, all but `commits`."""
_SCHEMAS: Final = {
    **{name: TABLES[name] for name in MADE}, "states": STATES, "waiting": TIMELINE,
}  # fmt: skip
_NULLS: Final = {table: dict.fromkeys(schema.names) for table, schema in _SCHEMAS.items()}
_AT_ONCE: Final = 16_384

SETTLED: Final = ""
OPEN: Final = "open_"
"""How the kinds of rows begin that a later scan may replace: what is said of a group as of now."""
WAITING: Final = f"{OPEN}waiting"
"""The kind of rows that are given again to the next scan, after their group's state."""


class Rows:
    """Rows of one group after another waiting to be written, each column by its name.

    Times are microseconds since 1970, partition lists `values.PartitionList`s; a column that is not
    told is null. Rows are settled, or open, which is what is said of a group as if no row of it
    were to come: `kind`, `SETTLED` or `OPEN`, says which follow.

    All groups of a scan share it, and with it topics' names by their ids and `breaks`, which says
    by partition where records may be missing. `unnamed` are ids of topics whose name was asked for
    in vain.
    """

    def __init__(
        self,
        topic_names: Mapping[str, str] | None = None,
        breaks: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.group_id: str | None = None
        self.breaks = breaks or {}
        self.unnamed: set[str] = set()
        self._names = topic_names or {}
        self.kind: str = SETTLED
        self._held: dict[str, list[Any]] = {
            kind + name: [] for kind in (SETTLED, OPEN) for name in _SCHEMAS
        }

    def add(self, table: str, **columns: Any) -> None:
        """Add a row of `table`, of the present group unless `group_id` says another one."""
        self._held[self.kind + table].append(
            {**_NULLS[table], "group_id": self.group_id, **columns}.values()
        )

    def take(self, *, rest: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the kinds that have gathered enough rows for a batch, or the `rest` of all.

        Rows that wait hold a record's bytes and do not gather.
        """
        for kind, rows in self._held.items():
            if len(rows) >= (1 if rest or kind == WAITING else _AT_ONCE):
                yield kind, _batch(kind.removeprefix(OPEN), rows)
                rows.clear()

    def topic(self, topic_id: str, learned: Mapping[str, str]) -> str:
        """Return the name of the topic; its id where no record of the cluster or group has it."""
        name = self._names.get(topic_id) or learned.get(topic_id)
        if name is None:
            self.unnamed.add(topic_id)
        return name or topic_id


def _batch(table: str, rows: Sequence[Iterable[Any]]) -> pa.RecordBatch:
    schema = _SCHEMAS[table]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
