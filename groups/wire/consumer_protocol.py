"""ConsumerProtocol: the subscription and the assignment of one consumer, v0 to v3.

A newer version is read as v3, as Kafka's clients do. A history of a fleet has millions of these
messages, so bytes without a fault are read directly (with one topic in a third to a half of the
time); all others go to the schema reader, which says what is wrong with them, or what they have
besides.
"""

import struct
from array import array
from collections.abc import Callable
from typing import Final, TypeVar

from rebal.groups.compact import Partitions
from rebal.groups.model import Record, Subscription, TopicPartitions
from rebal.groups.wire.schema import Cursor, Message, nullable_bytes, nullable_text, plain_text

_T = TypeVar("_T")
_NEWEST: Final = 3
_INT32, _UINT32 = struct.Struct(">i").unpack_from, struct.Struct(">I").unpack_from
_SUBSCRIPTION: Final = Message("ConsumerProtocolSubscription")
_ASSIGNMENT: Final = Message("ConsumerProtocolAssignment")


class ConsumerAssignment(Record, frozen=True, kw_only=True):
    """Assignment of one member as the leader sent it.

    `user_data` is None when null.
    """

    version: int
    partitions: TopicPartitions
    user_data: bytes | None = None


def decode_subscription(data: bytes) -> Subscription:
    """Return the subscription in `data`, a JoinGroup protocol's metadata.

    Raises:
        WireError: see `Message.read`; also a negative version or a negative partition.
    """
    if (direct := _directly(data, _subscription)) is not None:
        return direct
    version, found, cursor = _SUBSCRIPTION.read(data)
    if (owned := found.get("owned_partitions")) is not None:
        found["owned_partitions"] = _by_topic(cursor, owned)
    return Subscription(version=version, **found)


def decode_assignment(data: bytes) -> ConsumerAssignment:
    """Return the assignment in `data`, as SyncGroup sends it to a member.

    Raises:
        WireError: as `decode_subscription`.
    """
    if (direct := _directly(data, _assignment)) is not None:
        return direct
    version, found, cursor = _ASSIGNMENT.read(data)
    found["partitions"] = _by_topic(cursor, found["partitions"])
    return ConsumerAssignment(version=version, **found)


def _by_topic(cursor: Cursor, entries: tuple[tuple[str, tuple[int, ...]], ...]) -> TopicPartitions:
    read: dict[str, list[int]] = {}
    for topic, numbers in entries:
        read.setdefault(topic, []).extend(numbers)
    try:
        return {topic: Partitions(numbers) for topic, numbers in read.items()}
    except ValueError as error:
        raise cursor.error(str(error)) from None


def _directly(data: bytes, read: Callable[[bytes, int], tuple[_T, int]]) -> _T | None:
    """Return what the bytes say; None where they have a fault, or more than the fields."""
    version = int.from_bytes(data[:2], signed=True)
    try:
        found, at = read(data, version)
    except (struct.error, ValueError):
        return None
    return found if at == len(data) and 0 <= version <= _NEWEST else None


def _subscription(data: bytes, version: int) -> tuple[Subscription, int]:
    (count,), at, topics = _UINT32(data, 2), 6, []
    for _ in range(count):
        topic, at = plain_text(data, at)
        topics.append(topic)
    user_data, at = nullable_bytes(data, at)
    owned = generation_id = rack_id = None
    if version >= 1:
        owned, at = _by_name(data, at)
    if version >= 2:
        (generation_id,), at = _INT32(data, at), at + 4
    if version >= 3:
        rack_id, at = nullable_text(data, at)
    found = Subscription(
        version=version,
        topics=tuple(topics),
        owned_partitions=owned,
        generation_id=generation_id,
        rack_id=rack_id,
        user_data=user_data,
    )
    return found, at


def _assignment(data: bytes, version: int) -> tuple[ConsumerAssignment, int]:
    partitions, at = _by_name(data, 2)
    user_data, at = nullable_bytes(data, at)
    return ConsumerAssignment(version=version, partitions=partitions, user_data=user_data), at


def _by_name(data: bytes, at: int) -> tuple[dict[str, Partitions], int]:
    (count,), at, found = _UINT32(data, at), at + 4, {}
    for _ in range(count):
        topic, at = plain_text(data, at)
        (size,) = _UINT32(data, at)
        end = at + 4 + 4 * size
        # Against the bytes that are left before anything is allocated.
        found[topic] = Partitions(array("i", struct.unpack(f">{size}i", data[at + 4 : end])))
        at = end
    if len(found) < count:
        raise ValueError(count)
    return found, at
