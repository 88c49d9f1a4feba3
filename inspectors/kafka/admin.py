"""confluent-kafka's admin client for one cluster: `Admin`.

librdkafka itself retries without end and logs to stderr. Here each call ends at its deadline, a
rejected login or an untrusted certificate ends it at once, and log lines do not reach the terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, Final, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

# The package does not export these names explicitly, so the type checker takes them as private.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from rebal.groups.compact import Partitions, Replicas
from rebal.groups.model import Broker, GroupState, GroupType, Member, Topic
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.tokens import forget
from rebal.inspectors.connection.translate import to_confluent
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka.describe import CONSUMER, Described
from rebal.inspectors.kafka.wire import Deadline

_T = TypeVar("_T")
_POLL: Final = 0.02
_STATES: Final = {state.name.replace("_", ""): state for state in GroupState}


class _Hopeless:
    """The error after which librdkafka cannot succeed, as its error callback reports it.

    It holds no reference to the client: a reference cycle would keep the client's threads and
    sockets alive.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.error: ConnectError | None = None
        self._oauth = config.oauth

    def report(self, error: Any) -> None:
        """Keep an authentication or TLS error; this is librdkafka's error callback."""
        if error.name() == "_AUTHENTICATION":
            if self._oauth is not None:
                forget(self._oauth)
            self.error = ConnectError("librdkafka could not log in.", "authentication")
        elif error.name() == "_SSL":
            self.error = ConnectError("librdkafka's TLS handshake failed.", "tls")


class Admin:
    """confluent-kafka's admin client for one `ClusterConfig`; thread-safe.

    Raises (every method that sends a request):
        ConnectError: librdkafka cannot log in, or does not trust the broker.
        RequestError: the broker's error, or TIMED_OUT.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._hopeless = hopeless = _Hopeless(config)
        log = logging.Logger("librdkafka")
        log.addHandler(logging.NullHandler())
        try:
            settings: dict[str, Any] = {**to_confluent(config), "error_cb": hopeless.report}
            self._client = AdminClient(settings, logger=log)
        except KafkaException as error:
            message = config.scrub(error.args[0].str())
            raise ConnectError(f"librdkafka rejects the settings: {message}.", "tls") from None

    def close(self) -> None:
        """Stop librdkafka's threads and close its connections.

        Without this, the traceback of a stored exception would keep them alive.
        """
        del self._client

    def groups(self, deadline: Deadline) -> tuple[list[str], list[str]]:
        """Return the ids of all groups, and the errors of brokers that did not list theirs."""
        listed = self._wait(self._client.list_consumer_groups(**self._within(deadline)), deadline)
        errors = [self._config.scrub(error.args[0].str()) for error in listed.errors]
        return [group.group_id for group in listed.valid], errors

    def cluster(self, deadline: Deadline) -> tuple[str | None, tuple[Broker, ...]]:
        """Return the cluster id and its brokers."""
        answer = self._wait(self._client.describe_cluster(**self._within(deadline)), deadline)
        nodes = sorted(answer.nodes, key=lambda node: node.id)
        return answer.cluster_id, tuple(Broker(broker_id=n.id, rack=n.rack) for n in nodes)

    def describe(self, group_id: str, deadline: Deadline) -> tuple[Described, str, int]:
        """Return the group, without its subscription bytes, and its coordinator's host and port."""
        futures = self._client.describe_consumer_groups([group_id], **self._within(deadline))
        answer = self._wait(futures[group_id], deadline)
        state = _STATES.get(answer.state.name.replace("_", ""), GroupState.UNKNOWN)
        if state is GroupState.DEAD:
            raise RequestError("GROUP_ID_NOT_FOUND", f"{group_id}: no such group")
        described = Described(
            group_id=group_id,
            type=GroupType(answer.type.name.lower()),
            state=state,
            at=clock.now(),
            coordinator_id=answer.coordinator.id,
            # librdkafka does not report the protocol type; KIP-848 has only this one.
            protocol_type=CONSUMER if answer.type.name.lower() == CONSUMER else None,
            assignor=answer.partition_assignor or None,
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
                for member in sorted(answer.members, key=lambda m: (m.client_id, m.member_id))
            ),
        )
        return described, answer.coordinator.host, answer.coordinator.port

    def topics(
        self, names: Sequence[str], deadline: Deadline
    ) -> tuple[list[Topic], dict[str, RequestError]]:
        """Return the topics that this user may describe, and the error of each other topic."""
        found: list[Topic] = []
        failed: dict[str, RequestError] = {}
        if not names:
            return found, failed
        futures = self._client.describe_topics(
            TopicCollection(list(names)), **self._within(deadline)
        )
        for name in names:
            try:
                answer = self._wait(futures[name], deadline)
            except RequestError as error:
                failed[name] = error
                continue
            parts = sorted(answer.partitions, key=lambda part: part.id)
            replicas = Replicas([node.id for node in part.replicas] for part in parts)
            # librdkafka prints ids in the plain alphabet of base64, Kafka in the one for URLs.
            topic_id = str(answer.topic_id).replace("+", "-").replace("/", "_")
            found.append(
                Topic(name=name, partitions=len(parts), replicas=replicas, topic_id=topic_id)
            )
        return found, failed

    def all_topics(self, deadline: Deadline) -> list[Topic]:
        """Return every topic that this user may describe."""
        try:
            answer = self._client.list_topics(timeout=max(0.05, deadline.left()))
        except KafkaException as error:
            raise self._error(error, deadline) from None
        return self.topics(sorted(answer.topics), deadline)[0]

    def committed(self, group_id: str, deadline: Deadline) -> dict[tuple[str, int], int | None]:
        """Return the committed offset of each partition that has one."""
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
        """Return the end offset of each partition whose leader answered."""
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
            # The offset is negative, without an error, if the partition's leader was not reached.
            if end >= 0:
                found[each.topic, each.partition] = end
        return found

    def edges(
        self, topic: str, partitions: int, deadline: Deadline
    ) -> dict[int, tuple[int, int, int]]:
        """Return the first offset, the last stable offset and the end offset of each partition."""
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
        """Return the broker's configuration with its defaults, without sensitive values."""
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
        """Return the future's result; polling lets a hopeless connection end the wait."""
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
        # The cause that the callback reported is more precise than "timed out".
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
        return RequestError("TIMED_OUT", f"librdkafka had no answer within {deadline.waited()}")


def _by_topic(partitions: Sequence[Any]) -> dict[str, Partitions]:
    found: dict[str, list[int]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each.partition)
    return {topic: Partitions(sorted(numbers)) for topic, numbers in sorted(found.items())}
