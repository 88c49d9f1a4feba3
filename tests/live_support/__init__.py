"""What the live tests of the inspectors share: connections, and the topic that holds groups."""

import json
import os
from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from rebal.groups.model import GroupSnapshot
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataKey,
    decode_group_metadata,
    decode_key,
)
from rebal.inspectors.connection.config import ClusterConfig, resolve
from rebal.inspectors.kafka.read import read_groups
from tests.kafka.broker import Broker

OFFSETS_TOPIC = "__consumer_offsets"


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


def read_group(broker: Broker, group_id: str, **options: Any) -> GroupSnapshot:
    """The group as it is read over PLAINTEXT, with these options of `read_groups`."""
    (found,) = read_groups(config_of(broker), [group_id], **options)
    assert isinstance(found, GroupSnapshot), found
    return found


def measured(what: str, low: float, real: float, high: float) -> None:
    """Note a measured standstill with its predicted limits, in (partition-)seconds.

    How fast a machine is decides it, so no test asserts it: bench/standstill.py does, which names
    the file to note it in.
    """
    path = os.environ.get("REBAL_STANDSTILL")
    if path:
        with open(path, "a") as out:
            out.write(f"{json.dumps([what, low, real, high])}\n")


def stored_generations(broker: Broker, group_id: str) -> list[GroupMetadata | None]:
    """The group's GroupMetadata records, as a consumer of all partitions sees them.

    None stands for a tombstone. Which partition the group lives in is not worked out here, so that
    a mistake in that shows.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=None,
        exclude_internal_topics=False,
        auto_offset_reset="earliest",
    )
    try:
        numbers = consumer.partitions_for_topic(OFFSETS_TOPIC) or ()
        places = [TopicPartition(OFFSETS_TOPIC, number) for number in sorted(numbers)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        return list(_of_group(consumer, consumer.end_offsets(places), group_id))
    finally:
        consumer.close()


def last_generation(broker: Broker, group_id: str) -> int | None:
    """The generation of the group's newest record; None where it has none, or a tombstone."""
    records = stored_generations(broker, group_id)
    return records[-1].generation if records and records[-1] is not None else None


def _of_group(
    consumer: KafkaConsumer, ends: dict[TopicPartition, int], group_id: str
) -> Iterator[GroupMetadata | None]:
    while any(consumer.position(place) < end for place, end in ends.items()):
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                key = decode_key(record.key) if record.key else None
                if isinstance(key, GroupMetadataKey) and key.group_id == group_id:
                    yield decode_group_metadata(record.value) if record.value else None
