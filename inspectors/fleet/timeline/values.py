"""Members of a generation: who they are, their subscriptions and assignments.

A group's members send the same bytes generation after generation, and what changes is mostly the
generation number inside them. So a group's record is split into its members' bytes, and equal
pieces are decoded once, by the one strict codec in groups/wire: what it refuses is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import pack, unpack
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from rebal.groups.errors import WireError
from rebal.groups.model import TopicPartitions
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    MemberBytes,
    decode_group_metadata,
    member_head_reader,
    split_group_metadata,
)

KEPT: Final = 16_384
"""How many decoded pieces of each sort are remembered."""
_SETS: Final = 2048
_NULL_RACK: Final = b"\xff\xff"
_V3: Final = b"\x00\x03"
_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
_READ_HEAD: Final = member_head_reader()
_DEFAULT_SESSION_MS: Final = 45_000


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
        for number in unpack(f">{len(raw) // 4}i", raw)
    ]
    return frozenset(pairs)


class Subscription(Struct, frozen=True, array_like=True):
    """A member's subscription; `error` says why it could not be read (None: it was).

    `owned` is None where the version has no such field, `generation` too (-1: the member has none).
    """

    version: int | None = None
    topics: tuple[str, ...] | None = None
    owned: PartitionList | None = None
    generation: int | None = None
    rack: str | None = None
    user_data: bytes | None = None
    error: str | None = None

    def says_the_same(self, other: Subscription) -> bool:
        """Return whether the two differ in nothing but the generation."""
        return self is other or self == replace(other, generation=self.generation)


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


class Server(NamedTuple):
    """A KIP-848 coordinator's facts on a member; `target` is its target assignment."""

    target: PartitionList | None = None
    regex: str | None = None
    rack: str | None = None


_NO_SERVER: Final = Server()


class Member(Struct, eq=False, array_like=True):
    """One member in one generation, as a source shows it; None: the source does not say.

    The same object in the next generation is the same member, unchanged.
    """

    identity: Identity
    subscription: Subscription = UNTOLD
    assignment: Assignment = NOT_GIVEN
    server: Server = _NO_SERVER

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
        return Member(identity, self.subscription, self.assignment, self.server)

    def same_row(self, other: Member) -> bool:
        """Return whether a row of `members` would say the same, the generation aside."""
        mine, its = self.subscription, other.subscription
        return (
            self.assignment.partitions == other.assignment.partitions
            and (mine is its or (mine.topics == its.topics and mine.owned == its.owned))
            and self.identity == other.identity
            and self.server[:2] == other.server[:2]
        )


def subscription(data: bytes) -> Subscription:
    """Return the subscription in `data`."""
    if data.startswith(_V3) and data.endswith(_NULL_RACK):
        known = _but_generation(data[:-6])
        if known is not None:
            return replace(known, generation=int.from_bytes(data[-6:-2], "big", signed=True))
    return read_subscription(data)[0]


@lru_cache(maxsize=KEPT)
def _but_generation(start: bytes) -> Subscription | None:
    """Return a subscription up to its generation; None where that does not determine all of it."""
    found, determined = read_subscription(start + bytes(4) + _NULL_RACK)
    return found if determined else None


def partition_list(partitions: TopicPartitions | None) -> PartitionList | None:
    """Return the model's partitions in the form that tables are made of."""
    if partitions is None:
        return None
    topics = tuple(sorted(partitions))
    return PartitionList(
        topics,
        tuple(pack(f">{len(partitions[topic])}i", *partitions[topic]) for topic in topics),
    )


@lru_cache(maxsize=KEPT)
def read_subscription(data: bytes) -> tuple[Subscription, bool]:
    """Return the subscription, and whether what it says determines each of its bytes."""
    try:
        read = decode_subscription(data)
    except WireError as error:
        return Subscription(error=str(error)), False
    found = Subscription(
        read.version,
        read.topics,
        partition_list(read.owned_partitions),
        read.generation_id,
        read.rack_id,
        read.user_data,
    )
    return found, read.wire is None


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
    members: Sequence[Member]


def read_value(data: bytes) -> Value:
    """Return what a value says.

    Raises:
        WireError: as `decode_group_metadata`.
    """
    try:
        nobody, parts = split_group_metadata(data)
        group = decode_group_metadata(nobody)
        consumer = group.protocol_type == _CONSUMER
        return Value(group, [_member(part, consumer) for part in parts])
    except WireError:
        # of another version, or broken: the codec says by itself what is wrong with it
        group = decode_group_metadata(data)
    members = []
    for one in group.members:
        identity = Identity(
            one.member_id, one.instance_id, one.client_id, one.client_host,
            one.rebalance_timeout_ms, one.session_timeout_ms, _CLASSIC,
        )  # fmt: skip
        consumer = group.protocol_type == _CONSUMER
        members.append(_made(identity, one.subscription, one.assignment, consumer))
    return Value(group, members)


@lru_cache(maxsize=KEPT)
def _member(part: MemberBytes, consumer: bool) -> Member:
    return _made(_identity(part.head), part.subscription, part.assignment, consumer)


@lru_cache(maxsize=KEPT)
def _identity(head: bytes) -> Identity:
    return Identity._make((*_READ_HEAD(head), _CLASSIC))


def _made(identity: Identity, sent: bytes, given: bytes, consumer: bool) -> Member:
    if not consumer:
        return Member(identity)
    return Member(identity, subscription(sent), read_assignment(given))
