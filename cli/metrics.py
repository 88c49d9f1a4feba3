"""Metrics of a lake for Prometheus, from the last finished scan of each of its clusters.

`FAMILIES` holds the names and labels of the metrics, which dashboards and alerts rely on. A value
that the scan did not see has no sample. A deleted group counts in `rebal_groups` and has no series
of its own. prometheus_client calls `LakeMetrics.collect`. It looks for scans that were finished
since the last call, and reads the tables only of clusters that have a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from rebal.cli.errors import UsageError
from rebal.cli.fleet import VERDICTS, FleetGroup, FleetReport, make_fleet_report
from rebal.cli.output import escape, say
from rebal.cli.params import Lake
from rebal.cli.sources import whole_name
from rebal.groups.errors import RebalError
from rebal.groups.model import Record
from rebal.groups.protocol import members_by_protocol
from rebal.inspectors.clock import moment
from rebal.inspectors.tables.groups import GroupLag, ScannedGroups, read_lag
from rebal.inspectors.tables.reader import Tables, open_clusters
from rebal.planner.plan import Verdict

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


_OF_CLUSTER: Final = ("cluster",)


class MetricFamily(NamedTuple):
    """A metric's name (a counter's ends in `_total`), the text of its HELP line, and its labels."""

    name: str
    text: str
    labels: tuple[str, ...] = ("cluster", "group")


FAMILIES: Final = (
    MetricFamily(
        "rebal_lake_readable",
        "1 if the lake could be read for this answer; 0 if the values are those of an earlier one.",
        (),
    ),
    MetricFamily(
        "rebal_scan_finished_timestamp_seconds",
        "Time at which the cluster's last scan finished, since 1970.",
        _OF_CLUSTER,
    ),
    MetricFamily(
        "rebal_scan_observed_until_timestamp_seconds",
        "End of the time that the scan covers, since 1970; everything below is as of then.",
        _OF_CLUSTER,
    ),
    MetricFamily(
        "rebal_scan_observed_seconds",
        "Length of the time that the scan covers.",
        _OF_CLUSTER,
    ),
    MetricFamily(
        "rebal_scan_records_read_total",
        "Records of __consumer_offsets that were read, by earlier scans of the history too.",
        _OF_CLUSTER,
    ),
    MetricFamily(
        "rebal_scan_unreadable_records",
        "Records and request log lines that could not be decoded (rows of the table errors).",
        _OF_CLUSTER,
    ),
    MetricFamily(
        "rebal_groups",
        "Consumer groups by the verdict of their plan; gone: the group was deleted.",
        ("cluster", "verdict"),
    ),
    MetricFamily(
        "rebal_group_readiness",
        "1 for the verdict of the group's plan to this goal, 0 for the other verdicts.",
        ("cluster", "group", "goal", "verdict"),
    ),
    MetricFamily(
        "rebal_group_held_members",
        "Members that are down or rejected in a group whose verdict is ready.",
    ),
    MetricFamily(
        "rebal_group_members",
        "Members by the rebalance protocol that they run; consumer is KIP-848's.",
        ("cluster", "group", "protocol"),
    ),
    MetricFamily(
        "rebal_group_rebalances_total",
        "Completed rebalances of the group since its history begins.",
    ),
    MetricFamily(
        "rebal_group_failed_rebalances_total",
        "Rebalances that were begun and not completed.",
    ),
    MetricFamily(
        "rebal_group_rejected_joins_total",
        "Joins that the coordinator rejected with INCONSISTENT_GROUP_PROTOCOL.",
    ),
    MetricFamily(
        "rebal_group_rebalance_duration_seconds_total",
        "Time spent in rebalances, where the request log shows it.",
    ),
    MetricFamily(
        "rebal_group_rebalance_duration_max_seconds",
        "The longest rebalance, where the request log shows it.",
    ),
    MetricFamily(
        "rebal_group_last_rebalance_timestamp_seconds",
        "Time at which the last rebalance ended, since 1970.",
    ),
    MetricFamily(
        "rebal_group_downtime_partition_seconds_per_hour",
        "Downtime by rebalances: partitions that were not consumed times seconds, per hour.",
    ),
    MetricFamily(
        "rebal_group_trouble",
        "1 if an incident of this kind hurt the group in the last hour that the scan covers.",
        ("cluster", "group", "kind"),
    ),
    MetricFamily(
        "rebal_group_lag_records",
        "Log end offsets less committed offsets, summed over the partitions where both are known.",
    ),
    MetricFamily(
        "rebal_group_lag_max_records",
        "Lag of the partition with the most.",
    ),
    MetricFamily(
        "rebal_group_lag_unknown_partitions",
        "Partitions with a committed offset whose log end offset the scan was not told.",
    ),
    MetricFamily(
        "rebal_group_last_commit_timestamp_seconds",
        "Time of the group's last offset commit, since 1970.",
    ),
)


class ClusterMetrics(Record, frozen=True, kw_only=True):
    """The fleet report of a cluster's last finished scan, and values that the report does not have.

    `members` is group → protocol → number of members, `lag` is group → lag. Deleted groups have no
    entry in `members`.
    """

    report: FleetReport
    members: Mapping[str, Mapping[str, int]]
    lag: Mapping[str, GroupLag]


Samples = dict[str, "GaugeMetricFamily | CounterMetricFamily"]
_LOOPBACK: Final = "127.0.0.1"


class LakeMetrics:
    """The metrics of a lake, or of one cluster of it (LAKE#CLUSTER).

    `match` is a regular expression for whole group names. `to` is the goal of the plans that give
    the groups' readiness.
    """

    def __init__(self, lake: Lake, *, match: str | None = None, to: str = "cooperative") -> None:
        self._lake = lake
        self._match = match
        self._pattern = whole_name(match)
        self._to = to
        self._known: dict[str, ClusterMetrics] = {}
        self._trouble = ""
        self._reading = Lock()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last finished scans.

        While the lake cannot be read, they are those of the last scans that were read, and
        `rebal_lake_readable` is 0.
        """
        # A server answers each request in a thread of its own.
        with self._reading:
            before, self._trouble = self._trouble, ""
            try:
                self.read()
            except RebalError as error:
                self._trouble = str(error)
                if self._trouble != before:
                    say(self._trouble)
            return _families(self._known.values(), readable=not self._trouble).values()

    def serve(self, listen: str) -> None:
        """Serve the metrics over HTTP at `listen` until Ctrl-C, and print the URL on stderr.

        Every path returns the metrics: in the OpenMetrics format if the request asks for it, else
        in Prometheus's text format.

        Raises:
            UsageError: `listen` is no address (`address_of`), or as `require_groups`.
            RebalError: the port is in use or not allowed, or the host is not one of this machine.
        """
        from prometheus_client import CollectorRegistry, start_http_server

        host, port = address_of(listen)
        self.require_groups()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            server, thread = start_http_server(port, host, registry)
        except UnicodeError:
            raise RebalError(f"--listen {listen}: cannot listen there: no host name.") from None
        except OSError as error:
            raise RebalError(
                f"--listen {listen}: cannot listen there: {(error.strerror or str(error)).lower()}."
            ) from None
        named = f"[{host}]" if ":" in host else host
        say(f"metrics of {self._lake} on http://{named}:{server.server_port}/metrics until Ctrl-C")
        thread.join()

    def text(self, form: Literal["openmetrics", "prometheus"]) -> str:
        """Return the metrics as text in one of Prometheus's two formats."""
        from prometheus_client import exposition
        from prometheus_client.openmetrics import exposition as openmetrics

        module: Any = openmetrics if form == "openmetrics" else exposition
        made: bytes = module.generate_latest(self)
        return made.decode()

    def read(self) -> None:
        """Read the clusters that have a finished scan that was not read yet.

        Raises:
            TablesError: no scan in the lake is finished, or its files cannot be read.
            UsageError: an invalid goal.
        """
        found = {
            tables.name: tables for tables in open_clusters(self._lake.text, self._lake.options)
        }
        known = {
            name: old
            for name, old in self._known.items()
            if name in found and old.report.manifest == found[name].manifest
        }
        known |= {name: self._read(found[name]) for name in found.keys() - known.keys()}
        self._known = dict(sorted(known.items()))

    def require_groups(self) -> None:
        """Read the lake, and check that the name of at least one group matches `match`.

        Raises:
            UsageError: no name matches, or as `read`.
            TablesError: as `read`.
        """
        self.read()
        if self._match is not None and not any(one.report.groups for one in self._known.values()):
            raise UsageError(
                f"{self._lake}: no group of the last scan matches {self._match} as a whole name."
            )

    def _read(self, tables: Tables) -> ClusterMetrics:
        report = make_fleet_report(tables.name, options=self._lake.options, to=self._to)
        groups = tuple(one for one in report.groups if self._pattern.fullmatch(one.group_id))
        alive = [one.group_id for one in groups if one.readiness is not None]
        scanned = ScannedGroups(tables)
        return ClusterMetrics(
            report=msgspec.structs.replace(report, groups=groups),
            members={name: members_by_protocol(scanned.snapshot(name)) for name in alive},
            lag=read_lag(tables),
        )


def address_of(listen: str) -> tuple[str, int]:
    """Return the host and port of `HOST:PORT`, `[HOST]:PORT`, `:PORT` or `PORT`.

    Without a host it is the loopback address.

    Raises:
        UsageError: `listen` has none of these forms.
    """
    host, _, port = listen.rpartition(":")
    plain = host.removeprefix("[").removesuffix("]")
    valid = plain == host if ":" not in host else f"[{plain}]" == host
    if not (valid and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise UsageError(
            f"--listen {listen}: expected HOST:PORT or PORT, such as {_LOOPBACK}:9464."
        )
    return plain or _LOOPBACK, int(port)


def _families(clusters: Iterable[ClusterMetrics], *, readable: bool) -> Samples:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    made: Samples = {
        one.name: (CounterMetricFamily if one.name.endswith("_total") else GaugeMetricFamily)(
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


def label_value(text: str) -> str:
    r"""Return a name as the value of a label, with control characters as escapes (`\x1b`).

    Backslashes are doubled, so that two names never become one series.
    """
    return escape(text.replace("\\", "\\\\"))


def _add_scan(made: Samples, report: FleetReport) -> None:
    scan = report.manifest
    of, since, until = (label_value(scan.cluster),), scan.observed_from, scan.observed_until
    for name, value in {
        "finished_timestamp_seconds": _seconds(scan.finished_at),
        "observed_until_timestamp_seconds": _seconds(until),
        "observed_seconds": (until - since).total_seconds() if since and until else None,
        "records_read_total": scan.read,
        "unreadable_records": report.unread,
    }.items():
        _add(made, f"rebal_scan_{name}", of, value)
    for verdict in VERDICTS:
        _add(made, "rebal_groups", (*of, verdict), report.counts.get(verdict, 0))


def _add_group(made: Samples, group: FleetGroup, cluster: ClusterMetrics) -> None:
    report, history = cluster.report, group.history
    of = (label_value(report.manifest.cluster), label_value(group.group_id))
    metrics = history.metrics
    for verdict in Verdict:
        on = int(group.verdict == verdict)
        _add(made, "rebal_group_readiness", (*of, label_value(report.to), verdict.value), on)
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
        "last_rebalance_timestamp_seconds": _seconds(moment(history.last_rebalance_at)),
        "downtime_partition_seconds_per_hour": group.downtime_per_hour,
        "lag_records": lag.total,
        "lag_max_records": lag.worst,
        "lag_unknown_partitions": lag.unknown,
        "last_commit_timestamp_seconds": _seconds(moment(lag.last_commit)),
    }.items():
        _add(made, f"rebal_group_{name}", of, value)
    for kind in group.troubles:
        _add(made, "rebal_group_trouble", (*of, label_value(kind)), 1)


def _add(made: Samples, name: str, labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        made[name].add_metric(labels, value)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
