"""The connections of both Kafka clients for one run of a command: `connect` makes a `Session`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rebal.groups.model import (
    Broker,
    Cluster,
)
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import (
    ConnectError,
    RequestError,
    SettingError,
)
from rebal.inspectors.kafka.brokers import group_settings
from rebal.inspectors.kafka.cluster import RawCluster, broker_version
from rebal.inspectors.kafka.messages import DescribeQuorumRequest
from rebal.inspectors.kafka.reload import Fetches
from rebal.inspectors.kafka.resources import Resources
from rebal.inspectors.kafka.wire import Deadline

if TYPE_CHECKING:
    from rebal.inspectors.kafka.admin import Admin

_METADATA: Final = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
# A controller that does not answer delays a look by so much of its time.
_SHARE: Final = 8
HOPELESS: Final = frozenset({"unreachable", "timeout", "protocol", "token"})
"""Kinds of `ConnectError` after which librdkafka would fail too, only later."""


class Session:
    """The connections of one run: `raw`, or `fallback` where kafka-python cannot log in.

    `resources` reads brokers, topics, offsets and settings with the one that is there.
    """

    def __init__(
        self,
        config: ClusterConfig,
        raw: RawCluster | None,
        fallback: Admin | None,
        notes: tuple[str, ...],
    ) -> None:
        self.config = config
        self.raw = raw
        self.fallback = fallback
        made = fallback if raw is None else Resources(raw)
        assert made is not None
        self.resources: Resources | Admin = made
        self.notes = notes
        self.fetches = Fetches()
        self._settings: dict[int, Mapping[str, str] | RequestError | ConnectError] = {}
        self._lock = threading.Lock()
        self._ahead: timedelta | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.raw is not None:
            self.raw.close()
        if self.fallback is not None:
            self.fallback.close()

    def clock_ahead(self, deadline: Deadline) -> timedelta | None:
        """Return how far this machine's clock is ahead of the brokers'; None if not measured."""
        with self._lock:
            if self._ahead is None:
                raw = self.raw
                self._ahead = ahead_of_brokers(raw, deadline) if raw is not None else None
            return self._ahead

    def settings(
        self, broker_id: int, deadline: Deadline
    ) -> Mapping[str, str] | RequestError | ConnectError:
        """Return the broker's group-related settings or the error; each broker is asked once."""
        with self._lock:
            if broker_id not in self._settings:
                try:
                    found = group_settings(self.resources.settings(broker_id, deadline))
                    self._settings[broker_id] = found
                except (RequestError, ConnectError) as error:
                    self._settings[broker_id] = error
            return self._settings[broker_id]

    def cluster(self, broker_id: int, deadline: Deadline) -> tuple[Cluster, list[str]]:
        """Return the cluster as this broker describes it, and notes on what could not be read.

        Raises:
            RequestError: the broker did not answer.
            ConnectError: the connection is lost for good.
        """
        settings: Mapping[str, str] = {}
        notes: list[str] = []
        found = self.settings(broker_id, deadline)
        if isinstance(found, RequestError) and "AUTHORIZATION" in found.name:
            notes.append("broker settings were not read: allow DESCRIBE_CONFIGS on the cluster")
        elif isinstance(found, RequestError | ConnectError):
            notes.append(f"broker settings were not read: {found}")
        else:
            settings = found
        if self.raw is None:
            cluster_id, brokers = self.resources.cluster(deadline)
            return Cluster(cluster_id=cluster_id, brokers=brokers, settings=settings), notes
        connection = self.raw.node(broker_id, deadline)
        cluster = Cluster(
            cluster_id=self.raw.cluster_id,
            brokers=tuple(
                Broker(broker_id=number, rack=rack)
                for number, (_, _, rack) in sorted(self.raw.brokers.items())
            ),
            version=broker_version(connection),
            features=dict(sorted(connection.features.items())),
            settings=settings,
        )
        return cluster, notes


def ahead_of_brokers(raw: RawCluster, deadline: Deadline) -> timedelta | None:
    """Return how far this machine's clock is ahead of the brokers' (negative: behind).

    It is 0 where the difference is not material, and None where it cannot be measured.
    """
    try:
        connection = raw.any(deadline)
        if not connection.supports(DescribeQuorumRequest, 1):
            return None
        asked = clock.now()
        answer = connection.send(
            DescribeQuorumRequest, deadline.share(_SHARE), min_version=1, topics=[_METADATA]
        )
        answered = clock.now()
    except (ConnectError, RequestError):
        return None
    for topic in () if answer.error_code else answer.topics:
        for part in topic.partitions:
            for voter in part.current_voters:
                if voter.replica_id == part.leader_id and voter.last_caught_up_timestamp > 0:
                    theirs = datetime.fromtimestamp(voter.last_caught_up_timestamp / 1000, UTC)
                    return clock.ahead_of(theirs, asked, answered)
    return None


def connect(config: ClusterConfig) -> Session:
    """Return a session with kafka-python; with librdkafka and a note where that cannot log in.

    Raises:
        ConnectError: no broker can be reached or speaks Kafka's protocol, or both logins failed.
        SettingError: neither client can use the settings.
    """
    deadline = Deadline(config.timeout_ms)
    raw = RawCluster(config)
    try:
        raw.any(deadline)
        return Session(config, raw, None, ())
    except RequestError as error:
        # librdkafka may crash on what is no answer.
        raw.close()
        raise ConnectError(str(error), "protocol") from None
    except (ConnectError, SettingError) as error:
        raw.close()
        if isinstance(error, ConnectError) and error.kind in HOPELESS:
            raise
        note = (
            "the members' subscription bytes were not read and nothing was probed, because "
            f"kafka-python cannot log in: {error}"
        )
        return Session(config, None, _fallback(config, deadline, error), (note,))


def _fallback(
    config: ClusterConfig, deadline: Deadline, error: ConnectError | SettingError
) -> Admin:
    """Return librdkafka's client, tested with one request; raise `error` where it fails too."""
    # librdkafka's library takes a tenth of the time of a start, and most logins do not need it.
    from rebal.inspectors.kafka.admin import Admin

    try:
        made = Admin(config)
    except ConnectError:
        raise error from None
    try:
        made.cluster(deadline)
    except (ConnectError, RequestError):
        made.close()
        raise error from None
    except BaseException:
        made.close()
        raise
    return made
