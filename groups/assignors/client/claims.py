"""Partitions that members of the sticky assignors claim, and the claims that the leader accepts.

The claims of `sticky` members are in their user data, those of `cooperative-sticky` members in
their subscriptions. Of several claims to one partition the newest generation wins; claims of the
same generation cancel each other (first step of AbstractStickyAssignor). The leader reads the
generation of the claim at hand from where the assignor keeps it, but the generation of the rival
claim always from the rival's subscription. With `sticky` the generation is in the user data, so the
claim that is read later usually wins.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.javatable import hash_order
from rebal.groups.assignors.spec import SpecMember, TopicPartition
from rebal.groups.wire.user_data import decode_sticky

NO_GENERATION: Final = -1
_INT32: Final = struct.Struct(">i")


def remembered(member: SpecMember) -> Iterator[TopicPartition]:
    """Return the partitions in the user data of a `sticky` member, the topics in hash order."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for pair in member.owned:
        by_topic.setdefault(pair[0], []).append(pair)
    return chain.from_iterable(map(by_topic.__getitem__, _hash_order(tuple(by_topic))))


# Members of a large group often own the same topics.
_hash_order: Final = lru_cache(maxsize=64)(hash_order)


class Memories:
    """Reader of user data for one problem: the codes in the order sent, and the generation (-1:
    none).

    Topics that do not take part are left out.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._plain = all(name.isascii() for name in problem.topics)
        self._topic_of = {name.encode(): t for name, t in problem.topic_of.items() if self._plain}
        self._entries: dict[int, struct.Struct] = {}

    def read(self, data: bytes | None) -> tuple[list[int], int]:
        """Return the codes and the generation in one member's user data."""
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
        """Read bytes of the usual form; None, or struct.error, if they have another one."""
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


Memory = Callable[[SpecMember], tuple[list[int], int]]


@dataclass(frozen=True, slots=True)
class Claims:
    """Partitions that each member may keep, by member number.

    `disputed` are the partitions that two members claimed with the same generation. `previous` maps
    each partition that was also claimed with an older generation to the member with the newest of
    the older claims.
    """

    owned: Sequence[Sequence[int]]
    disputed: frozenset[int]
    previous: dict[int, int]


def settle(problem: Problem, memory: Memory) -> Claims:
    """Return the accepted claims; `memory` gives a member's codes and generation (-1: none)."""
    remembered = [memory(member) for member in problem.members]
    claimed = [codes for codes, _ in remembered]
    generations = [generation for _, generation in remembered]
    newest = max([NO_GENERATION, *generations])
    return Claims(*_settled(problem, claimed, generations), _previous(claimed, generations, newest))


def all_alike(problem: Problem) -> bool:
    """Return whether the leader sees all members as subscribed to the same topics.

    The leader compares with the first member that subscribes to a topic; members without topics
    before it count as alike. A topic that a subscription names twice counts twice there.
    """
    topics: tuple[str, ...] = ()
    common: set[str] = set()
    for member in problem.members:
        if not common:
            topics, common = member.topics, set(member.topics)
        elif (member.topics != topics or len(topics) > len(common)) and (
            len(member.topics) != len(common) or not common.issuperset(member.topics)
        ):
            return False
    return True


def _settled(
    problem: Problem, claimed: list[list[int]], generations: list[int]
) -> tuple[Sequence[Sequence[int]], frozenset[int]]:
    seen: set[int] = set()
    for codes in claimed:
        before = len(seen)
        seen.update(codes)
        if len(seen) - before != len(codes):
            break
    else:
        return claimed, frozenset()
    kept: list[dict[int, None]] = [{} for _ in claimed]
    owner: dict[int, int] = {}
    disputed: set[int] = set()
    stated = [
        NO_GENERATION if m.generation is None or m.generation < 0 else m.generation
        for m in problem.members
    ]
    for member, codes in enumerate(claimed):
        mine = generations[member]
        for code in codes:
            rival = owner.get(code)
            if rival is not None:
                if mine < stated[rival]:
                    continue
                had = kept[rival].pop(code, 0) is None
                if rival == member and not had:
                    continue
                if mine == stated[rival]:
                    disputed.add(code)
                    owner[code] = member
                    continue
            kept[member][code] = None
            owner[code] = member
    return [list(codes) for codes in kept], frozenset(disputed)


def _previous(claimed: list[list[int]], generations: list[int], newest: int) -> dict[int, int]:
    previous: dict[int, int] = {}
    # A later member's equal generation does not overwrite an earlier one's: oldest first, each
    # generation's members from last to first.
    older = [m for m in reversed(range(len(claimed))) if generations[m] < newest]
    for member in sorted(older, key=generations.__getitem__):
        previous.update(dict.fromkeys(claimed[member], member))
    return previous
