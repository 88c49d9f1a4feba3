"""The server's `uniform`: counts as equal as they can be, and nothing moves without need.

Where all subscribe to the same topics, each member keeps what fits its quota and what is left
fills the others up, member by member. Otherwise (see `mixed`) topics are dealt and levelled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, permutations, repeat
from typing import Final

from rebal.groups.assignors.server.mixed import assign_mixed
from rebal.groups.assignors.server.server import ServerProblem, Slots, Targets

_TRIED: Final = 5
"""Members at one place in the table of which each order is tried; of more it is taken to matter."""


def assign_uniform(problem: ServerProblem) -> Targets:
    """For each member its target."""
    return _Quotas(problem).targets() if problem.uniform else assign_mixed(problem)


class _Quotas:
    """Members in the order of the table, each up to its share, or one more while some are over.

    One more goes to a member that owns it already, or when all that come after need it too.
    `_queue` is what is left for those with room; `_blocks` are the parts of it whose topics share a
    place in a table: from, to, and the topics.
    """

    def __init__(self, problem: ServerProblem) -> None:
        self._problem = problem
        self._queue: list[int] = []
        self._blocks: list[tuple[int, int, list[int]]] = []
        self._topics: set[int] = set()
        self._members: set[int] = set()

    def targets(self) -> Targets:
        """The whole computation."""
        owned = [self._problem.target(member) for member in range(len(self._problem.members))]
        rooms = self._rooms([len(codes) for codes in owned])
        self._add_free(owned)
        sizes = [len(codes) for codes in owned]
        lists, ends = [], [len(self._queue)]
        for codes, room in zip(owned, rooms, strict=True):
            lists.append(codes if room >= 0 else self._kept(codes, len(codes) + room))
            ends.append(len(self._queue))
        self._look_at_borders(rooms)
        self._look_at_members(sizes, rooms, ends)
        free = deque(self._queue)
        for codes, room in zip(lists, rooms, strict=True):
            codes.extend(free.popleft() for _ in range(min(room, len(free))))
        return Targets(lists, frozenset(self._topics), frozenset(self._members))

    def _rooms(self, sizes: list[int]) -> list[int]:
        """How many partitions each member is to get; below zero: to give up."""
        share, over = divmod(self._problem.total, len(sizes))
        more = _one_more(sizes, share, over, len(sizes))
        return [share + one - size for one, size in zip(more, sizes, strict=True)]

    def _add_free(self, owned: list[list[int]]) -> None:
        """What nobody owns, topic by topic."""
        free = bytearray(b"\1") * self._problem.total
        for codes in owned:
            deque(map(free.__setitem__, codes, repeat(0)), maxlen=0)
        starts, counts = self._problem.starts, self._problem.counts
        parts = {
            topic: list(compress(range(starts[topic], stop), free[starts[topic] : stop]))
            for topic in range(len(counts))
            for stop in (starts[topic] + counts[topic],)
        }
        self._add(self._problem.slots, parts)

    def _kept(self, codes: list[int], quota: int) -> list[int]:
        """What of `codes` the member keeps: whole topics, in the order of its table."""
        problem = self._problem
        by_topic = problem.by_topic(codes)
        kept: list[int] = []
        given_up: dict[int, list[int]] = {}
        slots = problem.table(by_topic)
        for slot in slots:
            left = quota - len(kept)
            if len(slot) > 1 and 0 < left < sum(len(by_topic[topic]) for topic in slot):
                self._topics.update(slot)
            for topic in slot:
                start, left = problem.starts[topic], quota - len(kept)
                partitions = by_topic[topic]
                if len(partitions) > left:
                    partitions = problem.set_order(partitions)
                    given_up[topic] = [start + partition for partition in partitions[left:]]
                kept += (start + partition for partition in partitions[:left])
        self._add(slots, given_up)
        return kept

    def _add(self, slots: Slots, parts: dict[int, list[int]]) -> None:
        for slot in slots:
            begin = len(self._queue)
            some = [topic for topic in slot if parts.get(topic)]
            for topic in some:
                self._queue += parts[topic]
            if len(some) > 1:
                self._blocks.append((begin, len(self._queue), some))

    def _look_at_borders(self, rooms: list[int]) -> None:
        """Another order of a block's topics matters where two members share its partitions."""
        borders = _borders(rooms)
        for begin, end, topics in self._blocks:
            if _is_parted(borders, begin, end):
                self._topics.update(topics)

    def _look_at_members(self, sizes: list[int], rooms: list[int], ends: list[int]) -> None:
        """Members that share a place in the coordinator's table, where another order matters.

        It does where several get something, where it decides who gets one more, and where what
        several give up is parted among others; `ends` is how far the queue went after each.
        """
        share, over = divmod(self._problem.total, len(sizes))
        borders = _borders(rooms)
        left, looked = over, 0
        for slot in self._problem.shared_places:
            first, stop = slot[0], slot[-1] + 1
            left -= sum(rooms[m] + sizes[m] - share for m in range(looked, first))
            looked = first
            giving = [member for member in slot if rooms[member] < 0]
            if (
                sum(rooms[member] > 0 for member in slot) > 1
                or _order_decides(sizes[first:stop], share, left, len(sizes) - first)
                or (len(giving) > 1 and _is_parted(borders, ends[first], ends[stop]))
            ):
                self._members.update(slot)


def _one_more(sizes: Sequence[int], share: int, over: int, left: int) -> list[bool]:
    """Which of these members get one more than `share`; `left` are they and those after them."""
    made = []
    for place, size in enumerate(sizes):
        one = over > 0 and (size > share or left - place <= over)
        over -= one
        made.append(one)
    return made


def _order_decides(sizes: Sequence[int], share: int, over: int, left: int) -> bool:
    """Could another order of these members give one more to another of them."""
    if len(sizes) > _TRIED:
        return True
    found = _one_more(sizes, share, over, left)
    for order in permutations(range(len(sizes))):
        other = _one_more([sizes[member] for member in order], share, over, left)
        if [found[member] for member in order] != other:
            return True
    return False


def _borders(rooms: Iterable[int]) -> list[int]:
    """Where in the queue the share of each member that has room ends."""
    return list(accumulate(max(0, room) for room in rooms))


def _is_parted(borders: list[int], begin: int, end: int) -> bool:
    """Do several get a part of the queue from `begin` to `end`."""
    place = bisect_right(borders, begin)
    return place < len(borders) and borders[place] < end
