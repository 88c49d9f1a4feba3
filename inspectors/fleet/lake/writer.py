"""The files that a task writes to the lake, their kinds, and the task's report to the driver.

It runs on the executors. The report is one row with one msgpack document. A file counts only once
the driver has the task's report, so files of a failed or duplicate task are never read. The sum of
all reports is the report of the scan.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, field

from rebal.inspectors.fleet.lake.place import LakePlace
from rebal.inspectors.fleet.lake.table import SMALL, DataFile
from rebal.inspectors.fleet.runs import merge_short_runs
from rebal.inspectors.fleet.schemas import INPUTS, LONG, MADE, OPEN, SCAN, TABLES

REPORT: Final = pa.schema([("report", pa.binary())])
REPORT_DDL: Final = "report binary"


class TaskReport(Struct, omit_defaults=True, array_like=True):
    """The files that one task wrote and replaced, and its counts; or the sum of a scan's reports.

    `made` are the files by kind, with paths relative to the lake. `replaced` are files of earlier
    scans that they replace. `rows` is the number of rows of the source. `skipped` counts those that
    are no records, by reason. `records` counts the records by Kafka's name of the kind. `lines`
    counts the lines of request logs by kind (`requests.RequestLines`).

    `stretches` are, by partition, the first and the last offset of each ascending stretch that was
    read. `twice` is set if an offset came twice in one batch. `offsets` is how many offsets
    were read, or may be markers of transactions, by partition. `span` is the first and last time of
    the rows (microseconds since 1970). `topics` maps topic ids to names. `news` are serialized
    batches of `increments.NEWS`.
    """

    made: dict[str, list[DataFile]] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    rows: int = 0
    skipped: dict[str, int] = field(default_factory=Counter)
    records: dict[str, int] = field(default_factory=Counter)
    lines: dict[str, int] = field(default_factory=Counter)
    stretches: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    twice: bool = False
    offsets: dict[int, int] = field(default_factory=Counter)
    span: tuple[int, int] | None = None
    topics: dict[str, str] = field(default_factory=dict)
    news: list[bytes] = field(default_factory=list)

    def add_offsets(self, partition: int, first: int, last: int) -> None:
        """Note that offsets from `first` to `last` of this partition were read.

        They extend the last stretch if they are higher than it; else they begin a new one.
        """
        stretches = self.stretches.setdefault(partition, [])
        if stretches and stretches[-1][1] < first:
            first, _ = stretches.pop()
        stretches.append((first, last))

    def widen_span(self, span: tuple[int, int] | None) -> None:
        """Widen the report's span so that it includes the times of `span` (None: no change)."""
        if span is not None:
            first, last = self.span or span
            self.span = min(first, span[0]), max(last, span[1])

    @property
    def read(self) -> int:
        """Number of records of the source."""
        return self.rows - sum(self.skipped.values())

    @property
    def last(self) -> dict[int, int]:
        """The last offset read, by partition."""
        return {number: max(last for _, last in found) for number, found in self.stretches.items()}

    @property
    def may_repeat(self) -> bool:
        """Return whether a record may have been read twice: `twice` is set or stretches overlap."""
        pairs = (pair for found in self.stretches.values() for pair in pairwise(sorted(found)))
        return self.twice or any(after[0] <= before[1] for before, after in pairs)

    def take(self, reports: Iterable[Any]) -> None:
        """Add the reports in these rows of `REPORT`."""
        for row in reports:
            one = msgspec.msgpack.decode(row["report"], type=TaskReport)
            for name in ("made", "skipped", "records", "lines", "stretches", "offsets"):
                found = getattr(self, name)
                for key, more in getattr(one, name).items():
                    found[key] = found[key] + more if key in found else more
            self.rows += one.rows
            self.news += one.news
            self.twice |= one.twice
            self.replaced |= one.replaced
            self.topics |= one.topics
            self.widen_span(one.span)

    def files(self, kind: str) -> list[DataFile]:
        """Return the files of a kind that tasks wrote, sorted."""
        return sorted(self.made.get(kind, ()))


FOLDERS: Final = {
    **{name: name for name in TABLES if name != "groups"},
    **{f"{OPEN}{name}": name for name in MADE},
    "open_commit_groups": "groups",
    "broken": "errors",
    **{name: name for name in INPUTS},
    "commit_parts": "commits",
}
"""The lake table that holds the files of each kind of rows."""
_COLUMNS: Final = {**TABLES, **INPUTS}
WRITTEN: Final = {kind: _COLUMNS[kind if kind in _COLUMNS else at] for kind, at in FOLDERS.items()}
"""The columns of each kind of rows."""
STORED: Final = tuple(dict.fromkeys(FOLDERS.values()))
"""The Delta tables other than `scans`: first those for readers, then the input of the next scan."""
_RAW: Final = ("key", "value", "state", "rows")
RUN_KINDS: Final = ("records", "requests", "waiting")
"""The kinds whose rows are runs (`schemas.RUNS`)."""
SORTED: Final = (*RUN_KINDS, "states")
"""The kinds whose files are sorted by group, because a later scan reads only some of the groups."""
# Rows in one Parquet row group of these kinds.
_FEW: Final = 64
_BY: Final = ("group_id", "kind", "partition", "offset", "at")
# Bytes that a task holds; more are another file.
_HELD: Final = SMALL


class Target(NamedTuple):
    """A place for a scan's tasks to write: a lake, their folders' name, and the scan's number."""

    place: LakePlace
    token: str
    number: int


def columns_of(table: str) -> pa.Schema:
    """Return the columns of a lake table, including `scan_id`."""
    return _COLUMNS[table].append(SCAN)


class PartWriter:
    """Writer of one task's rows: one file for each kind, or several if its buffer is full."""

    def __init__(self, target: Target) -> None:
        self._target, self._files = target, target.place.files()
        self._task = uuid.uuid4().hex
        self._held: dict[str, list[pa.Table]] = {}
        self._sizes: Counter[str] = Counter()
        self.task_report = TaskReport()

    def add(self, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows of this kind, given as dicts by column name; a missing column is null."""
        self.write(kind, pa.Table.from_pylist(rows, WRITTEN[kind]))

    def write(self, kind: str, batch: pa.RecordBatch | pa.Table) -> None:
        """Add a batch of this kind, with its columns in the order of the kind's schema.

        Rows of an earlier scan bring their own `scan_id`; other rows get this scan's.
        """
        rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        if not len(rows):
            return
        if SCAN.name not in rows.column_names:
            rows = self._numbered(rows.cast(WRITTEN[kind]))
        self._held.setdefault(kind, []).append(rows)
        self._sizes[kind] += rows.nbytes
        if self._sizes.total() >= _HELD:
            ((largest, _),) = self._sizes.most_common(1)
            self._write_file(largest)

    def report(self) -> Iterator[pa.RecordBatch]:
        """Write the rest of the rows to files; yield the task's report as a row of `REPORT`."""
        for kind in list(self._held):
            self._write_file(kind)
        yield pa.record_batch([[msgspec.msgpack.encode(self.task_report)]], schema=REPORT)

    def _write_file(self, kind: str) -> None:
        rows = pa.concat_tables(self._held.pop(kind))
        del self._sizes[kind]
        if kind in SORTED:
            keys = [(name, "ascending") for name in _BY if name in WRITTEN[kind].names]
            rows = rows.sort_by(keys)
            if kind in ("records", "requests"):
                rows = self._numbered(merge_short_runs(rows).sort_by(keys))
        made = self.task_report.made.setdefault(kind, [])
        folder = f"{FOLDERS[kind]}/{self._target.token}"
        self._files.create_dir(folder, recursive=True)
        path = f"{folder}/{kind}-{self._task}-{len(made)}.parquet"
        with self._files.open_output_stream(path) as out:
            _write_rows(rows, kind, out)
            size = out.tell()
        made.append(DataFile(path, len(rows), size, *_bounds(rows)))

    def _numbered(self, rows: pa.Table) -> pa.Table:
        return rows.append_column(SCAN, pa.repeat(pa.scalar(self._target.number, LONG), len(rows)))


def _write_rows(rows: pa.Table, kind: str, out: pa.NativeFile) -> None:
    # A dictionary of raw keys and values would only be given up again, and nobody asks for the
    # least of them. Rows of runs are packed already.
    names = [name for name in rows.column_names if name not in _RAW]
    pq.write_table(
        rows,
        out,
        row_group_size=_FEW if kind in SORTED else None,
        compression={name: "none" if name == "rows" else "zstd" for name in rows.column_names},
        use_dictionary=names,
        write_statistics=names,
    )


def _bounds(rows: pa.Table) -> tuple[str | None, str | None]:
    if "group_id" not in rows.column_names:
        return None, None
    found = pc.min_max(rows["group_id"]).as_py()
    return found["min"], found["max"]
