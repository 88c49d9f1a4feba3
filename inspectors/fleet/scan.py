"""One scan on Spark: from the source's records and the request logs to the lake's tables.

source ── take_in ─┬─ records ─┐
                   ├─ commit_parts ────────────────┐
request logs ── take_requests ── requests ─┐       │
                                           │       │
states of groups with news ── gather ──────┤       │
                               write_timelines   write_group_commits
                                           │       │
files of the previous scan ── carry ───────┴───────┴── the lake's tables

This module runs on the driver. The work of a scan is in proportion to the new records: a group
continues from its saved state (increments.py), and the rows that the previous scan left open are
written again.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial, reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyarrow.fs import FileType
from pyspark.sql import DataFrame, SparkSession

from rebal.groups import VERSION
from rebal.inspectors.clock import micros, moment
from rebal.inspectors.fleet.increments import (
    ABOUT,
    NO_GROUPS,
    GroupChoice,
    Piece,
    carry,
    choose,
    decoded,
    earlier_rows,
    final_until,
    gather,
    pieces_of,
    write_group_commits,
    write_timelines,
)
from rebal.inspectors.fleet.intake import read_logs, read_records
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace
from rebal.inspectors.fleet.lake.run import Freed, LakeScan, counted, remove
from rebal.inspectors.fleet.lake.table import DataFile, find_small, may_hold, of_groups
from rebal.inspectors.fleet.lake.writer import FOLDERS, REPORT_DDL, PartWriter, TaskReport
from rebal.inspectors.fleet.manifest import Manifest, ReadLog
from rebal.inspectors.fleet.schemas import COMMIT_PARTS, GROUPS, MADE, RUNS
from rebal.inspectors.fleet.sources.source import RecordSource
from rebal.inspectors.fleet.spark.tasks import Say, in_shares, in_tasks
from rebal.inspectors.fleet.timeline.group import Options
from rebal.inspectors.kafka.brokers import ClusterReading

_COMMITS: Final = ("commits", "open_commit_groups")
_SHARE: Final = 8
# Request logs of earlier scans that a scan still knows.
_LOGS: Final = 1000


@dataclass(frozen=True)
class _RunningScan:
    """One scan in progress, on the driver.

    `news` are the bounds of its new rows by group, `states` the lake's states from before this
    scan. `totals` is the sum of its task reports. The topic names and the time span in `totals`
    cover earlier scans too. `breaks` are, by partition, offsets after which records are missing.
    """

    spark: SparkSession
    lake_scan: LakeScan
    totals: TaskReport
    news: pa.Table
    states: pa.Table
    breaks: Mapping[int, tuple[int, ...]]


def scan(
    spark: SparkSession,
    lake_scan: LakeScan,
    *,
    source: RecordSource | None,
    request_logs: Sequence[str] = (),
    log_timezone: tzinfo | None = None,
    say: Say,
) -> Manifest:
    """Read the sources, write and commit the tables of `lake_scan`; return the scan's manifest.

    `log_timezone` is the time zone of log times that name none (None: as the records show it, else
    UTC).

    Raises:
        DocumentError: the source has no records of `__consumer_offsets`, or the logs no requests.
        LakeError: this machine does not see the executors' files, or another scan finished first.
    """
    totals = TaskReport()
    logs: Sequence[ReadLog] = ()
    ahead_ms = lake_scan.previous.log_ahead_ms
    if source is not None:
        for note in source.notes:
            say(note)
        more = f" and {len(source.names) - 3:,} more" if len(source.names) > 3 else ""
        say(f"reading {', '.join(source.names[:3])}{more}")
        totals = read_records(spark, lake_scan, source)
        check_seen(lake_scan.place, totals)
    if request_logs:
        say("reading the request logs")
        logs, ahead_ms = read_logs(
            spark, lake_scan, request_logs, totals, zone=log_timezone, say=say
        )
        check_seen(lake_scan.place, totals)
    say(f"{totals.read:,} records read; putting each group's history in order")
    news, states = decoded(totals.news), earlier_rows(lake_scan, "states", ABOUT)
    totals.topics = lake_scan.previous.topics | totals.topics
    if lake_scan.previous.observed_from and lake_scan.previous.observed_until:
        totals.widen_span(
            (micros(lake_scan.previous.observed_from), micros(lake_scan.previous.observed_until))
        )
    now = _RunningScan(spark, lake_scan, totals, news, states, _breaks(lake_scan, totals))
    _write(now, totals.topics.keys() - lake_scan.previous.topics.keys())
    if source is not None and source.brokers is not None:
        _write_log_ends(now, source.brokers)
    # The next scan recognizes this scan's logs, and the last of earlier ones.
    grown = {log.digest for log in logs}
    before = [log for log in lake_scan.previous.logs if log.digest not in grown]
    manifest = replace(
        _manifest(now, source, request_logs),
        log_ahead_ms=ahead_ms,
        logs=(*before[-_LOGS:], *logs),
    )
    return lake_scan.finish(manifest, totals)


def check_seen(place: LakePlace, totals: TaskReport) -> None:
    """Check that this machine sees the files that the tasks report.

    Raises:
        LakeError: a file is missing, because the executors wrote to a place that is not shared.
    """
    paths = [one.path for made in totals.made.values() for one in made]
    with place.errors():
        found = place.files().get_file_info(paths)
    if any(one.type is FileType.NotFound for one in found):
        raise LakeError(
            f"{place}: the executors wrote where this machine cannot see it: name an object store, "
            "or a folder that all of them share."
        )


def _write(now: _RunningScan, named: Collection[str]) -> None:
    """Write the tables' files; `named` are the ids of topics whose names are new."""
    choice = choose(now.news, now.states, now.totals.span, named)
    leaving = _leaving(now, choice)
    parts = now.totals.made.pop("commit_parts", [])
    work = (
        _timeline_tasks(now, choice),
        _commit_tasks(now, choice, leaving, parts),
        _carry_tasks(now, choice, leaving),
    )
    # One job: none of the three waits for another's last task.
    now.totals.take(reduce(DataFrame.union, work).collect())
    with contextlib.suppress(LakeError):
        remove(now.lake_scan.place, [Freed(one.path, one.size) for one in parts])


def _timeline_tasks(now: _RunningScan, choice: GroupChoice) -> DataFrame:
    """Return the reports of tasks that write the timeline rows of the groups in `choice`."""
    lake_scan, totals = now.lake_scan, now.totals
    # Lines without a time are applied again.
    pieces = pieces_of(
        "requests", lake_scan.earlier("requests"), choice.go_on, pc.field("at").is_null()
    )
    for kind in ("records", "requests"):
        pieces += pieces_of(kind, totals.files(kind))
        pieces += pieces_of(kind, lake_scan.earlier(kind), choice.anew)
    for kind in ("states", "waiting"):
        pieces += pieces_of(kind, lake_scan.earlier(kind), choice.go_on)
    options = Options(
        totals.topics,
        now.breaks,
        frozenset(choice.recorded.to_pylist()),
        final_until(now.news),
        totals.span,
    )
    rows = gather(now.spark, lake_scan.place, pieces, RUNS).sortWithinPartitions("group_id")
    return in_tasks(
        rows, partial(write_timelines, target=lake_scan.target, options=options), REPORT_DDL
    )


def _leaving(now: _RunningScan, choice: GroupChoice) -> pa.Array:
    """Return the ids of groups to drop: deleted longer ago than scans are kept, without new rows.

    The result is empty until they are an eighth of all groups, so that files are rarely written
    again. It is also empty if no time is set for which scans are kept.
    """
    span = now.totals.span
    if now.lake_scan.retain is None or span is None:
        return NO_GROUPS
    since = span[1] - int(now.lake_scan.retain * 1_000_000)
    groups = earlier_rows(
        now.lake_scan,
        "open_groups",
        pa.schema([GROUPS.field(name) for name in ("group_id", "deleted_at")]),
    )
    old = groups.filter(pc.less(groups["deleted_at"].cast(pa.int64()), since))["group_id"]
    leaving = old.filter(pc.invert(pc.is_in(old, choice.groups))).combine_chunks()
    return leaving if len(leaving) * _SHARE >= len(groups) else NO_GROUPS


def _write_log_ends(now: _RunningScan, brokers: ClusterReading) -> None:
    writer = PartWriter(now.lake_scan.target)
    writer.add(
        "log_ends",
        [
            {"topic": topic, "topic_partition": number, "log_end_offset": end, "at": brokers.at}
            for topic, ends in brokers.ends.items()
            for number, end in enumerate(ends)
        ],
    )
    for report in writer.report():
        now.totals.take(report.to_pylist())
    now.totals.replaced |= {one.path for one in now.lake_scan.earlier("log_ends")}


def _commit_tasks(
    now: _RunningScan, choice: GroupChoice, leaving: pa.Array, parts: Sequence[DataFile]
) -> DataFrame:
    """Return the reports of tasks that write the table `commits`.

    They merge this scan's offset commits with the previous scan's rows.
    `leaving` are the ids of groups to drop.
    """
    lake_scan, totals = now.lake_scan, now.totals
    pieces = pieces_of("commit_parts", sorted(parts)) + pieces_of(
        "commits", lake_scan.earlier("commits")
    )
    known = pa.concat_arrays([now.states["group_id"].combine_chunks(), choice.groups])
    log = bool(totals.files("requests") or lake_scan.earlier("requests"))
    work = partial(
        write_group_commits, target=lake_scan.target, known=known, leaving=leaving, log=log
    )
    totals.replaced |= {one.path for kind in _COMMITS for one in lake_scan.earlier(kind)}
    return in_tasks(gather(now.spark, lake_scan.place, pieces, COMMIT_PARTS), work, REPORT_DDL)


def _carry_tasks(now: _RunningScan, choice: GroupChoice, leaving: pa.Array) -> DataFrame:
    """Return the reports of tasks that write earlier scans' files again.

    The tasks leave out the rows that this scan replaces and those of the groups `leaving` (ids),
    and put small files together. All other files stay as they are.
    """
    lake_scan = now.lake_scan
    shares: list[list[Piece]] = []
    for kind, table in FOLDERS.items():
        # Those that a scan writes whole: a row for each partition that brokers or commits have.
        files = () if kind in (*_COMMITS, "log_ends") else lake_scan.earlier(kind)
        small = find_small(files)
        # The settled rows of a group that continues from its state stay.
        replaced = choice.anew if kind in MADE else choice.groups
        # A recomputed group keeps its input rows.
        if kind in ("records", "requests", "broken"):
            replaced = NO_GROUPS
        # Rows of `errors` show the next scan which records could not be read.
        removed = pa.concat_arrays([replaced, NO_GROUPS if table == "errors" else leaving])
        names, staying = sorted(removed.to_pylist()), ~of_groups(removed)
        of_kind = (
            Piece(kind, one.path, one.size, staying, one in small)
            for one in files
            if one in small or may_hold(one.low, one.high, names)
        )
        shares.append(list(of_kind))
    return in_shares(
        now.spark, list(filter(None, shares)), partial(carry, target=lake_scan.target), REPORT_DDL
    )


def _manifest(
    now: _RunningScan, source: RecordSource | None, request_logs: Sequence[str]
) -> Manifest:
    lake_scan, totals, before = now.lake_scan, now.totals, now.lake_scan.previous
    first, until = (None, None) if totals.span is None else map(moment, totals.span)
    return Manifest(
        rebal=VERSION,
        cluster=lake_scan.cluster,
        run=lake_scan.number,
        finished_at=datetime.now(UTC).replace(microsecond=0),
        observed_from=first,
        observed_until=until,
        sources=tuple(
            sorted(
                {*(source.names if source else ()), *(Path(path).name for path in request_logs)}
                | set(before.sources)
            )
        ),
        read=totals.read + before.read,
        records=counted(before.records, totals.records),
        skipped=counted({}, totals.skipped),
        requests=counted(before.requests, totals.lines),
        offsets=dict(sorted({**before.offsets, **totals.last}.items())),
        breaks=dict(now.breaks),
        topics=totals.topics,
        # The tables have the log end offsets: there are many, and each kept scan has a manifest.
        brokers=replace(source.brokers, ends={}) if source and source.brokers else before.brokers,
    )


def _breaks(lake_scan: LakeScan, totals: TaskReport) -> dict[int, tuple[int, ...]]:
    """Return, by partition, the offsets after which records are missing, from all scans so far.

    Such an offset is the last one of a scan. The next scan to read the partition got fewer records
    and markers of transactions than there are offsets from there to its own last one.
    """
    before, last = lake_scan.previous, totals.last
    found = {
        number: (*before.breaks.get(number, ()), end)
        for number, end in before.offsets.items()
        if number in last and totals.offsets[number] < last[number] - end
    }
    return dict(sorted({**before.breaks, **found}.items()))
