"""Sticky assignment when members subscribe to different topics.

Each member keeps the partitions it owns and still subscribes to; each free partition goes to the
subscriber with the fewest; then `Balancing` moves partitions while that makes it fairer. If the
outcome is not fairer than before the moves, they are taken back.
"""

import heapq

from rebal.groups.assignors.client.balancing import Balancing
from rebal.groups.assignors.client.claims import Claims
from rebal.groups.assignors.client.problem import Free, Problem, Racks


def assign_general(problem: Problem, claims: Claims) -> list[list[int]]:
    """Return each member's codes, in the order of the leader's list.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    takers = problem.subscribers(range(len(problem.members)), once=False)
    racks = Racks(problem)
    near = racks if racks.matters else None
    lists, revoked = _keep(problem, claims, near)
    owner = {code: member for member, codes in enumerate(claims.owned) for code in codes}
    topics = sorted(range(len(problem.topics)), key=lambda topic: (len(takers[topic]), topic))
    free, exact = problem.unassigned(topics, lists)
    fresh = not any(lists)
    _hand_out(problem, takers, lists, owner, free, racks=near)
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


def _keep(problem: Problem, claims: Claims, near: Racks | None) -> tuple[list[list[int]], bool]:
    """Return the codes each member keeps, and whether one loses codes for its own sake."""
    step = len(problem.topics)
    lists: list[list[int]] = []
    revoked = False
    for member, codes in enumerate(claims.owned):
        topics = set(problem.subscribed[member])
        kept = [code for code in codes if code % step in topics]
        if near is not None and (rack := near.of_member[member]) is not None:
            kept = [code for code in kept if rack in near.of_code(code)]
        revoked |= len(kept) < len(codes)
        lists.append(kept)
    return lists, revoked


def _hand_out(
    problem: Problem,
    takers: list[list[int]],
    lists: list[list[int]],
    owner: dict[int, int],
    free: Free,
    *,
    racks: Racks | None,
) -> None:
    """Give each free partition to the subscriber with the fewest, the first by member id.

    Where racks matter, a first round gives partitions to members without a rack or on the rack of a
    replica. While one topic is assigned, no other count changes.
    """
    rank = problem.rank
    everywhere: list[str | None] = [None] * len(lists)
    for near in (racks, None) if racks is not None else (None,):
        rack_of = everywhere if near is None else near.of_member
        left: Free = []
        for topic, codes in free:
            heaps: dict[str | None, list[tuple[int, int, int]]] = {}
            for member in set(takers[topic]):
                seat = (len(lists[member]), rank[member], member)
                heaps.setdefault(rack_of[member], []).append(seat)
            for heap in heaps.values():
                heapq.heapify(heap)
            rest: list[int] = []
            for code in codes:
                on = () if near is None else near.of_code(code)
                found = min((heaps[rack] for rack in (None, *on) if rack in heaps), default=None)
                if found is None:
                    rest.append(code)
                    continue
                size, place, member = found[0]
                lists[member].append(code)
                owner[code] = member
                heapq.heapreplace(found, (size + 1, place, member))
            left.append((topic, rest))
        free = left


def _unfairness(lists: list[list[int]], members: list[int]) -> int:
    """Return the sum of all differences between two members' counts, as a Java int."""
    sizes = sorted(len(lists[member]) for member in members)
    last = len(sizes) - 1
    total = sum((2 * i - last) * size for i, size in enumerate(sizes))
    return (total + 0x80000000) % 0x100000000 - 0x80000000
