"""One scan on Spark: from rows of a source and request logs to the lake's tables, driven here.

source ── take_in ─┬─ records ─┐
                   ├─ commit_parts ────────────────┐
request logs ── take_requests ── requests ─┐       │
                                           │       │
states of groups with news ── gather ──────┴ tell  └ tell_commits
                                             │          │
files of the scan before ── carry ───────────┴──────────┴── the lake's tables

What a scan tells is in proportion to what is new: a group goes on from its state (news.py), and
the rows that the scan before left open are written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial, reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from rebal.groups import VERSION
from rebal.inspectors.fleet.carrying import Load, carry
from rebal.inspectors.fleet.lake.run import Run, counted
from rebal.inspectors.fleet.lake.table import DataFile, find_small
from rebal.inspectors.fleet.manifest import Manifest, ReadLog
from rebal.inspectors.fleet.news import News, State, find_news, told_until
from rebal.inspectors.fleet.parts import FOLDERS, REPORT_DDL, STORED, WORK
from rebal.inspectors.fleet.reading import Say, read_logs, read_records
from rebal.inspectors.fleet.runs import SORTED_BY
from rebal.inspectors.fleet.schemas import COMMIT_PARTS, PACKED
from rebal.inspectors.fleet.sources.source import SKIPPED, Source
from rebal.inspectors.fleet.spark.tasks import cores_of, in_tasks, require_shared
from rebal.inspectors.fleet.stages import (
    Gather,
    Piece,
    by_group,
    find_effective_times,
    gather,
    in_one_task,
    in_order,
    tasks_for,
)
from rebal.inspectors.fleet.states import NEWEST, read_states
from rebal.inspectors.fleet.telling import Committed, tell, tell_commits
from rebal.inspectors.fleet.timeline.rows import OPEN
from rebal.inspectors.fleet.timeline.timeline import Tale
from rebal.inspectors.fleet.totals import Totals

_Span = tuple[int, int] | None
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REPLACED: Final = ("commits", "open_commit_groups")
"""Kinds that each scan writes whole: a row for each partition that has commits."""
_READ: Final = ("records", "requests", "broken")
"""Kinds that are what was read: telling a group anew makes none of their rows again."""
_LOGS: Final = 1000
"""Request logs of earlier scans that a scan still knows."""


@dataclass(frozen=True)
class _Scan:
    """One scan under way: `states` are the lake's before it, by group, and `span` the time that
    all sources cover, earlier scans' included, in microseconds since 1970."""

    spark: SparkSession
    run: Run
    totals: Totals
    states: Mapping[str, State]
    span: _Span
    breaks: Mapping[int, tuple[int, ...]]
    log: bool

    @property
    def cores(self) -> int:
        """Tasks that run at once."""
        return cores_of(self.spark)


def scan(
    spark: SparkSession,
    run: Run,
    *,
    source: Source | None,
    request_logs: Sequence[str] = (),
    log_timezone: tzinfo | None = None,
    say: Say,
) -> Manifest:
    """Fill `run` from `source` and the request logs and finish it.

    `log_timezone` is the zone of a log's times that name none (None: as records show, else UTC).

    Raises:
        DocumentError: what was named holds no record of a group.
        ScanError: a record was lost on the way, or the source changed while it was read.
    """
    require_shared(spark, run.place, run.target.token)
    totals = Totals()
    requests: Mapping[str, int] = {}
    if run.previous is not None:
        totals.log_ahead_ms = run.previous.log_ahead_ms
    if source is not None:
        more = f" and {len(source.names) - 3:,} more" if len(source.names) > 3 else ""
        say(f"reading {', '.join(source.names[:3])}{more}")
        read_records(run, source, totals)
    if request_logs:
        say("reading the request logs")
        requests = read_logs(spark, run, request_logs, totals, zone=log_timezone, say=say)
    say(f"{totals.read:,} records read; putting each group's history in order")
    log = bool(totals.files("requests") or run.earlier("requests"))
    span = _span(run, totals)
    now = _Scan(spark, run, totals, read_states(run), span, _breaks(run, totals), log)
    before = run.previous.topics if run.previous is not None else {}
    news = find_news(totals.series, now.states, span, totals.topics.keys() - before.keys())
    work = (_tell(now, news), _tell_commits(now, news), _carry(now, news))
    reports = [one for one in work if one is not None]
    if reports:
        # One job: none of the three waits for another's last task.
        totals.take(reduce(lambda a, b: a.union(b), reports))
    manifest = _manifest(now, source=source, request_logs=request_logs, requests=requests)
    return run.finish(manifest, _files(run, totals))


def _tell(now: _Scan, news: News) -> DataFrame | None:
    """Reports of tasks that tell the groups that have news."""
    run, totals = now.run, now.totals
    pieces = [Piece("runs", one.path, one.size, without=news.anew) for one in totals.files("runs")]
    pieces += [Piece("requests", one.path, one.size) for one in totals.files("requests")]
    pieces += [
        Piece("records", one.path, one.size, news.anew)
        for one in (totals.files("records") if news.anew else ())
    ]
    pieces += [
        Piece(kind, one.path, one.size, news.anew)
        for kind in ("records", "requests")
        for one in (run.earlier(kind) if news.anew else ())
    ]
    going = frozenset(news.go_on)
    pieces += [
        Piece(kind, one.path, one.size, going, news.go_on)
        for kind in NEWEST
        for one in (run.earlier(kind) if going else ())
    ]
    if not pieces:
        return None
    until = told_until(totals.series)
    tale = Tale(
        {**(run.previous.topics if run.previous else {}), **totals.topics},
        now.breaks, news.recorded, until, now.span,
    )  # fmt: skip
    wanted = Gather(run.place, pieces, now.span)
    moved = find_effective_times(now.spark, _records_of(wanted), news.anew)
    rows = (
        gather(now.spark, replace(wanted, moved=moved), PACKED)
        .transform(by_group(tasks_for(pieces, now.cores)))
        .transform(in_order(*SORTED_BY))
    )
    return in_tasks(rows, partial(tell, target=run.target, tale=tale), REPORT_DDL)


def _records_of(wanted: Gather) -> Gather:
    return replace(wanted, pieces=[one for one in wanted.pieces if one.kind == "records"])


def _tell_commits(now: _Scan, news: News) -> DataFrame | None:
    """Reports of tasks that tell what groups have committed, in this scan and before."""
    run = now.run
    pieces = [Piece("commit_parts", one.path, one.size) for one in now.totals.files("commit_parts")]
    pieces += [Piece("commits", one.path, one.size) for one in run.earlier("commits")]
    if not pieces:
        return None
    told = Committed(now.span, news.groups | now.states.keys(), now.log)
    wanted, work = Gather(run.place, pieces), partial(tell_commits, target=run.target, told=told)
    now.totals.gone |= {one.path for kind in _REPLACED for one in run.earlier(kind)}
    tasks = tasks_for(pieces, now.cores)
    if tasks == 1:
        return in_one_task(now.spark, wanted, work, REPORT_DDL)
    rows = gather(now.spark, wanted, COMMIT_PARTS).transform(by_group(tasks))
    return in_tasks(rows, work, REPORT_DDL)


def _carry(now: _Scan, news: News) -> DataFrame | None:
    """Reports of tasks that write again what is replaced in part, and put small files together."""
    run = now.run
    newest = {group_id: one.scan_id for group_id, one in now.states.items()}
    newest |= dict.fromkeys(news.groups, run.number)
    again = news.anew & now.states.keys()
    loads: list[Load] = []
    for kind, table in FOLDERS.items():
        files = () if table == WORK or kind in _REPLACED else run.earlier(kind)
        if not files:
            continue
        if kind in NEWEST:
            small = find_small(files)
            loads += [Load(kind, _paths(small), newest=newest, whole=True)] if small else []
            continue
        told = news.groups if kind.startswith(OPEN) else again
        gone = frozenset() if kind in _READ else told
        small = find_small(files)
        touched = [one for one in files if one not in small and _may_hold(one, gone)]
        if small:
            loads.append(Load(kind, _paths(small), gone, whole=True))
        if touched:
            loads.append(Load(kind, _paths(touched), gone))
    if not loads:
        return None
    numbers = now.spark.range(0, len(loads), 1, len(loads))
    return in_tasks(numbers, partial(carry, target=run.target, loads=loads), REPORT_DDL)


def _paths(files: Sequence[DataFile]) -> tuple[str, ...]:
    return tuple(one.path for one in files)


def _may_hold(file: DataFile, groups: frozenset[str]) -> bool:
    low, high = file.low, file.high
    if low is None or high is None:
        return bool(groups)
    return any(low <= group <= high for group in groups)


def _files(run: Run, totals: Totals) -> dict[str, list[DataFile]]:
    """All files of the finished scan by table: what it made, and what it keeps of earlier ones."""
    found: dict[str, list[DataFile]] = {table: [] for table in STORED}
    for kind, table in FOLDERS.items():
        if table == WORK:
            continue
        kept = [one for one in run.earlier(kind) if one.path not in totals.gone]
        found[table] += [
            one._replace(path=one.path.removeprefix(f"{table}/"))
            for one in (*kept, *totals.files(kind))
        ]
    return found


def _manifest(
    now: _Scan,
    *,
    source: Source | None,
    request_logs: Sequence[str],
    requests: Mapping[str, int],
) -> Manifest:
    run, totals = now.run, now.totals
    before = run.previous
    skipped = {
        n.removeprefix(SKIPPED): c for n, c in totals.counts.items() if n.startswith(SKIPPED)
    }
    first, until = (None, None) if now.span is None else map(_moment, now.span)
    heard = [one.until for one in totals.series if one.partition is None and one.until is not None]
    times = [_moment(max(heard))] if heard else []
    times += [before.heard_until] if before is not None and before.heard_until else []
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
        breaks=dict(now.breaks),
        topics={**(before.topics if before else {}), **totals.topics},
        heard_until=max(times, default=None),
        log_ahead_ms=totals.log_ahead_ms,
        logs=_logs(before.logs if before else (), totals.logs),
        brokers=(source.brokers if source else None) or (before.brokers if before else None),
    )


def _breaks(run: Run, totals: Totals) -> dict[int, tuple[int, ...]]:
    """Return the last offsets of earlier scans after which records are missing, by partition."""
    before = run.previous
    found = dict(before.breaks) if before else {}
    for number, last in totals.last.items():
        end = before.offsets.get(number) if before else None
        if end is not None and totals.offsets[number] < last - end:
            found[number] = (*found.get(number, ()), end)
    return dict(sorted(found.items()))


def _logs(before: Sequence[ReadLog], now: Sequence[ReadLog]) -> tuple[ReadLog, ...]:
    """The logs that the next scan is to know: those of this scan, and of earlier ones the last."""
    digests = {log.digest for log in now}
    return (*[log for log in before if log.digest not in digests][-_LOGS:], *now)


def _span(run: Run, totals: Totals) -> _Span:
    """The first and the last time of all records and requests, earlier scans' included."""
    found = [totals.span] if totals.span is not None else []
    before = run.previous
    if before is not None and before.observed_from and before.observed_until:
        found.append((_micros(before.observed_from), _micros(before.observed_until)))
    return (min(a for a, _ in found), max(b for _, b in found)) if found else None


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
