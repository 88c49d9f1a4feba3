"""`sticky` and `cooperative-sticky`: one computation with two sources of owned partitions.

A `sticky` member revokes its partitions before it rejoins, so its user data lists them. A
`cooperative-sticky` member lists them in its subscription. The result of `cooperative-sticky`
leaves out partitions that another member must revoke first.
"""

from __future__ import annotations

from collections.abc import Iterator

from rebal.groups.assignors.client.claims import (
    NO_GENERATION,
    Memories,
    Memory,
    all_alike,
    remembered,
    settle,
)
from rebal.groups.assignors.client.constrained import assign_constrained
from rebal.groups.assignors.client.general import assign_general
from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.spec import SpecMember
from rebal.groups.wire.user_data import decode_cooperative_sticky


def assign_sticky(problem: Problem) -> list[list[int]]:
    """Return each member's codes, in the leader's order.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    memories = Memories(problem)
    return _assigned(problem, lambda member: memories.read(member.user_data))


def assign_remembered(problem: Problem) -> list[list[int]]:
    """Return the result of `assign_sticky` if the members' user data lists what they own now.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """

    def memory(member: SpecMember) -> tuple[list[int], int]:
        if member.generation is None:
            return [], NO_GENERATION
        return problem.codes(list(remembered(member))), member.generation

    return _assigned(problem, memory)


def _assigned(problem: Problem, memory: Memory) -> list[list[int]]:
    claims = settle(problem, memory)
    if all_alike(problem):
        return assign_constrained(problem, claims)[0]
    return assign_general(problem, claims)


def assign_cooperative(problem: Problem) -> list[list[int]]:
    """Return each member's codes that `cooperative-sticky` assigns in this round."""
    claims = settle(problem, lambda member: _from_subscription(problem, member))
    if all_alike(problem):
        lists, moving = assign_constrained(problem, claims)
    else:
        lists = assign_general(problem, claims)
        moving = _changing_hands(problem, lists)
    for codes, waits in zip(lists, moving, strict=True):
        if waits:
            codes[:] = _without(codes, waits)
    return lists


def _without(codes: list[int], waits: set[int]) -> Iterator[int]:
    """Yield `codes` without the first occurrence of each that waits."""
    open_ = set(waits)
    for code in codes:
        if code in open_:
            open_.remove(code)
        else:
            yield code


def _from_subscription(problem: Problem, member: SpecMember) -> tuple[list[int], int]:
    generation = member.generation
    if generation is None or generation < 0:
        generation = decode_cooperative_sticky(member.user_data)
    return problem.codes(member.owned), NO_GENERATION if generation is None else generation


def _changing_hands(problem: Problem, lists: list[list[int]]) -> list[set[int]]:
    """Return for each member the codes that it gets and another member loses."""
    gains: dict[int, int] = {}
    losses: set[int] = set()
    for member, codes in enumerate(lists):
        before = set(problem.codes(problem.members[member].owned))
        gains.update((code, member) for code in codes if code not in before)
        losses.update(before.difference(codes))
    moving: list[set[int]] = [set() for _ in lists]
    for code in losses:
        if code in gains:
            moving[gains[code]].add(code)
    return moving
