"""A sample of a roll-out's restarts: which are rehearsed, and what they say of the others.

Two restarts are alike where processes of one kind restart and the rest of the group holds the same
assignor lists and protocols: the coordinator's answer to a join depends on no more. A sample has
one of each kind at least, and spreads the others evenly over the order. What chance decides differs
between two rehearsals of one restart, so a whole run is a draw as well: bounds allow for that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist, fmean, linear_regression
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.planner.rehearsal.engine.process import Process

_FEWEST: Final = 6
"""Restarts to rehearse of the most frequent kind: their spread gives the bound."""
_CONFIDENCE: Final = 0.95
_TWO_SIDED: Final = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)


class Stratum(NamedTuple):
    """Restarts that are alike: `size` of them, of which those at `places` are rehearsed.

    The place of a restart that has no like may stand there several times, for as many seeds.
    """

    size: int
    places: tuple[int, ...]


class Sample(NamedTuple):
    """The strata of `restarts` restarts; `left_out` kinds of them are not rehearsed."""

    restarts: int
    strata: tuple[Stratum, ...]
    left_out: int = 0

    @property
    def rehearsed(self) -> int:
        """Return how many different restarts are rehearsed."""
        return len({place for stratum in self.strata for place in stratum.places})

    @property
    def whole(self) -> bool:
        """Return whether to rehearse everything: no restart is left out, or it is less work.

        Each rehearsed restart has the one before it in front.
        """
        return self.rehearsed == self.restarts or 2 * self.runs >= self.restarts

    @property
    def runs(self) -> int:
        """Return how many rehearsals there are, repeated ones included."""
        return sum(len(stratum.places) for stratum in self.strata)

    def repeated(self, times: int) -> Sample:
        """Return the sample with so many draws of each restart that has no like."""
        strata = (
            one._replace(places=one.places * times) if one.size == 1 else one for one in self.strata
        )
        return self._replace(strata=tuple(strata))


def sample(situations: Sequence[Hashable], most: int, *, kinds: int = 0) -> Sample:
    """Return which restarts to rehearse: about `most` of them, and one of each situation.

    Where there are more than `kinds` situations, and more than twice `most`, the rarest may be left
    out, but not those of the first restart and the last one.
    """
    alike: dict[Hashable, list[int]] = {}
    for place, situation in enumerate(situations):
        alike.setdefault(situation, []).append(place)
    count, most = len(situations), max(most, _FEWEST)
    largest = max(map(len, alike.values()))
    ends = {situations[0], situations[-1]}
    ranked = sorted(alike, key=lambda one: (one not in ends, -len(alike[one])))
    kinds = max(kinds, 2 * most)
    groups = [alike[one] for one in ranked[:kinds]]
    rest = sorted(place for one in ranked[kinds:] for place in alike[one])
    made = []
    for places in (*groups, rest) if rest else groups:
        some = max(1, round(most * len(places) / count))
        some = max(some, _FEWEST if len(places) == largest or places is rest else 1)
        made.append(Stratum(len(places), _spread(places, some)))
    seen = {situations[place] for stratum in made for place in stratum.places}
    return Sample(count, tuple(made), len(alike) - len(seen))


def _spread(places: Sequence[int], some: int) -> tuple[int, ...]:
    count = len(places)
    if count <= some:
        return tuple(places)
    return tuple(places[(2 * n + 1) * count // (2 * some)] for n in range(some))


def situations(
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


def _offer(process: Process) -> Hashable:
    """Return what the coordinator knows of a process that it counts in a vote."""
    return process.protocol, process.assignors, process.remote_assignor, process.family


def _kind(process: Process) -> Hashable:
    static = None if process.instance_id is None else ""
    return replace(process, name="", client_id="", instance_id=static, rack=None)


def bounds(
    strata: Sequence[Stratum],
    unowned: Sequence[Sequence[float]],
    longest: Sequence[Sequence[float]],
    *,
    least: float,
) -> tuple[float, float]:
    """Return how far the partition-seconds of all restarts may be off (a share), and the longest
    stop at most.

    The values are those of each stratum's places. By the share `least` a restart may cost more or
    less than in a rehearsal of all.
    """
    total = sum(stratum.size * fmean(some) for stratum, some in zip(strata, unowned, strict=True))
    share = total_error(strata, unowned) / total if total else 0.0
    found = max(value for some in longest for value in some)
    return share + least, max(most_of_all(strata, longest), (1 + least) * found)


def total_error(strata: Sequence[Stratum], values: Sequence[Sequence[float]]) -> float:
    """Return how far the sum over all restarts may be off, at 95 % confidence.

    The sum takes each restart for the mean of its stratum. Costs rise or fall along the order,
    which an even spread catches: what counts is how far they lie from a straight line.
    """
    off = 0.0
    for stratum, found, wide in zip(strata, values, _widths(strata, values), strict=True):
        off += (stratum.size * wide) ** 2 * (1 / len(found) + 1 / stratum.size)
    return _TWO_SIDED * math.sqrt(off)


def most_of_all(strata: Sequence[Stratum], values: Sequence[Sequence[float]]) -> float:
    """Return what none of the restarts exceeds, at 95 % confidence."""
    each = _CONFIDENCE ** (1 / sum(stratum.size for stratum in strata))
    above = NormalDist().inv_cdf(each)
    bounds = (
        _higher_end(one.places, found) + above * wide * math.sqrt(1 + 1 / len(found))
        for one, found, wide in zip(strata, values, _widths(strata, values), strict=True)
    )
    return max(*bounds, *(value for found in values for value in found))


def _widths(strata: Sequence[Stratum], values: Sequence[Sequence[float]]) -> list[float]:
    """Return the standard deviation in each stratum, larger where few values show it.

    A stratum with too few values has the largest share of its mean that another one has.
    """
    own = [_width(one.places, found) for one, found in zip(strata, values, strict=True)]
    shares = (
        wide / fmean(found)
        for wide, found in zip(own, values, strict=True)
        if wide is not None and fmean(found)
    )
    share = max(shares, default=0.0)
    return [
        share * fmean(found) if wide is None else wide
        for wide, found in zip(own, values, strict=True)
    ]


def _width(places: Sequence[int], values: Sequence[float]) -> float | None:
    free = len(values) - (1 if len(set(places)) == 1 else 2)
    if free < 1:
        return None
    slope, base = _line(places, values)
    off = sum(
        (value - base - slope * place) ** 2 for place, value in zip(places, values, strict=True)
    )
    return (1 + 2 / free) * math.sqrt(off / free)


def _higher_end(places: Sequence[int], values: Sequence[float]) -> float:
    """Return the line through the values where it is the highest: half a gap outside of them."""
    slope, base = _line(places, values)
    half = (max(places) - min(places)) / (2 * max(1, len(places) - 1))
    return max(base + slope * end for end in (min(places) - half, max(places) + half))


def _line(places: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Return the slope and the base of the line through the values, level where there is none."""
    if len(set(places)) == 1:
        return 0.0, fmean(values)
    slope, base = linear_regression(places, values)
    return slope, base
