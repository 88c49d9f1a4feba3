"""The server's `uniform` where members subscribe to different topics: deal, then level.

Topics with most partitions a subscriber come first. What has no owner is dealt to the subscribers
with fewest; then, topic by topic and up to sixteen times over, those with most give to those with
fewest. A topic is level when its subscribers' counts differ by one at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from rebal.groups.assignors.server.server import ServerProblem, Targets

_MOST_PASSES: Final = 16
_TRIED: Final = 16


def assign_mixed(problem: ServerProblem) -> Targets:
    """For each member its target."""
    made = _Deal(problem).targets()
    return made._replace(members=frozenset(_undecided(problem, made.lists)))


def _undecided(problem: ServerProblem, lists: list[list[int]]) -> Iterator[int]:
    """Members that share a place in the coordinator's table, where another order of them matters.

    Each such place is tried with its members turned round; where many do, it is taken to matter.
    """
    slots = problem.shared_places
    if len(slots) > _TRIED:
        yield from chain.from_iterable(slots)
        return
    for slot in slots:
        order = list(range(len(problem.members)))
        order[slot[0] : slot[-1] + 1] = reversed(slot)
        other = _Deal(problem.reordered(order)).targets().lists
        if any(set(other[place]) != set(lists[member]) for place, member in enumerate(order)):
            yield from slot


class _Deal:
    """Who owns what, and how many partitions of all topics each member has."""

    def __init__(self, problem: ServerProblem) -> None:
        self._problem = problem
        self._owners: list[list[int | None]] = [[None] * count for count in problem.counts]
        self._takers: list[list[int]] = [[] for _ in problem.topics]
        self._sizes = [0] * len(problem.members)
        for member, topics in enumerate(problem.subscribed):
            wanted = frozenset(topics)
            for topic in topics:
                self._takers[topic].append(member)
            for topic, partitions in problem.by_topic(problem.target(member)).items():
                if topic in wanted:
                    self._sizes[member] += len(partitions)
                    for partition in partitions:
                        self._owners[topic][partition] = member

    def targets(self) -> Targets:
        """The whole computation."""
        for topic in self._sorted(range(len(self._owners))):
            self._hand_out(topic)
        self._level_all(self._sorted(t for t, takers in enumerate(self._takers) if len(takers) > 1))
        result: list[list[int]] = [[] for _ in self._sizes]
        for start, owners in zip(self._problem.starts, self._owners, strict=True):
            for code, member in enumerate(owners, start):
                assert member is not None
                result[member].append(code)
        return Targets(result)

    def _sorted(self, topics: Iterable[int]) -> list[int]:
        counts, takers = self._problem.counts, self._takers
        return sorted(
            topics,
            key=lambda t: (
                -(counts[t] / len(takers[t])),
                len(takers[t]),
                self._problem.by_topic_id(t),
            ),
        )

    def _hand_out(self, topic: int) -> None:
        """Each partition without an owner to one of the subscribers with fewest, in turn."""
        order = sorted(self._takers[topic], key=lambda m: (self._sizes[m], m))
        takers = _Takers(order, self._sizes)
        owners = self._owners[topic]
        for partition, owner in enumerate(owners):
            if owner is None:
                owners[partition] = member = takers.next()
                self._sizes[member] += 1

    def _level_all(self, topics: list[int]) -> None:
        """Level topic after topic until a whole round of them has moved nothing."""
        quiet_since: int | None = None
        for _ in range(_MOST_PASSES):
            for topic in topics:
                if topic == quiet_since:
                    return
                if self._level(topic) or quiet_since is None:
                    quiet_since = topic

    def _level(self, topic: int) -> bool:
        """Move partitions of one topic from its fullest subscribers to its emptiest."""
        order = sorted(self._takers[topic], key=lambda m: (self._sizes[m], m))
        if self._sizes[order[-1]] - self._sizes[order[0]] <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            assert owner is not None
            owned.setdefault(owner, []).append(partition)
        givers, takers = _Givers(order, self._sizes), _Takers(order, self._sizes)
        moved = False
        while (giver := givers.next(owned)) is not None:
            partition = owned[giver].pop()
            taker = takers.next()
            if givers.level - takers.level <= 1:
                break
            self._owners[topic][partition] = taker
            self._sizes[giver] -= 1
            self._sizes[taker] += 1
            moved = True
        return moved


class _Takers:
    """The emptiest members in turn: all of the lowest level, then those of the next with them.

    `order` is by size; `level` is the size of those in turn before they get one more.
    """

    def __init__(self, order: list[int], sizes: list[int]) -> None:
        self._order = order
        self._sizes = sizes
        self._end = 0
        self._turn = 0
        self.level = sizes[order[0]] - 1

    def next(self) -> int:
        """Whose turn it is to get a partition."""
        if self._turn >= self._end:
            self.level += 1
            order, sizes = self._order, self._sizes
            while self._end < len(order) and sizes[order[self._end]] == self.level:
                self._end += 1
            self._turn = 0
        self._turn += 1
        return self._order[self._turn - 1]


class _Givers:
    """The fullest members in turn, from the last of the level to the first; mirrors `_Takers`.

    A member that has nothing (more) of the topic changes places with the last of the level and is
    out; that changes the turns of the others, and so is part of the result.
    """

    def __init__(self, order: list[int], sizes: list[int]) -> None:
        self._order = list(order)
        self._sizes = sizes
        self._start = self._end = len(order)
        self._turn = len(order) - 1
        self.level = sizes[order[-1]] + 1

    def next(self, owned: dict[int, list[int]]) -> int | None:
        """Whose turn it is to give a partition; None when nobody is left."""
        while (member := self._next()) is not None:
            if owned.get(member):
                return member
            place = self._turn + 1
            self._end -= 1
            order = self._order
            order[place], order[self._end] = order[self._end], order[place]
        return None

    def _next(self) -> int | None:
        if self._turn < self._start:
            order, sizes = self._order, self._sizes
            if self._start >= self._end and self._start > 0:
                self.level = sizes[order[self._start - 1]]
            else:
                self.level -= 1
            while self._start > 0 and sizes[order[self._start - 1]] == self.level:
                self._start -= 1
            self._turn = self._end - 1
        if self._turn < 0:
            return None
        self._turn -= 1
        return self._order[self._turn + 1]
