"""Encoders of what rebal only reads: they show that reading loses nothing, and make test data.

A value that its field cannot hold raises `struct.error`. Kafka's compact forms are written apart
from the readers under test.
"""

from collections.abc import Collection
from struct import pack
from typing import Final

from hypothesis import strategies as st

from rebal.groups.model import Subscription, TopicPartitions
from rebal.groups.wire.consumer_protocol import (
    ConnectorTasks,
    ConsumerAssignment,
    StreamsUserData,
    WorkerAssignment,
    WorkerMetadata,
)

HIGHEST_STREAMS: Final = 11


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of `subscription`; a field that its version lacks is not written."""
    version, generation = subscription.version, subscription.generation_id
    parts = [
        pack(">hi", version, len(subscription.topics)),
        *map(string, subscription.topics),
        nullable_bytes(subscription.user_data),
    ]
    if version >= 1:
        parts.append(_partitions(subscription.owned_partitions or {}))
    if version >= 2:
        parts.append(pack(">i", -1 if generation is None else generation))
    if version >= 3:
        parts.append(string(subscription.rack_id))
    return b"".join(parts)


def encode_streams(user_data: StreamsUserData) -> bytes:
    """Return the bytes of `user_data`; a field that is None is not written."""
    latest, process_id = user_data.latest, user_data.process_id
    return b"".join(
        (
            pack(">i", user_data.version),
            b"" if latest is None else pack(">i", latest),
            b"" if process_id is None else process_id.bytes,
            user_data.rest,
        )
    )


def encode_assignment(assignment: ConsumerAssignment) -> bytes:
    partitions = _partitions(assignment.partitions)
    return pack(">h", assignment.version) + partitions + nullable_bytes(assignment.user_data)


def encode_worker(metadata: WorkerMetadata) -> bytes:
    made = pack(">h", metadata.version) + string(metadata.url)
    made += pack(">q", metadata.config_offset)
    if metadata.version:
        now = metadata.assignment
        made += nullable_bytes(None if now is None else encode_worker_assignment(now))
    return made


def encode_worker_assignment(assignment: WorkerAssignment) -> bytes:
    made = pack(">hh", assignment.version, assignment.error)
    made += string(assignment.leader) + string(assignment.leader_url)
    made += pack(">q", assignment.config_offset) + _tasks(assignment.assigned)
    if assignment.version:
        made += _tasks(assignment.revoked) + pack(">i", assignment.delay_ms)
    return made


def _tasks(tasks: ConnectorTasks | None) -> bytes:
    if tasks is None:
        return pack(">i", -1)
    entries = (string(connector) + _int32s(numbers) for connector, numbers in tasks)
    return pack(">i", len(tasks)) + b"".join(entries)


def _partitions(partitions: TopicPartitions) -> bytes:
    entries = (string(topic) + _int32s(numbers) for topic, numbers in partitions.items())
    return pack(">i", len(partitions)) + b"".join(entries)


def _int32s(values: Collection[int]) -> bytes:
    """Return signed 32-bit numbers after a 32-bit count."""
    return pack(f">i{len(values)}i", len(values), *values)


def string(value: str | None) -> bytes:
    """Return text after its 16-bit length, -1 for null."""
    if value is None:
        return pack(">h", -1)
    raw = value.encode()
    return pack(">h", len(raw)) + raw


def nullable_bytes(value: bytes | None) -> bytes:
    """Return bytes after their 32-bit length, -1 for null."""
    return pack(">i", -1) if value is None else pack(">i", len(value)) + value


short = st.text(st.characters(codec="utf-8"), max_size=200)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def varint(value: int) -> bytes:
    """An unsigned variable-length number (KIP-482)."""
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def compact(text: str | None) -> bytes:
    """Text of a flexible version."""
    if text is None:
        return varint(0)
    raw = text.encode()
    return varint(len(raw) + 1) + raw
