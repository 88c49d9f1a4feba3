"""Balancing phase of the sticky assignors: it moves partitions until members' counts are even.

It belongs to the leader's general algorithm, for members that subscribe to different topics. The
leader walks over the partitions, pass after pass. A partition moves back to the member that claimed
it with an older generation, if that member has at least two partitions fewer than the owner.
Otherwise it moves to the subscriber with the fewest partitions, if the owner has at least two more
than another subscriber. The walk ends when no member has two more partitions than another
subscriber of its topics, or after a pass that moves nothing.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final

from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.javatable import HashTable
from rebal.groups.jvmhash import partition_hash, string_hash

_PATIENCE: Final = 1000
Topics = Sequence[tuple[int, Sequence[int]]]


class Balancing:
    """State of the balancing phase.

    `run` changes `lists`, the partitions of each member, and `owner`, the owner of each partition,
    in place. Members are numbers and partitions are codes of `problem`. `takers` are the
    subscribers of each topic. `previous` maps a partition to the member that claimed it with an
    older generation. `movable` are the members that can gain or lose partitions. `simple` is True
    if every partition exists and has exactly one owner in `lists`. If it is False, because members
    claim partitions that do not exist, owners are found by searching the lists.

    Derived values are computed again only after a move, because nothing changes between two moves.
    """

    def __init__(
        self,
        problem: Problem,
        takers: list[list[int]],
        lists: list[list[int]],
        owner: dict[int, int],
        previous: dict[int, int],
        *,
        simple: bool,
    ) -> None:
        self._problem = problem
        self._step = len(problem.topics)
        self._takers = takers
        sets = {id(members): frozenset(members) for members in takers}
        self._taker_sets = [sets[id(members)] for members in takers]
        self._lists = lists
        self._owner = owner
        self._previous = previous
        self._simple = simple
        self._movements = Movements(problem)
        self._sizes = [len(codes) for codes in lists]
        most = {id(topics): self._most_of(topics) for topics in problem.subscribed}
        self._most = [most[id(topics)] for topics in problem.subscribed]
        self.movable = [
            member
            for member, codes in enumerate(lists)
            if len(codes) < self._most[member]
            or any(len(takers[code % self._step]) > 1 for code in codes)
        ]
        self._fixed = set(range(len(lists))).difference(self.movable)
        self._order = sorted((self._sizes[m], problem.rank[m]) for m in self.movable)
        self._held: list[Counter[int]] = []
        self._fewest_of: dict[int, int] = {}
        self._shared = [t for t, members in enumerate(takers) if len(members) > 1]
        self._witness = 0
        self._balanced: bool | None = None

    def run(self, topics: Topics) -> bool:
        """Move partitions of `topics` until no pass moves one, and return whether any moved.

        `topics` are pairs of topic number and partition codes, in the order of the walk.

        Raises:
            LeaderWouldFail: the leader would throw, or move partitions for ever.
        """
        moved, passes, best = False, 0, self._squares()
        seen: set[int] = set()
        while self._walk(topics):
            moved = True
            # A move from more to less lowers the sum of squares; where it does not, look for a
            # state that was there before.
            if (now := self._squares()) < best:
                best, passes = now, 0
                seen.clear()
                continue
            passes += 1
            state = hash((tuple(self._owner.items()), self._movements.state()))
            if state in seen or passes > _PATIENCE:
                contested = [
                    code for _, codes in topics for code in codes if code in self._previous
                ]
                raise self._problem.failure(
                    "the leader would never end: it moves the same partitions back and forth "
                    "between members whose claims are of different generations",
                    {member for c in contested for member in (self._previous[c], self._owner[c])},
                    contested,
                    never_ends=True,
                )
            seen.add(state)
        return moved

    def _walk(self, topics: Topics) -> bool:
        moved = False
        for topic, codes in topics:
            for code in codes:
                if self._is_balanced():
                    return moved
                home = self._previous.get(code)
                owner = self._owner_of(code)
                if home is not None and self._has_two_more(owner, home, code):
                    self._move(code, home)
                elif self._could_go(owner, topic, code):
                    self._move(code, self._fewest(topic))
                else:
                    continue
                moved = True
        return moved

    def _most_of(self, topics: list[int]) -> int:
        if len(topics) == len(self._problem.topics):
            return self._problem.total
        return sum(self._problem.counts[topic] for topic in topics)

    def _squares(self) -> int:
        return sum(size * size for size, _ in self._order)

    def _owner_of(self, code: int) -> int:
        owner = self._owner.get(code)
        if owner is None or owner in self._fixed:
            raise self._throws([] if owner is None else [owner], [code])
        return owner

    def _has_two_more(self, owner: int, other: int, code: int) -> bool:
        if other in self._fixed:
            raise self._throws([owner, other], [code])
        return self._sizes[owner] > self._sizes[other] + 1

    def _could_go(self, owner: int, topic: int, code: int) -> bool:
        if self._simple:
            return self._has_two_more(owner, self._fewest(topic), code)
        return any(self._has_two_more(owner, other, code) for other in self._takers[topic])

    def _fewest(self, topic: int) -> int:
        """Return the movable subscriber of `topic` that has the fewest partitions.

        Of several, it is the first by member id.
        """
        found = self._fewest_of.get(topic)
        if found is None:
            takers, by_name = self._taker_sets[topic], self._problem.by_name
            if len(takers) * len(takers) < len(self._order):
                members = takers - self._fixed
                found = min(members, key=lambda m: (self._sizes[m], self._problem.rank[m]))
            else:
                found = next(m for _, rank in self._order if (m := by_name[rank]) in takers)
            self._fewest_of[topic] = found
        return found

    def _move(self, code: int, to: int) -> None:
        code = self._movements.stand_in(code, self._owner_of(code), to)
        owner = self._owner_of(code)
        rank, sizes = self._problem.rank, self._sizes
        for member in {owner, to}:
            del self._order[bisect_left(self._order, (sizes[member], rank[member]))]
        self._movements.record(code, owner, to)
        if code in self._lists[owner]:
            self._lists[owner].remove(code)
            sizes[owner] -= 1
        self._lists[to].append(code)
        sizes[to] += 1
        if self._held:
            self._held[owner][code % self._step] -= 1
            self._held[to][code % self._step] += 1
        self._owner[code] = to
        for member in {owner, to}:
            insort(self._order, (sizes[member], rank[member]))
        self._fewest_of.clear()
        self._balanced = None

    def _is_balanced(self) -> bool:
        if self._balanced is None:
            if not self._order:
                raise self._throws(self._fixed, [])
            unfair = self._some_topic_unfair if self._simple else self._some_partition_unfair
            self._balanced = self._order[0][0] >= self._order[-1][0] - 1 or not unfair()
        return self._balanced

    def _some_topic_unfair(self) -> bool:
        """Return whether an owner in some topic has at least two more partitions than a subscriber.

        The counts are those of all topics together. A subscriber whose count equals the number of
        partitions of all its topics is skipped, because the leader takes it to own all of them.
        """
        by_name, order = self._problem.by_name, self._order
        if not self._held:
            self._held = [Counter(code % self._step for code in codes) for codes in self._lists]
        for i in range(len(self._shared)):
            at = (self._witness + i) % len(self._shared)
            topic = self._shared[at]
            takers = self._taker_sets[topic]
            low = next(
                (
                    size
                    for size, rank in order
                    if (m := by_name[rank]) in takers and size != self._most[m]
                ),
                None,
            )
            if low is None:
                continue
            high = next(
                size for size, rank in reversed(order) if self._held[by_name[rank]].get(topic)
            )
            if low + 1 < high:
                self._witness = at
                return True
        return False

    def _some_partition_unfair(self) -> bool:
        holder = {code: member for member in self.movable for code in self._lists[member]}
        for size, rank in self._order:
            member = self._problem.by_name[rank]
            if size == self._most[member]:
                continue
            mine = set(self._lists[member])
            for topic in self._problem.subscribed[member]:
                for code in self._problem.codes_of(topic):
                    if code in mine:
                        continue
                    if code not in holder:
                        raise self._throws([member], [code])
                    if size + 1 < self._sizes[holder[code]]:
                        return True
        return False

    def _throws(self, members: Sequence[int] | set[int], codes: Sequence[int]) -> Exception:
        return self._problem.failure(
            "the leader would throw NullPointerException while it balances: a claim, of an older "
            "generation or to a partition that does not exist, leads it to a member that it has "
            "set aside",
            members,
            codes,
        )


class Movements:
    """Record of the moves of partitions between members, used to avoid moves there and back.

    Before a partition moves from A to B, the leader looks for a partition of the same topic that it
    moved from B to A before. If there is one, that partition moves back instead (Kafka's
    PartitionMovements).
    """

    def __init__(self, problem: Problem) -> None:
        self._hashes = [string_hash(name) for name in problem.topics]
        self._moved: dict[int, tuple[int, int]] = {}
        self._between: dict[tuple[int, int, int], HashTable[int]] = {}

    def stand_in(self, code: int, owner: int, to: int) -> int:
        """Return the partition that the leader moves when `code` is to move from `owner` to `to`.

        It is a partition of the same topic of which a move from `to` to `owner` is recorded, so
        that this move is undone; without such a partition, it is `code` itself. If a move of `code`
        is recorded, the search uses the first owner in that record instead of `owner`.
        """
        source = self._moved.get(code, (owner,))[0]
        back = self._between.get((code % len(self._hashes), to, source))
        return code if back is None else back.first()

    def record(self, code: int, owner: int, to: int) -> None:
        """Record that the partition `code` moves from member `owner` to member `to`.

        If a move of the partition is recorded already, one move from its first owner to `to`
        replaces it. If `to` is that first owner, no move of the partition stays recorded.
        """
        partition, topic = divmod(code, len(self._hashes))
        source = owner
        if (before := self._moved.pop(code, None)) is not None:
            table = self._between[topic, *before]
            table.remove(code)
            if not table:
                del self._between[topic, *before]
            source = before[0]
            if source == to:
                return
        self._moved[code] = (source, to)
        table = self._between.setdefault((topic, source, to), HashTable())
        table.add(code, partition_hash(self._hashes[topic], partition))

    def state(self) -> Hashable:
        """Return a value that identifies the recorded moves, to detect a repeated state."""
        return tuple((key, tuple(table)) for key, table in sorted(self._between.items()))
