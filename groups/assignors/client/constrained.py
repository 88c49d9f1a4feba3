"""Sticky assignment when all members subscribe to the same topics (ConstrainedAssignmentBuilder).

Each member keeps the partitions it owns, up to its share. The remaining partitions go in turn to
members below the smaller share, then one each to members that may have one more. Where racks
matter, members keep only partitions with a replica on their rack, and a first round assigns the
remaining partitions to members on the racks of their replicas.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain

from rebal.groups.assignors.client.claims import Claims
from rebal.groups.assignors.client.problem import Problem, Racks


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
    _keep(claims, filling, near)
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


def _keep(claims: Claims, filling: Filling, near: Racks | None) -> None:
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
