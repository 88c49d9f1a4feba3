"""Sticky assignment when members subscribe to different topics.

Each member keeps the partitions it owns and still subscribes to; each free partition goes to the
subscriber with the fewest; then `Balancing` moves partitions while that makes it fairer. If the
outcome is not fairer than before the moves, they are taken back.
"""

import heapq

from rebal.groups.assignors.client.balancing import Balancing
from rebal.groups.assignors.client.claims import Claims
from rebal.groups.assignors.client.problem import Free, Problem, Racks, matter

Heap = list[tuple[int, int, int]]


def assign_general(problem: Problem, claims: Claims) -> list[list[int]]:
    """Return each member's codes, in the order of the leader's list.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    takers = problem.subscribers(range(len(problem.members)), once=False)
    racks = _racks(problem)
    lists, revoked = _keep(problem, claims, racks)
    owner = {code: member for member, codes in enumerate(claims.owned) for code in codes}
    topics = sorted(range(len(problem.topics)), key=lambda topic: (len(takers[topic]), topic))
    free, exact = problem.unassigned(topics, lists)
    fresh = not any(lists)
    hand_out = _HandOut(problem, takers, lists, owner)
    hand_out.to_anyone(free if racks is None else hand_out.to_near(free, racks))
    balancing = Balancing(problem, takers, lists, owner, claims.previous, simple=exact)
    before = [list(codes) for codes in lists]
    if not revoked:
        balancing.run([(topic, codes) for topic, codes in free if len(takers[topic]) > 1])
    every = [(t, list(problem.codes_of(t))) for t in topics if len(takers[t]) > 1]
    moved = balancing.run(every)
    movable = balancing.movable
    if moved and not fresh and _unfairness(lists, movable) >= _unfairness(before, movable):
        return before
    return lists


def _racks(problem: Problem) -> Racks | None:
    """Return the racks, if rack awareness is used."""
    mine = {member.rack for member in problem.members if member.rack}
    if not mine:
        return None
    racks = Racks(problem)
    partitions = (sets for t in range(len(problem.topics)) for sets in racks.of_topic(t))
    return racks if matter(mine, partitions) else None


def _keep(problem: Problem, claims: Claims, racks: Racks | None) -> tuple[list[list[int]], bool]:
    """Return the codes each member keeps, and whether one loses codes for its own sake."""
    step = len(problem.topics)
    lists: list[list[int]] = []
    revoked = False
    for member, codes in enumerate(claims.owned):
        topics = set(problem.subscribed[member])
        kept = [code for code in codes if code % step in topics]
        if racks is not None and (rack := racks.of_member[member]) is not None:
            kept = [
                code
                for code in kept
                if problem.exists(code) and rack in racks.of_partition(code % step, code // step)
            ]
        revoked |= len(kept) < len(codes)
        lists.append(kept)
    return lists, revoked


class _HandOut:
    """Assignment of free partitions, topic by topic, to the subscriber with the fewest.

    While one topic is assigned, no other count changes, so its subscribers are looked at once.
    """

    def __init__(
        self,
        problem: Problem,
        takers: list[list[int]],
        lists: list[list[int]],
        owner: dict[int, int],
    ) -> None:
        self._step = len(problem.topics)
        self._rank = problem.rank
        self._by_name = problem.by_name
        self._takers = takers
        self._lists = lists
        self._owner = owner

    def to_anyone(self, free: Free) -> None:
        """Give each partition to one of its topic's subscribers.

        Those that have fewest get one each, by name, until they have as many as the next; so it
        goes in rounds, and a round is one slice of the topic's partitions.
        """
        count = len(self._lists)
        for topic, codes in free:
            if not codes:
                continue
            members = set(self._takers[topic])
            # A member's size and rank in one number: sorted, these are the seats in turn.
            waiting = [len(self._lists[m]) * count + self._rank[m] for m in members]
            waiting.sort(reverse=True)
            level = waiting[-1] // count
            turn: list[int] = []
            done = 0
            while waiting and done < len(codes):
                joined = len(turn)
                while waiting and waiting[-1] // count == level:
                    turn.append(waiting.pop() % count)
                if joined and joined < len(turn):
                    turn.sort()
                if waiting:
                    self._go_around(turn, codes[done : done + len(turn)])
                    done += len(turn)
                    level += 1
            self._go_around(turn, codes[done:])

    def _go_around(self, ranks: list[int], codes: list[int]) -> None:
        members = map(self._by_name.__getitem__, ranks)
        if len(codes) <= len(ranks):
            for member, code in zip(members, codes, strict=False):
                self._lists[member].append(code)
                self._owner[code] = member
        else:
            for i, member in enumerate(members):
                mine = codes[i :: len(ranks)]
                self._lists[member] += mine
                self._owner.update(dict.fromkeys(mine, member))

    def to_near(self, free: Free, racks: Racks) -> Free:
        """Give partitions to subscribers near a replica, and return the rest."""
        left: Free = []
        for topic, codes in free:
            on_rack: dict[str | None, set[int]] = {}
            for member in self._takers[topic]:
                on_rack.setdefault(racks.of_member[member], set()).add(member)
            heaps = {rack: self._heap(members) for rack, members in on_rack.items()}
            rest: list[int] = []
            for code in codes:
                near = (None, *racks.of_partition(topic, code // self._step))
                heap = min((heaps[rack] for rack in near if rack in heaps), default=None)
                if heap is None:
                    rest.append(code)
                else:
                    self._give(code, heap)
            left.append((topic, rest))
        return left

    def _heap(self, members: set[int]) -> Heap:
        heap = [(len(self._lists[member]), self._rank[member], member) for member in members]
        heapq.heapify(heap)
        return heap

    def _give(self, code: int, heap: Heap) -> None:
        size, rank, member = heap[0]
        self._lists[member].append(code)
        self._owner[code] = member
        heapq.heapreplace(heap, (size + 1, rank, member))


def _unfairness(lists: list[list[int]], members: list[int]) -> int:
    """Return the sum of all differences between two members' counts, as a Java int."""
    sizes = sorted(len(lists[member]) for member in members)
    last = len(sizes) - 1
    total = sum((2 * i - last) * size for i, size in enumerate(sizes))
    return (total + 0x80000000) % 0x100000000 - 0x80000000
