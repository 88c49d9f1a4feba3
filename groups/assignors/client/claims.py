"""Who claims to own what, and whom the leader believes (AbstractStickyAssignor's first step).

Of several claims to one partition the newer generation wins; claims of one generation cancel each
other. The leader reads a member's own generation from where its assignor keeps it, but the rival's
always from the rival's subscription: so with `sticky`, whose generation is in the user data, the
later claim usually wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rebal.groups.assignors.client.memory import NO_GENERATION
from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.spec import SpecMember

Memory = Callable[[SpecMember], tuple[list[int], int]]


@dataclass(frozen=True, slots=True)
class Claims:
    """What each member may keep, by member number.

    `disputed` are the partitions that were claimed twice in one generation. `previous` are those
    that members of older generations remember, with the member of the newest of these.
    """

    owned: Sequence[Sequence[int]]
    disputed: frozenset[int]
    previous: dict[int, int]


def settle(problem: Problem, memory: Memory) -> Claims:
    """The claims, settled; `memory` gives a member's codes and generation (-1: none)."""
    remembered = [memory(member) for member in problem.members]
    claimed = [codes for codes, _ in remembered]
    generations = [generation for _, generation in remembered]
    newest = max([NO_GENERATION, *generations])
    return Claims(*_settled(problem, claimed, generations), _previous(claimed, generations, newest))


def all_alike(problem: Problem) -> bool:
    """Whether the leader takes all members to subscribe to the same topics.

    It compares with the first member that names a topic: those before it, naming none, pass.
    """
    topics: tuple[str, ...] = ()
    common: set[str] = set()
    for member in problem.members:
        if not common:
            topics, common = member.topics, set(member.topics)
        elif member.topics != topics and (
            len(member.topics) != len(common) or not common.issuperset(member.topics)
        ):
            return False
    return True


def _settled(
    problem: Problem, claimed: list[list[int]], generations: list[int]
) -> tuple[Sequence[Sequence[int]], frozenset[int]]:
    seen: set[int] = set()
    for codes in claimed:
        before = len(seen)
        seen.update(codes)
        if len(seen) - before != len(codes):
            break
    else:
        return claimed, frozenset()
    kept: list[dict[int, None]] = [{} for _ in claimed]
    owner: dict[int, int] = {}
    disputed: set[int] = set()
    stated = [
        NO_GENERATION if m.generation is None or m.generation < 0 else m.generation
        for m in problem.members
    ]
    for member, codes in enumerate(claimed):
        mine = generations[member]
        for code in codes:
            rival = owner.get(code)
            if rival is not None:
                if mine < stated[rival]:
                    continue
                had = kept[rival].pop(code, 0) is None
                if rival == member and not had:
                    continue
                if mine == stated[rival]:
                    disputed.add(code)
                    owner[code] = member
                    continue
            kept[member][code] = None
            owner[code] = member
    return [list(codes) for codes in kept], frozenset(disputed)


def _previous(claimed: list[list[int]], generations: list[int], newest: int) -> dict[int, int]:
    previous: dict[int, int] = {}
    # A later member's equal generation does not overwrite an earlier one's: oldest first, each
    # generation's members from last to first.
    older = [m for m in reversed(range(len(claimed))) if generations[m] < newest]
    for member in sorted(older, key=generations.__getitem__):
        previous.update(dict.fromkeys(claimed[member], member))
    return previous
