"""The document `rebal.fleet/1`: the scan, the counts, and a record for each group, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebal.cli.fleet import FleetGroup, FleetReport
from rebal.inspectors.fleet.tables.columns import moment
from rebal.inspectors.fleet.tables.history import GroupHistory, ListSeen, Rebalance
from rebal.planner.readiness import Readiness


def fleet_body(report: FleetReport, *, whole: bool) -> dict[str, Any]:
    """The body; `whole`: with each rebalance and each list that was seen."""
    manifest = report.manifest
    return {
        "scan": {
            "folder": report.folder,
            "finished_at": manifest.finished_at,
            "observed_from": manifest.observed_from,
            "observed_until": manifest.observed_until,
            "sources": manifest.sources,
            "records_read": manifest.read,
            "records_unreadable": report.unread,
            "partitions_with_missing_records": sorted(manifest.breaks),
        },
        "to": report.to,
        "counts": dict(report.counts),
        "groups": [_group(group, whole) for group in report.groups],
    }


def _group(group: FleetGroup, whole: bool) -> dict[str, Any]:
    history = group.history
    made: dict[str, Any] = {
        "group_id": group.group_id,
        "verdict": group.verdict,
        "type": history.type,
        "state": history.state,
        "members": history.members,
        **(_plan(group.readiness) if group.readiness is not None else {}),
        "partition_seconds_stopped_per_hour": group.stands_still,
        "metrics": history.metrics,
        "refused_joins": history.refused_total,
        "observed_from": moment(history.observed_from),
        "observed_until": moment(history.observed_until),
        "deleted_at": moment(history.deleted_at),
        "incidents": [
            {
                "kind": one.kind,
                "started_at": moment(one.started_at),
                "ended_at": moment(one.ended_at),
                "members": one.members or (),
                "count": one.times,
                "detail": one.detail,
            }
            for one in history.incidents
        ],
    }
    return made | _whole(history) if whole else made


def _plan(ready: Readiness) -> Mapping[str, Any]:
    plan = ready.plan
    return {
        "place": ready.place,
        "from": plan.runs,
        "assignor": plan.assignor,
        "to": plan.to,
        "target": plan.target,
        "path": plan.path,
        "next_step": plan.next_step,
        "under_way": ready.under_way,
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


def _whole(history: GroupHistory) -> dict[str, Any]:
    return {
        "rebalances": [_rebalance(one) for one in history.rebalances],
        "assignor_lists": [_list(one) for one in history.lists],
    }


def _rebalance(one: Rebalance) -> dict[str, Any]:
    times = {"started_at": moment(one.started_at), "ended_at": moment(one.ended_at)}
    return {key: value for key, value in (one._asdict() | times).items() if key != "group_id"}


def _list(one: ListSeen) -> dict[str, Any]:
    times = {"at": moment(one.at), "last_at": moment(one.last_at)}
    return {key: value for key, value in (one._asdict() | times).items() if key != "group_id"}
