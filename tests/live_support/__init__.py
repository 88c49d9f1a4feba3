"""What the live tests of the inspectors share: connections, and the topic that holds groups."""

from collections.abc import Iterator

from kafka import KafkaConsumer, TopicPartition

from rebal.groups.vote import java_string_hash
from rebal.groups.wire.group_metadata import (
    GroupMetadata,
    GroupMetadataKey,
    decode_group_metadata,
    decode_key,
)
from rebal.inspectors.connection import ClusterConfig, resolve
from tests.kafka.broker import Broker


def config_of(
    broker: Broker,
    mechanism: str | None = None,
    user: str = "admin",
    *,
    timeout_ms: int = 8000,
    **changes: str,
) -> ClusterConfig:
    """A connection to PLAINTEXT, or as `user` with SCRAM-SHA-256, PLAIN or SSL.

    `changes` are further settings, `_` for `.` in their names.
    """
    settings = {"bootstrap.servers": broker.bootstrap}
    if mechanism is not None:
        settings = broker.client_properties(mechanism, user)
    settings |= {key.replace("_", "."): value for key, value in changes.items()}
    return resolve(None, [f"{k}={v}" for k, v in settings.items()], None, None, {}, timeout_ms)


def stored_generations(broker: Broker, group_id: str) -> list[GroupMetadata | None]:
    """The group's GroupMetadata records as kafka-python's consumer reads them (None: tombstone)."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=None, exclude_internal_topics=False
    )
    try:
        number = len(consumer.partitions_for_topic("__consumer_offsets") or ())
        place = TopicPartition("__consumer_offsets", abs(java_string_hash(group_id)) % number)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        return list(_of_group(consumer, place, end, group_id))
    finally:
        consumer.close()


def _of_group(
    consumer: KafkaConsumer, place: TopicPartition, end: int, group_id: str
) -> Iterator[GroupMetadata | None]:
    while consumer.position(place) < end:
        for record in consumer.poll(timeout_ms=500).get(place, ()):
            key = decode_key(record.key) if record.key else None
            if isinstance(key, GroupMetadataKey) and key.group_id == group_id:
                yield decode_group_metadata(record.value) if record.value else None
