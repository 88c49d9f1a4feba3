"""Reading of a scan's input: the records of its source and the lines of request logs, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from rebal.groups.errors import DocumentError
from rebal.groups.evidence.logs import zone_name
from rebal.inspectors.fleet.intake import COPIES, only_new, take_in, take_requests
from rebal.inspectors.fleet.lake.run import Run, counted
from rebal.inspectors.fleet.parts import REPORT_DDL
from rebal.inspectors.fleet.schemas import REQUESTS, TIMELINE
from rebal.inspectors.fleet.sources.recognition import check_records, check_request_logs
from rebal.inspectors.fleet.sources.request_rows import COUNTED, COUNTS
from rebal.inspectors.fleet.sources.requests import read_requests
from rebal.inspectors.fleet.sources.source import SOURCE, TOPIC, Source, whole_rows
from rebal.inspectors.fleet.sources.zones import offset_of, synced_in
from rebal.inspectors.fleet.spark.tasks import in_tasks
from rebal.inspectors.fleet.stages import Gather, Piece, gather
from rebal.inspectors.fleet.timeline.clock import latest_time
from rebal.inspectors.fleet.totals import Totals
from rebal.inspectors.logs.lines import Zone

Say = Callable[[str], None]
_PLACE: Final = ("source", "position")


class ScanError(DocumentError):
    """The scan cannot vouch for its tables; says why."""


def read_records(run: Run, source: Source, totals: Totals) -> None:
    """Take in the records that no earlier scan has read.

    Raises:
        DocumentError: what was named holds no record of a group.
        ScanError: a record was lost on the way, or the source changed while it was read.
    """
    if run.previous is not None:
        new = partial(
            only_new, read=source.read, after=run.previous.offsets, broken=_broken_lines(run)
        )
        source = replace(source, read=new)
    if source.may_repeat:
        source = _each_once(source)
    work = partial(take_in, target=run.target, read=source.read, latest=latest_time())
    totals.take(in_tasks(source.rows, work, REPORT_DDL))
    _account(run, source, totals)


def _each_once(source: Source) -> Source:
    """The source with each record once, where it may hold one twice, and the number of its copies.

    The number is a column: what Spark observes on the way to a shuffle it adds up again for each
    task that it repeats, once an executor is lost.
    """
    place = ("partition", "offset")
    others = [name for name in SOURCE.names if name not in (*place, "source")]
    # What is no record may have no place, and is never a copy.
    broken = sql.when(sql.col("problem").isNotNull(), sql.monotonically_increasing_id())
    rows = (
        whole_rows(source)
        .groupBy(*place, broken.alias("broken"))
        .agg(
            *(sql.first(name).alias(name) for name in others),
            sql.min("source").alias("source"),
            sql.count(sql.lit(1)).alias(COPIES),
        )
        .drop("broken")
    )
    return replace(source, rows=rows, read=None)


def _broken_lines(run: Run) -> frozenset[tuple[str, bytes]]:
    """Return what earlier scans could not read, of sources whose records have no offset."""
    found: set[tuple[str, bytes]] = set()
    for file in run.earlier("broken"):
        rows = _read(run, file.path, ["offset", "source", "value"])
        rows = rows.filter(pc.is_null(rows["offset"]))
        found |= set(zip(rows["source"].to_pylist(), rows["value"].to_pylist(), strict=True))
    return frozenset(found)


def _account(run: Run, source: Source, totals: Totals) -> None:
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


def read_logs(
    spark: SparkSession,
    run: Run,
    paths: Sequence[str],
    totals: Totals,
    *,
    zone: Zone,
    say: Say,
) -> Mapping[str, int]:
    """Bring the lines that are not among the inputs yet to them; gives the log's counts.

    `zone` is that of times that name none; where it is None, records that this scan read may show
    it, else it is UTC.
    """
    before = run.previous
    known = before.logs if before is not None else ()
    logs = read_requests(spark, list(paths), zone, known)
    ahead = _find_zone(logs.rows, run, totals) if zone is None else None
    if ahead is not None:
        totals.log_ahead_ms = ahead // timedelta(milliseconds=1)
    rows = _in_utc(logs.rows, ahead) if ahead else logs.rows
    if ahead:
        say(f"the request logs' times are read as {zone_name(ahead)}: no zone is printed")
    totals.logs = logs.read
    said = [name for name in REQUESTS.names if name not in _PLACE]
    # What could not be read is told by its place alone.
    unread = (sql.when(sql.col("problem").isNotNull(), sql.col(name)) for name in _PLACE)
    mark = sql.xxhash64(*said, *unread)
    first = Window.partitionBy("mark").orderBy(*_PLACE)
    fresh = (
        rows.withColumn("mark", mark)
        .withColumn("nth", sql.row_number().over(first))
        .where((sql.col("nth") == 1) | ~_is_line())
    )
    fresh = fresh.select(*COUNTED.names, "mark")
    new = fresh.transform(partial(_not_known, run=run, mark=mark)).select(*COUNTED.names)
    take = partial(take_requests, target=run.target, latest=latest_time())
    totals.take(in_tasks(new, take, REPORT_DDL))
    fresh.unpersist()
    logs.rows.unpersist()
    counts = {name: totals.lines[name] for name in COUNTS}
    check_request_logs(paths, counts)
    return counts if logs.whole else counted(before.requests if before else {}, counts)


def _find_zone(rows: DataFrame, run: Run, totals: Totals) -> timedelta | None:
    """Return how far the logs' clock is ahead of UTC, by records that this scan read.

    Where no rebalance is in both, it is what the scan before found; None: nothing shows it.
    """
    records = totals.files("records")
    rows.persist()
    synced = synced_in(rows) if records else {}
    found = None
    if synced:
        groups = frozenset(group_id for group_id, _ in synced)
        pieces = [Piece("records", one.path, one.size, groups) for one in records]
        written = gather(rows.sparkSession, Gather(run.place, pieces), TIMELINE)
        found = offset_of(synced, written)
    if found is None and totals.log_ahead_ms is not None:
        return timedelta(milliseconds=totals.log_ahead_ms)
    return found


def _in_utc(rows: DataFrame, ahead: timedelta) -> DataFrame:
    """The lines with times in UTC, of a clock that is so far ahead."""
    here = sql.unix_micros("at") - sql.lit(ahead // timedelta(microseconds=1))
    at = sql.when(sql.col("local"), sql.timestamp_micros(here)).otherwise(sql.col("at"))
    return rows.withColumn("at", at)


def _not_known(fresh: DataFrame, run: Run, mark: Column) -> DataFrame:
    """The lines that no earlier scan has: only those that are not later than all of its may be."""
    known = run.earlier("requests")
    until = run.previous.heard_until if run.previous is not None else None
    if not known or until is None:
        return fresh
    fresh.persist()
    old = _is_line() & (sql.col("at").isNull() | (sql.col("at") <= sql.lit(until)))
    if fresh.where(old).isEmpty():
        return fresh
    pieces = [Piece("requests", one.path, one.size) for one in known]
    before = gather(fresh.sparkSession, Gather(run.place, pieces), TIMELINE)
    return fresh.join(before.select(mark.alias("mark")).distinct(), "mark", "left_anti")


def _is_line() -> Column:
    """A line of a log, not the counts of a task's lines."""
    return sql.col(COUNTS[0]).isNull()


def _read(run: Run, path: str, columns: list[str]) -> pa.Table:
    with run.place.errors(), run.place.files().open_input_file(path) as opened:
        return pq.ParquetFile(opened).read(columns=columns)
