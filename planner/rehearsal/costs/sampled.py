"""A rehearsal of a sample of a roll-out's restarts, for groups where all of them take too long.

Each restart of the sample begins with the group as the restarts before it leave it, and with the
restart in front of it, as the costs of a plan do (`sample` chooses for both).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Assignor
from rebal.groups.vote import elect
from rebal.planner.rehearsal.costs.work import effort
from rebal.planner.rehearsal.engine.chance import Chance
from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.outcome import (
    Measures,
    Note,
    Phase,
    Rehearsal,
    Sampled,
    endangered,
)
from rebal.planner.rehearsal.rehearse import as_restarted, rehearse
from rebal.planner.rehearsal.sample import Sample, Stratum, bounds, sample, situations
from rebal.planner.rehearsal.script import Deed, Event, Scene, Script

Part = tuple[Event, ...]

# Seconds of processor time for one unit of work (costs.work).
_UNIT: Final = 2e-6
_TOO_LONG: Final = 120.0
_SAMPLE: Final = 20.0
_MOST_KINDS: Final = 200
# Such a share may a restart cost more or less than in a whole rehearsal (costs.rehearsed).
_LEAST: Final = 0.1


class Rollout:
    """A script that only restarts members, each batch when the group is at rest after the last.

    `seconds` is the processor time that all of them take, estimated; `too_long` says whether a
    sample is to stand for them. Other scripts take their whole time.
    """

    def __init__(self, scene: Scene, script: Script) -> None:
        self._scene, self._script = scene, script
        self._parts = _parts(script)
        work = sum(scene.topics.values()) + sum(1 + tasks for tasks in scene.connectors.values())
        self._each = _UNIT * effort(len(scene.running), work)
        self.seconds = self._each * len(self._parts)

    @property
    def too_long(self) -> bool:
        """Return whether to rehearse a sample."""
        return self.seconds > _TOO_LONG and not self._sample(1).whole

    def rehearse(
        self, *, seed: int = 0, runs: int = 1, assignors: Mapping[str, Assignor] | None = None
    ) -> Rehearsal:
        """Return what the sample says of the whole; it is smaller where there are many `runs`."""
        taken, parts = self._sample(runs), self._parts
        found = {
            place: self._one(place, seed + place, assignors)
            for place in sorted({place for one in taken.strata for place in one.places})
        }
        measured = {place: one.phases[-1].measures for place, one in found.items()}
        seconds = [0.0] * len(parts)
        for stratum, places in zip(taken.strata, self._places(taken), strict=True):
            mean = fmean(measured[place].seconds for place in stratum.places)
            for place in places:
                seconds[place] = mean
        begins = [0.0, *accumulate(seconds)]
        last = found[len(parts) - 1]
        return Rehearsal(
            about=self._script.about,
            seed=seed,
            at_rest=all(one.at_rest for one in found.values()),
            state=last.state,
            assignor=last.assignor,
            measures=_total(taken.strata, measured),
            phases=tuple(self._phases(taken, measured, begins)),
            notes=_notes(found, begins),
            assumes=tuple(dict.fromkeys(text for one in found.values() for text in one.assumes)),
            unit=last.unit,
            sampled=self._sampled(taken, measured, wrong=any(map(endangered, found.values()))),
        )

    @cached_property
    def _situations(self) -> list[tuple[str, bool, object]]:
        """Return the phase of each restart, whether it is the first or the last, and its kind."""
        scene = self._scene
        now = {one.process.name: one.process for one in scene.running}
        phase, phases, after = "", [], []
        done = dict(now)
        for part in self._parts:
            phase = next((event.phase for event in part if event.phase), phase)
            phases.append(phase)
            after.append(_processes(part, done))
            done.update(after[-1])
        # A group that is seated without a leader has its first member lead.
        leads = next((r for r in scene.running if r.member_id == scene.leader), scene.running[0])
        alike = situations(now, after, leads.process.name)
        ends = (0, len(self._parts) - 1)
        return [
            (phases[place], place in ends, (place if place in ends else -1, one))
            for place, one in enumerate(alike)
        ]

    def _sample(self, runs: int) -> Sample:
        most = int(_SAMPLE / (2 * self._each * runs))
        return sample(self._situations, most, kinds=_MOST_KINDS if runs == 1 else 0)

    def _places(self, taken: Sample) -> list[list[int]]:
        """Return all places of each stratum."""
        where = {
            self._situations[place]: number
            for number, stratum in enumerate(taken.strata)
            for place in stratum.places
        }
        made: list[list[int]] = [[] for _ in taken.strata]
        for place, situation in enumerate(self._situations):
            # What has a stratum of its own is not in the last one, of those that are left out.
            made[where.get(situation, len(made) - 1)].append(place)
        return made

    def _one(self, place: int, seed: int, assignors: Mapping[str, Assignor] | None) -> Rehearsal:
        """Return the rehearsal of one restart, which is its last phase."""
        begin = max(0, place - 1)
        events = [
            replace(event, phase="restart" if at == place and not number else "")
            for at in range(begin, place + 1)
            for number, event in enumerate(self._parts[at])
        ]
        script = replace(self._script, events=tuple(events))
        return rehearse(self._at(begin), script, seed=seed, keep=False, assignors=assignors)

    def _at(self, begin: int) -> Scene:
        """Return the group at rest when so many parts are done."""
        scene = self._scene
        now = {one.process.name: one.process for one in scene.running}
        done: set[str] = set()
        for part in self._parts[:begin]:
            after = _processes(part, now)
            now.update(after)
            done.update(after)
        if not done:
            return scene
        chance, running = Chance(Random(0)), []
        for one in scene.running:
            process = now[one.process.name]
            # Every id is drawn, so that a member has the same one in each restart of the sample.
            id_ = _new_id(chance, process)
            id_ = id_ if process.name in done else one.member_id
            running.append(replace(one, process=process, member_id=id_))
        offered = [process.assignors for process in now.values() if process.protocol == "classic"]
        elected = elect(offered, scene.brokers.kind).assignor or scene.assignor
        return replace(scene, running=tuple(running), assignor=elected)

    def _phases(
        self, taken: Sample, measured: Mapping[int, Measures], begins: Sequence[float]
    ) -> list[Phase]:
        parts: dict[str, list[tuple[Stratum, int]]] = {}
        for stratum, places in zip(taken.strata, self._places(taken), strict=True):
            by_phase: dict[str, list[int]] = {}
            for place in places:
                by_phase.setdefault(self._situations[place][0], []).append(place)
            for name, some in by_phase.items():
                one = stratum._replace(size=len(some))
                parts.setdefault(name, []).append((one, some[0]))
        made = [
            (min(first for _, first in some), name, _total([one for one, _ in some], measured))
            for name, some in parts.items()
            if name
        ]
        return [
            Phase(name=name, began=begins[first], measures=measures)
            for first, name, measures in sorted(made, key=lambda one: one[0])
        ]

    def _sampled(self, taken: Sample, measured: Mapping[int, Measures], *, wrong: bool) -> Sampled:
        values = [[measured[place] for place in one.places] for one in taken.strata]
        unowned = [[one.unowned for one in some] for some in values]
        longest = [[one.longest for one in some] for some in values]
        bound, at_most = bounds(taken.strata, unowned, longest, least=_LEAST)
        return Sampled(
            rehearsed=taken.rehearsed,
            restarts=taken.restarts,
            left_out=taken.left_out,
            bound=None if wrong else bound,
            longest_at_most=None if wrong else at_most,
            whole_seconds=self.seconds,
        )


def _parts(script: Script) -> list[Part]:
    """Return the restarts, each with the stop before it; nothing if other things happen too."""
    made: list[Part] = []
    for event in script.events:
        if event.at is not None or event.after is not None:
            return []
        stopped = made[-1] if made and made[-1][-1].do is Deed.STOP else ()
        if event.do is Deed.RESTART and (not stopped or event.members == stopped[0].members):
            made[len(made) - bool(stopped) :] = [(*stopped, event)]
        elif event.do is Deed.STOP and not stopped:
            made.append((event,))
        else:
            return []
    return [] if made and made[-1][-1].do is Deed.STOP else made


def _processes(part: Part, now: Mapping[str, Process]) -> dict[str, Process]:
    """Return the processes that the part starts, by name."""
    return {name: as_restarted(now[name], part[-1]) for name in part[-1].members}


def _new_id(chance: Chance, process: Process) -> str:
    if process.protocol == "consumer":
        return chance.kip848_member_id(process.client_id, 0.0)
    return chance.member_id(process.client_id, process.instance_id, 0.0)


def _total(strata: Sequence[Stratum], measured: Mapping[int, Measures]) -> Measures:
    """Return the sum over all restarts, and the longest stop that was found."""
    found = [[measured[place] for place in one.places] for one in strata]

    def summed(measure: Callable[[Measures], float]) -> float:
        return sum(
            stratum.size * fmean(map(measure, some))
            for stratum, some in zip(strata, found, strict=True)
        )

    def counted(measure: Callable[[Measures], int]) -> int:
        seen = sum(measure(one) > 0 for some in found for one in some)
        return max(round(summed(measure)), seen)

    return Measures(
        seconds=summed(lambda one: one.seconds),
        unowned=summed(lambda one: one.unowned),
        longest=max(one.longest for some in found for one in some),
        twice=summed(lambda one: one.twice),
        twice_past=summed(lambda one: one.twice_past),
        rebalances=counted(lambda one: one.rebalances),
        stopped=counted(lambda one: one.stopped),
        moved=counted(lambda one: one.moved),
        rejected=counted(lambda one: one.rejected),
    )


def _notes(found: Mapping[int, Rehearsal], begins: Sequence[float]) -> tuple[Note, ...]:
    """Return what happened, once each, at the estimated time of the restart in the whole."""
    made: dict[tuple[str, str, str], Note] = {}
    for place, one in found.items():
        for note in one.notes:
            at = max(0.0, begins[place] + note.at - one.phases[-1].began)
            made.setdefault((note.who, note.what, note.detail), replace(note, at=at))
    return tuple(sorted(made.values(), key=lambda note: note.at))
