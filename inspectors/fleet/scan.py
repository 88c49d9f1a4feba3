"""The job: sources → commits, raw history and request lines → timeline → a finished run.

    source ─┬─ commits that can be read ── reduced in SQL ── decoded ── commits
            └─ the rest ── sorted out ─┬─ errors
                                       └─ _inputs/records ─┐
    request logs ── _inputs/requests ──────────────────────┴─ timeline ── all other tables

Each record of the source is counted where it ends up, and the counts must add up to what the
source gave. A run that goes on from an earlier one reads only later offsets, and makes the
timeline anew from all inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.commit_groups import commit_groups
from rebal.inspectors.fleet.kinds import REPEATED, is_commit, sort_out
from rebal.inspectors.fleet.manifest import Manifest, TableEntry
from rebal.inspectors.fleet.parts import REPORT_DDL, PartWriter
from rebal.inspectors.fleet.schemas import COMMITS, ERRORS, RECORDS, REQUESTS
from rebal.inspectors.fleet.sources import SKIPPED, TOPIC, Source
from rebal.inspectors.fleet.store import Run, counted
from rebal.inspectors.fleet.timeline import ORDER, make_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Say = Callable[[str], None]
_PLACE: Final = ("source", "position")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _Totals:
    """What the tasks of this scan reported."""

    read: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    last: dict[int, int] = field(default_factory=dict)
    first_us: int | None = None
    until_us: int | None = None
    files: list[tuple[str, str, int]] = field(default_factory=list)

    def take(self, reports: DataFrame) -> list[tuple[str, str, int]]:
        """Run the tasks and add up what they report; gives the files as (table, file, rows)."""
        files: list[tuple[str, str, int]] = []
        for what, name, file, amount in reports.collect():
            if what == "rows":
                files.append((name, file, amount))
            elif what == "count":
                self.counts[name] += amount
            elif what == "last":
                self.last[int(name)] = max(amount, self.last.get(int(name), amount))
            elif what == "from":
                self.first_us = amount if self.first_us is None else min(amount, self.first_us)
            elif what == "until":
                self.until_us = amount if self.until_us is None else max(amount, self.until_us)
        return files


def scan(
    spark: SparkSession,
    run: Run,
    *,
    source: Source | None,
    request_logs: Sequence[str] = (),
    say: Say,
) -> Manifest:
    """Fill `run` from `source` and the request logs and make it the current one.

    Raises:
        DocumentError: what was named holds no record of a group.
        ScanError: a record was lost on the way, or the source changed while it was read.
    """
    totals = _Totals()
    requests: Mapping[str, int] = {}
    for kind in ("records", "requests", "errors"):
        run.keep_inputs(kind)
    if source is not None:
        _read_records(spark, run, source, totals, say)
    elif run.previous is not None:
        _keep_commits(spark, run, totals)
    if request_logs:
        say("reading the request logs")
        requests = _read_requests(spark, run, request_logs)
    say("putting each group's history in order")
    totals.files += _run_timeline(spark, run, totals)
    totals.files += _add_commit_groups(run, totals)
    totals.files += run.lend_errors()
    tables = run.take(totals.files)
    manifest = _manifest(
        run, totals, tables, source=source, request_logs=request_logs, requests=requests
    )
    run.finish(manifest)
    return manifest


class ScanError(DocumentError):
    """The scan cannot vouch for its tables; says why."""


def _read_records(spark: SparkSession, run: Run, source: Source, totals: _Totals, say: Say) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    rows = _after(spark, source.rows, run)
    read = Observation("records read")
    skipped = sql.col("problem").startswith(SKIPPED)
    seen = rows.observe(
        read,
        sql.count(sql.lit(1)).alias("rows"),
        sql.coalesce(sql.sum(skipped.cast("long")), sql.lit(0)).alias("skipped"),
    )
    say(f"reading {', '.join(source.names[:3])}{' …' if len(source.names) > 3 else ''}")
    rest = _once(seen, source).where(~is_commit())
    folder = str(run.tasks)
    files = totals.take(rest.mapInArrow(partial(sort_out, folder=folder), REPORT_DDL))
    run.take_inputs(files)
    observed = read.get
    totals.read = observed["rows"] - observed["skipped"]
    say("reducing the offset commits")
    _write_commits(spark, run, _once(rows, source).where(is_commit()), totals)
    _account(run, source, totals)


def _once(rows: DataFrame, source: Source) -> DataFrame:
    """`rows` with each record once, where the source may hold one twice."""
    if not source.may_repeat:
        return rows
    from pyspark.sql import functions as sql

    whole = sql.col("problem").isNull()
    return rows.where(whole).dropDuplicates(["partition", "offset"]).unionByName(rows.where(~whole))


def _after(spark: SparkSession, rows: DataFrame, run: Run) -> DataFrame:
    """`rows` that the earlier run has not read."""
    from pyspark.sql import functions as sql

    if run.previous is None:
        return rows
    if run.previous.offsets:
        pairs = [sql.lit(each) for pair in run.previous.offsets.items() for each in pair]
        last = sql.element_at(sql.create_map(*pairs), sql.col("partition"))
        rows = rows.where(sql.col("offset").isNull() | last.isNull() | (sql.col("offset") > last))
    known = _parquet_in(run.inputs("errors"))
    if known:
        # A broken line has no offset to tell that it was read before.
        mark = sql.when(sql.col("offset").isNull(), sql.xxhash64("source", "value"))
        before = _frame(spark, known, ERRORS).select(mark.alias("mark")).dropna().distinct()
        rows = rows.withColumn("mark", mark).join(sql.broadcast(before), "mark", "left_anti")
        rows = rows.drop("mark")
    return rows


def _write_commits(spark: SparkSession, run: Run, rows: DataFrame, totals: _Totals) -> None:
    from rebal.inspectors.fleet.commits import merge_commits, reduce_commits, write_commits

    merged = merge_commits(reduce_commits(rows), _earlier_commits(spark, run))
    files = totals.take(write_commits(merged, str(run.tasks)))
    run.take_inputs([file for file in files if file[0] == "errors"])
    totals.files += [file for file in files if file[0] == "commits"]


def _earlier_commits(spark: SparkSession, run: Run) -> DataFrame | None:
    if run.previous is None or run.previous_folder is None:
        return None
    entry = run.previous.tables.get("commits", TableEntry())
    paths = [str(run.previous_folder / file.path) for file in entry.files]
    return _frame(spark, paths, COMMITS) if paths else None


def _keep_commits(spark: SparkSession, run: Run, totals: _Totals) -> None:
    """Without a source of records the commits stay those of the run before."""
    before = _earlier_commits(spark, run)
    if before is not None:
        from rebal.inspectors.fleet.commits import keep_commits

        totals.files += totals.take(keep_commits(before, str(run.tasks)))


def _account(run: Run, source: Source, totals: _Totals) -> None:
    ended = sum(n for name, n in totals.counts.items() if not name.startswith(SKIPPED))
    if source.may_repeat and ended < totals.read:
        totals.counts[REPEATED] = totals.read - ended
        ended = totals.read
    if ended != totals.read:
        raise ScanError(
            f"{', '.join(source.names)}: {totals.read:,} records were read and {ended:,} are "
            "accounted for: the source changed while it was read; scan again."
        )
    if totals.read:
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


def _read_requests(spark: SparkSession, run: Run, paths: Sequence[str]) -> Mapping[str, int]:
    """Bring the lines that are not among the inputs yet to them; gives the log's counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    from rebal.inspectors.fleet.requests import read_requests

    logs = read_requests(spark, list(paths))
    said = [name for name in REQUESTS.names if name not in _PLACE]
    mark = sql.xxhash64(*said)
    first = Window.partitionBy("mark").orderBy(*_PLACE)
    fresh = (
        logs.rows.withColumn("mark", mark)
        .withColumn("nth", sql.row_number().over(first))
        .where("nth = 1")
    )
    known = _parquet_in(run.inputs("requests"))
    if known:
        before = _frame(spark, known, REQUESTS).select(mark.alias("mark")).distinct()
        fresh = fresh.join(before, "mark", "left_anti")
    fresh.select(*REQUESTS.names).write.mode("append").parquet(run.inputs("requests").as_uri())
    return logs.counts()


def _run_timeline(spark: SparkSession, run: Run, totals: _Totals) -> list[tuple[str, str, int]]:
    from pyspark.sql import functions as sql

    records = _frame(spark, _parquet_in(run.inputs("records")), RECORDS)
    size = sql.conv(sql.hex(sql.substring("key", 3, 2)), 16, 10).cast("int")
    group = sql.col("key").substr(sql.lit(5), size).cast("string")
    history = records.select(
        sql.make_valid_utf8(group).alias("group_id"),
        sql.col("timestamp").alias("at"),
        "key",
        "value",
        "partition",
        "offset",
        "source",
    )
    requests = _frame(spark, _parquet_in(run.inputs("requests")), REQUESTS)
    events = history.unionByName(requests, allowMissingColumns=True)
    ordered = events.repartition("group_id").sortWithinPartitions(*ORDER)
    first, until = _extent(run, totals)
    write = partial(
        _write_timeline,
        folder=str(run.tasks),
        topic_names=_topic_names(spark, run, totals),
        observed=(_micros(first), _micros(until)) if first and until else None,
    )
    return totals.take(ordered.mapInArrow(write, REPORT_DDL))


def _add_commit_groups(run: Run, totals: _Totals) -> list[tuple[str, str, int]]:
    """The groups that the timeline could not hear of, as one more file of `groups`."""
    files = {
        table: [run.tasks / file for name, file, _ in totals.files if name == table]
        for table in ("commits", "groups")
    }
    first, until = _extent(run, totals)
    made = commit_groups(
        files["commits"],
        files["groups"],
        (first, until) if first and until else None,
        log=bool(_parquet_in(run.inputs("requests"))),
    )
    writer = PartWriter(str(run.tasks))
    writer.write("groups", made)
    reports = [row for batch in writer.report() for row in batch.to_pylist()]
    return [(row["name"], row["file"], row["amount"]) for row in reports if row["what"] == "rows"]


def _topic_names(spark: SparkSession, run: Run, totals: _Totals) -> Mapping[str, str]:
    """Names by topic id, as the offset commits of Kafka 4.1 and later tell them."""
    from pyspark.sql import functions as sql

    paths = [str(run.tasks / file) for table, file, _ in totals.files if table == "commits"]
    named = _frame(spark, paths, COMMITS).where(sql.col("topic_id").isNotNull())
    return {row[0]: row[1] for row in named.select("topic_id", "topic").distinct().collect()}


def _write_timeline(
    batches: Iterable[pa.RecordBatch],
    folder: str,
    topic_names: Mapping[str, str],
    observed: tuple[int, int] | None,
) -> Iterator[pa.RecordBatch]:
    writer = PartWriter(folder)
    for table, rows in make_tables(batches, topic_names, observed):
        writer.write(table, rows)
    yield from writer.report()


def _frame(spark: SparkSession, paths: Sequence[str], schema: pa.Schema) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    form = from_arrow_schema(schema, prefer_timestamp_ntz=False)
    if not paths:
        return spark.createDataFrame([], form)
    return spark.read.schema(form).parquet(*(Path(path).as_uri() for path in paths))


def _parquet_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("*.parquet"))


def _manifest(
    run: Run,
    totals: _Totals,
    tables: dict[str, TableEntry],
    *,
    source: Source | None,
    request_logs: Sequence[str],
    requests: Mapping[str, int],
) -> Manifest:
    before = run.previous
    records = {n: c for n, c in totals.counts.items() if not n.startswith(SKIPPED)}
    skipped = {
        n.removeprefix(SKIPPED): c for n, c in totals.counts.items() if n.startswith(SKIPPED)
    }
    first, until = _extent(run, totals)
    names = {*(source.names if source else ()), *(Path(path).name for path in request_logs)}
    return Manifest(
        rebal=version("rebal"),
        run=run.number,
        finished_at=datetime.now(UTC).replace(microsecond=0),
        observed_from=first,
        observed_until=until,
        sources=tuple(sorted(names | set(before.sources if before else ()))),
        read=totals.read + (before.read if before else 0),
        records=counted(before.records if before else {}, records),
        skipped=counted({}, skipped),
        requests=counted({}, requests) or (before.requests if before else {}),
        offsets=dict(sorted({**(before.offsets if before else {}), **totals.last}.items())),
        tables=tables,
    )


def _extent(run: Run, totals: _Totals) -> tuple[datetime | None, datetime | None]:
    """The first and the last time of all records and requests, earlier scans' included."""
    firsts = [_EPOCH + timedelta(microseconds=totals.first_us)] if totals.first_us else []
    lasts = [_EPOCH + timedelta(microseconds=totals.until_us)] if totals.until_us else []
    if run.previous is not None:
        firsts += [run.previous.observed_from] if run.previous.observed_from else []
        lasts += [run.previous.observed_until] if run.previous.observed_until else []
    for path in _parquet_in(run.inputs("requests")):
        for group in _row_groups(path):
            statistics = group.statistics
            if statistics is not None and statistics.has_min_max:
                firsts.append(statistics.min)
                lasts.append(statistics.max)
    return min(firsts, default=None), max(lasts, default=None)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _row_groups(path: str) -> Iterator[pq.ColumnChunkMetaData]:
    metadata = pq.ParquetFile(path).metadata
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    for number in range(metadata.num_row_groups):
        yield metadata.row_group(number).column(names.index("at"))
