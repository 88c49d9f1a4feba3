"""`sticky` and `cooperative-sticky`: one computation, two ways to know what members own.

A `sticky` member forgets its partitions before it rejoins, so its user data tells; a
`cooperative-sticky` member's subscription does. Of `cooperative-sticky`'s result, partitions that
another member must give up first are left out.
"""

from __future__ import annotations

from rebal.groups.assignors.claims import NO_GENERATION, all_alike, settle
from rebal.groups.assignors.general import assign_general
from rebal.groups.assignors.problem import Problem
from rebal.groups.assignors.spec import Owned, SpecMember
from rebal.groups.assignors.uniform import assign_uniform
from rebal.groups.wire.sticky import decode_cooperative_sticky, decode_sticky


def assign_sticky(problem: Problem) -> list[list[int]]:
    """For each member its codes, in the leader's order.

    Raises:
        LeaderWouldFail: the leader would throw, or never end.
    """
    claims = settle(problem, _from_user_data)
    if all_alike(problem):
        return assign_uniform(problem, claims)[0]
    return assign_general(problem, claims)


def assign_cooperative(problem: Problem) -> list[list[int]]:
    """The same for `cooperative-sticky`: what goes out in this round."""
    claims = settle(problem, _from_subscription)
    if all_alike(problem):
        lists, moving = assign_uniform(problem, claims)
    else:
        lists = assign_general(problem, claims)
        moving = _changing_hands(problem, lists)
    for codes, waits in zip(lists, moving, strict=True):
        for code in waits:
            codes.remove(code)
    return lists


def _from_user_data(member: SpecMember) -> tuple[Owned, int]:
    read = decode_sticky(member.user_data)
    return read.previous, NO_GENERATION if read.generation is None else read.generation


def _from_subscription(member: SpecMember) -> tuple[Owned, int]:
    generation = member.generation
    if generation is None or generation < 0:
        generation = decode_cooperative_sticky(member.user_data)
    return member.owned, NO_GENERATION if generation is None else generation


def _changing_hands(problem: Problem, lists: list[list[int]]) -> list[set[int]]:
    """For each member the codes that it gets and another one loses."""
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
