"""ConsumerProtocol bytes ↔ model: the subscription and the assignment of one member, v0..v3.

Source: Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json; KIP-429
(owned partitions, v1), KIP-792 (generation, v2), KIP-881 (rack, v3). A version above 3 is read as
v3, as Kafka's clients do, and bytes after the last known field are allowed, as there. Both
directions are exact: what was read is written again byte by byte.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.errors import WireError
from rebal.groups.model import Record, Subscription, TopicPartitions
from rebal.groups.snapshot.compact import Partitions
from rebal.groups.wire.exact import as_sent, keeping_wire
from rebal.groups.wire.primitives import Reader, Writer

HIGHEST_VERSION: Final = 3


class ConsumerAssignment(Record, frozen=True, kw_only=True):
    """A member's assignment as its leader sent it (ConsumerProtocolAssignment v0..v3).

    `user_data` is None when null. `wire` holds the bytes as sent, only where the other fields
    cannot express them (a topic that comes twice, bytes after the last field).
    """

    version: int
    partitions: TopicPartitions
    user_data: bytes | None = None
    wire: bytes | None = None


def decode_subscription(data: bytes) -> Subscription:
    """The subscription in `data`, a JoinGroup protocol's metadata.

    A v1 that ends after the user data is read, though Java's leader would fail on it: some clients
    (segmentio/kafka-go, bsm/sarama-cluster) mark v0 bytes as v1. Its owned partitions are None.

    Raises:
        WireError: a negative version, a cut-off field, a negative or lying array length, text that
            is not UTF-8, or a partition below zero.
    """
    reader = Reader(data, "consumer subscription")
    version = reader.version()
    known = min(version, HIGHEST_VERSION)
    topics = tuple(reader.string("a topic") for _ in range(reader.count(2, "the topics")))
    user_data = reader.nullable_bytes("the user data")
    mislabelled = known == 1 and not reader.remaining
    has_owned = known >= 1 and not mislabelled
    owned = _read_partitions(reader, "the owned partitions") if has_owned else None
    read = Subscription(
        version=version,
        topics=topics,
        owned_partitions=owned,
        generation_id=reader.int32("the generation") if known >= 2 else None,
        rack_id=reader.nullable_string("the rack") if known >= 3 else None,
        user_data=user_data,
    )
    return keeping_wire(read, data, _write_subscription)


def encode_subscription(subscription: Subscription) -> bytes:
    """The bytes of `subscription`; a field that its version lacks is not written.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(subscription, decode_subscription, _write_subscription)


def decode_assignment(data: bytes) -> ConsumerAssignment:
    """The assignment in `data`, as SyncGroup hands it out.

    Raises:
        WireError: as `decode_subscription`.
    """
    reader = Reader(data, "consumer assignment")
    read = ConsumerAssignment(
        version=reader.version(),
        partitions=_read_partitions(reader, "the assigned partitions"),
        user_data=reader.nullable_bytes("the user data"),
    )
    return keeping_wire(read, data, _write_assignment)


def encode_assignment(assignment: ConsumerAssignment) -> bytes:
    """The bytes of `assignment`.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(assignment, decode_assignment, _write_assignment)


def _read_partitions(reader: Reader, field: str) -> TopicPartitions:
    """Partitions by topic, in the order of each topic's first entry."""
    read: dict[str, list[int]] = {}
    for _ in range(reader.count(6, field)):
        topic = reader.string("a topic")
        read.setdefault(topic, []).extend(reader.int32_array(field))
    try:
        return {topic: Partitions(numbers) for topic, numbers in read.items()}
    except ValueError as error:
        raise reader.error(f"{field}: {error}") from None


def _write_partitions(writer: Writer, partitions: TopicPartitions, field: str) -> None:
    writer.int32(len(partitions), field)
    for topic, numbers in partitions.items():
        writer.string(topic, "a topic")
        writer.int32_array(numbers, field)


def _write_subscription(subscription: Subscription) -> bytes:
    if subscription.version < 0:
        raise WireError(f"A subscription has no version {subscription.version}.")
    known = min(subscription.version, HIGHEST_VERSION)
    writer = Writer()
    writer.int16(subscription.version, "the version")
    writer.int32(len(subscription.topics), "the topics")
    for topic in subscription.topics:
        writer.string(topic, "a topic")
    writer.bytes_(subscription.user_data, "the user data")
    if known >= 1:
        _write_partitions(writer, subscription.owned_partitions or {}, "the owned partitions")
    if known >= 2:
        generation = subscription.generation_id
        writer.int32(-1 if generation is None else generation, "the generation")
    if known >= 3:
        writer.string(subscription.rack_id, "the rack")
    return writer.done()


def _write_assignment(assignment: ConsumerAssignment) -> bytes:
    if assignment.version < 0:
        raise WireError(f"An assignment has no version {assignment.version}.")
    writer = Writer()
    writer.int16(assignment.version, "the version")
    _write_partitions(writer, assignment.partitions, "the assigned partitions")
    writer.bytes_(assignment.user_data, "the user data")
    return writer.done()
