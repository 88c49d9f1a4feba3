"""One scan from start to end: check the lake and the sources, run Spark, and explain errors."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import TYPE_CHECKING

from rebal.groups.errors import RebalError
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.spark.session import (
    SparkError,
    SparkSettings,
    any_secret,
    failed_job,
    require,
    spark_session,
)
from rebal.inspectors.fleet.spark.tasks import Say, Tasks, describe, watch

if TYPE_CHECKING:
    from rebal.inspectors.fleet.lake.place import LakePlace
    from rebal.inspectors.fleet.sources.source import RecordSource


@dataclass(frozen=True)
class ScanOrder:
    """The sources and settings of one scan.

    Records come from `config` (a live cluster), `offsets` (captured files) or `segments`. Without
    any of these, only `request_logs` are read. `log_timezone` is the time zone of log times that
    name none (None: as the records show it, else UTC). `cluster` is the operator's name for the
    cluster, for sources that do not contain a cluster id. Scans are kept for `retain` seconds
    (None: as the last scan did).
    """

    out: LakePlace
    cluster: str | None = None
    config: ClusterConfig | None = None
    offsets: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    request_logs: tuple[str, ...] = ()
    log_timezone: tzinfo | None = None
    full: bool = False
    retain: float | None = None
    spark: SparkSettings = field(default_factory=SparkSettings)

    @property
    def secrets(self) -> bool:
        """Return whether passwords or keys travel to Spark's tasks.

        They are those of the brokers, or of the object store that holds the lake.
        """
        known = self.config
        login = known and (
            known.password or known.key or (known.oauth and known.oauth.client_secret)
        )
        return bool(login) or any_secret(self.out.options)


def run_scan(order: ScanOrder, say: Say, tasks: Tasks | None = None) -> Manifest:
    """Run one scan and return its manifest.

    `say` gets a sentence at each stage, `tasks` the progress of Spark's tasks.

    Raises:
        RebalError: the scan failed; one sentence says why. The tables of earlier scans stay as they
            were.
    """
    require(order.spark, secrets=order.secrets)
    from rebal.inspectors.fleet.lake.run import check_place, find_cluster, new_scan
    from rebal.inspectors.fleet.scan import scan

    check_place(order.out)
    source = _look(order)
    whose = f"{order.config.bootstrap} is" if order.config is not None else "the files are"
    reported = source.cluster if source is not None else None
    cluster = find_cluster(order.out, order.cluster, reported, whose=whose)
    with spark_session(order.spark) as spark:
        # Only now is the lake written to: a scan that cannot start leaves nothing there.
        lake_scan = new_scan(order.out, cluster, full=order.full, retain=order.retain)
        try:
            with watch(spark, tasks) if tasks is not None else contextlib.nullcontext():
                manifest = scan(
                    spark,
                    lake_scan,
                    source=source,
                    request_logs=order.request_logs,
                    log_timezone=order.log_timezone,
                    say=say,
                )
        except RebalError:
            raise
        except Exception as error:
            if os.environ.get("REBAL_DEBUG"):
                raise
            raise _in_words(error, order) from None
        say(f"Spark ran on {describe(spark)}.")
        return manifest


def run_scans(
    order: ScanOrder, every: float, say: Say, tasks: Tasks | None = None
) -> Iterator[Manifest]:
    """Scan every `every` seconds in one Spark session, without end; yield each scan's manifest.

    If a scan after the first fails, `say` gets the reason, and the next scan starts as usual.

    Raises:
        RebalError: the first scan failed; one sentence says why.
    """
    require(order.spark, secrets=order.secrets)
    with spark_session(order.spark):
        began = time.monotonic()
        yield run_scan(order, say, tasks)
        order = replace(order, full=False)
        while True:
            time.sleep(max(0.0, began + every - time.monotonic()))
            began = time.monotonic()
            try:
                yield run_scan(order, say, tasks)
            except RebalError as error:
                say(f"{error} The next scan begins {every:g} s after this one began.")


def _look(order: ScanOrder) -> RecordSource | None:
    """Check the sources before Spark starts; return the record source (None: only request logs)."""
    from rebal.inspectors.fleet.sources.source import head_of, list_files

    for log in (file for path in order.request_logs for file in list_files(path)):
        head_of(log)
    if order.config is not None:
        from rebal.inspectors.fleet.sources.kafka import find_records

        return find_records(order.config)
    if order.segments:
        from rebal.inspectors.fleet.sources.segments import read_segments

        return read_segments(order.segments)
    if order.offsets:
        from rebal.inspectors.fleet.sources.captured import read_files

        return read_files(order.offsets)
    return None


def _in_words(error: Exception, order: ScanOrder) -> SparkError:
    text, config = f"{error} {getattr(error, 'java_exception', '')}", order.config
    if config is not None and "TOPIC_AUTHORIZATION_FAILED" in text:
        from rebal.inspectors.fleet.sources.kafka import NEEDED, grant

        return SparkError(
            f"this user may not read the records of __consumer_offsets: {NEEDED}.", grant(config)
        )
    return SparkError(failed_job(text if config is None else config.scrub(text)))
