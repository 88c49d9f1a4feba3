"""The members of a generation, with their subscriptions and assignments, decoded once.

Members send the same bytes in every generation; mostly only the generation number inside them
changes. So equal bytes are decoded once, by the codec in groups/wire (bytes that it rejects are not
decoded). A member that differs only in that number is the same object as before, and the number is
kept beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from rebal.groups.errors import WireError
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
    group_metadata_head,
    group_metadata_member,
)

KEPT: Final = 16_384
"""The size of each cache of members and of decoded values."""
_SETS: Final = 2048
_V3: Final = b"\x00\x03"
_NULL_RACK: Final = b"\xff\xff"
# No member's generation: stands for any of them.
_MASK: Final = -(2**31)
_MASKED: Final = struct.pack(">i", _MASK) + _NULL_RACK
_UINT16: Final = struct.Struct(">H").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from
_CONSUMER: Final = "consumer"

PartitionList = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by topic, sorted by topic; the numbers in the order sent."""
Partition = tuple[str, int]
"""A topic name and a partition number."""


def partition_list(partitions: Mapping[str, Iterable[int]] | None) -> PartitionList | None:
    """Return partitions by topic as (topic, numbers) pairs, sorted by topic, as in the tables.

    None: `partitions` is None.
    """
    if partitions is None:
        return None
    return tuple((topic, tuple(partitions[topic])) for topic in sorted(partitions))


class MemberSubscription(Struct, frozen=True, cache_hash=True, array_like=True):
    """A member's subscription without its generation id.

    `error` says why it could not be decoded (None: it could). `owned` is None if the version has no
    such field.
    """

    version: int | None = None
    topics: tuple[str, ...] | None = None
    owned: PartitionList | None = None
    rack: str | None = None
    user_data: bytes | None = None
    error: str | None = None


class Assignment(Struct, frozen=True, cache_hash=True, array_like=True):
    """An assignment; `partitions` is None if it could not be read (`error` says why).

    `count` is the number of partitions in it, -1 if that is not known.
    """

    partitions: PartitionList | None = None
    user_data: bytes | None = None
    error: str | None = None
    count: int = -1

    def __post_init__(self) -> None:
        """Set `count` once, for it is needed often."""
        if self.partitions is not None:
            force_setattr(self, "count", sum(len(numbers) for _, numbers in self.partitions))


@lru_cache(maxsize=_SETS)
def partitions_in(given: Assignment) -> frozenset[Partition]:
    """Return the partitions of an assignment as a set, empty if it could not be read."""
    return frozenset(
        chain.from_iterable(
            zip(repeat(topic), numbers) for topic, numbers in given.partitions or ()
        )
    )


UNKNOWN_SUBSCRIPTION: Final = MemberSubscription()
UNKNOWN_ASSIGNMENT: Final = Assignment()
EMPTY_ASSIGNMENT: Final = Assignment(())


class GenerationMember(Struct, eq=False, array_like=True):
    """One member in one generation, as a source shows it; None: the source does not show it.

    If the next generation has the same object, the member is unchanged, except perhaps for the
    generation id in its subscription. `target` is the target assignment of a KIP-848 member.
    """

    member_id: str
    instance_id: str | None
    client_id: str | None
    host: str | None
    rebalance_timeout_ms: int | None
    session_timeout_ms: int | None
    protocol_type: str | None
    subscription: MemberSubscription = UNKNOWN_SUBSCRIPTION
    assignment: Assignment = UNKNOWN_ASSIGNMENT
    target: PartitionList | None = None
    regex: str | None = None

    @property
    def process(self) -> tuple[str | None, str | None]:
        """The client id and host, by which the process of a dynamic member is recognized."""
        return self.client_id, self.host

    @property
    def owns(self) -> bool:
        """Return whether the member named owned partitions when it joined."""
        return any(numbers for _, numbers in self.subscription.owned or ())

    def under(self, member_id: str, client_id: str | None, host: str | None) -> GenerationMember:
        """Return this member after a restart, with another member id, client id and host.

        A client id or host of None stays as it is.
        """
        return replace(
            self,
            member_id=member_id,
            client_id=client_id or self.client_id,
            host=host or self.host,
        )


# What a row of `members` says of one.
shown: Final = attrgetter(
    "instance_id", "client_id", "host", "rebalance_timeout_ms", "session_timeout_ms",
    "protocol_type", "subscription.topics", "subscription.owned", "assignment.partitions",
    "target", "regex",
)  # fmt: skip


Named = Mapping[GenerationMember, int | None]
"""The members of a generation, each with the generation in its subscription: -1, the member has
none; None, the version has no such field."""


@lru_cache(maxsize=KEPT)
def read_subscription(data: bytes) -> tuple[MemberSubscription, int | None]:
    """Return the subscription in `data`, and the generation id in it as in `Named`.

    Subscriptions that differ in the generation id alone are equal, because they do not contain it.
    """
    try:
        read = decode_subscription(data)
    except WireError as error:
        return MemberSubscription(error=str(error)), None
    owned = partition_list(read.owned_partitions)
    sent = MemberSubscription(read.version, read.topics, owned, read.rack_id, read.user_data)
    return sent, read.generation_id


@lru_cache(maxsize=KEPT)
def read_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`; if `data` is empty, as leaders may send it, an empty one."""
    if not data:
        return EMPTY_ASSIGNMENT
    try:
        read = decode_assignment(data)
    except WireError as error:
        return Assignment(error=str(error))
    return Assignment(partition_list(read.partitions), read.user_data)


Known = tuple[GenerationMember, bytes, bytes, int, int | None]
"""A member as it was last read: the member, its bytes before its generation id, those after it, the
latter's position, and the generation id. If the id's place is not known, all bytes come before."""
# Members of groups of consumers, and of others, by the bytes of their ids, and by the member that a
# record named before them (None: they were the first): most come again in the same order.
_KNOWN: Final[dict[bool, dict[bytes | GenerationMember | None, Known]]] = {True: {}, False: {}}


def read_value(data: bytes) -> tuple[GroupMetadata, Named]:
    """Return a classic group's metadata record, and its members with their generation ids.

    Raises:
        WireError: as `decode_group_metadata`.
    """
    members: dict[GenerationMember, int | None] = {}
    member: GenerationMember | None = None
    try:
        group, count, at = group_metadata_head(data)
        consumer = group.protocol_type == _CONSUMER
        met = _KNOWN[consumer]
        for _ in range(count):
            known = met.get(member)
            if not (
                known and data.startswith(known[1], at) and data.startswith(known[2], at + known[3])
            ):
                known = met[member] = _find(data, at, consumer)
            member, _, after, rest, generation = known
            if after:
                (generation,) = _INT32(data, at + rest - 4)
            members[member] = generation
            at += rest + len(after)
        if len(met) > 2 * KEPT:
            met.clear()
    except (WireError, struct.error):
        # of another version, or broken: the codec says by itself what is wrong with it
        group = decode_group_metadata(data)
        consumer = group.protocol_type == _CONSUMER
        members = dict(_read(one, one.subscription, consumer) for one in group.members)
    return group, members


def _find(data: bytes, at: int, consumer: bool) -> Known:
    member_id = data[at : at + 2 + _UINT16(data, at)[0]]
    known = _KNOWN[consumer].get(member_id)
    if not (known and data.startswith(known[1], at) and data.startswith(known[2], at + known[3])):
        known = _KNOWN[consumer][member_id] = _know(data, at, consumer)
    return known


def _know(data: bytes, at: int, consumer: bool) -> Known:
    one, end = group_metadata_member(data, at)
    rest = end - 4 - len(one.assignment)
    sent = one.subscription
    if sent.startswith(_V3) and sent.endswith(_NULL_RACK):
        member, generation = _read(one, sent[:-6] + _MASKED, consumer)
        if generation == _MASK:
            return member, data[at : rest - 6], data[rest - 2 : end], rest - 2 - at, generation
    member, generation = _read(one, sent, consumer)
    return member, data[at:end], b"", end - at, generation


def _read(
    one: GroupMetadataMember, subscription: bytes, consumer: bool
) -> tuple[GenerationMember, int | None]:
    sent, generation = read_subscription(subscription) if consumer else (UNKNOWN_SUBSCRIPTION, None)
    member = _member(
        one.member_id, one.instance_id, one.client_id, one.client_host,
        one.rebalance_timeout_ms, one.session_timeout_ms, "classic",
        sent, read_assignment(one.assignment) if consumer else UNKNOWN_ASSIGNMENT,
    )  # fmt: skip
    return member, generation


_member: Final = lru_cache(maxsize=KEPT)(GenerationMember)
