"""Table files as a task writes them, and the rows in which it reports them to the driver.

Runs on the executors. A file counts only when the driver has got its task's report: what a task
that failed or was started twice has left behind is never looked at.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from rebal.inspectors.fleet.schemas import INPUTS, TABLES

REPORT: Final = pa.schema(
    [("what", pa.string()), ("name", pa.string()), ("file", pa.string()), ("amount", pa.int64())]
)
"""`what` is `rows` (a table's file and how many rows are in it), `count` (a number by name), `last`
(the last offset read of the partition `name`), `from` or `until` (a time in microseconds), `topic`
(a topic's id, and in `file` its name)."""
REPORT_DDL: Final = "what string, name string, file string, amount bigint"
WRITTEN: Final = {**TABLES, **INPUTS}
"""What tasks write: the tables, and what later tasks make them of."""
_AT_ONCE: Final = 4096
_DRIVER: Final = 99_999


class PartWriter:
    """Writes one task's rows to one file a table, as they come.

    `folder` is the run's folder for task files, on a file system that driver and executors share.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        context = TaskContext.get()
        # In the order of the partitions, so that the same input gives the same order of files;
        # what the driver adds comes last.
        number = context.partitionId() if context is not None else _DRIVER
        self._task = f"{number:05d}-{uuid.uuid4().hex}"
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._rows: Counter[str] = Counter()
        self._held: dict[str, list[Mapping[str, Any]]] = {}
        self._counts: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._offsets: Counter[str] = Counter()
        self._span: tuple[int, int] | None = None
        self._topics: dict[str, str] = {}

    def add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows as dicts by column name; a column that is left out is null."""
        held = self._held.setdefault(table, [])
        held.extend(rows)
        if len(held) >= _AT_ONCE:
            self._flush(table)

    def write(self, table: str, batch: pa.RecordBatch | pa.Table) -> None:
        """Columns in the order of the table's schema."""
        self._flush(table)
        self._write(
            table, pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        )

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a number that the driver sums over all tasks."""
        self._counts[name] += amount

    def reach(self, partition: str, offset: int, amount: int) -> None:
        """Note that so many offsets of this partition were read, the last of them `offset`."""
        self._last[partition] = max(offset, self._last.get(partition, offset))
        self._offsets[partition] += amount

    def span(self, first: int, last: int) -> None:
        """Note that times from `first` to `last` (microseconds since 1970) were seen."""
        before = self._span or (first, last)
        self._span = min(first, before[0]), max(last, before[1])

    def topic(self, topic_id: str, name: str) -> None:
        """Note the name of a topic by its id."""
        self._topics[topic_id] = name

    def report(self) -> Iterator[pa.RecordBatch]:
        """Close every file and say what there is: rows of `REPORT`."""
        for table in list(self._held):
            self._flush(table)
        for writer in self._writers.values():
            writer.close()
        rows = [("rows", name, self._name(name), amount) for name, amount in self._rows.items()]
        rows += [("count", name, "", amount) for name, amount in self._counts.items()]
        rows += [("last", name, "", offset) for name, offset in self._last.items()]
        rows += [("offsets", name, "", amount) for name, amount in self._offsets.items()]
        rows += [("topic", topic_id, name, 0) for topic_id, name in self._topics.items()]
        if self._span:
            rows += [("from", "", "", self._span[0]), ("until", "", "", self._span[1])]
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=REPORT) if rows else _nothing()

    def _flush(self, table: str) -> None:
        held = self._held.pop(table, None)
        if held:
            self._write(table, pa.Table.from_pylist(held, WRITTEN[table]))

    def _write(self, table: str, rows: pa.Table) -> None:
        if not len(rows):
            return
        if table not in self._writers:
            os.makedirs(self._folder, exist_ok=True)
            path = self._folder / self._name(table)
            # A dictionary of raw keys and values would only be given up again, and nobody asks for
            # the least of them.
            names = [name for name in WRITTEN[table].names if name not in ("key", "value")]
            self._writers[table] = pq.ParquetWriter(
                path,
                WRITTEN[table],
                compression="zstd",
                use_dictionary=names,
                write_statistics=names,
            )
        self._writers[table].write_table(rows.cast(WRITTEN[table]))
        self._rows[table] += len(rows)

    def _name(self, table: str) -> str:
        return f"{table}-{self._task}.parquet"


def _nothing() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], REPORT)
