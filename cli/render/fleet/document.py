"""The document `rebal.fleet/1`: the groups of a scan, in the order to upgrade them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from rebal.cli.fleet import GONE, FleetGroup, FleetReport, NoTrend, Trend
from rebal.cli.render.documents import Document, document_of
from rebal.cli.render.fleet.words import trend_text
from rebal.groups.model import RebalanceProtocol
from rebal.inspectors.clock import moment
from rebal.inspectors.tables.reader import ListSeen, RebalanceRow
from rebal.planner.readiness import Blocker, MissingEvidence, Outlay, Readiness

_T = TypeVar("_T", bound="_Trend")


class _Scan(Document, frozen=True, kw_only=True):
    folder: str
    cluster: str
    finished_at: datetime
    observed_from: datetime | None
    observed_until: datetime | None
    sources: tuple[str, ...]
    records_read: int
    records_unreadable: int
    partitions_with_missing_records: list[int]


class _Rate(Document, frozen=True, kw_only=True):
    before: float
    since: float
    change: str


class _Trend(Document, frozen=True, kw_only=True):
    """Rebalances and downtime per hour, before an earlier scan and since.

    `scan` is the number of that scan. `change` is worse, mixed, better or unclear, over both rates.
    `seconds_before` and `seconds_since` are the lengths of the compared times.
    """

    scan: int
    change: str
    rebalances_per_hour: _Rate
    partition_seconds_stopped_per_hour: _Rate | None
    seconds_before: float
    seconds_since: float


class _FleetTrend(_Trend, frozen=True, kw_only=True):
    """The trend of all groups that can be compared; `groups` is their number."""

    groups: int


class _Baseline(Document, frozen=True, kw_only=True):
    """The earlier scan that the user named for the comparison.

    `vanished` are the groups that this scan has and the later one does not.
    """

    scan: int
    finished_at: datetime
    observed_until: datetime | None
    vanished: tuple[str, ...]


class _Incident(Document, frozen=True, kw_only=True):
    kind: str
    started_at: datetime | None
    ended_at: datetime | None
    members: tuple[str, ...]
    count: int | None
    detail: str | None


class _Group(Document, frozen=True, kw_only=True, rename={"runs": "from"}):
    """One group of the scan; the fields of its plan are left out if the group was deleted."""

    group_id: str
    verdict: str
    type: str | None
    state: str | None
    members: int | None
    place: int | UnsetType | None = UNSET
    runs: RebalanceProtocol | UnsetType = UNSET
    assignor: str | UnsetType | None = UNSET
    to: str | UnsetType = UNSET
    target: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    next_step: int | UnsetType | None = UNSET
    steps: int | UnsetType = UNSET
    under_way: bool | UnsetType = UNSET
    held: tuple[str, ...] | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    blockers: tuple[Blocker, ...] | UnsetType = UNSET
    blockers_later: tuple[Blocker, ...] | UnsetType = UNSET
    evidence_missing: tuple[MissingEvidence, ...] | UnsetType = UNSET
    cost: Outlay | UnsetType | None = UNSET
    saves_partition_seconds_per_hour: float | UnsetType | None = UNSET
    pays_back_after_hours: float | UnsetType | None = UNSET
    rebalance_length_assumed: bool | UnsetType = UNSET
    partition_seconds_stopped_per_hour: float | None
    rates_observed_seconds: float | None
    trend: _Trend | None
    no_trend: str | None
    verdict_before: str | UnsetType | None = UNSET
    metrics: Mapping[str, float | int | None]
    refused_joins: int | None
    observed_from: datetime | None
    observed_until: datetime | None
    deleted_at: datetime | None
    incidents: list[_Incident]
    rebalances: list[dict[str, Any]] | UnsetType = UNSET
    assignor_lists: list[dict[str, Any]] | UnsetType = UNSET


class FleetDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.fleet/1`: the scan, its trend, and the groups in upgrade order."""

    scan: _Scan
    trend: _FleetTrend | None
    no_trend: str | None
    baseline: _Baseline | None
    to: str
    counts: Mapping[str, int]
    groups: list[_Group]


def fleet_document(report: FleetReport, *, whole: bool) -> FleetDocument:
    """Return the report's document; `whole` adds every rebalance and every assignor list."""
    return FleetDocument(
        scan=document_of(
            _Scan,
            report.manifest,
            folder=report.lake.text,
            records_read=report.manifest.read,
            records_unreadable=report.unread,
            partitions_with_missing_records=sorted(report.manifest.breaks),
        ),
        trend=_trend(_FleetTrend, report.trend, report),
        no_trend=trend_text(report) if report.trend is None else None,
        baseline=None
        if not report.baseline or report.earlier is None
        else document_of(
            _Baseline, report.earlier, scan=report.earlier.run, vanished=report.vanished
        ),
        to=report.to,
        counts=report.counts,
        groups=[_group(group, report, whole) for group in report.groups],
    )


def _trend(kind: type[_T], trend: Trend | NoTrend | None, report: FleetReport) -> _T | None:
    if report.earlier is None or not isinstance(trend, Trend):
        return None
    return document_of(
        kind,
        trend,
        scan=report.earlier.run,
        rebalances_per_hour=trend.rebalances,
        partition_seconds_stopped_per_hour=trend.downtime,
    )


def _no_trend(group: FleetGroup) -> str | None:
    if group.trend is None:
        return "deleted" if group.verdict == GONE else "no earlier scan"
    return group.trend.why if isinstance(group.trend, NoTrend) else None


def _group(group: FleetGroup, report: FleetReport, whole: bool) -> _Group:
    history = group.history
    return _Group(
        group_id=group.group_id,
        verdict=group.verdict,
        type=history.type,
        state=history.state,
        members=history.members,
        partition_seconds_stopped_per_hour=group.downtime_per_hour,
        rates_observed_seconds=group.observed_seconds,
        trend=_trend(_Trend, group.trend, report),
        no_trend=_no_trend(group),
        verdict_before=group.before if report.baseline else UNSET,
        metrics=history.metrics,
        refused_joins=history.refused_total,
        observed_from=moment(history.observed_from),
        observed_until=moment(history.observed_until),
        deleted_at=moment(history.deleted_at),
        incidents=[
            _Incident(
                kind=one.kind,
                started_at=moment(one.started_at),
                ended_at=moment(one.ended_at),
                members=one.members or (),
                count=one.times,
                detail=one.detail,
            )
            for one in history.incidents
        ],
        rebalances=[_row(one, "started_at", "ended_at") for one in history.rebalances]
        if whole
        else UNSET,
        assignor_lists=[_row(one, "at", "last_at") for one in history.lists] if whole else UNSET,
        **(_planned(group.readiness) if group.readiness is not None else {}),
    )


def _planned(ready: Readiness) -> dict[str, Any]:
    plan = ready.plan
    return {
        "place": ready.place,
        "runs": plan.runs,
        "assignor": plan.assignor,
        "to": plan.to,
        "target": plan.target,
        "path": plan.path,
        "next_step": plan.next_step,
        "steps": ready.steps,
        "under_way": ready.under_way,
        "held": ready.held,
        "summary": plan.summary,
        "exit_code": plan.exit_code,
        "blockers": ready.blockers,
        "blockers_later": ready.later,
        "evidence_missing": ready.missing,
        "cost": ready.outlay,
        "saves_partition_seconds_per_hour": ready.saves,
        "pays_back_after_hours": ready.pays_back,
        "rebalance_length_assumed": ready.assumed,
    }


def _row(one: RebalanceRow | ListSeen, *times: str) -> dict[str, Any]:
    row = one._asdict()
    del row["group_id"]
    return row | {name: moment(row[name]) for name in times}
