"""The two algorithms of the sticky assignors: members that subscribe alike, and others.

When all members subscribe to the same topics (ConstrainedAssignmentBuilder), each keeps the
partitions it owns, up to its share. The remaining partitions go in turn to members below the
smaller share, then one each to members that may have one more. Where racks matter, members keep
only partitions with a replica on their rack, and a first round assigns the remaining partitions to
members on the racks of their replicas.

Otherwise each member keeps the partitions it owns and still subscribes to; each free partition goes
to the subscriber with the fewest; then `Balancing` moves partitions while that makes it fairer. If
the outcome is not fairer than before the moves, they are taken back.
"""

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain

from rebal.groups.assignors.client.balancing import Balancing
from rebal.groups.assignors.client.claims import Claims
from rebal.groups.assignors.client.problem import Free, Problem, Racks


@dataclass(slots=True)
class Filling:
    """The assignment while it grows, in members' numbers and partitions' codes.

    `low` and `high` are the smaller and the larger share. `extra` is the number of members that may
    have the larger one, `at_high` the number that has it. `needy` members have fewer than `low`;
    `waiting` members have `low` and may get one more.
    """

    low: int
    high: int
    extra: int
    lists: list[list[int]]
    at_high: int = 0
    needy: list[int] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    given_up: dict[int, int] = field(default_factory=dict)


def assign_constrained(problem: Problem, claims: Claims) -> tuple[list[list[int]], list[set[int]]]:
    """Return each member's codes in the leader's order, and the codes that another member must
    revoke first.
    """
    low, extra = divmod(problem.total, len(problem.members))
    filling = Filling(
        low=low, high=low + (extra > 0), extra=extra, lists=[[] for _ in problem.members]
    )
    racks = Racks(problem)
    near = racks if racks.matters else None
    _keep_shares(claims, filling, near)
    kept = [len(codes) for codes in filling.lists]
    free, _ = problem.unassigned(range(len(problem.topics)), filling.lists)
    rest = list(chain.from_iterable(codes for _, codes in free))
    filling.needy.sort(key=problem.rank.__getitem__)
    filling.waiting = deque(sorted(filling.waiting, key=problem.rank.__getitem__))
    if any(racks.of_member):
        members_on = Counter(racks.of_member)
        # The partitions that have the fewest members on their racks first.
        rest.sort(key=lambda code: sum(members_on[rack] for rack in racks.of_code(code)))
    if near is not None:
        rest = _fill_near(filling, near, rest)
    done = _fill_needy(filling, rest)
    while done < len(rest) and filling.waiting:
        filling.lists[filling.waiting.popleft()].append(rest[done])
        done += 1
    if filling.needy or done < len(rest):
        raise _failure(problem, claims, filling)
    return filling.lists, _transferred(claims, filling, kept)


def _keep_shares(claims: Claims, filling: Filling, near: Racks | None) -> None:
    for member, codes in enumerate(claims.owned):
        owned = sorted(codes)
        if near is not None and (rack := near.of_member[member]) is not None:
            far = [code for code in owned if rack not in near.of_code(code)]
            filling.given_up.update(dict.fromkeys(far, member))
            owned = [code for code in owned if code not in filling.given_up]
        if claims.disputed:
            owned = [code for code in owned if code not in claims.disputed]
        share = filling.low
        if len(owned) < filling.low:
            filling.needy.append(member)
        elif len(owned) >= filling.high and filling.at_high < filling.extra:
            share = filling.high
            filling.at_high += 1
            if filling.at_high == filling.extra:
                filling.waiting.clear()
        elif filling.at_high < filling.extra:
            filling.waiting.append(member)
        filling.lists[member] += owned[:share]
        filling.given_up.update(dict.fromkeys(owned[share:], member))


def _fill_needy(filling: Filling, rest: list[int]) -> int:
    """Deal `rest` to the needy until none is, and return how many of `rest` were dealt.

    As long as nobody drops out, each of n members gets every n-th partition: one slice.
    """
    done = 0
    while filling.needy and done < len(rest):
        needy = filling.needy
        rounds, odd = divmod(len(rest) - done, len(needy))
        missing = [filling.low - len(filling.lists[member]) for member in needy]
        if (full := min(missing)) <= rounds:
            rounds, odd = full, 0
        stop = done + rounds * len(needy)
        for i, member in enumerate(needy):
            filling.lists[member] += rest[done + i : stop : len(needy)]
            if i < odd:
                filling.lists[member].append(rest[stop + i])
        done = stop + odd
        filling.needy = [m for m in needy if len(filling.lists[m]) < filling.low]
        filling.waiting += (m for m in needy if len(filling.lists[m]) >= filling.low)
    return done


def _fill_near(filling: Filling, near: Racks, rest: list[int]) -> list[int]:
    """Give partitions to members on their replicas' racks, and return those that found none.

    The needy are asked in a circle, on from the one that got the partition before.
    """
    circle = filling.needy
    left: list[int] = []
    turn = 0
    for code in rest:
        racks = near.of_code(code)
        places = (place % len(circle) for place in range(turn, turn + len(circle)))
        place = next((n for n in places if near.of_member[circle[n]] in racks), None)
        if place is not None:
            member = circle[place]
            turn = place + 1
            size = len(filling.lists[member]) + 1
            if size >= filling.low:
                turn = place
                del circle[place]
                if size < filling.high and filling.at_high < filling.extra:
                    filling.waiting.append(member)
        else:
            found = next((m for m in filling.waiting if near.of_member[m] in racks), None)
            if found is None:
                left.append(code)
                continue
            member = found
            if len(filling.lists[member]) + 1 == filling.high:
                filling.waiting.remove(member)
                filling.at_high += 1
                if filling.at_high == filling.extra:
                    filling.waiting.clear()
        filling.lists[member].append(code)
    return left


def _transferred(claims: Claims, filling: Filling, kept: list[int]) -> list[set[int]]:
    moving: list[set[int]] = [set() for _ in filling.lists]
    if filling.given_up or claims.disputed:
        for member, codes in enumerate(filling.lists):
            for code in codes[kept[member] :]:
                if filling.given_up.get(code, member) != member or code in claims.disputed:
                    moving[member].add(code)
    return moving


def _failure(problem: Problem, claims: Claims, filling: Filling) -> Exception:
    strange = [
        (member, code)
        for member, codes in enumerate(claims.owned)
        for code in codes
        if not problem.exists(code)
    ]
    return problem.failure(
        "the leader would throw IllegalStateException: members claim partitions that do not exist, "
        "so its shares do not add up",
        [member for member, _ in strange] or filling.needy,
        [code for _, code in strange],
    )


def assign_general(problem: Problem, claims: Claims) -> list[list[int]]:
    """Return each member's codes, in the order of the leader's list.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    takers = problem.subscribers(range(len(problem.members)), once=False)
    racks = Racks(problem)
    near = racks if racks.matters else None
    lists, revoked = _keep_subscribed(problem, claims, near)
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


def _keep_subscribed(
    problem: Problem, claims: Claims, near: Racks | None
) -> tuple[list[list[int]], bool]:
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
