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

from rebal.inspectors.fleet.schemas import TABLES

REPORT: Final = pa.schema(
    [("what", pa.string()), ("name", pa.string()), ("file", pa.string()), ("amount", pa.int64())]
)
"""`what` is `rows` (a table's file and how many rows are in it) or `count` (a number by name)."""
REPORT_DDL: Final = "what string, name string, file string, amount bigint"
_AT_ONCE: Final = 4096


class PartWriter:
    """Writes one task's rows to one file a table, as they come.

    `folder` is the run's folder for task files, on a file system that driver and executors share.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._task = uuid.uuid4().hex
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._rows: Counter[str] = Counter()
        self._held: dict[str, list[Mapping[str, Any]]] = {}
        self._counts: Counter[str] = Counter()

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

    def report(self) -> Iterator[pa.RecordBatch]:
        """Close every file and say what there is: rows of `REPORT`."""
        for table in list(self._held):
            self._flush(table)
        for writer in self._writers.values():
            writer.close()
        rows = [
            {"what": "rows", "name": name, "file": self._name(name), "amount": amount}
            for name, amount in sorted(self._rows.items())
        ]
        rows += [
            {"what": "count", "name": name, "file": "", "amount": amount}
            for name, amount in sorted(self._counts.items())
        ]
        yield pa.RecordBatch.from_pylist(rows, REPORT)

    def _flush(self, table: str) -> None:
        held = self._held.pop(table, None)
        if held:
            self._write(table, pa.Table.from_pylist(held, TABLES[table]))

    def _write(self, table: str, rows: pa.Table) -> None:
        if not len(rows):
            return
        if table not in self._writers:
            os.makedirs(self._folder, exist_ok=True)
            path = self._folder / self._name(table)
            self._writers[table] = pq.ParquetWriter(path, TABLES[table], compression="zstd")
        self._writers[table].write_table(rows.cast(TABLES[table]))
        self._rows[table] += len(rows)

    def _name(self, table: str) -> str:
        return f"{table}-{self._task}.parquet"
