"""Rehearsals: run a script of timed events on a scene (a group) once, or often with other seeds.

A roll-out that is too large is rehearsed by sampling: one restart of each kind stands for the
others of its kind. Its rehearsal begins with the group as the earlier restarts leave it, and
includes the restart just before. The costs of a plan are sampled in the same way (`restart_kinds`
and `choose_restarts` serve both). Two restarts are of one kind if processes of one kind restart and
the rest of the group has the same assignor lists and protocols: the coordinator's answer to a join
depends on nothing else.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple

from msgspec.structs import replace

from rebal.groups.assignors import Assignor
from rebal.groups.clients import WITHOUT_STATIC
from rebal.groups.coordinator import elect
from rebal.planner.rehearsal.engine.agenda import Chance, Latency
from rebal.planner.rehearsal.engine.member import Process, SimulatedMember
from rebal.planner.rehearsal.engine.world import World
from rebal.planner.rehearsal.outcome import (
    CallbackTimes,
    Distribution,
    Measures,
    MemberStory,
    Note,
    PartitionStory,
    Phase,
    Range,
    Rehearsal,
    Sampled,
    endangered,
)
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent

_HOUR: Final = 3600.0


def rehearse(
    scene: Scene,
    script: Script,
    *,
    seed: int = 0,
    keep: bool = True,
    assignors: Mapping[str, Assignor] | None = None,
) -> Rehearsal:
    """Simulate the events of `script` on the group of `scene`, and return the result.

    The result depends on the arguments alone. `keep` records each partition's owners over time, of
    which a large group has millions. `assignors` are custom assignors by name.
    """
    return _Run(scene, script, seed, keep=keep, assignors=assignors).result()


def rehearse_often(
    scene: Scene,
    script: Script,
    *,
    runs: int,
    seed: int = 0,
    assignors: Mapping[str, Assignor] | None = None,
) -> Distribution:
    """Rehearse `script` with `runs` seeds, starting at `seed`; return medians and percentiles."""
    return distribution(
        [
            rehearse(scene, script, seed=seed + number, keep=False, assignors=assignors)
            for number in range(runs)
        ]
    )


def distribution(made: Sequence[Rehearsal]) -> Distribution:
    """Return the medians and percentiles of rehearsals that differ only in their seed."""
    found = [one.measures for one in made]
    return Distribution(
        runs=len(made),
        endangered=sum(map(endangered, made)),
        restless=sum(not one.at_rest for one in made),
        seconds=_range([one.seconds for one in found]),
        unowned=_range([one.unowned for one in found]),
        longest=_range([one.longest for one in found]),
        rebalances=_range([one.rebalances for one in found]),
        moved=_range([one.moved for one in found]),
    )


def as_restarted(process: Process, event: ScriptEvent) -> Process:
    """Return the process that replaces `process` when `event` restarts it."""
    return replace(
        process,
        assignors=event.assignors or process.assignors,
        family=event.family or process.family,
        version=None if event.family else process.version,
        instance_id=None if event.family in WITHOUT_STATIC else process.instance_id,
        protocol=event.protocol or process.protocol,
        remote_assignor=event.remote_assignor or process.remote_assignor,
        fails_in=process.fails_in if event.fails_in is None else event.fails_in,
    )


class _Run:
    def __init__(
        self,
        scene: Scene,
        script: Script,
        seed: int,
        *,
        keep: bool,
        assignors: Mapping[str, Assignor] | None,
    ) -> None:
        self._scene, self._script, self._seed, self._keep = scene, script, seed, keep
        self._random = Random(seed)
        self._world = World(
            scene.topics,
            scene.brokers,
            self._random,
            replicas=scene.replicas,
            racks=scene.racks,
            topic_ids=scene.topic_ids,
            user_data=scene.user_data,
            assignors=assignors,
            keep=keep,
            generation=scene.generation,
            connectors=scene.connectors,
        )
        self._world.seat(scene.running, scene.assignor, scene.leader)
        self._set = {one.process.name: one.process for one in scene.running}
        self._phases: list[Phase] = []
        self._open = "", self._so_far()
        for event in script.events:
            self._take(event)
        self._at_rest = self._world.settle(script.rests)
        self._all = self._close_phase()

    def result(self) -> Rehearsal:
        """Return the result of the rehearsal, which has run when the object was created."""
        world, group = self._world, self._world.group.now
        return Rehearsal(
            about=self._script.about,
            seed=self._seed,
            at_rest=self._at_rest,
            state=group.phase.value,
            assignor=group.assignor,
            measures=replace(
                self._all, longest=max(phase.measures.longest for phase in self._phases)
            ),
            phases=tuple(phase for phase in self._phases if phase.name),
            rebalances=tuple(world.rebalances),
            notes=tuple(world.happened),
            partitions=self._partitions(),
            members=tuple(
                _member(consumer, self._set[name], world.agenda.now, modelled=not world.opaque)
                for name, consumer in world.consumers.items()
            ),
            assumes=tuple(map(_not_modelled, sorted(world.opaque))),
            unit="none" if world.opaque else "task" if self._scene.connectors else "partition",
        )

    def _take(self, event: ScriptEvent) -> None:
        world = self._world
        if event.at is not None:
            world.agenda.run(event.at)
        elif event.after is not None:
            world.run(event.after)
        else:
            world.settle(self._script.rests)
        if event.phase:
            self._open = event.phase, self._close_phase()
        self._do(event)

    def _do(self, event: ScriptEvent) -> None:
        world, seconds = self._world, event.seconds or 0.0
        match event.do:
            case Deed.RESTART:
                self._restart(event)
            case Deed.STOP | Deed.KILL:
                end = world.stop if event.do is Deed.STOP else world.kill
                for name in event.members:
                    end(name)
            case Deed.START:
                for process in event.processes:
                    self._set[process.name] = process
                    world.start(process, self._varied(seconds))
            case Deed.BUSY:
                self._each(event, lambda consumer: consumer.busy(seconds))
            case Deed.FREEZE:
                self._each(event, lambda consumer: consumer.freeze(seconds))
            case Deed.COORDINATOR:
                world.move_coordinator(seconds)
            case Deed.PARTITIONS:
                world.add_partitions(event.topic, event.count, seconds)
            case Deed.DELETE_TOPIC:
                world.delete_topic(event.topic, seconds)
            case Deed.DELETE_GROUP:
                world.delete_group()
            case Deed.SUBSCRIBE:
                self._each(event, lambda consumer: consumer.subscribe(event.topics))
            case Deed.ENFORCE_REBALANCE:
                self._each(event, lambda consumer: consumer.enforce_rebalance())
            case Deed.COMMIT:
                self._each(event, lambda consumer: consumer.commit())
            case Deed.WAIT:
                world.run(seconds)

    def _restart(self, event: ScriptEvent) -> None:
        takes = self._scene.restart if event.seconds is None else event.seconds
        for name in event.members:
            process = self._set[name] = as_restarted(self._set[name], event)
            self._world.restart(process, self._varied(takes))

    def _each(self, event: ScriptEvent, deed: Callable[[SimulatedMember], object]) -> None:
        for name in event.members:
            deed(self._world.consumers[name])

    def _varied(self, seconds: float) -> float:
        spread = self._scene.spread
        return seconds * (1 + spread * (2 * self._random.random() - 1)) if spread else seconds

    def _so_far(self) -> Measures:
        world = self._world
        return replace(
            world.ledger.totals(world.agenda.now),
            rebalances=sum(one.members > 0 for one in world.rebalances),
            rejected=sum(one.what == "rejected" for one in world.happened),
        )

    def _close_phase(self) -> Measures:
        name, before = self._open
        now = self._so_far()
        measures = Measures(
            seconds=now.seconds - before.seconds,
            unowned=now.unowned - before.unowned,
            longest=now.longest,
            twice=now.twice - before.twice,
            twice_past=now.twice_past - before.twice_past,
            rebalances=now.rebalances - before.rebalances,
            stopped=now.stopped - before.stopped,
            moved=now.moved - before.moved,
            rejected=now.rejected - before.rejected,
        )
        self._phases.append(Phase(name=name, began=before.seconds, measures=measures))
        return now

    def _partitions(self) -> tuple[PartitionStory, ...]:
        if not self._keep or self._world.opaque:
            return ()
        return tuple(
            PartitionStory(
                topic=topic, partition=partition, unowned=unowned, longest=longest, owners=owners
            )
            for (topic, partition), unowned, longest, owners in self._world.ledger.stories(
                self._world.agenda.now
            )
        )


def _not_modelled(assignor: str) -> str:
    streams = "the tasks that Kafka Streams assigns are"
    what = streams if assignor == "stream" else f"the assignment of {assignor} is"
    return f"{what} not modelled: the rehearsal shows rebalances and rejections, but no downtime"


def _member(
    consumer: SimulatedMember, process: Process, now: float, *, modelled: bool
) -> MemberStory:
    # The metrics are those that its client would report (KIP-429).
    known = modelled or process.protocol != "classic"
    did, hours = consumer.rebalances, max(now, 1e-9) / _HOUR
    return MemberStory(
        name=process.name,
        state="rejected" if consumer.rejected else "running" if consumer.alive else "stopped",
        protocol=str(consumer.protocol) if known else "not modelled",
        owned=len(consumer.owned),
        rebalance_total=did.count,
        rebalance_rate_per_hour=did.count / hours,
        rebalance_latency_avg=did.total / did.count if did.count else 0.0,
        rebalance_latency_max=did.longest,
        rebalance_latency_total=did.total,
        failed_rebalance_total=consumer.failed,
        failed_rebalance_rate_per_hour=consumer.failed / hours,
        last_rebalance_seconds_ago=now - did.last if did.count else None,
        revoked=_callback(consumer.revoked),
        assigned=_callback(consumer.assigned),
        lost=_callback(consumer.lost),
    )


def _callback(kind: Latency) -> CallbackTimes:
    return CallbackTimes(
        count=kind.count, average=kind.total / max(kind.count, 1), longest=kind.longest
    )


def _range(values: Sequence[float]) -> Range:
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low, high = math.floor(place), math.ceil(place)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return Range(p5=at(0.05), median=at(0.5), p95=at(0.95))


_ROUNDS: Final = 3
_A_MEMBER: Final = 8


class Chosen(NamedTuple):
    """The restarts of a roll-out that are rehearsed, and the restarts that each of them stands for.

    `places[i]` is the index of the restart that is rehearsed for restart `i`. `left_out` is the
    number of kinds of restart of which none is rehearsed.
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


def choose_restarts(kinds: Sequence[Hashable], *, each: int = 1, most: int | None = None) -> Chosen:
    """Choose the restarts to rehearse, and for every restart the chosen one that stands for it.

    `kinds` has the kind of each restart, in order. Of each kind `each` restarts at equal distances
    are chosen (1: the middle one); they stand for the others of their kind. If there are more than
    `most` kinds, only `most` get chosen restarts: those of the first and the last restart, then the
    most frequent ones. For a restart of another kind the nearest chosen restart stands. If at least
    half of all restarts would be chosen, every restart is chosen: each is rehearsed with the one
    before it, so nothing would be saved.
    """
    places: dict[Hashable, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    ranked = sorted(
        places, key=lambda kind: (kind not in (kinds[0], kinds[-1]), -len(places[kind]))
    )
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
    """Yield the kind of each restart, in order, as a key: equal keys mean the same kind.

    The coordinator answers the joins of two restarts of one kind in the same way.

    Args:
        before: The group's processes by name, before the first restart.
        restarts: For each restart, the processes that it starts, by name.
        leader: The name of the group's leader, whose restart is a kind of its own.
    """
    now = dict(before)
    held = Counter(map(_offer, now.values()))
    for restart in restarts:
        held.subtract(_offer(now[name]) for name in restart)
        kinds = frozenset(
            (_kind(now[name]), _kind(process), name == leader) for name, process in restart.items()
        )
        yield kinds, frozenset(offer for offer, count in held.items() if count)
        now.update(restart)
        held.update(map(_offer, restart.values()))


def total(measures: Sequence[Measures]) -> Measures:
    """Return the measures of several parts added up; `longest` is the longest gap of any part."""
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
    """Return the estimated work of simulating one restart: 3 x (8 x members + partitions).

    One unit is about 7 µs of processor time, including the time to make the plan.
    """
    return _ROUNDS * (_A_MEMBER * members + partitions)


def _offer(process: Process) -> Hashable:
    # What the coordinator knows of a process that it counts in a vote.
    return process.protocol, process.assignors, process.remote_assignor, process.family


def _kind(process: Process) -> Hashable:
    static = None if process.instance_id is None else ""
    return replace(process, name="", client_id="", instance_id=static, rack=None)


Part = tuple[ScriptEvent, ...]

# Seconds of processor time for one unit of `effort`, without the plan.
_UNIT: Final = 2e-6
_TOO_LONG: Final = 120.0


class Rollout:
    """A script that only restarts members; each batch begins when the group is at rest.

    `seconds` is the estimated processor time to rehearse all restarts. If the script has other
    events, it is 0.0, and the script is never `too_long`: it is rehearsed completely.
    """

    def __init__(self, scene: Scene, script: Script) -> None:
        self._scene, self._script = scene, script
        self._parts = _parts(script)
        work = sum(scene.topics.values()) + sum(1 + tasks for tasks in scene.connectors.values())
        self.seconds = _UNIT * effort(len(scene.running), work) * len(self._parts)

    @property
    def too_long(self) -> bool:
        """True if rehearsing all takes over 2 min of processor time and some can be left out."""
        return self.seconds > _TOO_LONG and not self._chosen.whole

    def rehearse(
        self, *, seed: int = 0, assignors: Mapping[str, Assignor] | None = None
    ) -> Rehearsal:
        """Rehearse one restart of each kind, and return the estimate for the whole roll-out."""
        places = self._chosen.places
        found = {place: self._one(place, seed + place, assignors) for place in sorted(set(places))}
        measured = [found[place].phases[-1].measures for place in places]
        begins = [0.0, *accumulate(one.seconds for one in measured)]
        named = [(place, event.phase) for place, part in enumerate(self._parts) for event in part]
        phases = [(place, name) for place, name in named if name]
        ends = [*(place for place, _ in phases), len(places)][1:]
        last = found[places[-1]]
        return Rehearsal(
            about=self._script.about,
            seed=seed,
            at_rest=all(one.at_rest for one in found.values()),
            state=last.state,
            assignor=last.assignor,
            measures=total(measured),
            phases=tuple(
                Phase(name=name, began=begins[place], measures=total(measured[place:end]))
                for (place, name), end in zip(phases, ends, strict=True)
            ),
            notes=_notes(found, begins),
            assumes=tuple(dict.fromkeys(text for one in found.values() for text in one.assumes)),
            unit=last.unit,
            sampled=Sampled(rehearsed=len(found), restarts=len(places)),
        )

    @cached_property
    def _chosen(self) -> Chosen:
        scene = self._scene
        before = {one.process.name: one.process for one in scene.running}
        now, after = dict(before), []
        for part in self._parts:
            after.append(_processes(part, now))
            now.update(after[-1])
        # A group that is seated without a leader has its first member lead.
        leads = next((r for r in scene.running if r.member_id == scene.leader), scene.running[0])
        kinds = list(enumerate(restart_kinds(before, after, leads.process.name)))
        # The first and the last restart are like no other.
        return choose_restarts(
            [kinds[0], *((None, kind) for _, kind in kinds[1:-1]), *kinds[1:][-1:]]
        )

    def _one(self, place: int, seed: int, assignors: Mapping[str, Assignor] | None) -> Rehearsal:
        """Rehearse the restart with index `place`, after the one before it.

        The last phase of the result is the restart itself.
        """
        begin = max(0, place - 1)
        events = [
            replace(event, phase="restart" if at == place and not number else "")
            for at in range(begin, place + 1)
            for number, event in enumerate(self._parts[at])
        ]
        return rehearse(
            self._at(begin),
            replace(self._script, events=tuple(events)),
            seed=seed,
            keep=False,
            assignors=assignors,
        )

    def _at(self, begin: int) -> Scene:
        """Return the group at rest after the first `begin` restarts."""
        scene = self._scene
        now = {one.process.name: one.process for one in scene.running}
        done: set[str] = set()
        for part in self._parts[:begin]:
            now |= _processes(part, now)
            done.update(part[-1].members)
        if not done:
            return scene
        new, running = new_ids(now[one.process.name] for one in scene.running), []
        for one in scene.running:
            process = now[one.process.name]
            id_ = new[process.name] if process.name in done else one.member_id
            running.append(replace(one, process=process, member_id=id_))
        offered = [process.assignors for process in now.values() if process.protocol == "classic"]
        elected = elect(offered, scene.brokers.kind).assignor or scene.assignor
        return replace(scene, running=tuple(running), assignor=elected)


def _parts(script: Script) -> list[Part]:
    """Return the script's restarts, each with the stop of its members before it, if there is one.

    Empty if the script has any other event, or an event that does not wait for the group to rest.
    """
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
    return {name: as_restarted(now[name], part[-1]) for name in part[-1].members}


def new_ids(processes: Iterable[Process]) -> dict[str, str]:
    """Return each process's member id after a restart, by process name.

    The ids are drawn with a fixed seed for all processes, so that a member has the same id in every
    rehearsal. They matter because some assignors sort members by id.
    """
    chance = Chance(Random(0))
    return {
        one.name: chance.kip848_member_id(one.client_id, 0.0)
        if one.protocol == "consumer"
        else chance.member_id(one.client_id, one.instance_id, 0.0)
        for one in processes
    }


def _notes(found: Mapping[int, Rehearsal], begins: Sequence[float]) -> tuple[Note, ...]:
    """Return the notes of the rehearsed restarts without duplicates, in order of time.

    `found` are the rehearsals by the restart's index. `begins` are the estimated times, in seconds,
    at which the restarts begin in the whole roll-out.
    """
    made: dict[tuple[str, str, str], Note] = {}
    for place, one in found.items():
        for note in one.notes:
            at = max(0.0, begins[place] + note.at - one.phases[-1].began)
            made.setdefault((note.who, note.what, note.detail), replace(note, at=at))
    return tuple(sorted(made.values(), key=lambda note: note.at))
