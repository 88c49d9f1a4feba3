"""The metrics of a lake's clusters and groups, as families of OpenMetrics.

`FAMILIES` holds their names and labels, which dashboards and alerts rely on. What a scan did not
see has no sample. A deleted group counts in `rebal_groups` and has no series of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from rebal.cli.fleet import VERDICTS, FleetGroup, FleetReport
from rebal.cli.output import escape
from rebal.groups.model import Record
from rebal.inspectors.tables.lag import GroupLag
from rebal.planner.plan import Verdict

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_TOTAL: Final = "_total"
_OF_CLUSTER: Final = ("cluster",)
_OF_GROUP: Final = ("cluster", "group")


class Family(NamedTuple):
    """A metric's name, the text of its HELP line, and its labels; `_total` names a counter."""

    name: str
    text: str
    labels: tuple[str, ...] = _OF_GROUP


FAMILIES: Final = (
    Family(
        "rebal_lake_readable",
        "1 if the lake could be read for this answer; 0 if the values are those of an earlier one.",
        (),
    ),
    Family(
        "rebal_scan_finished_timestamp_seconds",
        "Time at which the cluster's last scan finished, since 1970.",
        _OF_CLUSTER,
    ),
    Family(
        "rebal_scan_observed_until_timestamp_seconds",
        "End of the time that the scan covers, since 1970; everything below is as of then.",
        _OF_CLUSTER,
    ),
    Family(
        "rebal_scan_observed_seconds",
        "Length of the time that the scan covers.",
        _OF_CLUSTER,
    ),
    Family(
        "rebal_scan_records_read_total",
        "Records of __consumer_offsets that were read, by earlier scans of the history too.",
        _OF_CLUSTER,
    ),
    Family(
        "rebal_scan_unreadable_records",
        "Records and request log lines that could not be decoded (rows of the table errors).",
        _OF_CLUSTER,
    ),
    Family(
        "rebal_groups",
        "Consumer groups by the verdict of their plan; gone: the group was deleted.",
        ("cluster", "verdict"),
    ),
    Family(
        "rebal_group_readiness",
        "1 for the verdict of the group's plan to this goal, 0 for the other verdicts.",
        ("cluster", "group", "goal", "verdict"),
    ),
    Family(
        "rebal_group_held_members",
        "Members that are down or rejected in a group whose verdict is ready.",
    ),
    Family(
        "rebal_group_members",
        "Members by the rebalance protocol that they run; consumer is KIP-848's.",
        ("cluster", "group", "protocol"),
    ),
    Family(
        "rebal_group_rebalances_total",
        "Completed rebalances of the group since its history begins.",
    ),
    Family(
        "rebal_group_failed_rebalances_total",
        "Rebalances that were begun and not completed.",
    ),
    Family(
        "rebal_group_rejected_joins_total",
        "Joins that the coordinator rejected with INCONSISTENT_GROUP_PROTOCOL.",
    ),
    Family(
        "rebal_group_rebalance_duration_seconds_total",
        "Time spent in rebalances, where the request log shows it.",
    ),
    Family(
        "rebal_group_rebalance_duration_max_seconds",
        "The longest rebalance, where the request log shows it.",
    ),
    Family(
        "rebal_group_last_rebalance_timestamp_seconds",
        "Time at which the last rebalance ended, since 1970.",
    ),
    Family(
        "rebal_group_downtime_partition_seconds_per_hour",
        "Downtime by rebalances: partitions that were not consumed times seconds, per hour.",
    ),
    Family(
        "rebal_group_trouble",
        "1 if an incident of this kind hurt the group in the last hour that the scan covers.",
        ("cluster", "group", "kind"),
    ),
    Family(
        "rebal_group_lag_records",
        "Log end offsets less committed offsets, summed over the partitions where both are known.",
    ),
    Family(
        "rebal_group_lag_max_records",
        "Lag of the partition with the most.",
    ),
    Family(
        "rebal_group_lag_unknown_partitions",
        "Partitions with a committed offset whose log end offset the scan was not told.",
    ),
    Family(
        "rebal_group_last_commit_timestamp_seconds",
        "Time of the group's last offset commit, since 1970.",
    ),
)


class ClusterMetrics(Record, frozen=True, kw_only=True):
    """The last finished scan of one cluster, with what its report does not hold.

    `members` is each existing group's number of members by protocol, `lag` each group's lag.
    """

    report: FleetReport
    members: Mapping[str, Mapping[str, int]]
    lag: Mapping[str, GroupLag]


Samples = dict[str, "GaugeMetricFamily | CounterMetricFamily"]


def families(clusters: Iterable[ClusterMetrics], *, readable: bool) -> Samples:
    """Return every family by its name; `readable`: the lake could be read just now."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    made: Samples = {
        one.name: (CounterMetricFamily if one.name.endswith(_TOTAL) else GaugeMetricFamily)(
            one.name, one.text, labels=one.labels
        )
        for one in FAMILIES
    }
    _add(made, "rebal_lake_readable", (), int(readable))
    for cluster in clusters:
        _add_scan(made, cluster.report)
        for group in cluster.report.groups:
            if group.readiness is not None:
                _add_group(made, group, cluster)
    return made


def label(text: str) -> str:
    r"""Return a name as a label's value: control characters as escapes (`\x1b`).

    Backslashes are doubled, so that two names never become one series.
    """
    return escape(text.replace("\\", "\\\\"))


def _add_scan(made: Samples, report: FleetReport) -> None:
    scan = report.manifest
    of = (label(scan.cluster),)
    covered = None
    if scan.observed_from is not None and scan.observed_until is not None:
        covered = (scan.observed_until - scan.observed_from).total_seconds()
    for name, value in {
        "finished_timestamp_seconds": _seconds(scan.finished_at),
        "observed_until_timestamp_seconds": _seconds(scan.observed_until),
        "observed_seconds": covered,
        "records_read_total": scan.read,
        "unreadable_records": report.unread,
    }.items():
        _add(made, f"rebal_scan_{name}", of, value)
    counts = report.counts
    for verdict in VERDICTS:
        _add(made, "rebal_groups", (*of, verdict), counts.get(verdict, 0))


def _add_group(made: Samples, group: FleetGroup, cluster: ClusterMetrics) -> None:
    report, history = cluster.report, group.history
    of = (label(report.manifest.cluster), label(group.group_id))
    metrics = history.metrics
    for verdict in Verdict:
        on = int(group.verdict == verdict)
        _add(made, "rebal_group_readiness", (*of, label(report.to), verdict.value), on)
    for protocol, count in cluster.members[group.group_id].items():
        _add(made, "rebal_group_members", (*of, protocol), count)
    lag = cluster.lag.get(group.group_id, GroupLag())
    longest, spent = metrics["rebalance-latency-max"], metrics["rebalance-latency-total"]
    for name, value in {
        "held_members": len(group.held),
        "rebalances_total": metrics["rebalance-total"],
        "failed_rebalances_total": metrics["failed-rebalance-total"],
        "rejected_joins_total": history.refused_total,
        "rebalance_duration_seconds_total": None if spent is None else spent / 1000,
        "rebalance_duration_max_seconds": None if longest is None else longest / 1000,
        "last_rebalance_timestamp_seconds": _from_micros(history.last_rebalance_at),
        "downtime_partition_seconds_per_hour": group.stands_still,
        "lag_records": lag.total,
        "lag_max_records": lag.worst,
        "lag_unknown_partitions": lag.unknown,
        "last_commit_timestamp_seconds": _from_micros(lag.last_commit),
    }.items():
        _add(made, f"rebal_group_{name}", of, value)
    for kind in group.troubles:
        _add(made, "rebal_group_trouble", (*of, label(kind)), 1)


def _add(made: Samples, name: str, labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        made[name].add_metric(labels, value)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _from_micros(at: int | None) -> float | None:
    return None if at is None else at / 1_000_000
