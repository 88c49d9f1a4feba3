"""The connections to one cluster for one run of a command, and its topics, offsets and settings.

Start at `connect`, which makes a `Session`.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from rebal.groups.compact import Replicas
from rebal.groups.model import Broker, Cluster, Topic
from rebal.groups.wire.schema import uuid_text
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError, error_name, unless_error
from rebal.inspectors.kafka.brokers import group_settings
from rebal.inspectors.kafka.cluster import RawCluster, broker_version, side_by_side
from rebal.inspectors.kafka.reload import EARLIEST, LATEST
from rebal.inspectors.kafka.wire import Deadline, request_class

TopicPartition = tuple[str, int]
_COMMITTED: Final = 1
_BROKER: Final = 4
# ListOffsets v1 (Kafka 0.10.1) returns one offset, v2 (0.11) knows the isolation level.
_ONE_OFFSET: Final = 1
_ISOLATION: Final = 2
_THREADS: Final = 16
_PAUSE: Final = 0.05
_Answers = dict[TopicPartition, int | RequestError]
# A controller that does not answer delays a look by so much of its time.
_SHARE: Final = 8


class Session:
    """The topics, offsets and settings of one cluster, for one reading of its groups; thread-safe.

    A topic's metadata is read once, and again if a partition's leader has moved. So a later reading
    needs a new Session.

    Raises (every method that reads topics, offsets or settings):
        ConnectError: no bootstrap server can be reached, or none accepts the login.
        RequestError: a broker's error, or no answer in time.
    """

    def __init__(self, raw: RawCluster) -> None:
        self.raw = raw
        self._known: dict[str, Any] = {}
        self._settings: dict[int, tuple[Mapping[str, str], list[str]]] = {}
        self._lock = threading.Lock()
        self._ahead: timedelta | None = None

    def topics(
        self, names: Sequence[str] | None, deadline: Deadline
    ) -> tuple[list[Topic], dict[str, RequestError]]:
        """Return the topics that this user may describe, and by name the error of each other topic.

        `names` None means every topic.
        """
        answers = sorted(self._looked_up(names, deadline), key=lambda topic: str(topic.name))
        errors = {one.name: error_name(one.error_code) for one in answers if one.error_code}
        found = [
            Topic(
                name=topic.name,
                partitions=len(topic.partitions),
                replicas=Replicas(
                    part.replica_nodes
                    for part in sorted(topic.partitions, key=lambda part: part.partition_index)
                ),
                topic_id=_id(topic.topic_id),
            )
            for topic in answers
            if topic.name not in errors
        ]
        return found, {name: RequestError(error, error) for name, error in errors.items()}

    def ends(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Return (topic, partition) → log end offset; partitions with an error are left out.

        Raises:
            RequestError: TIMED_OUT, if a leader did not answer in time; then nothing is returned.
        """
        found = self._offsets(partitions, LATEST, deadline)
        for offset in found.values():
            if isinstance(offset, RequestError) and offset.name == "TIMED_OUT":
                raise offset
        return {each: at for each, at in found.items() if not isinstance(at, RequestError)}

    def edges(
        self, topic: str, partitions: int, deadline: Deadline
    ) -> dict[int, tuple[int, int, int]]:
        """Return partition → its first offset, last stable offset and log end offset.

        `partitions` is the topic's number of partitions. The error of any of them is raised.
        """
        asked = [(topic, number) for number in range(partitions)]
        first, stable, end = (
            self._offsets(asked, at, deadline, isolation)
            for at, isolation in ((EARLIEST, 0), (LATEST, _COMMITTED), (LATEST, 0))
        )
        return {
            each[1]: (
                unless_error(first[each]),
                unless_error(stable[each]),
                unless_error(end[each]),
            )
            for each in asked
        }

    def settings(self, broker_id: int, deadline: Deadline) -> Mapping[str, str]:
        """Return the broker's settings by name, with defaults, without sensitive values."""
        answer = self.raw.node(broker_id, deadline).send(
            request_class("DescribeConfigs"),
            deadline,
            resources=[
                {
                    "resource_type": _BROKER,
                    "resource_name": str(broker_id),
                    "configuration_keys": None,
                }
            ],
        )
        for result in answer.results:
            if result.error_code:
                name = error_name(result.error_code)
                raise RequestError(name, result.error_message or name)
            return {
                entry.name: entry.value
                for entry in sorted(result.configs, key=lambda entry: entry.name)
                if entry.value is not None and not entry.is_sensitive
            }
        raise RequestError("CORRUPT_MESSAGE", f"broker {broker_id} left out its settings")

    def _looked_up(self, names: Sequence[str] | None, deadline: Deadline) -> list[Any]:
        asked = None if names is None else [each for each in names if each not in self._known]
        answered = [] if asked == [] else self.raw.metadata(asked, deadline).topics
        self._known |= {topic.name: topic for topic in answered}
        wanted = list(self._known) if names is None else names
        return [self._known[each] for each in wanted if each in self._known]

    def _offsets(
        self,
        partitions: Sequence[TopicPartition],
        timestamp: int,
        deadline: Deadline,
        isolation: int = 0,
    ) -> _Answers:
        """Return (topic, partition) → first or end offset, or its leader's error (ListOffsets).

        `timestamp` is EARLIEST or LATEST. `isolation` is the isolation level: with 1
        (read_committed), LATEST gives the last stable offset. If a partition's leader has moved,
        the request is repeated until `deadline`.
        """
        found: _Answers = {}
        left = list(partitions)
        while left:
            found |= self._of_leaders(left, timestamp, isolation, deadline)
            left = [
                each
                for each in left
                if getattr(found[each], "name", "")
                in ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH")
            ]
            for topic, _ in left:
                self._known.pop(topic, None)
            if deadline.left() < _PAUSE:
                break
            if left:
                time.sleep(_PAUSE)
        return found

    def _of_leaders(
        self, asked: Sequence[TopicPartition], timestamp: int, isolation: int, deadline: Deadline
    ) -> _Answers:
        leaders = {
            (topic.name, part.partition_index): part.leader_id
            for topic in self._looked_up(sorted({topic for topic, _ in asked}), deadline)
            for part in topic.partitions
        }
        found: _Answers = dict.fromkeys(
            asked, RequestError("LEADER_NOT_AVAILABLE", "a partition has no leader")
        )
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for each in asked:
            if leaders.get(each, -1) >= 0:
                by_leader[leaders[each]].append(each)

        def ask(leader: int) -> _Answers:
            try:
                return self._of_leader(leader, by_leader[leader], timestamp, isolation, deadline)
            except RequestError as error:
                return dict.fromkeys(by_leader[leader], error)

        for answers in side_by_side(ask, list(by_leader), _THREADS):
            found |= answers
        return found

    def _of_leader(
        self,
        leader: int,
        asked: Sequence[TopicPartition],
        timestamp: int,
        isolation: int,
        deadline: Deadline,
    ) -> _Answers:
        by_topic: dict[str, list[dict[str, int]]] = defaultdict(list)
        for topic, number in asked:
            by_topic[topic].append(
                {"partition_index": number, "timestamp": timestamp, "current_leader_epoch": -1}
            )
        answer = self.raw.node(leader, deadline).send(
            request_class("ListOffsets"),
            deadline,
            min_version=_ISOLATION if isolation else _ONE_OFFSET,
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": name, "partitions": parts} for name, parts in by_topic.items()],
        )
        found: _Answers = dict.fromkeys(
            asked, RequestError("CORRUPT_MESSAGE", f"broker {leader} left out a partition")
        )
        for topic in answer.topics:
            for part in topic.partitions:
                each = (topic.name, part.partition_index)
                found[each] = part.offset
                if part.error_code or part.offset < 0:
                    name = error_name(part.error_code) if part.error_code else "CORRUPT_MESSAGE"
                    found[each] = RequestError(name, f"{topic.name}-{part.partition_index}: {name}")
        return found

    def clock_ahead(self, deadline: Deadline) -> timedelta | None:
        """Return how far this machine's clock is ahead of the brokers' (negative: behind).

        None: it could not be measured. A measured result is kept for later calls.
        """
        with self._lock:
            if self._ahead is None:
                self._ahead = ahead_of_brokers(self.raw, deadline)
            return self._ahead

    def _group_settings(
        self, broker_id: int, deadline: Deadline
    ) -> tuple[Mapping[str, str], list[str]]:
        """Return the broker's group settings, and a note if they could not be read, else no note.

        Each broker is asked once in the life of this Session.
        """
        with self._lock:
            if broker_id not in self._settings:
                try:
                    found = group_settings(self.settings(broker_id, deadline))
                    self._settings[broker_id] = found, []
                except (RequestError, ConnectError) as error:
                    denied = "AUTHORIZATION" in getattr(error, "name", "")
                    why = "allow DESCRIBE_CONFIGS on the cluster" if denied else str(error)
                    self._settings[broker_id] = {}, [f"broker settings were not read: {why}"]
            return self._settings[broker_id]

    def cluster(self, broker_id: int, deadline: Deadline) -> tuple[Cluster, list[str]]:
        """Return the cluster as this broker describes it, and notes on what could not be read."""
        settings, notes = self._group_settings(broker_id, deadline)
        try:
            connection = self.raw.node(broker_id, deadline)
        except (RequestError, ConnectError) as error:
            return Cluster(settings=settings), [*notes, f"the cluster was not read: {error}"]
        return Cluster(
            cluster_id=self.raw.cluster_id,
            brokers=tuple(
                Broker(broker_id=number, rack=rack)
                for number, (_, _, rack) in sorted(self.raw.brokers.items())
            ),
            version=broker_version(connection),
            features=dict(sorted(connection.features.items())),
            settings=settings,
        ), notes


def _id(topic_id: UUID | None) -> str | None:
    """Return a topic's id as Kafka prints it; None before Kafka 2.8."""
    return uuid_text(topic_id.bytes) if topic_id is not None and topic_id.int else None


def ahead_of_brokers(raw: RawCluster, deadline: Deadline) -> timedelta | None:
    """Return how far this machine's clock is ahead of the brokers' (negative: behind).

    The result is 0 if the difference is at most 2 s, or at most the duration of the request. None:
    the broker does not answer DescribeQuorum v1 with the active controller's time.
    """
    try:
        connection = raw.any(deadline)
        asked = clock.now()
        answer = connection.send(
            request_class("DescribeQuorum"),
            deadline.share(_SHARE),
            min_version=1,
            topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        )
        answered = clock.now()
    except (ConnectError, RequestError):
        return None
    for topic in () if answer.error_code else answer.topics:
        for part in topic.partitions:
            for voter in part.current_voters:
                if voter.replica_id == part.leader_id and voter.last_caught_up_timestamp > 0:
                    return clock.ahead_of(
                        datetime.fromtimestamp(voter.last_caught_up_timestamp / 1000, UTC),
                        asked,
                        answered,
                    )
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
