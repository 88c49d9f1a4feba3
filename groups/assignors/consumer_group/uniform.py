"""The server's `uniform`: counts as equal as they can be, and nothing moves without need.

Where all subscribe to the same topics, each member keeps what fits its quota and what is left
fills the others up, member by member. Otherwise (see `mixed`) topics are dealt and levelled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import accumulate, compress, repeat

from rebal.groups.assignors.consumer_group.mixed import assign_mixed
from rebal.groups.assignors.consumer_group.server import ServerProblem, Slots, Targets


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
        self._undecided: set[int] = set()

    def targets(self) -> Targets:
        """The whole computation."""
        owned = [self._problem.target(member) for member in range(len(self._problem.members))]
        rooms = self._rooms([len(codes) for codes in owned])
        self._add_free(owned)
        lists = [
            codes if room >= 0 else self._kept(codes, len(codes) + room)
            for codes, room in zip(owned, rooms, strict=True)
        ]
        self._look_at_borders(rooms)
        free = deque(self._queue)
        for codes, room in zip(lists, rooms, strict=True):
            codes.extend(free.popleft() for _ in range(min(room, len(free))))
        return Targets(lists, frozenset(self._undecided))

    def _rooms(self, sizes: list[int]) -> list[int]:
        """How many partitions each member is to get; below zero: to give up."""
        share, over = divmod(self._problem.total, len(sizes))
        rooms = []
        for place, size in enumerate(sizes):
            one_more = over > 0 and (size > share or len(sizes) - place <= over)
            over -= one_more
            rooms.append(share + one_more - size)
        return rooms

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
                self._undecided.update(slot)
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
        borders = list(accumulate(max(0, room) for room in rooms))
        for begin, end, topics in self._blocks:
            place = bisect_right(borders, begin)
            if place < len(borders) and borders[place] < end:
                self._undecided.update(topics)
