"""The connections to one cluster for one run of a command: `connect` makes a `Session`."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from rebal.groups.model import Broker, Cluster
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka.brokers import group_settings
from rebal.inspectors.kafka.cluster import RawCluster, broker_version
from rebal.inspectors.kafka.messages import request_class
from rebal.inspectors.kafka.resources import Resources
from rebal.inspectors.kafka.wire import Deadline

_METADATA: Final = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
# A controller that does not answer delays a look by so much of its time.
_SHARE: Final = 8


class Session:
    """The cluster of one run, and what is read of it once.

    `resources` reads topics, offsets and settings.
    """

    def __init__(self, raw: RawCluster) -> None:
        self.raw = raw
        self.resources = Resources(raw)
        self._settings: dict[int, tuple[Mapping[str, str], list[str]]] = {}
        self._lock = threading.Lock()
        self._ahead: timedelta | None = None

    def clock_ahead(self, deadline: Deadline) -> timedelta | None:
        """Return how far this machine's clock is ahead of the brokers'; None if not measured."""
        with self._lock:
            if self._ahead is None:
                self._ahead = ahead_of_brokers(self.raw, deadline)
            return self._ahead

    def settings(self, broker_id: int, deadline: Deadline) -> tuple[Mapping[str, str], list[str]]:
        """Return the broker's group-related settings, or why not; each broker is asked once."""
        with self._lock:
            if broker_id not in self._settings:
                try:
                    found = group_settings(self.resources.settings(broker_id, deadline))
                    self._settings[broker_id] = found, []
                except (RequestError, ConnectError) as error:
                    denied = "AUTHORIZATION" in getattr(error, "name", "")
                    why = "allow DESCRIBE_CONFIGS on the cluster" if denied else str(error)
                    self._settings[broker_id] = {}, [f"broker settings were not read: {why}"]
            return self._settings[broker_id]

    def cluster(self, broker_id: int, deadline: Deadline) -> tuple[Cluster, list[str]]:
        """Return the cluster as this broker describes it, and notes on what could not be read."""
        settings, notes = self.settings(broker_id, deadline)
        try:
            connection = self.raw.node(broker_id, deadline)
        except (RequestError, ConnectError) as error:
            return Cluster(settings=settings), [*notes, f"the cluster was not read: {error}"]
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
        asked = clock.now()
        answer = connection.send(
            request_class("DescribeQuorum"),
            deadline.share(_SHARE),
            min_version=1,
            topics=[_METADATA],
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


@contextmanager
def connect(config: ClusterConfig) -> Iterator[Session]:
    """Yield a session whose login was accepted; its connections are closed afterwards.

    Raises:
        ConnectError: no broker can be reached or speaks Kafka's protocol, or the login is rejected.
        SettingError: the settings cannot be used.
    """
    with RawCluster(config) as raw:
        try:
            raw.any(raw.deadline())
        except RequestError as error:
            raise ConnectError(str(error), "protocol") from None
        yield Session(raw)
