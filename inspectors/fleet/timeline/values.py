"""Members' subscriptions and assignments, decoded once per distinct bytes.

A group's members send the same bytes generation after generation, and what changes is mostly the
generation number inside them: so equal pieces are decoded once, by the one codec in groups/wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack, unpack
from typing import Final, Generic, NamedTuple, TypeVar

from rebal.groups.errors import WireError
from rebal.groups.model import TopicPartitions
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription

_KEPT: Final = 16_384
_NULL_RACK: Final = b"\xff\xff"
_V3: Final = b"\x00\x03"
_K = TypeVar("_K")
_V = TypeVar("_V")


_BLOCK: Final = 256


class Places:
    """A place for each partition of one group's topics: a set of partitions is a number's bits."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], int] = {}

    def bits(self, topic: str, partitions: Iterable[int]) -> int:
        """The bits of these partitions of a topic, none of them twice."""
        found = 0
        blocks: dict[int, list[int]] = {}
        for number in partitions:
            blocks.setdefault(number // _BLOCK, []).append(number % _BLOCK)
        for block, numbers in blocks.items():
            place = self._blocks.setdefault((topic, block), _BLOCK * len(self._blocks))
            found |= sum(map(_BIT, numbers)) << place
        return found


_BIT: Final = (1).__lshift__


class PartitionList:
    """Partitions by topic, sorted by topic; `numbers` holds big-endian int32s, in the order sent.

    Equal lists may be one object.
    """

    __slots__ = ("_bits", "_places", "count", "numbers", "topics")

    def __init__(self, topics: tuple[str, ...], numbers: tuple[bytes, ...]) -> None:
        self.topics = topics
        self.numbers = numbers
        self.count = sum(map(len, numbers)) // 4
        self._places: Places | None = None
        self._bits = 0

    def of(self, topic: str) -> tuple[int, ...]:
        """The partitions of one of the topics."""
        raw = self.numbers[self.topics.index(topic)]
        return unpack(f">{len(raw) // 4}i", raw)

    def bits(self, places: Places) -> int:
        """The partitions as a set, for arithmetic over one group's owners."""
        if self._places is not places:
            self._bits = 0
            for topic, raw in zip(self.topics, self.numbers, strict=True):
                self._bits |= places.bits(topic, set(unpack(f">{len(raw) // 4}i", raw)))
            self._places = places
        return self._bits

    def __reduce__(self) -> tuple[type[PartitionList], tuple[tuple[str, ...], tuple[bytes, ...]]]:
        return PartitionList, (self.topics, self.numbers)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PartitionList):
            return NotImplemented
        return self.topics == other.topics and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash((self.topics, self.numbers))


class Sent:
    """What a member's subscription says; `error` says why it could not be read (None: it was).

    `owned` is None where the version has no such field, `generation` too (-1: the member has none).
    """

    __slots__ = ("error", "generation", "owned", "rack", "topics", "user_data", "version")

    def __init__(
        self,
        version: int | None,
        topics: tuple[str, ...] | None,
        owned: PartitionList | None = None,
        *,
        generation: int | None = None,
        rack: str | None = None,
        user_data: bytes | None = None,
        error: str | None = None,
    ) -> None:
        self.version = version
        self.topics = topics
        self.owned = owned
        self.generation = generation
        self.rack = rack
        self.user_data = user_data
        self.error = error

    def in_generation(self, generation: int) -> Sent:
        """Return the same subscription, sent in another generation."""
        return Sent(
            self.version,
            self.topics,
            self.owned,
            generation=generation,
            rack=self.rack,
            user_data=self.user_data,
        )

    def says_the_same(self, other: Sent) -> bool:
        """Return whether the two differ in nothing but the generation."""
        return self is other or (
            self.owned == other.owned
            and (self.version, self.topics, self.rack, self.user_data, self.error)
            == (other.version, other.topics, other.rack, other.user_data, other.error)
        )


class Given:
    """An assignment; `partitions` is None where it could not be read (`error` says why)."""

    __slots__ = ("error", "partitions", "user_data")

    def __init__(
        self,
        partitions: PartitionList | None,
        user_data: bytes | None = None,
        error: str | None = None,
    ) -> None:
        self.partitions = partitions
        self.user_data = user_data
        self.error = error

    def says_the_same(self, other: Given) -> bool:
        """Return whether the two give the same, whichever scan read them."""
        return self is other or (
            (self.partitions, self.user_data, self.error)
            == (other.partitions, other.user_data, other.error)
        )


NOTHING: Final = PartitionList((), ())
UNTOLD: Final = Sent(None, None)


class Memo(Generic[_K, _V]):
    """What was decoded, by its bytes; where that becomes too much, all of it is forgotten."""

    def __init__(self) -> None:
        self._kept: dict[_K, _V] = {}
        self.get = self._kept.get

    def keep(self, key: _K, value: _V) -> None:
        """Remember it."""
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = value


class Values:
    """Decodes subscriptions and assignments, remembering those that it has decoded."""

    def __init__(self) -> None:
        self._sent: Memo[bytes, Sent] = Memo()
        self._but_generation: Memo[bytes, Sent] = Memo()
        self._given: Memo[bytes, Given] = Memo()

    def sent(self, data: bytes) -> Sent:
        """The subscription in `data`."""
        found = self._sent.get(data)
        if found is not None:
            return found
        again = data.startswith(_V3) and data.endswith(_NULL_RACK)
        known = self._but_generation.get(data[:-6]) if again else None
        if known is not None:
            # Only the four bytes of the generation are new.
            return known.in_generation(int.from_bytes(data[-6:-2], "big", signed=True))
        found, determined = _sent(data)
        if again and determined:
            self._but_generation.keep(data[:-6], found)
        else:
            self._sent.keep(data, found)
        return found

    def given(self, data: bytes) -> Given:
        """The assignment in `data`; empty bytes are an empty assignment, as leaders send them."""
        found = self._given.get(data)
        if found is None:
            found = _given(data) if data else Given(NOTHING)
            self._given.keep(data, found)
        return found


def partition_list(partitions: TopicPartitions | None) -> PartitionList | None:
    """The model's partitions in the form that tables are made of."""
    if partitions is None:
        return None
    topics = tuple(sorted(partitions))
    return PartitionList(
        topics,
        tuple(pack(f">{len(partitions[topic])}i", *partitions[topic]) for topic in topics),
    )


def _sent(data: bytes) -> tuple[Sent, bool]:
    """Return the subscription, and whether what it says determines each of its bytes."""
    try:
        read = decode_subscription(data)
    except WireError as error:
        return Sent(None, None, error=str(error)), False
    found = Sent(
        read.version,
        read.topics,
        partition_list(read.owned_partitions),
        generation=read.generation_id,
        rack=read.rack_id,
        user_data=read.user_data,
    )
    return found, read.wire is None


def _given(data: bytes) -> Given:
    try:
        read = decode_assignment(data)
    except WireError as error:
        return Given(None, error=str(error))
    return Given(partition_list(read.partitions), read.user_data)


NOT_GIVEN: Final = Given(None)
_DEFAULT_SESSION_MS: Final = 45_000


class Head(NamedTuple):
    """Who a member is; None: the source does not say."""

    member_id: str
    instance_id: str | None
    client_id: str | None
    host: str | None
    rebalance_timeout_ms: int | None
    session_timeout_ms: int | None
    protocol_type: str | None


class Server(NamedTuple):
    """What a KIP-848 coordinator holds of a member; `target` is its target assignment."""

    target: PartitionList | None = None
    regex: str | None = None
    rack: str | None = None


_CLASSIC: Final = Server()


class Seen:
    """One member in one generation, as a source shows it; None: the source does not say.

    The same object in the next generation is the same member, unchanged. `count` is how many
    partitions it is given, -1 where that is not known.
    """

    __slots__ = ("count", "generation", "given", "head", "member_id", "sent", "server")

    def __init__(
        self, head: Head, sent: Sent = UNTOLD, given: Given = NOT_GIVEN, server: Server = _CLASSIC
    ) -> None:
        self.head = head
        self.member_id = head.member_id
        self.sent = sent
        self.generation = sent.generation
        self.given = given
        self.count = -1 if given.partitions is None else given.partitions.count
        self.server = server

    @property
    def session_ms(self) -> int:
        """Its session timeout; clients' own where the source does not say."""
        return self.head.session_timeout_ms or _DEFAULT_SESSION_MS

    def under(self, member_id: str, client_id: str | None, host: str | None) -> Seen:
        """The same member after a restart."""
        head = self.head._replace(
            member_id=member_id,
            client_id=client_id or self.head.client_id,
            host=host or self.head.host,
        )
        return Seen(head, self.sent, self.given, self.server)

    def same_row(self, other: Seen) -> bool:
        """Does it still say what a row of `members` says, the generation aside."""
        mine, its = self.sent, other.sent
        return (
            (self.given is other.given or self.given.partitions == other.given.partitions)
            and (mine is its or (mine.topics == its.topics and mine.owned == its.owned))
            and (self.head is other.head or self.head == other.head)
            and (self.server is other.server or self.server[:2] == other.server[:2])
        )


class Sums(NamedTuple):
    """What a generation's members have together; `assigned` is None where one's is not known.

    `some` is whether one has a partition, `empty` whether one has none; `session_ms` is the
    shortest session timeout, 0 where nobody is there.
    """

    assigned: int | None
    some: bool
    empty: bool
    session_ms: int


def sums_of(members: Sequence[Seen]) -> Sums:
    """The members' sums."""
    counts = [seen.count for seen in members]
    return Sums(
        None if -1 in counts else sum(counts),
        max(counts, default=0) > 0,
        0 in counts,
        min((seen.session_ms for seen in members), default=0),
    )
