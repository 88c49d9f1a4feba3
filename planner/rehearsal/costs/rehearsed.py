"""Restarts of a group's members, rehearsed by the engine: what each pace costs.

As expected each member stops cleanly and is back when the restart is over. At worst it is killed
and counts until its session ends, and the others join a rebalance as late as they may. Of a large
group some of the restarts are rehearsed, evenly spread over the order, and stand for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.planner.facts import names
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.cost import batches
from rebal.planner.rehearsal.costs.shape import shape_of, size_of
from rebal.planner.rehearsal.costs.start import Roll, Start
from rebal.planner.rehearsal.costs.work import estimate_asked, is_unpriced, rehearsals
from rebal.planner.rehearsal.engine.world import HELD_BACK
from rebal.planner.rehearsal.outcome import Measures
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.rollout import processes
from rebal.planner.rehearsal.sample import Sample, Stratum, bounds, sample, situations
from rebal.planner.rehearsal.script import Deed, Event, Scene, Script
from rebal.planner.timeouts import (
    back_in_time,
    held_back_in_words,
    waits,
    with_brokers_sessions,
)

_FAILED: Final = "failed as leader"
_RESTS: Final = 86_400.0
# Shares: so much may a restart cost more or less than in a whole rehearsal, in which more restarts
# in front of it have let the heartbeats fall together: of classic groups, and of KIP-848 ones,
# whose members send a heartbeat less often. What chance decides comes on top of it.
_LEAST: Final = 0.05
_LEAST_KIP848: Final = 0.1
# About half a second.
_MOST: Final = 500_000
# Rehearsals in the worst case of a restart that has no like, such as the one that converts a
# KIP-848 group: chance decides how often late members have the others wait again.
_DRAWS: Final = 10


class Paced(NamedTuple):
    """One pace's cost, and the partitions that stopped, summed over all rebalances.

    `rehearsed` of `batches` batches were rehearsed, with members of which each stands for `share`.
    """

    pace: Pace
    stopped: int
    rehearsed: int = 1
    batches: int = 1
    share: int = 1

    def scaled(self, times: float) -> Paced:
        """Return the cost of a group with so many times the partitions."""
        if times == 1:
            return self
        pace = replace(
            self.pace,
            partition_seconds=round(times * self.pace.partition_seconds, 1),
            worst_partition_seconds=round(times * (self.pace.worst_partition_seconds or 0.0), 1),
            partitions_moved=round(times * self.pace.partitions_moved),
        )
        return self._replace(pace=pace, stopped=round(times * self.stopped))

    @property
    def sampled(self) -> str:
        """A sentence part on what was left out; empty where nothing was."""
        what = "restarts" if self.pace.batch == 1 else "batches"
        left_out = (
            f"{self.rehearsed:,} of {self.batches:,} {what} rehearsed"
            if self.rehearsed < self.batches
            else "",
            f"rehearsed with one member for {self.share}" if self.share > 1 else "",
        )
        if not any(left_out):
            return ""
        return (
            f"{', '.join(filter(None, left_out))}, so partition-seconds are "
            f"within ±{100 * self.pace.bound:.0f} %{self._but}"
        )

    @property
    def _but(self) -> str:
        kinds = self.pace.kinds_left_out
        return f" if {kinds:,} kinds that were not cost no more than these" if kinds else ""


class _Sum(NamedTuple):
    """Measures of several parts, added up."""

    seconds: float = 0.0
    unowned: float = 0.0
    longest: float = 0.0
    rebalances: float = 0.0
    stopped: float = 0.0
    moved: float = 0.0

    def plus(self, one: Measures, times: float = 1.0) -> _Sum:
        return _Sum(
            self.seconds + times * one.seconds,
            self.unowned + times * one.unowned,
            max(self.longest, one.longest),
            self.rebalances + times * one.rebalances,
            self.stopped + times * one.stopped,
            self.moved + times * one.moved,
        )


class _Sampled(NamedTuple):
    """A sum, how far its partition-seconds may be off (a share), and the longest stop at most."""

    total: _Sum
    bound: float
    longest: float


class RehearsedRoll:
    """A roll-out with its stand-ins; `notes` name what stands in for what is not known."""

    def __init__(self, roll: Roll) -> None:
        snapshot = roll.snapshot
        roll = replace(roll, snapshot=replace(snapshot, members=with_brokers_sessions(snapshot)))
        self._roll = roll
        self._start = Start(roll)
        self._held_back = False
        self._least = _LEAST_KIP848 if roll.kip848 else _LEAST
        self._draws = _DRAWS if roll.kip848 else 1
        members = roll.snapshot.members
        called = names(members)
        self._order = [called[id_] for id_ in roll.order]
        self._units = processes(members, roll.order)
        # Some stay, so the others wait for nothing but the rebalance.
        self._stay = len(roll.order) < len(members)
        self._quiet = {
            called[m.member_id]: max(waits(m).session - self._start.heartbeat(m), 0.0)
            for m in members
            if back_in_time(m, roll.speed.restart)
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentence parts on stand-ins for what is not known, and on work that is held back."""
        if self._held_back:
            return (held_back_in_words(self._roll.snapshot.members), *self._start.notes)
        return self._start.notes

    def paces(self) -> list[Paced]:
        """Return the cost of each pace: one by one, in the batch asked for, all at once."""
        asked = list(batches(len(self._units), self._roll.speed.batch))
        if estimate_asked() is not None:
            asked = asked[-1:] if self._roll.together else asked[:1]
        return [self._paced(batch, name) for batch, name in asked]

    def _paced(self, batch: int, name: str) -> Paced:
        units = self._units
        cut = [tuple(chain(*units[at : at + batch])) for at in range(0, len(units), batch)]
        taken = self._sample(cut)
        share = self._share(batch, len(cut) if taken is None else taken.runs)
        if share > 1:
            return self._by_fewer(share, batch, name)
        expected, bound, longest = self._sum(cut, taken, killed=False)
        worst = expected
        if estimate_asked() is None:
            often = None if taken is None else taken.repeated(self._draws)
            worst, apart, _ = self._sum(cut, often, killed=True)
            bound = max(bound, apart)
        rehearsed = len(cut) if taken is None else taken.rehearsed
        pace = Pace(
            name=name,
            batch=batch,
            seconds=round(expected.seconds, 1),
            partition_seconds=round(expected.unowned, 1),
            rebalances=round(expected.rebalances),
            partitions_moved=round(expected.moved),
            worst_seconds=round(max(worst.seconds, expected.seconds), 1),
            worst_partition_seconds=round(max(worst.unowned, expected.unowned), 1),
            longest_seconds=round(expected.longest, 1),
            worst_longest_seconds=round(max(worst.longest, expected.longest), 1),
            bound=_rounded_up(bound),
            longest_at_most=round(longest, 1),
            kinds_left_out=0 if taken is None else taken.left_out,
        )
        return Paced(pace, round(expected.stopped), rehearsed, len(cut))

    def _sample(self, cut: Sequence[tuple[str, ...]]) -> Sample | None:
        """Return which batches to rehearse; None: all of them, in one run."""
        start = self._start
        most = rehearsals(len(cut), len(start.lists), len(start.partitions))
        if most >= len(cut):
            return None
        if estimate_asked() is not None:
            return Sample(len(cut), (Stratum(len(cut), (len(cut) // 2,)),))
        before = {name: start.process(name, done=False, killed=False) for name in start.lists}
        after = ({name: start.process(name, done=True, killed=False) for name in b} for b in cut)
        taken = sample(list(situations(before, after)), most)
        return None if taken.repeated(self._draws).whole else taken

    def _share(self, batch: int, places: int) -> int:
        """Return how many members one stands for: each join of a KIP-848 group has a target made.

        With the classic protocol all that join together have one generation.
        """
        roll = self._roll
        if not roll.kip848 or (roll.protocol != "consumer" and batch == len(self._start.lists)):
            return 1
        work = places * batch * (len(self._start.lists) + len(self._start.partitions))
        return min(batch, math.ceil(work / _MOST))

    def _by_fewer(self, share: int, batch: int, name: str) -> Paced:
        rehearsed = RehearsedRoll(self._roll.shrunk(share))
        fewer = rehearsed._paced(math.ceil(batch / share), name)
        # Each that leaves or joins gives the group an epoch.
        rebalances = fewer.pace.rebalances * len(self._order) / len(rehearsed._order)
        at_most = max(
            fewer.pace.longest_at_most or 0.0,
            (1 + self._least) * (fewer.pace.longest_seconds or 0.0),
        )
        return fewer._replace(
            pace=replace(
                fewer.pace,
                batch=batch,
                rebalances=round(rebalances),
                bound=max(fewer.pace.bound, self._least),
                longest_at_most=round(at_most, 1),
            ),
            share=share * fewer.share,
        )

    def _sum(
        self, cut: Sequence[tuple[str, ...]], taken: Sample | None, *, killed: bool
    ) -> _Sampled:
        """Return the sum over all batches; `taken` is the sample that stands for them."""
        if taken is None:
            scene = self._start.scene((), killed)
            total = _Sum().plus(self._run(scene, cut, 0, killed, seed=0, last=False))
            return _Sampled(total, 0.0, total.longest)
        total, found = _Sum(), []
        for stratum in taken.strata:
            made = [self._at(place, cut, killed, draw) for draw, place in enumerate(stratum.places)]
            for one in made:
                total = total.plus(one, stratum.size / len(made))
            found.append(made)
        unowned = [[one.unowned for one in made] for made in found]
        longest = [[one.longest for one in made] for made in found]
        return _Sampled(total, *bounds(taken.strata, unowned, longest, least=self._least))

    def _at(self, place: int, cut: Sequence[tuple[str, ...]], killed: bool, draw: int) -> Measures:
        """Return the measures of one batch; another `draw` has another seed."""
        # The restart before lets the members' heartbeats fall together as a rebalance does.
        begin = max(0, place - 1)
        done = [name for each in cut[:begin] for name in each]
        scene = self._start.scene(done, killed)
        return self._run(scene, cut[begin : place + 1], begin, killed, seed=begin + draw * len(cut))

    def _run(
        self,
        scene: Scene,
        cut: Sequence[tuple[str, ...]],
        place: int,
        killed: bool,
        *,
        seed: int,
        last: bool = True,
    ) -> Measures:
        """Return the measures of the batches from `place` on, or of the last one alone."""
        together, all_stop = self._roll.together, not self._stay and len(cut[0]) == len(self._order)
        events: list[Event] = []
        if together and not place:
            events += self._stop(self._order, killed)
            events[0] = replace(events[0], phase="stop" if self._stay else "")
        elif all_stop and not killed:
            events.append(Event(do=Deed.STOP, members=tuple(self._order)))
        for number, some in enumerate(cut, place):
            if together:
                more = self._start_again(some, killed, empty=not (number or self._stay))
            else:
                more = self._each(some, killed, after=0.0 if all_stop else None)
            events += [replace(more[0], phase=str(number)), *more[1:]]
        script = Script(events=tuple(events), rests=_RESTS)
        made = rehearse(scene, script, seed=seed, keep=False, assignors=self._start.assignors)
        if not self._start.assignors and any(note.what == _FAILED for note in made.notes):
            self._start.stand_in_for_leader()
            made = rehearse(scene, script, seed=seed, keep=False, assignors=self._start.assignors)
        self._held_back |= any(note.what == HELD_BACK for note in made.notes)
        if last and len(cut) > 1:
            return made.phases[-1].measures
        # Rebalances of members that stop, until none is left, depend on who is the quickest.
        return replace(made.measures, rebalances=sum(p.measures.rebalances for p in made.phases))

    def _stop(self, members: Sequence[str], killed: bool) -> list[Event]:
        """Return the end of these; what comes next begins at the earliest after a restart."""
        do = Deed.KILL if killed else Deed.STOP
        return [
            Event(do=do, members=tuple(members)),
            Event(do=Deed.WAIT, after=0.0, seconds=self._roll.speed.restart),
        ]

    def _start_again(self, some: Sequence[str], killed: bool, *, empty: bool) -> list[Event]:
        """Return the start of members that have stopped with all the others."""
        takes = 0.0 if empty or some[0] == self._order[0] else self._roll.speed.restart
        return [
            Event(
                do=Deed.START,
                seconds=takes,
                processes=tuple(
                    self._start.process(name, done=True, killed=killed) for name in each
                ),
            )
            for each in _stragglers(some, killed and empty)
        ]

    def _each(self, some: Sequence[str], killed: bool, after: float | None) -> list[Event]:
        """Return the restart of these, so long `after` the event before."""
        if not killed:
            return [replace(self._back(some, self._roll.speed.restart), after=after)]
        quiet = [name for name in some if name in self._quiet]
        loud = [name for name in some if name not in self._quiet]
        events = []
        if quiet:
            # They are back just before their sessions end.
            events.append(self._back(quiet, max(self._quiet[name] for name in quiet)))
        if loud:
            events += self._stop(loud, killed=True)
            empty = len(loud) == len(self._start.lists)
            events += [self._back(each, 0.0) for each in _stragglers(loud, empty)]
        return events

    def _back(self, some: Sequence[str], takes: float) -> Event:
        return Event(
            do=Deed.RESTART,
            members=tuple(some),
            seconds=takes,
            assignors=self._start.then,
            protocol=self._roll.protocol,
        )


def priced(roll: Roll, main: int, text: Callable[[Pace], str]) -> Cost:
    """Return the cost of a roll-out, whose figures are those of the pace at `main`."""
    if is_unpriced() or not roll.order:
        nothing = "" if roll.order else "nothing is restarted"
        return Cost(rebalances=0, partitions_stopped=0, partitions_moved=0, text=nothing)
    estimate = estimate_asked()
    if estimate is None:
        made, notes, _ = _rehearsed(roll)
    else:
        made, notes, size = estimate.once(shape_of(roll), partial(_rehearsed, roll))
        made = [one.scaled(size_of(roll) / size if size else 1.0) for one in made]
    one = made[main]
    pace = one.pace
    return Cost(
        rebalances=pace.rebalances,
        partitions_stopped=one.stopped,
        partitions_moved=pace.partitions_moved,
        text="; ".join(filter(None, (text(pace), one.sampled, *notes))),
        seconds=pace.seconds,
        partition_seconds=pace.partition_seconds,
        worst_seconds=pace.worst_seconds,
        worst_partition_seconds=pace.worst_partition_seconds,
        longest_seconds=pace.longest_seconds,
        worst_longest_seconds=pace.worst_longest_seconds,
        bound=pace.bound,
        longest_at_most=pace.longest_at_most,
        paces=tuple(each.pace for each in made),
    )


def _rehearsed(roll: Roll) -> tuple[list[Paced], tuple[str, ...], int]:
    """Return the cost of each pace, what stands in, and the number of partitions."""
    rehearsed = RehearsedRoll(roll)
    return rehearsed.paces(), rehearsed.notes, size_of(roll)


def _stragglers(some: Sequence[str], apart: bool) -> list[Sequence[str]]:
    """Return these, or (`apart`) without the last one, which comes after the first rebalance."""
    return [some[:-1], some[-1:]] if apart and len(some) > 1 else [some]


def _rounded_up(share: float) -> float:
    """Return a share in whole percents."""
    return math.ceil(100 * share) / 100
