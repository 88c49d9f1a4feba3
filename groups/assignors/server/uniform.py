"""The server-side assignor `uniform`: it equalises partition counts and avoids needless moves.

If all members subscribe to the same topics, each member keeps its partitions up to its quota, and
the remaining partitions go to members below their quota, in member order
(UniformHomogeneousAssignmentBuilder). Otherwise topics are dealt and then levelled
(UniformHeterogeneousAssignmentBuilder): topics with the most partitions per subscriber come first;
partitions without an owner go to the subscribers with the fewest; then, up to sixteen times topic
by topic, the fullest subscribers give partitions to the emptiest. A topic is level when its
subscribers' counts differ by one at most.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, islice, permutations, repeat
from math import factorial
from typing import Final

from rebal.groups.assignors.server.server import ServerProblem, Slots, Targets

# Members at one place in the table of which each order is tried; of more it is taken to matter.
_TRIED: Final = 5


def assign_uniform(problem: ServerProblem) -> Targets:
    """Return the target assignment by the server-side `uniform`."""
    if problem.uniform:
        return _Quotas(problem).targets()
    made = _Deal(problem).targets()
    return made._replace(members=frozenset(_undecided(problem, made.lists)))


class _Quotas:
    """Computation of `uniform` for members that all subscribe to the same topics.

    Members are visited in the order of the coordinator's table, and each gets an equal share. The
    remainder is given out one by one: to each member that already owns more than its share, and to
    every visited member once no more members are left than partitions of the remainder. `_queue`
    are the codes to give to members with room. `_blocks` are (begin, end, topics) of the parts of
    the queue whose topics share a slot of a table.
    """

    def __init__(self, problem: ServerProblem) -> None:
        self._problem = problem
        self._queue: list[int] = []
        self._blocks: list[tuple[int, int, list[int]]] = []
        self._topics: set[int] = set()
        self._members: set[int] = set()

    def targets(self) -> Targets:
        owned = [self._problem.target(member) for member in range(len(self._problem.members))]
        sizes = [len(codes) for codes in owned]
        share, over = divmod(self._problem.total, len(sizes))
        # How many partitions each member gets; a negative number is revoked.
        rooms = [
            share + one - size
            for one, size in zip(_one_more(sizes, share, over, len(sizes)), sizes, strict=True)
        ]
        self._add_free(owned)
        lists, ends = [], [len(self._queue)]
        for codes, room in zip(owned, rooms, strict=True):
            lists.append(codes if room >= 0 else self._kept(codes, len(codes) + room))
            ends.append(len(self._queue))
        borders = _borders(rooms)
        # Where two members share the partitions of a block the order of its topics matters.
        parted = (topics for begin, end, topics in self._blocks if _is_parted(borders, begin, end))
        self._topics.update(*parted)
        self._look_at_members(sizes, rooms, ends)
        free = deque(self._queue)
        for codes, room in zip(lists, rooms, strict=True):
            codes.extend(free.popleft() for _ in range(min(room, len(free))))
        return Targets(lists, frozenset(self._topics), frozenset(self._members))

    def _add_free(self, owned: list[list[int]]) -> None:
        """Append the partitions without an owner to the queue, topic by topic."""
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
        """Return the `quota` codes that the member keeps of `codes`; queue the others.

        The member keeps its topics in the iteration order of its target map. Of the last topic that
        it keeps, it may keep only some partitions.
        """
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

    def _look_at_members(self, sizes: list[int], rooms: list[int], ends: list[int]) -> None:
        """Add to `_members` those that share a slot of the coordinator's table, if order matters.

        The order matters if several of them get partitions, if it decides which of them gets one
        more, or if the partitions revoked from several of them go to several members. `sizes` are
        the members' present counts, `rooms` the numbers of partitions that they still get
        (negative: that they lose). `ends` are the lengths of the queue before the first member and
        after each one.
        """
        share, over = divmod(self._problem.total, len(sizes))
        borders = _borders(rooms)
        left, looked = over, 0
        for slot in self._problem.members_by_shared_slot:
            first, stop = slot[0], slot[-1] + 1
            left -= sum(rooms[m] + sizes[m] - share for m in range(looked, first))
            looked = first
            if (
                sum(rooms[member] > 0 for member in slot) > 1
                or _order_decides(sizes[first:stop], share, left, len(sizes) - first)
                or (
                    sum(rooms[m] < 0 for m in slot) > 1
                    and _is_parted(borders, ends[first], ends[stop])
                )
            ):
                self._members.update(slot)


def _one_more(sizes: Sequence[int], share: int, over: int, left: int) -> list[bool]:
    """Return, for each of these members, whether it gets one partition more than `share`.

    `sizes` are the present counts of the members, which are visited in this order. `over` is the
    remainder that is left to give out. `left` is the number of members that are left: these and all
    after them.
    """
    made = []
    for place, size in enumerate(sizes):
        made.append(over > 0 and (size > share or left - place <= over))
        over -= made[-1]
    return made


def _order_decides(sizes: Sequence[int], share: int, over: int, left: int) -> bool:
    """Return whether another order of the members would change which get one partition more.

    The arguments are those of `_one_more`. Orders of more than five members are too many to try:
    they may decide, so the result is True.
    """
    if len(sizes) > _TRIED:
        return True
    found = _one_more(sizes, share, over, left)
    return any(
        [found[member] for member in order]
        != _one_more([sizes[member] for member in order], share, over, left)
        for order in permutations(range(len(sizes)))
    )


def _borders(rooms: Iterable[int]) -> list[int]:
    """Return, for each member, the queue position at which its partitions end.

    `rooms` are the partitions that each member still gets; a negative number counts as 0.
    """
    return list(accumulate(max(0, room) for room in rooms))


def _is_parted(borders: list[int], begin: int, end: int) -> bool:
    """Return whether the queue from `begin` to `end` is divided among several members.

    `borders` is the result of `_borders`.
    """
    place = bisect_right(borders, begin)
    return place < len(borders) and borders[place] < end


_MOST_PASSES: Final = 16
_ORDERS_TRIED: Final = 32


def _undecided(problem: ServerProblem, lists: list[list[int]]) -> Iterator[int]:
    """Yield the members that share a slot of the coordinator's table, if their order matters.

    `lists` are the targets for the present order. All other orders are tried; if there are too
    many, the order is assumed to matter.
    """
    slots = problem.members_by_shared_slot
    if sum(factorial(len(slot)) for slot in slots) > _ORDERS_TRIED:
        yield from chain.from_iterable(slots)
        return
    everybody = range(len(problem.members))
    for slot in slots:
        # The first permutation is the order that there is.
        for turned in islice(permutations(slot), 1, None):
            order = [*everybody[: slot[0]], *turned, *everybody[slot[-1] + 1 :]]
            other = _Deal(problem.reordered(order)).targets().lists
            if any(set(other[place]) != set(lists[member]) for place, member in enumerate(order)):
                yield from slot
                break


class _Deal:
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
        order = sorted(self._takers[topic], key=lambda m: (self._sizes[m], m))
        takers = _Takers(order, self._sizes)
        owners = self._owners[topic]
        for partition, owner in enumerate(owners):
            if owner is None:
                owners[partition] = member = takers.next()
                self._sizes[member] += 1

    def _level_all(self, topics: list[int]) -> None:
        """Level one topic after another until a round moves nothing, for at most 16 rounds."""
        quiet_since: int | None = None
        for _ in range(_MOST_PASSES):
            for topic in topics:
                if topic == quiet_since:
                    return
                if self._level(topic) or quiet_since is None:
                    quiet_since = topic

    def _level(self, topic: int) -> bool:
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
    """Members that get partitions in turn: always one of those with the fewest.

    When all members with the lowest count have had a turn, those with the next count join them.
    `order` are the members sorted by count, `sizes` the counts. `level` is the count that the
    members in turn have before they get one more.
    """

    def __init__(self, order: list[int], sizes: list[int]) -> None:
        self._order = order
        self._sizes = sizes
        self._end = 0
        self._turn = 0
        self.level = sizes[order[0]] - 1

    def next(self) -> int:
        """Return the member that gets the next partition."""
        if self._turn >= self._end:
            self.level += 1
            order, sizes = self._order, self._sizes
            while self._end < len(order) and sizes[order[self._end]] == self.level:
                self._end += 1
            self._turn = 0
        self._turn += 1
        return self._order[self._turn - 1]


class _Givers:
    """Members that give partitions in turn: always one of those with the most (see `_Takers`).

    The turn goes from the last member of the level to the first. A member that has no partition of
    the topic to give changes places with the last member of the level, and gets no more turns. That
    changes the turns of the other members, and so the result.
    """

    def __init__(self, order: list[int], sizes: list[int]) -> None:
        self._order = list(order)
        self._sizes = sizes
        self._start = self._end = len(order)
        self._turn = len(order) - 1
        self.level = sizes[order[-1]] + 1

    def next(self, owned: dict[int, list[int]]) -> int | None:
        """Return the member that gives the next partition; None if no member has one to give.

        `owned` maps a member to its partitions of the topic.
        """
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
