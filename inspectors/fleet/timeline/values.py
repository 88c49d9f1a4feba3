"""Members' subscriptions and assignments, decoded once per distinct bytes.

A group's members send the same bytes generation after generation, and what changes is mostly the
generation number inside them: so equal pieces are decoded once. The fast way reads only bytes that
are exactly a version 0..3 as written; any others go through the one strict codec in groups/wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, unpack
from typing import Final, NamedTuple, TypeVar

from rebal.groups.errors import WireError
from rebal.groups.model import TopicPartitions
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription

_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_KEPT: Final = 2_000
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
    Of an `exact` one each byte was told, from the version to the end.
    """

    __slots__ = ("error", "exact", "generation", "owned", "rack", "topics", "user_data", "version")

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
        exact: bool = False,
    ) -> None:
        self.version = version
        self.topics = topics
        self.owned = owned
        self.generation = generation
        self.rack = rack
        self.user_data = user_data
        self.error = error
        self.exact = exact

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


class Values:
    """Decodes blobs, remembering those it has seen; what it remembers is bounded."""

    def __init__(self) -> None:
        self._sent: dict[bytes, Sent] = {}
        self._but_generation: dict[bytes, Sent] = {}
        self._last_topics: tuple[bytes, tuple[str, ...]] = (b"", ())
        self._given: dict[bytes, Given] = {}
        self._lists: dict[bytes, PartitionList] = {}
        self._topics: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._names: dict[bytes, str] = {}

    def sent(self, data: bytes) -> Sent:
        """The subscription in `data`."""
        found = self._sent.get(data)
        if found is not None:
            return found
        if data[-2:] == _NULL_RACK and data[:2] == _V3:
            # Only the four bytes of the generation are likely to be new.
            known = self._but_generation.get(data[:-6])
            if known is not None:
                (generation,) = _INT32(data, len(data) - 6)
                return Sent(
                    3, known.topics, known.owned,
                    generation=generation, user_data=known.user_data, exact=True,
                )  # fmt: skip
            found = self._fast_sent(data)
            if found is not None:
                _keep(self._but_generation, data[:-6], found)
                return found
        found = self._fast_sent(data) or _strict_sent(data)
        _keep(self._sent, data, found)
        return found

    def given(self, data: bytes) -> Given:
        """The assignment in `data`; empty bytes are an empty assignment, as leaders send them."""
        found = self._given.get(data)
        if found is None:
            found = (self._fast_given(data) or _strict_given(data)) if data else Given(NOTHING)
            _keep(self._given, data, found)
        return found

    def _fast_sent(self, data: bytes) -> Sent | None:
        size = len(data)
        if size < 10 or data[0] or data[1] > 3:
            return None
        version = data[1]
        read = self._read_topics(data, size)
        if read is None or size < read[1] + 4:
            return None
        topics, at = read
        (length,) = _INT32(data, at)
        at += 4
        user_data = None
        if length >= 0:
            if size < at + length:
                return None
            user_data = data[at : at + length]
            at += length
        if not version:
            return Sent(0, topics, user_data=user_data, exact=True) if at == size else None
        if size < at + 4:
            return None
        end, generation, rack = size, None, None
        if version == 3 and data[-2:] != _NULL_RACK:
            end = _end_of_list(data, at)
            rack = self._rack(data, end + 4)
            if rack is None:
                return None
        elif version >= 2:
            end -= 6 if version == 3 else 4
        if version >= 2:
            if end < at + 4:
                return None
            (generation,) = _INT32(data, end)
        owned = self._list(data[at:end])
        if owned is None:
            return None
        return Sent(
            version, topics, owned,
            generation=generation, rack=rack, user_data=user_data, exact=True,
        )  # fmt: skip

    def _rack(self, data: bytes, at: int) -> str | None:
        """The rack that is all that is left from `at`."""
        if not 4 < at <= len(data) - 2 or at + 2 + _INT16(data, at)[0] != len(data):
            return None
        return self._name(data[at + 2 :])

    def _fast_given(self, data: bytes) -> Given | None:
        if len(data) < 10 or data[0] or data[1] > 3:
            return None
        end, user_data = len(data) - 4, None
        if data[end:] != b"\xff\xff\xff\xff":
            end = _end_of_list(data, 2)
            if end < 0 or _INT32(data, end)[0] != len(data) - end - 4:
                return None
            user_data = data[end + 4 :]
        partitions = self._list(data[2:end])
        return None if partitions is None else Given(partitions, user_data)

    def _read_topics(self, data: bytes, size: int) -> tuple[tuple[str, ...], int] | None:
        """The subscribed topics and where they end; None where they are not plainly there."""
        raw, topics = self._last_topics
        if raw and data.startswith(raw, 2):
            return topics, 2 + len(raw)
        (count,) = _INT32(data, 2)
        if not 0 <= count <= size:
            return None
        at, names = 6, []
        for _ in range(count):
            if at + 2 > size:
                return None
            (length,) = _INT16(data, at)
            at += 2
            if length < 0 or at + length > size:
                return None
            name = self._name(data[at : at + length])
            if name is None:
                return None
            names.append(name)
            at += length
        topics = tuple(names)
        if topics not in self._topics:
            _keep(self._topics, topics, topics)
        topics = self._topics[topics]
        self._last_topics = (data[2:at], topics)
        return topics, at

    def _list(self, data: bytes) -> PartitionList | None:
        """The partition list that is exactly `data`; None where it is not one, or not plainly."""
        found = self._lists.get(data)
        if found is not None:
            return found
        size = len(data)
        if size < 4:
            return None
        (count,) = _INT32(data, 0)
        if not 0 <= count <= size:
            return None
        at, made = 4, {}
        for _ in range(count):
            if at + 2 > size:
                return None
            (length,) = _INT16(data, at)
            at += 2
            if length < 0 or at + length + 4 > size:
                return None
            name = self._name(data[at : at + length])
            at += length
            (numbers,) = _INT32(data, at)
            at += 4
            if name is None or name in made or numbers < 0 or at + 4 * numbers > size:
                return None
            raw = data[at : at + 4 * numbers]
            if numbers and max(raw[::4]) > 127:
                return None
            made[name] = raw
            at += 4 * numbers
        if at != size:
            return None
        topics = tuple(sorted(made))
        found = PartitionList(topics, tuple(made[topic] for topic in topics))
        _keep(self._lists, data, found)
        return found

    def _name(self, raw: bytes) -> str | None:
        found = self._names.get(raw)
        if found is None:
            try:
                found = raw.decode()
            except UnicodeDecodeError:
                return None
            _keep(self._names, raw, found)
        return found


def partition_list(partitions: TopicPartitions | None) -> PartitionList | None:
    """The model's partitions in the form that tables are made of."""
    if partitions is None:
        return None
    topics = tuple(sorted(partitions))
    return PartitionList(
        topics,
        tuple(b"".join(n.to_bytes(4, "big") for n in partitions[topic]) for topic in topics),
    )


def _end_of_list(data: bytes, at: int) -> int:
    """Where the partition list that begins at `at` ends, with four bytes left; else -1."""
    size = len(data) - 4
    (count,) = _INT32(data, at)
    at += 4
    if not 0 <= count <= size:
        return -1
    for _ in range(count):
        if at + 2 > size:
            return -1
        (length,) = _INT16(data, at)
        at += 2 + length
        if length < 0 or at + 4 > size:
            return -1
        (numbers,) = _INT32(data, at)
        at += 4 + 4 * numbers
        if numbers < 0:
            return -1
    return at if at <= size else -1


def _strict_sent(data: bytes) -> Sent:
    try:
        read = decode_subscription(data)
    except WireError as error:
        return Sent(None, None, error=str(error))
    return Sent(
        read.version,
        read.topics,
        partition_list(read.owned_partitions),
        generation=read.generation_id,
        rack=read.rack_id,
        user_data=read.user_data,
    )


def _strict_given(data: bytes) -> Given:
    try:
        read = decode_assignment(data)
    except WireError as error:
        return Given(None, error=str(error))
    return Given(partition_list(read.partitions), read.user_data)


def _keep(cache: dict[_K, _V], key: _K, value: _V) -> None:
    if len(cache) >= _KEPT:
        cache.clear()
    cache[key] = value


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

    The same object in the next generation is the same member, unchanged but for the `generation`
    in its subscription. `count` is how many partitions it is given, -1 where that is not known.
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
        made = Seen(head, self.sent, self.given, self.server)
        made.generation = self.generation
        return made

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
