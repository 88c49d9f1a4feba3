"""Reading of a scan's input: the records of its source and the lines of request logs, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.groups.errors import DocumentError
from rebal.groups.evidence.logs import zone_name, zone_offset
from rebal.groups.wire.offsets_topic import GROUP_METADATA, KINDS, generation_in
from rebal.inspectors.fleet.increments.work import gather, pieces_of
from rebal.inspectors.fleet.intake.intake import (
    COPIES,
    only_new,
    read_broken,
    take_in,
    take_requests,
)
from rebal.inspectors.fleet.lake.run import Run, counted
from rebal.inspectors.fleet.lake.sweep import Freed, remove
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.schemas import TEXT, TIMELINE
from rebal.inspectors.fleet.sources.files import Part, share_out
from rebal.inspectors.fleet.sources.requests import COUNTS, SYNCED, read_syncs
from rebal.inspectors.fleet.sources.source import SOURCE, TOPIC, Source
from rebal.inspectors.fleet.spark.tasks import Work, cores_of, in_shares, in_tasks, numbered
from rebal.inspectors.fleet.timeline.clock import latest_time
from rebal.inspectors.fleet.writer import REPORT_DDL, Totals
from rebal.inspectors.logs.lines import Zone

Say = Callable[[str], None]
_TASKS_PER_CORE: Final = 4
_LOOKED_AT: Final = 64
"""Generations by which a log's zone is found; all must show the same one."""
_HEAD: Final = 300
"""Bytes of a record's value up to its generation, at most."""
_CLASSIC: Final = GROUP_METADATA.to_bytes(2, "big")
_FEW: Final = 10
"""Less than one record in so many of what was read is almost nothing."""
_MANY: Final = 100
"""A scan that goes on from another one may find this many broken records alone."""


class LogsRead(NamedTuple):
    """Request logs that were read: their lines by `requests.COUNTS`, the logs on disk up to
    where they were read, and how far their clock was found to be ahead of UTC (None: not)."""

    counts: Mapping[str, int]
    read: tuple[ReadLog, ...]
    ahead_ms: int | None


def read_records(spark: SparkSession, run: Run, source: Source) -> Totals:
    """Take in the records that no earlier scan has read; return what tasks report of them.

    Raises:
        DocumentError: what was named holds no record of a group, or the source changed while it
            was read.
    """
    shares = source.share(cores_of(spark))
    tasks = numbered(spark, len(shares))
    read: Work = partial(in_shares, shares=shares, work=source.read)
    if run.previous is not None:
        broken = partial(read_broken, run.place, [one.path for one in run.earlier("broken")])
        read = partial(only_new, read=read, after=run.previous.offsets, broken=broken)
    found = _taken_in(run, tasks, read)
    if found.may_repeat:
        wrote = [Freed(one.path, one.size) for files in found.made.values() for one in files]
        remove(run.place, wrote)
        rows = in_tasks(tasks, read, from_arrow_schema(SOURCE, prefer_timestamp_ntz=False))
        found = _taken_in(run, _each_once(rows), iter)
    _account(run, source, found)
    return found


def _taken_in(run: Run, rows: DataFrame, read: Work) -> Totals:
    """Return what tasks report that take in what `read` makes of rows."""
    found = Totals()
    work = partial(take_in, target=run.target, read=read, latest=latest_time())
    found.take(in_tasks(rows, work, REPORT_DDL).collect())
    return found


def _each_once(rows: DataFrame) -> DataFrame:
    """Return rows of `SOURCE` with each record once, and a count of its copies.

    The number is a column: what Spark observes on the way to a shuffle it adds up again for each
    task that it repeats, once an executor is lost.
    """
    place = ("partition", "offset")
    others = [name for name in SOURCE.names if name not in (*place, "source")]
    # What is no record may have no place, and is never a copy.
    broken = sql.when(sql.col("problem").isNotNull(), sql.monotonically_increasing_id())
    return (
        rows.groupBy(*place, broken.alias("broken"))
        .agg(
            *(sql.first(name).alias(name) for name in others),
            sql.min("source").alias("source"),
            sql.count(sql.lit(1)).alias(COPIES),
        )
        .drop("broken")
    )


def _account(run: Run, source: Source, totals: Totals) -> None:
    ended = sum(totals.records.values())
    if ended != totals.read:
        raise DocumentError(
            f"{', '.join(source.names)}: {totals.read:,} records were read and {ended:,} are "
            "accounted for: the source changed while it was read; scan again."
        )
    if totals.read:
        check_records(source.names, totals.records, before=run.previous is not None)
    elif run.previous is None:
        raise DocumentError(
            f"{', '.join(source.names)}: no record of {TOPIC} is in there; nothing to report on."
        )


def check_records(names: Sequence[str], ended: Mapping[str, int], before: bool) -> None:
    """Check that more than a few of a source's records are the topic's.

    `ended` counts them by their kinds' names, `before` is whether the scan goes on from another.

    Raises:
        DocumentError: fewer than one in ten is of a known kind and can be read.
    """
    read = sum(ended.values())
    known = sum(ended.get(name, 0) for name in KINDS.values())
    if known * _FEW >= read or (before and read < _MANY):
        return
    raise DocumentError(
        f"{', '.join(names)}: {known:,} of {read:,} records are {TOPIC}'s; it seems to be "
        f"something else: give records of {TOPIC}, with key and value as brokers wrote them; a "
        "broker's request log goes to --request-log."
    )


def check_request_logs(paths: Sequence[str], counts: Mapping[str, int]) -> None:
    """Check that request logs hold a line of the request logger; `counts` are by `requests.COUNTS`.

    Raises:
        DocumentError: there are lines, and none is one.
    """
    if counts["lines"] and not counts["requests"]:
        raise DocumentError(
            f"{', '.join(paths)}: none of {counts['lines']:,} lines is a request log's; give the "
            "file of kafka.request.logger at DEBUG."
        )


def read_logs(
    spark: SparkSession,
    run: Run,
    paths: Sequence[str],
    totals: Totals,
    *,
    zone: Zone,
    say: Say,
) -> LogsRead:
    """Bring the lines of request logs that no earlier scan has read to the inputs.

    `zone` is that of times that name none; where it is None, records that this scan read may show
    it, else it is UTC.

    Raises:
        DocumentError: a path is missing or cannot be read, or a folder holds no file; or none of
            the lines is a request log's.
    """
    before = run.previous
    known = before.logs if before is not None else ()
    shares, read = share_out(paths, _TASKS_PER_CORE * cores_of(spark), known)
    ahead_ms = before.log_ahead_ms if before is not None else None
    if zone is None:
        ahead_ms = _find_zone(spark, run, shares, totals.files("records"), ahead_ms)
        if ahead_ms:
            zone = timedelta(milliseconds=ahead_ms)
            say(f"the request logs' times are read as {zone_name(zone)}: no zone is printed")
    take = partial(take_requests, target=run.target, shares=shares, zone=zone, latest=latest_time())
    totals.take(in_tasks(numbered(spark, len(shares)), take, REPORT_DDL).collect())
    counts = {name: totals.lines.get(name, 0) for name in COUNTS}
    check_request_logs(paths, counts)
    if before is not None and known:
        counts = counted(before.requests, counts)
    return LogsRead(counts, tuple(read), ahead_ms)


def _find_zone(
    spark: SparkSession,
    run: Run,
    shares: Sequence[Sequence[Part]],
    records: Sequence[DataFile],
    before: int | None,
) -> int | None:
    """Return how far the logs' clock is ahead of UTC, by generations that records date too.

    A generation's record is written when its leader's SYNC_GROUP is answered, so the two times are
    one moment: it is what `inspect` does with one group's log (`groups.evidence.logs`). In
    milliseconds; where no record shows it, or several differ, it is what the scan `before` found
    (None: nothing shows it).
    """
    look = partial(in_shares, shares=shares, work=read_syncs)
    rows = in_tasks(numbered(spark, len(shares)), look, SYNCED) if records else None
    found = rows.limit(_LOOKED_AT).collect() if rows is not None else ()
    synced = {(one["group_id"], one["generation"]): one["at"] for one in found}
    if not synced:
        return before
    groups = pa.array(sorted({group_id for group_id, _ in synced}), TEXT)
    pieces = pieces_of("records", records, groups)
    written = _written_in(gather(spark, run.place, pieces, TIMELINE))
    apart = [timedelta(microseconds=synced[key] - written[key]) for key in synced.keys() & written]
    zones = [one for one in set(map(zone_offset, apart)) if one is not None]
    return zones[0] // timedelta(milliseconds=1) if len(zones) == 1 else before


def _written_in(records: DataFrame) -> dict[tuple[str, int], int]:
    """Return the times of generations' first records, by group and generation."""
    rows = records.where(sql.substring("key", 1, 2) == sql.lit(_CLASSIC)).where("value IS NOT NULL")
    head = sql.substring("value", 1, _HEAD)
    written: dict[tuple[str, int], int] = {}
    for group_id, at, value in rows.select("group_id", sql.unix_micros("at"), head).collect():
        key = group_id, generation_in(bytes(value))
        written[key] = min(at, written.get(key, at))
    return written
