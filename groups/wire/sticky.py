"""User data of Kafka's sticky assignors: what a member remembers of its previous assignment.

`sticky` (StickyAssignor, KIP-54, generation added by KIP-341) sends its previous partitions and, in
v1, their generation. `cooperative-sticky` (KIP-429) sends the generation alone; its partitions are
the subscription's owned partitions. Neither carries a version number. Reading is as tolerant as the
Java client's leader: what it cannot parse it forgets, and bytes after the last field are ignored.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from rebal.groups.errors import WireError
from rebal.groups.model import Record
from rebal.groups.wire.primitives import Reader, Writer

NO_GENERATION: Final = -1


class StickyUserData(Record, frozen=True, kw_only=True):
    """What a `sticky` member remembers: `(topic, partition)` in the order sent.

    `generation` is None in v0 (the field does not exist) and when there is no user data at all.
    `readable` is False when the bytes were neither v0 nor v1 (a leader then goes by an empty
    assignment of generation -1).
    """

    previous: tuple[tuple[str, int], ...] = ()
    generation: int | None = None
    readable: bool = True


def decode_sticky(data: bytes | None) -> StickyUserData:
    """What a Java leader understands of a `sticky` member's user data; any bytes give a value.

    v1 is tried first, then v0, as StickyAssignor does; null and empty bytes remember nothing.
    """
    if not data:
        return StickyUserData()
    reader = Reader(data, "sticky user data", lenient_text=True)
    try:
        previous = _read_previous(reader)
    except WireError:
        return StickyUserData(generation=NO_GENERATION, readable=False)
    try:
        return StickyUserData(previous=previous, generation=reader.int32("the generation"))
    except WireError:
        return StickyUserData(previous=previous)


def encode_sticky(user_data: StickyUserData) -> bytes:
    """The bytes of `user_data`: v1, or v0 where `generation` is None.

    Partitions are grouped by topic in the order of each topic's first partition.

    Raises:
        WireError: a value that its field cannot hold.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in user_data.previous:
        topics.setdefault(topic, []).append(partition)
    head, end = Writer(), Writer()
    head.int32(len(topics), "the topics")
    if user_data.generation is not None:
        end.int32(user_data.generation, "the generation")
    entries = (_name(topic) + _numbers(partitions) for topic, partitions in topics.items())
    return b"".join((head.done(), *entries, end.done()))


def _numbers(partitions: list[int]) -> bytes:
    """How many partitions, and the partitions."""
    try:
        return struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions)
    except struct.error:
        writer = Writer()
        for partition in partitions:
            writer.int32(partition, "a partition")
        raise


@lru_cache(maxsize=2**12)
def _name(topic: str) -> bytes:
    """A topic's name with its length: all members of a large group send the same ones."""
    writer = Writer()
    writer.string(topic, "a topic")
    return writer.done()


def decode_cooperative_sticky(data: bytes | None) -> int | None:
    """The generation in a `cooperative-sticky` member's user data.

    None when the user data is null; -1 when it is shorter than the four bytes of a generation,
    as CooperativeStickyAssignor takes it.
    """
    if data is None:
        return None
    try:
        return Reader(data, "cooperative-sticky user data").int32("the generation")
    except WireError:
        return NO_GENERATION


def encode_cooperative_sticky(generation: int) -> bytes:
    """The four bytes of `generation`.

    Raises:
        WireError: a generation that is not a signed 32-bit number.
    """
    writer = Writer()
    writer.int32(generation, "the generation")
    return writer.done()


def _read_previous(reader: Reader) -> tuple[tuple[str, int], ...]:
    previous: list[tuple[str, int]] = []
    for _ in range(reader.count(6, "the topics")):
        topic = reader.string("a topic")
        previous.extend((topic, partition) for partition in reader.int32_array("the partitions"))
    return tuple(previous)
