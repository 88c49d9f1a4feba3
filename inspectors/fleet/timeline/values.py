"""Members of a generation: who they are, their subscriptions and assignments.

A group's members send the same bytes generation after generation, and what changes is mostly the
generation number inside them. So a member is known again by its bytes but for that number, and is
the same object as before; the number stands beside it. Others' bytes are decoded, equal ones once,
by the one strict codec in groups/wire: what it rejects stays undecoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from rebal.groups.errors import WireError
from rebal.groups.model import TopicPartitions
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
    group_metadata_head,
    group_metadata_member,
)

KEPT: Final = 16_384
"""How many members, and decoded pieces of each sort, are remembered."""
_SETS: Final = 2048
_NULL_RACK: Final = b"\xff\xff"
_V3: Final = b"\x00\x03"
_NO_RACK: Final = 2
"""The version of a subscription that has a generation and no rack."""
_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
_UINT16: Final = struct.Struct(">H").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from
_DEFAULT_SESSION_MS: Final = 45_000
_TOLD_SESSION: Final = attrgetter("identity.session_timeout_ms")


class PartitionList(Struct, frozen=True, cache_hash=True, array_like=True):
    """Partitions by topic, sorted by topic; `numbers` holds big-endian int32s, in the order sent.

    It is true if it holds a partition. Equal lists may be one object.
    """

    topics: tuple[str, ...]
    numbers: tuple[bytes, ...]

    def __post_init__(self) -> None:
        """Check that each topic has its numbers, and that none is cut off.

        Raises:
            ValueError: a topic without its numbers, or half a number.
        """
        if len(self.topics) != len(self.numbers) or any(len(raw) % 4 for raw in self.numbers):
            raise ValueError("a partition list is cut off")

    def __bool__(self) -> bool:
        return any(self.numbers)

    @property
    def count(self) -> int:
        """Return how many partitions it holds."""
        return sum(map(len, self.numbers)) // 4


Partition = tuple[str, int]
"""A topic's name and a partition of it."""


@lru_cache(maxsize=_SETS)
def partitions_in(given: PartitionList) -> frozenset[Partition]:
    """Return the partitions of a list, as a set."""
    pairs = [
        (topic, number)
        for topic, raw in zip(given.topics, given.numbers, strict=True)
        for number in struct.unpack(f">{len(raw) // 4}i", raw)
    ]
    return frozenset(pairs)


class Subscription(Struct, frozen=True, array_like=True):
    """A member's subscription but for its generation; `error` says why it could not be read.

    `error` is None where it could; `owned` is None where the version has no such field.
    """

    version: int | None = None
    topics: tuple[str, ...] | None = None
    owned: PartitionList | None = None
    rack: str | None = None
    user_data: bytes | None = None
    error: str | None = None


class Assignment(Struct, frozen=True, array_like=True):
    """An assignment; `partitions` is None where it could not be read (`error` says why).

    `count` is how many partitions it gives, -1 where that is not known.
    """

    partitions: PartitionList | None = None
    user_data: bytes | None = None
    error: str | None = None
    count: int = -1

    def __post_init__(self) -> None:
        """Keep at hand what is asked for again and again."""
        if self.partitions is not None:
            force_setattr(self, "count", self.partitions.count)


NOTHING: Final = PartitionList((), ())
UNTOLD: Final = Subscription()
NOT_GIVEN: Final = Assignment()


class Identity(NamedTuple):
    """A member's identity; None: the source does not say."""

    member_id: str
    instance_id: str | None
    client_id: str | None
    host: str | None
    rebalance_timeout_ms: int | None
    session_timeout_ms: int | None
    protocol_type: str | None


class Member(Struct, eq=False, array_like=True):
    """One member in one generation, as a source shows it; None: the source does not say.

    The same object in the next generation is the same member, and its subscription may differ in
    its generation alone. `target` is its target assignment, which a KIP-848 coordinator stores.
    """

    identity: Identity
    subscription: Subscription = UNTOLD
    assignment: Assignment = NOT_GIVEN
    target: PartitionList | None = None
    regex: str | None = None

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self.identity.member_id

    @property
    def session_ms(self) -> int:
        """Its session timeout; clients' own where the source does not say."""
        return self.identity.session_timeout_ms or _DEFAULT_SESSION_MS

    @property
    def process(self) -> tuple[str | None, str | None]:
        """By what a dynamic member's process can be known again: its client id and its host."""
        return self.identity.client_id, self.identity.host

    def under(self, member_id: str, client_id: str | None, host: str | None) -> Member:
        """Return the same member after a restart."""
        identity = self.identity._replace(
            member_id=member_id,
            client_id=client_id or self.identity.client_id,
            host=host or self.identity.host,
        )
        return replace(self, identity=identity)

    def same_row(self, other: Member) -> bool:
        """Return whether a row of `members` would say the same of both."""
        mine, its = self.subscription, other.subscription
        return (
            self.assignment.partitions == other.assignment.partitions
            and (mine is its or (mine.topics == its.topics and mine.owned == its.owned))
            and self.identity == other.identity
            and self.target == other.target
            and self.regex == other.regex
        )


def shortest_session_ms(members: Iterable[Member]) -> int:
    """Return the shortest session timeout of these members."""
    told = set(map(_TOLD_SESSION, members))
    return min(ms or _DEFAULT_SESSION_MS for ms in told)


Named = Mapping[Member, int | None]
"""The members of a generation, each with the generation in its subscription: -1, the member has
none; None, the version has no such field."""


class Sent(NamedTuple):
    """A subscription and its generation, which stands `tail` bytes before the end of the bytes.

    `tail` is None where there is none, or where the bytes do not tell its place.
    """

    subscription: Subscription
    generation: int | None = None
    tail: int | None = None


def read_subscription(data: bytes) -> Sent:
    """Return the subscription in `data`; those that differ in the generation alone are equal."""
    if data.startswith(_V3) and data.endswith(_NULL_RACK):
        sent = _sent(data[:-6] + bytes(4) + _NULL_RACK)
        if sent.tail is not None:
            return Sent(sent.subscription, _INT32(data, len(data) - 6)[0], sent.tail)
    return _sent(data)


@lru_cache(maxsize=KEPT)
def _sent(data: bytes) -> Sent:
    try:
        read = decode_subscription(data)
    except WireError as error:
        return Sent(Subscription(error=str(error)))
    owned = partition_list(read.owned_partitions)
    said = Subscription(read.version, read.topics, owned, read.rack_id, read.user_data)
    if read.generation_id is None or read.wire is not None:
        return Sent(said, read.generation_id)
    rack = b"" if read.version == _NO_RACK else struct.pack(">h", 0) + (read.rack_id or "").encode()
    return Sent(said, read.generation_id, len(rack))


def partition_list(partitions: TopicPartitions | None) -> PartitionList | None:
    """Return the model's partitions in the form that tables are made of."""
    if partitions is None:
        return None
    topics = tuple(sorted(partitions))
    return PartitionList(
        topics,
        tuple(struct.pack(f">{len(partitions[topic])}i", *partitions[topic]) for topic in topics),
    )


@lru_cache(maxsize=KEPT)
def read_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`; empty bytes are an empty one, as leaders send them."""
    if not data:
        return Assignment(NOTHING)
    try:
        read = decode_assignment(data)
    except WireError as error:
        return Assignment(error=str(error))
    return Assignment(partition_list(read.partitions), read.user_data)


class Value(NamedTuple):
    """A classic group's record without its members, and whom it names."""

    group: GroupMetadata
    members: Named


class Known(Struct, frozen=True):
    """A member as it was last read: its bytes `before` the generation and `after` it.

    That stands `said` bytes from their beginning, and `rest` is where it ends. Where its place is
    not known `before` is all of the bytes, and `generation` what they say of it.
    """

    member: Member
    before: bytes
    after: bytes
    rest: int
    size: int
    said: int | None = None
    generation: int | None = None


_KNOWN: Final[dict[bool, dict[bytes, Known]]] = {True: {}, False: {}}
"""Members of groups of consumers, and of others, by the bytes of their ids."""


def read_value(data: bytes) -> Value:
    """Return what a value says.

    Raises:
        WireError: as `decode_group_metadata`.
    """
    try:
        group, count, at = group_metadata_head(data)
        consumer, members = group.protocol_type == _CONSUMER, {}
        known_by_id = _KNOWN[consumer]
        for _ in range(count):
            known = known_by_id.get(data[at : at + 2 + _UINT16(data, at)[0]])
            if known is None or not (
                data.startswith(known.before, at) and data.startswith(known.after, at + known.rest)
            ):
                known = _know(data, at, consumer)
            generation = known.generation
            if known.said is not None:
                (generation,) = _INT32(data, at + known.said)
            members[known.member] = generation
            at += known.size
    except (WireError, struct.error):
        # of another version, or broken: the codec says by itself what is wrong with it
        group = decode_group_metadata(data)
        consumer = group.protocol_type == _CONSUMER
        read = [_read(one, consumer) for one in group.members]
        members = {member: sent.generation for member, sent in read}
    return Value(group, members)


def _know(data: bytes, at: int, consumer: bool) -> Known:
    """Read the member at this place, and remember it."""
    one, end = group_metadata_member(data, at)
    member, sent = _read(one, consumer)
    known = Known(member, data[at:end], b"", 0, end - at, None, sent.generation)
    if sent.tail is not None:
        rest = end - len(one.assignment) - 4 - sent.tail
        before, after = data[at : rest - 4], data[rest:end]
        known = Known(member, before, after, rest - at, end - at, len(before))
    by_id = _KNOWN[consumer]
    if len(by_id) >= KEPT:
        by_id.clear()
    by_id[data[at : at + 2 + _UINT16(data, at)[0]]] = known
    return known


def _read(one: GroupMetadataMember, consumer: bool) -> tuple[Member, Sent]:
    identity = Identity(
        one.member_id, one.instance_id, one.client_id, one.client_host,
        one.rebalance_timeout_ms, one.session_timeout_ms, _CLASSIC,
    )  # fmt: skip
    if not consumer:
        return Member(identity), Sent(UNTOLD)
    sent = read_subscription(one.subscription)
    return Member(identity, sent.subscription, read_assignment(one.assignment)), sent
