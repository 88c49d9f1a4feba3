"""Files as a task writes them into the lake, and the rows in which it reports them to the driver.

Runs on the executors. A file counts only when the driver has got its task's report: what a task
that failed or was started twice has left behind is never looked at.
"""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.schemas import INPUTS, LONG, TABLES
from rebal.inspectors.fleet.timeline.rows import MADE, OPEN


class Kind(NamedTuple):
    """A kind of file: the table of the lake that its files are in, and their columns."""

    name: str
    folder: str
    schema: pa.Schema


REPORT: Final = pa.schema(
    [
        ("what", pa.string()),
        ("name", pa.string()),
        ("file", pa.string()),
        ("amount", pa.int64()),
        ("size", pa.int64()),
        ("low", pa.string()),
        ("high", pa.string()),
    ]
)
"""`what` is `rows` (a file of a kind: its path in the lake, how many rows and bytes are in it, and
its first and last group), `gone` (a file that others replace), `count` (a number by name), `lines`
(how many of the request logs' lines are what the name says), `last` (the last offset read of the
partition `name`), `from` or `until` (a time in microseconds), `topic` (a topic's id, and in `file`
its name), `series` (news of a group, as `news.Series` says it)."""
REPORT_DDL: Final = (
    "what string, name string, file string, amount bigint, size bigint, low string, high string"
)
WORK: Final = "_work"
HANDED_ON: Final = ("commit_parts", "runs")
"""Kinds that no later scan needs."""
KINDS: Final = (
    *(Kind(name, name, TABLES[name]) for name in TABLES if name != "groups"),
    *(Kind(f"{OPEN}{name}", name, TABLES[name]) for name in MADE),
    Kind("open_commit_groups", "groups", TABLES["groups"]),
    Kind("broken", "errors", TABLES["errors"]),
    *(Kind(name, WORK if name in HANDED_ON else name, INPUTS[name]) for name in INPUTS),
)
"""What tasks write: the tables, and what later tasks and scans make them of."""
WRITTEN: Final = {kind.name: kind.schema for kind in KINDS}
FOLDERS: Final = {kind.name: kind.folder for kind in KINDS}
"""Where in the lake each kind's files are."""
STORED: Final = tuple(name for name in dict.fromkeys(FOLDERS.values()) if name != WORK)
"""The Delta tables beside `scans`: those for readers, then what the next scan needs."""
SCAN: Final = pa.field("scan_id", LONG)
_AT_ONCE: Final = 4096
_RAW: Final = ("key", "value", "state")
_DRIVER: Final = 99_999


class Target(NamedTuple):
    """A place for a scan's tasks to write: a lake, their folders' name, and the scan's number."""

    place: Place
    token: str
    number: int


def columns_of(table: str) -> pa.Schema:
    """Return the columns of a table of the lake."""
    return next(kind.schema for kind in KINDS if kind.folder == table).append(SCAN)


class PartWriter:
    """Writes one task's rows to one file a kind, as they come."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._files = target.place.files()
        self._task = f"{_partition():05d}-{uuid.uuid4().hex}"
        self._writers: dict[str, _File] = {}
        self._held: dict[str, list[Mapping[str, Any]]] = {}
        self._counts: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._offsets: Counter[str] = Counter()
        self._span: tuple[int, int] | None = None
        self._topics: dict[str, str] = {}
        self._said: list[tuple[Any, ...]] = []

    def add(self, kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows as dicts by column name; a column that is left out is null."""
        held = self._held.setdefault(kind, [])
        held.extend(rows)
        if len(held) >= _AT_ONCE:
            self._flush(kind)

    def write(self, kind: str, batch: pa.RecordBatch | pa.Table) -> None:
        """Columns in the order of the kind's schema."""
        self._flush(kind)
        self._write(
            kind, pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
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

    def say(self, *row: Any) -> None:
        """Add a row of `REPORT`."""
        self._said.append(row)

    def report(self) -> Iterator[pa.RecordBatch]:
        """Close every file and say what there is: rows of `REPORT`."""
        for kind in list(self._held):
            self._flush(kind)
        none = (0, None, None)
        rows: list[tuple[Any, ...]] = [one.close() for one in self._writers.values()]
        rows += [("count", name, "", amount, *none) for name, amount in self._counts.items()]
        rows += [("last", name, "", offset, *none) for name, offset in self._last.items()]
        rows += [("offsets", name, "", amount, *none) for name, amount in self._offsets.items()]
        rows += [("topic", topic_id, name, 0, *none) for topic_id, name in self._topics.items()]
        rows += self._said
        if self._span:
            first, last = self._span
            rows += [("from", "", "", first, *none), ("until", "", "", last, *none)]
        columns = zip(*rows, strict=True) if rows else [[] for _ in REPORT]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, REPORT, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=REPORT)

    def _flush(self, kind: str) -> None:
        held = self._held.pop(kind, None)
        if held:
            self._write(kind, pa.Table.from_pylist(held, WRITTEN[kind]))

    def write_again(self, kind: str, rows: pa.Table) -> None:
        """Rows that an earlier scan wrote, with its number."""
        self._write(kind, rows)

    def _write(self, kind: str, rows: pa.Table) -> None:
        if not len(rows):
            return
        if kind not in self._writers:
            folder = f"{FOLDERS[kind]}/{self._target.token}"
            self._files.create_dir(folder, recursive=True)
            path = f"{folder}/{kind}-{self._task}.parquet"
            self._writers[kind] = _File(kind, self._files.open_output_stream(path), path)
        if SCAN.name not in rows.column_names:
            numbers = pa.repeat(pa.scalar(self._target.number, LONG), len(rows))
            rows = rows.cast(WRITTEN[kind]).append_column(SCAN, numbers)
        self._writers[kind].write(rows)


def _partition() -> int:
    """In the order of the partitions, the same input gives the same order of files.

    What the driver adds comes last; it needs no Spark.
    """
    spark: Any = sys.modules.get("pyspark")
    context = None if spark is None else spark.TaskContext.get()
    return _DRIVER if context is None else int(context.partitionId())


class _File:
    """One file that is being written."""

    def __init__(self, kind: str, out: pa.NativeFile, path: str) -> None:
        self._kind, self._out, self._path = kind, out, path
        self._rows = 0
        self._groups: tuple[str, str] | None = None
        # A dictionary of raw keys and values would only be given up again, and nobody asks for the
        # least of them.
        columns = WRITTEN[kind].append(SCAN)
        names = [name for name in columns.names if name not in _RAW]
        self._writer = pq.ParquetWriter(
            out, columns, compression="zstd", use_dictionary=names, write_statistics=names
        )

    def write(self, rows: pa.Table) -> None:
        """Rows in the columns of the file."""
        self._writer.write_table(rows)
        self._rows += len(rows)
        if "group_id" in rows.column_names:
            found = pc.min_max(rows["group_id"]).as_py()
            if found["min"] is not None:
                low, high = self._groups or (found["min"], found["max"])
                self._groups = min(low, found["min"]), max(high, found["max"])

    def close(self) -> tuple[Any, ...]:
        """Write the rest; the file's row of `REPORT`."""
        self._writer.close()
        size = self._out.tell()
        self._out.close()
        return ("rows", self._kind, self._path, self._rows, size, *(self._groups or (None, None)))
