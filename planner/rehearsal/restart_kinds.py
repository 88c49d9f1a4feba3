"""Kinds of restart: of a large group one of each kind is rehearsed and counts for the others.

Two restarts are of one kind where processes of one kind restart and the rest of the group holds the
same assignor lists and protocols: the coordinator's answer to a join depends on no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.outcome import Measures

_ROUNDS: Final = 3
_A_MEMBER: Final = 8


class Chosen(NamedTuple):
    """For each restart the place of the one that is rehearsed for it.

    Of `left_out` kinds of restart none is rehearsed.
    """

    places: tuple[int, ...]
    left_out: int = 0

    @property
    def rehearsed(self) -> int:
        """The number of restarts that are rehearsed."""
        return len(set(self.places))

    @property
    def whole(self) -> bool:
        """True if every restart is rehearsed."""
        return self.rehearsed == len(self.places)


def chosen(kinds: Sequence[Hashable], *, each: int = 1, most: int | None = None) -> Chosen:
    """Return for each restart one of its kind: the middle one, or the nearest of `each` of them.

    Each is rehearsed behind the one in front of it: where that is no less work than all restarts
    are, every one is chosen. Beyond `most` kinds the rarest have none of their own, and the nearest
    counts for them; the kinds of the first restart and of the last one always have.
    """
    places: dict[Hashable, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    ends = {kinds[0], kinds[-1]}
    ranked = sorted(places, key=lambda kind: (kind not in ends, -len(places[kind])))
    found: dict[int, int] = {}
    for kind in ranked[:most]:
        count = len(places[kind])
        some = min(each, count)
        spread = [places[kind][(2 * number + 1) * count // (2 * some)] for number in range(some)]
        for number, place in enumerate(places[kind]):
            found[place] = spread[number * some // count]
    rehearsed = set(found.values())
    if 2 * len(rehearsed) >= len(kinds):
        return Chosen(tuple(range(len(kinds))))

    def nearest(place: int) -> int:
        return min(rehearsed, key=lambda other: abs(other - place))

    return Chosen(
        tuple(found[place] if place in found else nearest(place) for place in range(len(kinds))),
        left_out=len(ranked[most:]) if most else 0,
    )


def restart_kinds(
    before: Mapping[str, Process], restarts: Iterable[Mapping[str, Process]], leader: str = ""
) -> Iterator[Hashable]:
    """Yield what decides how the coordinator answers each of the restarts, in order.

    Args:
        before: The group's processes by name.
        restarts: The processes that each restart starts instead, by name.
        leader: The name of the member whose restart is like no other's.
    """
    now = dict(before)
    held = Counter(map(_offer, now.values()))
    for restart in restarts:
        for name in restart:
            held[_offer(now[name])] -= 1
        others = frozenset(offer for offer, count in held.items() if count)
        kinds = frozenset(
            (_kind(now[name]), _kind(process), name == leader) for name, process in restart.items()
        )
        yield kinds, others
        now.update(restart)
        held.update(map(_offer, restart.values()))


def total(measures: Sequence[Measures]) -> Measures:
    """Return the sum of these parts, and the longest gap of all."""
    return Measures(
        seconds=sum(one.seconds for one in measures),
        unowned=sum(one.unowned for one in measures),
        longest=max(one.longest for one in measures),
        twice=sum(one.twice for one in measures),
        twice_past=sum(one.twice_past for one in measures),
        rebalances=sum(one.rebalances for one in measures),
        stopped=sum(one.stopped for one in measures),
        moved=sum(one.moved for one in measures),
        rejected=sum(one.rejected for one in measures),
    )


def effort(members: int, partitions: int) -> int:
    """Return the work of one restart: partitions x rebalances, and eight for each member.

    A unit is about seven microseconds of processor time, the plan that is made for it included.
    """
    return _ROUNDS * (_A_MEMBER * members + partitions)


def _offer(process: Process) -> Hashable:
    """Return what the coordinator knows of a process that it counts in a vote."""
    return process.protocol, process.assignors, process.remote_assignor, process.family


def _kind(process: Process) -> Hashable:
    static = None if process.instance_id is None else ""
    return replace(process, name="", client_id="", instance_id=static, rack=None)
