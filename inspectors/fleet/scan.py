"""The job: source and request logs → inputs by group → the tables → a finished run.

    source ── tasks read, reduce and sort out ─┬─ errors
                                               ├─ records ── and those of earlier scans ─────────┐
                                               └─ commit_parts ── and the commits table before ──┤
    request logs ── requests ── and those of earlier scans ──────────────────────────────────────┤
                                                                                                 │
    all tables ── tasks tell a range of groups each ── inputs by bucket ─────────────────────────┘

Each record of the source is counted where it ends up, and the counts must add up to what the
source gave. A run that goes on from an earlier one reads only later offsets, and makes the
timeline anew from all inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.groups import VERSION
from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.buckets import find_pieces, make_ranges
from rebal.inspectors.fleet.commits.table import again
from rebal.inspectors.fleet.intake import ROWS, only_new, take_in, take_requests
from rebal.inspectors.fleet.kinds import REPEATED
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.run import Run, counted
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.parts import FOLDERS, REPORT_DDL
from rebal.inspectors.fleet.schemas import REQUESTS, TIME
from rebal.inspectors.fleet.sources.recognition import check_records, check_request_logs
from rebal.inspectors.fleet.sources.requests import read_requests
from rebal.inspectors.fleet.sources.source import SKIPPED, TOPIC, Source, whole_rows
from rebal.inspectors.fleet.tasks import in_tasks, require_shared
from rebal.inspectors.fleet.telling import Tale, tell
from rebal.inspectors.fleet.timeline.clock import span_of

_Extent = tuple[datetime | None, datetime | None]
Say = Callable[[str], None]
_BROKEN: Final = "broken-"
"""How files of rows begin that every later scan keeps: what it cannot read does not change."""
_PLACE: Final = ("source", "position")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _Totals:
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
        for what, name, file, amount, size, low, high in reports.collect():
            if what == "rows":
                self.made.setdefault(name, []).append(DataFile(file, amount, size, low, high))
            elif what == "count":
                self.counts[name] += amount
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

    def paths(self, kind: str) -> list[str]:
        """The files of a kind that tasks wrote, sorted."""
        return sorted(one.path for one in self.made.get(kind, ()))


def scan(
    spark: SparkSession,
    run: Run,
    *,
    source: Source | None,
    request_logs: Sequence[str] = (),
    say: Say,
) -> Manifest:
    """Fill `run` from `source` and the request logs and finish it.

    Raises:
        DocumentError: what was named holds no record of a group.
        ScanError: a record was lost on the way, or the source changed while it was read.
    """
    require_shared(spark, run.place)
    totals = _Totals()
    requests: Mapping[str, int] = {}
    if source is not None:
        say(f"reading {', '.join(source.names[:3])}{' …' if len(source.names) > 3 else ''}")
        _read_records(run, source, totals)
    _take_earlier_commits(spark, run, totals)
    if request_logs:
        say("reading the request logs")
        requests = _read_requests(spark, run, request_logs, totals)
    say("putting each group's history in order")
    extent = _extent(run, totals)
    _tell(spark, run, totals, extent)
    manifest = _manifest(
        run, totals, extent, source=source, request_logs=request_logs, requests=requests
    )
    return run.finish(manifest, _files(run, totals))


class ScanError(DocumentError):
    """The scan cannot vouch for its tables; says why."""


def _read_records(run: Run, source: Source, totals: _Totals) -> None:
    if run.previous is not None:
        new = partial(
            only_new, read=source.read, after=run.previous.offsets, broken=_broken_lines(run)
        )
        source = replace(source, read=new)
    seen = None
    if source.may_repeat:
        source, seen = _each_once(source)
    work = partial(take_in, target=run.target, read=source.read)
    totals.take(in_tasks(source.rows, work, REPORT_DDL))
    if seen is not None:
        repeated = seen.get["rows"] - totals.counts[ROWS]
        totals.counts[ROWS] += repeated
        totals.counts[REPEATED] += repeated
    _account(run, source, totals)


def _each_once(source: Source) -> tuple[Source, Observation]:
    """The source with each record once, where it may hold one twice, and the count of its rows."""
    seen = Observation("rows of the source")
    rows = whole_rows(source).observe(seen, sql.count(sql.lit(1)).alias("rows"))
    whole = sql.col("problem").isNull()
    once = rows.where(whole).dropDuplicates(["partition", "offset"])
    return replace(source, rows=once.unionByName(rows.where(~whole)), read=None), seen


def _broken_lines(run: Run) -> frozenset[tuple[str, bytes]]:
    """Return what earlier scans could not read, of sources whose records have no offset."""
    found: set[tuple[str, bytes]] = set()
    for file in run.kept("errors", _BROKEN):
        rows = _read(run, f"errors/{file.path}", ["offset", "source", "value"])
        rows = rows.filter(pc.is_null(rows["offset"]))
        found |= set(zip(rows["source"].to_pylist(), rows["value"].to_pylist(), strict=True))
    return frozenset(found)


def _take_earlier_commits(spark: SparkSession, run: Run, totals: _Totals) -> None:
    tables = run.earlier("commits")
    if tables:
        numbers = spark.range(0, len(tables), 1, len(tables))
        work = partial(again, target=run.target, tables=tables)
        totals.take(in_tasks(numbers, work, REPORT_DDL))


def _account(run: Run, source: Source, totals: _Totals) -> None:
    ended = sum(totals.ended.values())
    if ended != totals.read:
        raise ScanError(
            f"{', '.join(source.names)}: {totals.read:,} records were read and {ended:,} are "
            "accounted for: the source changed while it was read; scan again."
        )
    if totals.read:
        check_records(source.names, totals.ended, before=run.previous is not None)
        return
    if source.holds_records():
        raise ScanError(
            f"{TOPIC}: the brokers say that it holds records, and none was read; this must not "
            "pass for an empty cluster: scan again, with REBAL_DEBUG=1 to see what Spark says."
        )
    if run.previous is None:
        raise DocumentError(
            f"{', '.join(source.names)}: no record of {TOPIC} is in there; nothing to report on."
        )


def _read_requests(
    spark: SparkSession, run: Run, paths: Sequence[str], totals: _Totals
) -> Mapping[str, int]:
    """Bring the lines that are not among the inputs yet to them; gives the log's counts."""
    logs = read_requests(spark, list(paths))
    said = [name for name in REQUESTS.names if name not in _PLACE]
    # What could not be read is told by its place alone.
    unread = (sql.when(sql.col("problem").isNotNull(), sql.col(name)) for name in _PLACE)
    mark = sql.xxhash64(*said, *unread)
    first = Window.partitionBy("mark").orderBy(*_PLACE)
    fresh = (
        logs.rows.withColumn("mark", mark)
        .withColumn("nth", sql.row_number().over(first))
        .where("nth = 1")
    )
    known = run.earlier("requests")
    if known:
        before = _requests_in(spark, run, known).select(mark.alias("mark")).distinct()
        fresh = fresh.join(before, "mark", "left_anti")
    work = partial(take_requests, target=run.target)
    totals.take(in_tasks(fresh.select(*REQUESTS.names), work, REPORT_DDL))
    counts = logs.counts()
    check_request_logs(paths, counts)
    return counts


def _tell(spark: SparkSession, run: Run, totals: _Totals, extent: _Extent) -> None:
    """Make the tables of all inputs."""
    pieces = [
        piece
        for kind in ("records", "requests")
        for piece in find_pieces(kind, run.place, [*run.earlier(kind), *totals.paths(kind)])
    ]
    pieces += find_pieces("commit_parts", run.place, totals.paths("commit_parts"))
    first, until = extent
    tale = Tale(
        tuple(make_ranges(pieces, spark.sparkContext.defaultParallelism)),
        totals.topics,
        (_micros(first), _micros(until)) if first and until else None,
        log=any(piece.kind == "requests" for piece in pieces),
        breaks=_breaks(run, totals),
    )
    numbers = spark.range(0, len(tale.ranges), 1, len(tale.ranges))
    work = partial(tell, target=run.target, tale=tale)
    totals.take(in_tasks(numbers, work, REPORT_DDL))


def _requests_in(spark: SparkSession, run: Run, paths: Sequence[str]) -> DataFrame:
    """The rows of these files of the table `requests`, read where the tasks run."""
    numbers = spark.range(0, len(paths), 1, len(paths))
    work = partial(_reread, place=run.place, paths=paths)
    return in_tasks(numbers, work, from_arrow_schema(REQUESTS, prefer_timestamp_ntz=False))


def _reread(
    batches: Iterable[pa.RecordBatch], place: Place, paths: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    files = place.files()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with files.open_input_file(paths[number]) as opened:
                yield from pq.ParquetFile(opened).iter_batches(columns=REQUESTS.names)


def _read(run: Run, path: str, columns: list[str]) -> pa.Table:
    with run.place.errors(), run.place.files().open_input_file(path) as opened:
        return pq.ParquetFile(opened).read(columns=columns)


def _files(run: Run, totals: _Totals) -> dict[str, list[DataFile]]:
    """All files of the finished scan by table: what it made, and what it keeps of earlier ones."""
    found = {"errors": list(run.kept("errors", _BROKEN))}
    found |= {name: list(run.kept(name)) for name in ("records", "requests")}
    for kind, files in totals.made.items():
        table = FOLDERS[kind]
        below = [one._replace(path=one.path.removeprefix(f"{table}/")) for one in files]
        found.setdefault(table, []).extend(below)
    return found


def _manifest(
    run: Run,
    totals: _Totals,
    extent: _Extent,
    *,
    source: Source | None,
    request_logs: Sequence[str],
    requests: Mapping[str, int],
) -> Manifest:
    before = run.previous
    skipped = {
        n.removeprefix(SKIPPED): c for n, c in totals.counts.items() if n.startswith(SKIPPED)
    }
    first, until = extent
    names = {*(source.names if source else ()), *(Path(path).name for path in request_logs)}
    return Manifest(
        rebal=VERSION,
        cluster=run.cluster,
        run=run.number,
        finished_at=datetime.now(UTC).replace(microsecond=0),
        observed_from=first,
        observed_until=until,
        sources=tuple(sorted(names | set(before.sources if before else ()))),
        read=totals.read + (before.read if before else 0),
        records=counted(before.records if before else {}, totals.ended),
        skipped=counted({}, skipped),
        requests=counted({}, requests) or (before.requests if before else {}),
        offsets=dict(sorted({**(before.offsets if before else {}), **totals.last}.items())),
        breaks=_breaks(run, totals),
        brokers=(source.brokers if source else None) or (before.brokers if before else None),
    )


def _breaks(run: Run, totals: _Totals) -> dict[int, tuple[int, ...]]:
    """Return the last offsets of earlier scans after which records are missing, by partition."""
    before = run.previous
    found = dict(before.breaks) if before else {}
    for number, last in totals.last.items():
        end = before.offsets.get(number) if before else None
        if end is not None and totals.offsets[number] < last - end:
            found[number] = (*found.get(number, ()), end)
    return dict(sorted(found.items()))


def _extent(run: Run, totals: _Totals) -> _Extent:
    """The first and the last time of all records and requests, earlier scans' included."""
    firsts = [_EPOCH + timedelta(microseconds=totals.first_us)] if totals.first_us else []
    lasts = [_EPOCH + timedelta(microseconds=totals.until_us)] if totals.until_us else []
    if run.previous is not None:
        firsts += [run.previous.observed_from] if run.previous.observed_from else []
        lasts += [run.previous.observed_until] if run.previous.observed_until else []
    paths = (*run.earlier("requests"), *totals.paths("requests"))
    groups = [group.statistics for path in paths for group in _row_groups(run.place, path)]
    seen = [
        time for one in groups if one is not None and one.has_min_max for time in (one.min, one.max)
    ]
    if seen:
        span = span_of(pa.chunked_array([pa.array(seen, TIME)]))
        if span != (_micros(min(seen)), _micros(max(seen))):
            files = run.place.files()
            whole = (pq.read_table(path, columns=["at"], filesystem=files) for path in paths)
            span = span_of(pa.concat_tables(whole)["at"])
        if span is not None:
            firsts.append(_EPOCH + timedelta(microseconds=span[0]))
            lasts.append(_EPOCH + timedelta(microseconds=span[1]))
    return min(firsts, default=None), max(lasts, default=None)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _row_groups(place: Place, path: str) -> Iterator[pq.ColumnChunkMetaData]:
    with place.files().open_input_file(path) as opened:
        metadata = pq.read_metadata(opened)
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    for number in range(metadata.num_row_groups):
        yield metadata.row_group(number).column(names.index("at"))
