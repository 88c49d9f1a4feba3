"""ConsumerProtocol: the subscription and the assignment of one consumer, v0 to v3.

A newer version is read as v3, as Kafka's clients do.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.compact import Partitions
from rebal.groups.model import Record, Subscription, TopicPartitions
from rebal.groups.wire.schema import Cursor, Message

_SUBSCRIPTION: Final = Message("ConsumerProtocolSubscription")
_ASSIGNMENT: Final = Message("ConsumerProtocolAssignment")


class ConsumerAssignment(Record, frozen=True, kw_only=True):
    """Assignment of one member as the leader sent it.

    `user_data` is None when null. `wire` holds the bytes as sent, only where the other fields do
    not determine them (a topic that comes twice, bytes after the last field).
    """

    version: int
    partitions: TopicPartitions
    user_data: bytes | None = None
    wire: bytes | None = None


def decode_subscription(data: bytes) -> Subscription:
    """Return the subscription in `data`, a JoinGroup protocol's metadata.

    Raises:
        WireError: see `Message.read`; also a negative version or a negative partition.
    """
    version, found, cursor = _SUBSCRIPTION.read(data)
    owned = found.get("owned_partitions")
    if owned is not None:
        found["owned_partitions"] = _by_topic(cursor, owned)
    return Subscription(version=version, wire=cursor.kept(), **found)


def decode_assignment(data: bytes) -> ConsumerAssignment:
    """Return the assignment in `data`, as SyncGroup sends it to a member.

    Raises:
        WireError: as `decode_subscription`.
    """
    version, found, cursor = _ASSIGNMENT.read(data)
    partitions = _by_topic(cursor, found["partitions"])
    return ConsumerAssignment(
        version=version,
        partitions=partitions,
        user_data=found["user_data"],
        wire=cursor.kept(),
    )


def _by_topic(cursor: Cursor, entries: tuple[tuple[str, tuple[int, ...]], ...]) -> TopicPartitions:
    """Return partitions by topic, topics in the order of their first entries."""
    read: dict[str, list[int]] = {}
    for topic, numbers in entries:
        read.setdefault(topic, []).extend(numbers)
    cursor.exact &= len(read) == len(entries)
    try:
        return {topic: Partitions(numbers) for topic, numbers in read.items()}
    except ValueError as error:
        raise cursor.error(str(error)) from None
