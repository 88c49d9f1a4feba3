"""Reports of one scan's tasks, added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from rebal.inspectors.fleet.intake import ROWS
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.news import SERIES, Series, read_series
from rebal.inspectors.fleet.sources.source import SKIPPED


@dataclass
class Totals:
    """The sum of what the tasks of this scan reported."""

    counts: Counter[str] = field(default_factory=Counter)
    last: dict[int, int] = field(default_factory=dict)
    offsets: Counter[int] = field(default_factory=Counter)
    """How many offsets of each partition were read."""
    first_us: int | None = None
    until_us: int | None = None
    topics: dict[str, str] = field(default_factory=dict)
    made: dict[str, list[DataFile]] = field(default_factory=dict)
    """The files of each kind that tasks wrote; their paths are the lake's."""
    gone: set[str] = field(default_factory=set)
    """Files of earlier scans, by their paths in the lake, that are replaced."""
    logs: tuple[ReadLog, ...] = ()
    """The request logs on disk, up to where this scan read them."""
    log_ahead_ms: int | None = None
    """How far the logs' clock was found to be ahead of UTC, where their times name no zone."""
    lines: Counter[str] = field(default_factory=Counter)
    """Lines of request logs, by what they are (`request_rows.COUNTS`)."""
    series: list[Series] = field(default_factory=list)

    @property
    def read(self) -> int:
        """Records of the source."""
        skipped = sum(n for name, n in self.counts.items() if name.startswith(SKIPPED))
        return self.counts[ROWS] - skipped

    @property
    def ended(self) -> dict[str, int]:
        """Return the number of records of each kind, by its name."""
        return {n: c for n, c in self.counts.items() if n != ROWS and not n.startswith(SKIPPED)}

    def take(self, reports: DataFrame) -> None:
        """Run the tasks and add up what they report."""
        for row in reports.collect():
            what, name, file, amount, size, low, high = row
            if what == "rows":
                self.made.setdefault(name, []).append(DataFile(file, amount, size, low, high))
            elif what == "count":
                self.counts[name] += amount
            elif what == SERIES:
                self.series.append(read_series(row))
            elif what == "lines":
                self.lines[name] += amount
            elif what == "gone":
                self.gone.add(file)
            elif what == "topic":
                self.topics[name] = file
            elif what == "last":
                self.last[int(name)] = max(amount, self.last.get(int(name), amount))
            elif what == "offsets":
                self.offsets[int(name)] += amount
            elif what == "from":
                self.first_us = amount if self.first_us is None else min(amount, self.first_us)
            elif what == "until":
                self.until_us = amount if self.until_us is None else max(amount, self.until_us)

    def files(self, kind: str) -> list[DataFile]:
        """The files of a kind that tasks wrote, sorted."""
        return sorted(self.made.get(kind, ()))

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last time of what was read, in microseconds since 1970."""
        if self.first_us is None or self.until_us is None:
            return None
        return self.first_us, self.until_us
