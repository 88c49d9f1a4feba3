"""What confluent-kafka's admin client answers: `Admin`, one cluster's librdkafka handle.

librdkafka retries for ever and logs to stderr on its own: here each call ends with its deadline, a
refused login or an untrusted certificate ends it at once, and the log lines are kept from the
terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

# The package does not mark these as its own, so the type checker cannot see that they are public.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from rebal.groups.model import Broker, GroupState, GroupType, Member, Topic
from rebal.groups.snapshot.compact import Partitions, Replicas
from rebal.inspectors.connection.auth import forget
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.translate import to_confluent
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka.describe import CONSUMER, Described
from rebal.inspectors.kafka.wire import Deadline, seconds

_T = TypeVar("_T")
_POLL: Final = 0.02
_STATES: Final = {state.name.replace("_", ""): state for state in GroupState}


class _Hopeless:
    """Why no request can succeed, once librdkafka has said so.

    It knows nothing of the client that tells it: in a circle of references no client would end, and
    each has threads and sockets of its own.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.error: ConnectError | None = None
        self._oauth = config.oauth

    def tell(self, error: Any) -> None:
        """librdkafka's error callback."""
        if error.name() == "_AUTHENTICATION":
            if self._oauth is not None:
                forget(self._oauth)
            self.error = ConnectError("librdkafka could not log in.", "authentication")
        elif error.name() == "_SSL":
            self.error = ConnectError("librdkafka's TLS handshake failed.", "tls")


class Admin:
    """confluent-kafka's admin client for one ClusterConfig; thread-safe.

    Raises (every method that asks):
        ConnectError: librdkafka cannot log in, or does not trust the broker.
        RequestError: the broker's error, or TIMED_OUT.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._hopeless = hopeless = _Hopeless(config)
        log = logging.Logger("librdkafka")
        log.addHandler(logging.NullHandler())
        try:
            settings: dict[str, Any] = {**to_confluent(config), "error_cb": hopeless.tell}
            self._client = AdminClient(settings, logger=log)
        except KafkaException as error:
            message = config.scrub(error.args[0].str())
            raise ConnectError(f"librdkafka refuses the settings: {message}.", "tls") from None

    def close(self) -> None:
        """End librdkafka's threads and connections; nothing can be asked any more.

        An error that somebody keeps would else keep them, by its traceback.
        """
        del self._client

    def groups(self, deadline: Deadline) -> tuple[list[str], list[str]]:
        """The ids of all groups, and why brokers did not list theirs."""
        listed = self._wait(self._client.list_consumer_groups(**self._within(deadline)), deadline)
        errors = [self._config.scrub(error.args[0].str()) for error in listed.errors]
        return [group.group_id for group in listed.valid], errors

    def cluster(self, deadline: Deadline) -> tuple[str | None, tuple[Broker, ...]]:
        """The cluster id and its brokers."""
        seen = self._wait(self._client.describe_cluster(**self._within(deadline)), deadline)
        nodes = sorted(seen.nodes, key=lambda node: node.id)
        return seen.cluster_id, tuple(Broker(broker_id=n.id, rack=n.rack) for n in nodes)

    def describe(self, group_id: str, deadline: Deadline) -> tuple[Described, str, int]:
        """The group, and its coordinator's host and port; without what only the bytes tell."""
        futures = self._client.describe_consumer_groups([group_id], **self._within(deadline))
        seen = self._wait(futures[group_id], deadline)
        state = _STATES.get(seen.state.name.replace("_", ""), GroupState.UNKNOWN)
        if state is GroupState.DEAD:
            raise RequestError("GROUP_ID_NOT_FOUND", f"{group_id}: no such group")
        described = Described(
            group_id=group_id,
            type=GroupType(seen.type.name.lower()),
            state=state,
            at=datetime.now(UTC),
            coordinator_id=seen.coordinator.id,
            # librdkafka does not pass the protocol type on, but for KIP-848 it can only be one.
            protocol_type=CONSUMER if seen.type.name.lower() == CONSUMER else None,
            assignor=seen.partition_assignor or None,
            members=tuple(
                Member(
                    member_id=member.member_id,
                    client_id=member.client_id,
                    host=member.host,
                    instance_id=member.group_instance_id or None,
                    assignment=_by_topic(member.assignment.topic_partitions),
                    target_assignment=_by_topic(member.target_assignment.topic_partitions)
                    if member.target_assignment
                    else None,
                )
                for member in sorted(seen.members, key=lambda m: (m.client_id, m.member_id))
            ),
        )
        return described, seen.coordinator.host, seen.coordinator.port

    def topics(
        self, names: Sequence[str], deadline: Deadline
    ) -> tuple[list[Topic], dict[str, RequestError]]:
        """The topics that can be described, and the error of each other one."""
        found: list[Topic] = []
        failed: dict[str, RequestError] = {}
        if not names:
            return found, failed
        futures = self._client.describe_topics(
            TopicCollection(list(names)), **self._within(deadline)
        )
        for name in names:
            try:
                seen = self._wait(futures[name], deadline)
            except RequestError as error:
                failed[name] = error
                continue
            parts = sorted(seen.partitions, key=lambda part: part.id)
            replicas = Replicas([node.id for node in part.replicas] for part in parts)
            # librdkafka prints ids in the plain alphabet of base64, Kafka in the one for URLs.
            topic_id = str(seen.topic_id).replace("+", "-").replace("/", "_")
            found.append(
                Topic(name=name, partitions=len(parts), replicas=replicas, topic_id=topic_id)
            )
        return found, failed

    def all_topics(self, deadline: Deadline) -> list[Topic]:
        """Every topic that this user may describe."""
        try:
            seen = self._client.list_topics(timeout=max(0.05, deadline.left()))
        except KafkaException as error:
            raise self._error(error, deadline) from None
        return self.topics(sorted(seen.topics), deadline)[0]

    def committed(self, group_id: str, deadline: Deadline) -> dict[tuple[str, int], int | None]:
        """The committed offset of each partition that has one."""
        asked = [ConsumerGroupTopicPartitions(group_id)]
        futures = self._client.list_consumer_group_offsets(asked, **self._within(deadline))
        answer = self._wait(futures[group_id], deadline)
        return {
            (each.topic, each.partition): each.offset if each.offset >= 0 else None
            for each in answer.topic_partitions
            if each.error is None
        }

    def ends(
        self, partitions: Sequence[tuple[str, int]], deadline: Deadline
    ) -> dict[tuple[str, int], int]:
        """The end offset of each partition that has an answer."""
        if not partitions:
            return {}
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        latest = {TopicPartition(*each): spec for each in partitions}
        futures = self._client.list_offsets(latest, **self._within(deadline))
        found: dict[tuple[str, int], int] = {}
        for each, future in futures.items():
            try:
                end = self._wait(future, deadline).offset
            except RequestError as error:
                if error.name == "TIMED_OUT":
                    raise
                continue
            # Below zero, and without an error, where the partition's leader was not reached.
            if end >= 0:
                found[each.topic, each.partition] = end
        return found

    def edges(
        self, topic: str, partitions: int, deadline: Deadline
    ) -> dict[int, tuple[int, int, int]]:
        """Of each partition: the first offset, the end of what is committed, and the end."""
        found: list[dict[int, int]] = []
        committed, any_state = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        for spec, isolation in (
            (OffsetSpec.earliest(), any_state),  # type: ignore[no-untyped-call]
            (OffsetSpec.latest(), committed),  # type: ignore[no-untyped-call]
            (OffsetSpec.latest(), any_state),  # type: ignore[no-untyped-call]
        ):
            asked = {TopicPartition(topic, number): spec for number in range(partitions)}
            futures = self._client.list_offsets(
                asked, isolation_level=isolation, **self._within(deadline)
            )
            found.append(
                {
                    part.partition: self._wait(each, deadline).offset
                    for part, each in futures.items()
                }
            )
        first, stable, end = found
        return {number: (first[number], stable[number], end[number]) for number in sorted(first)}

    def settings(self, broker_id: int, deadline: Deadline) -> Mapping[str, str]:
        """The broker's configuration that is set or defaulted, sensitive values left out."""
        resource = ConfigResource(ResourceType.BROKER, str(broker_id))
        futures = self._client.describe_configs([resource], **self._within(deadline))
        entries = self._wait(futures[resource], deadline)
        return {
            name: entry.value
            for name, entry in sorted(entries.items())
            if entry.value is not None and not entry.is_sensitive
        }

    def _within(self, deadline: Deadline) -> dict[str, float]:
        return {"request_timeout": max(0.05, deadline.left())}

    def _wait(self, future: Future[_T], deadline: Deadline) -> _T:
        """The future's result; polls meanwhile, so that a hopeless connection ends the wait."""
        while True:
            if self._hopeless.error is not None:
                raise self._hopeless.error
            try:
                return future.result(timeout=_POLL)
            except KafkaException as error:
                raise self._error(error, deadline) from None
            except NotYet:
                self._client.poll(0)
                if deadline.over:
                    raise self._late(deadline) from None

    def _error(self, error: KafkaException, deadline: Deadline) -> RequestError:
        # The certain cause, where the callback has seen it, is better than "timed out".
        self._client.poll(0)
        if self._hopeless.error is not None:
            raise self._hopeless.error
        name = error.args[0].name()
        if name.startswith("_"):
            if name in ("_TIMED_OUT", "_TRANSPORT"):
                return self._late(deadline)
            name = name.removeprefix("_")
        return RequestError(name, self._config.scrub(error.args[0].str()).rstrip("."))

    def _late(self, deadline: Deadline) -> RequestError:
        within = seconds(deadline.timeout_ms)
        return RequestError("TIMED_OUT", f"librdkafka had no answer within {within}")


def _by_topic(partitions: Sequence[Any]) -> dict[str, Partitions]:
    found: dict[str, list[int]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each.partition)
    return {topic: Partitions(sorted(numbers)) for topic, numbers in sorted(found.items())}
