"""What the live tests of the inspectors share: connections, and the topic that holds groups."""

import json
import os
from collections.abc import Iterable, Iterator
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
from tests.kafka.broker import Broker, wait_for
from tests.kafka.cluster import OFFSETS_TOPIC
from tests.kafka.members import Event


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


def read(config: ClusterConfig, group_id: str, **options: Any) -> GroupSnapshot:
    """The group as it is read over this connection, with these options of `read_groups`."""
    (found,) = read_groups(config, [group_id], **options)
    assert isinstance(found, GroupSnapshot), found
    return found


def read_group(broker: Broker, group_id: str, **options: Any) -> GroupSnapshot:
    """The group as it is read over PLAINTEXT, with these options of `read_groups`."""
    return read(config_of(broker), group_id, **options)


def wait_state(broker: Broker, group_id: str, state: str, members: int) -> None:
    """Wait until a group of any type, Streams and share groups too, has this state and members."""

    def there() -> bool:
        (seen,) = read_groups(config_of(broker), [group_id])
        if not isinstance(seen, GroupSnapshot):
            return False
        return (seen.group.state.value, len(seen.members)) == (state, members)

    wait_for(f"{group_id}: {state}, {members} members", there, timeout=60)


def measured(what: str, low: float, real: float, high: float) -> None:
    """Note a measured standstill with its predicted limits, in (partition-)seconds.

    How fast a machine is decides it, so no test asserts it: bench/standstill.py does, which names
    the file to note it in.
    """
    path = os.environ.get("REBAL_STANDSTILL")
    if path:
        with open(path, "a") as out:
            out.write(f"{json.dumps([what, low, real, high])}\n")


def standstill(
    said: Iterable[tuple[Event, str]], since: float, partitions: int
) -> tuple[int, float, float]:
    """Changes of owner, all partitions' seconds without one, and the longest without any.

    By what members said since then (milliseconds), each of a name; a restarted one keeps its own.
    """
    last: dict[Any, str] = {}
    idle: dict[Any, float] = {}
    moves, seconds, pause, nobody = 0, 0.0, 0.0, 0.0
    changes = [one for one in said if one[0].kind in ("assigned", "revoked", "lost")]
    for event, name in sorted(changes, key=lambda each: each[0].t_ms):
        at = event.t_ms
        for one in event.partitions:
            if event.kind != "assigned":
                if last.get(one) == name and one not in idle:
                    idle[one] = at
                continue
            if at >= since and one in idle:
                seconds += (at - max(since, idle[one])) / 1000
            moves += at >= since and last.get(one, name) != name
            last[one] = name
            idle.pop(one, None)
        if len(idle) == partitions and event.kind != "assigned":
            nobody = at
        elif event.kind == "assigned" and nobody:
            pause, nobody = max(pause, at - nobody if at >= since else 0), 0.0
    return moves, round(seconds, 2), round(pause / 1000, 2)


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
