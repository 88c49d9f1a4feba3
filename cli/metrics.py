"""Metrics of a lake for Prometheus: those of the last finished scan of each of its clusters.

`LakeMetrics.collect` is what prometheus_client calls. It looks for a scan that was finished since
the last call, and reads the tables of a cluster only where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from rebal.cli.errors import UsageError
from rebal.cli.fleet import make_fleet_report
from rebal.cli.output import say
from rebal.cli.params import Lake
from rebal.cli.render.fleet.openmetrics import ClusterMetrics, families
from rebal.cli.sources import whole_name
from rebal.groups.errors import RebalError
from rebal.groups.protocol import members_by_protocol
from rebal.inspectors.tables.groups import ScannedGroups
from rebal.inspectors.tables.lag import read_lag
from rebal.inspectors.tables.reader import Tables, open_clusters

if TYPE_CHECKING:
    from prometheus_client.core import Metric


_LOOPBACK: Final = "127.0.0.1"


class LakeMetrics:
    """The metrics of a lake, or of one cluster of it (LAKE#CLUSTER).

    `match` selects groups by their whole names, `to` is the goal that readiness is judged for.
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

        While the lake cannot be read, they are those of the last scans that could be, and
        `rebal_lake_readable` is 0.
        """
        # A server answers each request in a thread of its own.
        with self._reading:
            try:
                self.read()
                self._trouble = ""
            except RebalError as error:
                if str(error) != self._trouble:
                    say(str(error))
                self._trouble = str(error)
            return families(self._known.values(), readable=not self._trouble).values()

    def serve(self, listen: str) -> None:
        """Answer requests at `listen` (`address_of`) until Ctrl-C, and say the URL on stderr.

        Any path gives the metrics: OpenMetrics, or Prometheus's text format to those who do not ask
        for it.

        Raises:
            UsageError: `listen` is no address, or as `require_groups`.
            RebalError: the port is in use or not allowed, or the host is not one of this machine.
        """
        from prometheus_client import CollectorRegistry, start_http_server

        host, port = address_of(listen)
        self.require_groups()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        named = f"[{host}]" if ":" in host else host
        try:
            server, thread = start_http_server(port, host, registry)
        except UnicodeError:
            raise RebalError(f"--listen {listen}: cannot listen there: no host name.") from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise RebalError(f"--listen {listen}: cannot listen there: {why}.") from None
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
        """Read the clusters that have a scan which was not read yet.

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
        for name in found.keys() - known.keys():
            known[name] = self._read(found[name])
        self._known = dict(sorted(known.items()))

    def require_groups(self) -> None:
        """Read the lake, and check that `match` is the name of some group.

        Raises:
            UsageError: it is not; or as `read`.
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

    Without a host it is loopback.

    Raises:
        UsageError: it is none of them.
    """
    host, _, port = listen.rpartition(":")
    plain = host.removeprefix("[").removesuffix("]")
    valid = plain == host if ":" not in host else f"[{plain}]" == host
    if not (valid and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise UsageError(
            f"--listen {listen}: expected HOST:PORT or PORT, such as {_LOOPBACK}:9464."
        )
    return plain or _LOOPBACK, int(port)
