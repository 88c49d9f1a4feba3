"""Sticky assignment when all members subscribe to the same topics (ConstrainedAssignmentBuilder).

Each member keeps the partitions it owns, up to its share. The remaining partitions go in turn to
members below the smaller share, then one each to members that may have one more. Where racks
matter, members keep only partitions with a replica on their rack, and a first round assigns the
remaining partitions to members on the racks of their replicas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from itertools import chain

from rebal.groups.assignors.client.claims import Claims
from rebal.groups.assignors.client.problem import Problem, Racks, RackSet, matter


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
    near: _Near | None = None
    if any(member.rack for member in problem.members):
        near = _Near(problem)
    _keep(claims, filling, near if near is not None and near.matters else None)
    kept = [len(codes) for codes in filling.lists]
    free, _ = problem.unassigned(range(len(problem.topics)), filling.lists)
    rest = list(chain.from_iterable(codes for _, codes in free))
    filling.needy.sort(key=problem.rank.__getitem__)
    filling.waiting = deque(sorted(filling.waiting, key=problem.rank.__getitem__))
    if near is not None:
        rest.sort(key=near.crowd)
        if near.matters:
            rest = _fill_near(filling, near, rest)
    done = _fill_needy(filling, rest)
    while done < len(rest) and filling.waiting:
        filling.lists[filling.waiting.popleft()].append(rest[done])
        done += 1
    if filling.needy or done < len(rest):
        raise _failure(problem, claims, filling)
    return filling.lists, _transferred(claims, filling, kept)


def _keep(claims: Claims, filling: Filling, near: _Near | None) -> None:
    for member, codes in enumerate(claims.owned):
        owned = sorted(codes)
        if near is not None:
            for code in owned:
                if near.too_far(member, code):
                    filling.given_up[code] = member
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


def _fill_near(filling: Filling, near: _Near, rest: list[int]) -> list[int]:
    """Give partitions to members on their replicas' racks; those that found none."""
    seats = _Seats(near, filling.needy)
    left: list[int] = []
    turn = 0
    for code in rest:
        racks = near.racks_of(code)
        seat = seats.at_or_after(turn, racks)
        if seat is not None:
            member = filling.needy[seat]
            turn = seat + 1
            size = len(filling.lists[member]) + 1
            if size >= filling.low:
                seats.leave(seat)
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
    filling.needy = [filling.needy[seat] for seat in seats.taken()]
    return left


class _Near:
    """Distance between members and partitions, by code."""

    def __init__(self, problem: Problem) -> None:
        racks = Racks(problem)
        self._step = len(problem.topics)
        self._sets = [racks.of_topic(topic) for topic in range(self._step)]
        self.of_member = racks.of_member
        self._members_on: dict[str, int] = {}
        for rack in racks.of_member:
            if rack is not None:
                self._members_on[rack] = self._members_on.get(rack, 0) + 1
        self.matters = matter(set(self._members_on), chain.from_iterable(self._sets))

    def racks_of(self, code: int) -> RackSet:
        """Return the racks of a partition's replicas; none for one that does not exist."""
        partition, topic = divmod(code, self._step)
        sets = self._sets[topic]
        return sets[partition] if 0 <= partition < len(sets) else frozenset()

    def too_far(self, member: int, code: int) -> bool:
        """Return whether the member has a rack and no replica is on it."""
        rack = self.of_member[member]
        return rack is not None and rack not in self.racks_of(code)

    def crowd(self, code: int) -> int:
        """Return how many members are on the partition's racks."""
        return sum(self._members_on.get(rack, 0) for rack in self.racks_of(code))


class _Seats:
    """The needy in a circle, each on its seat; asks for the next one on a rack."""

    def __init__(self, near: _Near, members: list[int]) -> None:
        self._rack = [near.of_member[member] for member in members]
        self._on: dict[str, list[int]] = {}
        for seat, rack in enumerate(self._rack):
            if rack is not None:
                self._on.setdefault(rack, []).append(seat)
        self._left: set[int] = set()

    def at_or_after(self, turn: int, racks: RackSet) -> int | None:
        """Return the first taken seat on one of the racks, from `turn` on around the circle."""
        best: tuple[bool, int] | None = None
        for rack in racks:
            seats = self._on.get(rack)
            if seats:
                i = bisect_left(seats, turn)
                found = (False, seats[i]) if i < len(seats) else (True, seats[0])
                best = found if best is None else min(best, found)
        return None if best is None else best[1]

    def leave(self, seat: int) -> None:
        """Take the member on this seat out of the circle."""
        rack = self._rack[seat]
        assert rack is not None
        seats = self._on[rack]
        del seats[bisect_left(seats, seat)]
        self._left.add(seat)

    def taken(self) -> list[int]:
        """Return the seats of members that are still needy."""
        return [seat for seat in range(len(self._rack)) if seat not in self._left]


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
