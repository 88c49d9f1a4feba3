"""Reports of a scan's tasks to the driver: files, counts and news; `Totals` adds them up.

A task's report is one row with one document in it (msgpack). Runs on the executors too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct, field

from rebal.inspectors.fleet.lake.table import DataFile

REPORT: Final = pa.schema([("report", pa.binary())])
REPORT_DDL: Final = "report binary"
_Key = TypeVar("_Key", str, int)
_BY_KEY: Final = ("made", "skipped", "records", "lines", "stretches", "offsets")
"""What a report counts, or lists, by the names of things."""


class TaskReport(Struct, omit_defaults=True, array_like=True):
    """Files that one task wrote and replaced, and its counts.

    `made` are its files by kind, with their paths in the lake; `gone` are files of earlier scans
    that they replace. `rows` is the number of the source's rows, `skipped` how many of them are no
    records, by what they are, and `records` how many are, by Kafka's name of the kind; `lines` are
    a request log's lines by `requests.COUNTS`. `stretches` are the first and the last offset of
    what was read of a partition; none came again within one unless `twice`. `offsets` is how many
    were read. `span` bounds the times of what was read (microseconds since 1970), `topics` are
    names by topic id and `news` batches of `choice.NEWS`.
    """

    made: dict[str, list[DataFile]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
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

    def reach(self, partition: int, first: int, last: int) -> None:
        """Note that offsets of this partition were read: one stretch, as long as they grow."""
        stretches = self.stretches.setdefault(partition, [])
        if stretches and stretches[-1][1] < first:
            first, _ = stretches.pop()
        stretches.append((first, last))

    def stretch(self, span: tuple[int, int] | None) -> None:
        """Note that times from the first to the last one of `span` were read."""
        if span is not None:
            first, last = self.span or span
            self.span = min(first, span[0]), max(last, span[1])

    def batch(self) -> pa.RecordBatch:
        """Return the report as a row of `REPORT`."""
        return pa.record_batch([pa.array([msgspec.msgpack.encode(self)])], schema=REPORT)


class Totals(TaskReport):
    """The sum of what the tasks of one scan reported."""

    @property
    def read(self) -> int:
        """Records of the source."""
        return self.rows - sum(self.skipped.values())

    @property
    def last(self) -> dict[int, int]:
        """The last offset read, by partition."""
        return {number: max(last for _, last in found) for number, found in self.stretches.items()}

    @property
    def may_repeat(self) -> bool:
        """Return whether a record may have come twice."""
        pairs = (pair for found in self.stretches.values() for pair in pairwise(sorted(found)))
        return self.twice or any(after[0] <= before[1] for before, after in pairs)

    def take(self, reports: Iterable[Any]) -> None:
        """Add rows of `REPORT`."""
        for row in reports:
            self.add(_DECODER.decode(row["report"]))

    def files(self, kind: str) -> list[DataFile]:
        """Return the files of a kind that tasks wrote, sorted."""
        return sorted(self.made.get(kind, ()))

    def add(self, one: TaskReport) -> None:
        """Add another report."""
        for name in _BY_KEY:
            add_up(getattr(self, name), getattr(one, name))
        self.rows += one.rows
        self.news += one.news
        self.twice |= one.twice
        self.gone |= one.gone
        self.topics |= one.topics
        self.stretch(one.span)


_DECODER: Final = msgspec.msgpack.Decoder(TaskReport)


def add_up(found: dict[_Key, Any], more: Mapping[_Key, Any]) -> None:
    """Add numbers, or lists, to those of the same key."""
    for key, one in more.items():
        found[key] = found[key] + one if key in found else one
