"""What `sticky` members remember, read from their user data straight into codes.

A member's user data has one entry for each topic; a group of a million partitions may have as many
entries. So entries of the usual form take a short way, and any bytes that are odd in any respect
the codec's (`wire.sticky`), which says what the leader makes of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.java.javatable import hash_order
from rebal.groups.assignors.spec import SpecMember, TopicPartition
from rebal.groups.wire.sticky import decode_sticky

NO_GENERATION: Final = -1
_INT32: Final = struct.Struct(">i")


def remembered(member: SpecMember) -> Iterator[TopicPartition]:
    """What a member of `sticky` sends of what it owns: its topics in hash order."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for pair in member.owned:
        by_topic.setdefault(pair[0], []).append(pair)
    return chain.from_iterable(map(by_topic.__getitem__, _hash_order(tuple(by_topic))))


@lru_cache(maxsize=64)
def _hash_order(topics: tuple[str, ...]) -> list[str]:
    """Members of a large group often own partitions of the same topics."""
    return hash_order(topics)


class Memories:
    """Reads user data for one problem: the codes in the order sent, and the generation (-1: none).

    Topics that do not take part are left out.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._plain = all(name.isascii() for name in problem.topics)
        self._topic_of = {name.encode(): t for name, t in problem.topic_of.items() if self._plain}
        self._entries: dict[int, struct.Struct] = {}

    def read(self, data: bytes | None) -> tuple[list[int], int]:
        """The codes and the generation in one member's user data."""
        if data and self._plain:
            try:
                found = self._usual(data)
            except struct.error:
                found = None
            if found is not None:
                return found
        read = decode_sticky(data)
        codes = self._problem.codes(read.previous)
        return codes, NO_GENERATION if read.generation is None else read.generation

    def _usual(self, data: bytes) -> tuple[list[int], int] | None:
        """None, or struct.error: these bytes need a closer look."""
        topic_of, entries, step = self._topic_of, self._entries, len(self._problem.topics)
        codes: list[int] = []
        end = 4
        (topics,) = _INT32.unpack_from(data)
        if topics < 0:
            return None
        size, last = 0, -1
        entry = _INT32
        for _ in range(topics):
            # Neighbouring names are often of one length: tried first, if it fits into the bytes.
            if end > last or (row := entry.unpack_from(data, end))[0] != size:
                size = int.from_bytes(data[end : end + 2])
                known = entries.get(size)
                if known is None:
                    if size >= 0x8000:
                        return None
                    # A topic's name, how many partitions, and the first of them.
                    known = entries[size] = struct.Struct(f">h{size}sii")
                entry, last = known, len(data) - known.size
                row = entry.unpack_from(data, end)
            _, name, count, partition = row
            end += 6 + size
            topic = topic_of.get(name)
            if count == 1:
                if topic is not None:
                    codes.append(partition * step + topic)
            elif count < 0 or 4 * count > len(data):
                return None
            else:
                partitions = struct.unpack_from(f">{count}i", data, end)
                if topic is not None:
                    codes += [partition * step + topic for partition in partitions]
            end += 4 * count
        return codes, _INT32.unpack_from(data, end)[0]
