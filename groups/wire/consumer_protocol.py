"""ConsumerProtocol: the subscription and the assignment of one consumer, v0 to v3.

A newer version is read as v3, as Kafka's clients do. A history of a fleet has millions of these
messages, so well-formed bytes are read without a schema: for one topic this takes a third to a half
of the time. Bytes that are malformed or have more than the fields go to the schema reader, which
names the fault.

The user data inside is that of assignors, of Kafka Streams and of Connect workers.

`sticky` (StickyAssignor, KIP-54; generation by KIP-341) sends its previous partitions and, in v1,
their generation. `cooperative-sticky` (KIP-429) sends the generation alone; its partitions are the
owned partitions of the subscription. Neither has a version number. Both are read as the Java leader
reads them: it ignores user data that it cannot parse, and bytes after the last field.

Kafka Streams sends a SubscriptionInfo, of which the first fields are read. Connect workers send
their metadata and get an assignment, v0 to v2.
"""

import struct
from array import array
from base64 import urlsafe_b64decode
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar
from uuid import UUID

from rebal.groups.compact import Partitions
from rebal.groups.errors import WireError
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
    """Return the subscription in `data`, the metadata of one assignor in a JoinGroup request.

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
    """Return `data` decoded by `read`, without a schema; None if the schema reader must decode it.

    `read` gets the bytes and the version, and returns the message and the position after it. The
    schema reader must decode another version than 0 to 3 and bytes after the last field, and it
    names the fault of malformed bytes.
    """
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


NO_GENERATION: Final = -1
CONNECTOR: Final = -1
"""Task number that stands for the connector itself."""
ConnectorTasks = tuple[tuple[str, tuple[int, ...]], ...]
"""(connector, task numbers) in the order sent; `CONNECTOR` is a possible number."""
_STICKY: Final = Message("StickyAssignorUserData")
_STREAMS: Final = Message("StreamsSubscriptionInfo")
_WORKER: Final = Message("ConnectWorkerMetadata")
_WORKER_ASSIGNMENT: Final = Message("ConnectWorkerAssignment")


class StickyUserData(Record, frozen=True, kw_only=True):
    """Previous assignment of a `sticky` member, from its user data.

    `previous` are `(topic, partition)` pairs in the order sent. `generation` is None in v0 and
    without user data. `readable` is False for bytes that are neither v0 nor v1; the leader then
    assumes an empty assignment of generation -1.
    """

    previous: tuple[tuple[str, int], ...] = ()
    generation: int | None = None
    readable: bool = True


def decode_sticky(data: bytes | None) -> StickyUserData:
    """Return what a Java leader reads from a `sticky` member's user data; never raises.

    v1 is tried first, then v0, as in StickyAssignor. Null and empty bytes hold nothing.
    """
    if not data:
        return StickyUserData()
    for version in (1, 0):
        try:
            found = _STICKY.read(data, version=version, lenient=True)[1]
        except WireError:
            continue
        previous = tuple((topic, each) for topic, numbers in found["previous"] for each in numbers)
        return StickyUserData(previous=previous, generation=found.get("generation"))
    return StickyUserData(generation=NO_GENERATION, readable=False)


def encode_sticky(user_data: StickyUserData) -> bytes:
    """Return the bytes of `user_data`: v1, or v0 where `generation` is None.

    Partitions are grouped by topic, topics in the order of their first partitions.

    Raises:
        WireError: a value that its field cannot hold.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in user_data.previous:
        topics.setdefault(topic, []).append(partition)
    generation = () if user_data.generation is None else (user_data.generation,)
    listed = (_name(topic) + _int32s(len(each), *each) for topic, each in topics.items())
    return b"".join((_int32s(len(topics)), *listed, _int32s(*generation)))


def decode_cooperative_sticky(data: bytes | None) -> int | None:
    """Return the generation in a `cooperative-sticky` member's user data.

    None when the user data is null; -1 when it is shorter than a generation, as in
    CooperativeStickyAssignor.
    """
    if data is None:
        return None
    return int.from_bytes(data[:4], signed=True) if len(data) >= 4 else NO_GENERATION


@lru_cache(maxsize=64)
def encode_cooperative_sticky(generation: int) -> bytes:
    """Return the user data of a `cooperative-sticky` member: the four bytes of `generation`.

    Raises:
        WireError: a generation that is not a signed 32-bit number.
    """
    return _int32s(generation)


def _int32s(*numbers: int) -> bytes:
    try:
        return struct.pack(f">{len(numbers)}i", *numbers)
    except struct.error:
        raise WireError("Sticky user data holds 32-bit numbers only.") from None


@lru_cache(maxsize=2**12)
def _name(topic: str) -> bytes:
    """Return a topic's name as bytes that begin with its length, for user data.

    Cached, because all members of a large group send the same names.
    """
    try:
        raw = topic.encode("utf-8")
        return struct.pack(">h", len(raw)) + raw
    except (UnicodeEncodeError, struct.error):
        raise WireError("Sticky user data cannot hold a topic of this name.") from None


class StreamsUserData(Record, frozen=True, kw_only=True):
    """First fields of a Kafka Streams member's user data; `rest` is all that follows, as sent.

    `version` is the version in use (upgrade.from 0.10.0 to 1.1, or an older leader, lowers it).
    `latest` is the highest version that the program supports, None below v3. `process_id` is the
    same for all members of one KafkaStreams object, None above v11.
    """

    version: int
    latest: int | None = None
    process_id: UUID | None = None
    rest: bytes = b""


def decode_streams(data: bytes) -> StreamsUserData:
    """Return the first fields of `data`, the user data of a member whose assignor is `stream`.

    Raises:
        WireError: a field that is cut off, a version below 1, or a highest version below the
            version in use.
    """
    version, found, cursor = _STREAMS.read(data)
    latest, process_id = found.get("latest"), found.get("process_id")
    if latest is not None and latest < version:
        raise cursor.error(f"the highest version is {latest}, below the version {version}")
    return StreamsUserData(
        version=version,
        latest=latest,
        process_id=process_id and UUID(bytes=urlsafe_b64decode(f"{process_id}==")),
        rest=data[cursor.at :],
    )


class WorkerAssignment(Record, frozen=True, kw_only=True):
    """Assignment of one Connect worker by its leader.

    `delay_ms` is the time after which the worker must rejoin, because work is held back (v1 and
    later; 0: none is). `assigned` and `revoked` are None when null (v1 and later); v0 has neither
    `revoked` nor a delay.
    """

    version: int
    error: int = 0
    leader: str = ""
    leader_url: str = ""
    config_offset: int = 0
    assigned: ConnectorTasks | None = ()
    revoked: ConnectorTasks | None = None
    delay_ms: int = 0


class WorkerMetadata(Record, frozen=True, kw_only=True):
    """Metadata of one Connect worker, in the version of the elected protocol.

    `url` is its REST address, `config_offset` the offset up to which it has read the config topic.
    `assignment` is its previous assignment, as it joined (v1 and later; None when null).
    """

    version: int
    url: str
    config_offset: int
    assignment: WorkerAssignment | None = None


def decode_worker(data: bytes) -> WorkerMetadata:
    """Return the metadata in `data`, as DescribeGroups shows it for the elected protocol.

    Raises:
        WireError: see `Message.read`; also a negative version.
    """
    version, found, _ = _WORKER.read(data)
    if (ran := found.get("assignment")) is not None:
        found["assignment"] = decode_worker_assignment(ran)
    return WorkerMetadata(version=version, **found)


def decode_worker_assignment(data: bytes) -> WorkerAssignment:
    """Return the assignment in `data`, as SyncGroup sends it to a worker.

    Raises:
        WireError: as `decode_worker`.
    """
    version, found, _ = _WORKER_ASSIGNMENT.read(data)
    return WorkerAssignment(version=version, **{**found, "delay_ms": found.get("delay_ms") or 0})
