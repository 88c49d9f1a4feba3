"""Rehearsals: run a script on a scene once, or many times with other seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Assignor
from rebal.groups.clients import WITHOUT_STATIC
from rebal.planner.rehearsal.engine.agenda import Latency
from rebal.planner.rehearsal.engine.member import SimulatedMember
from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.engine.world import World
from rebal.planner.rehearsal.outcome import (
    CallbackTimes,
    Distribution,
    Measures,
    MemberStory,
    PartitionStory,
    Phase,
    Range,
    Rehearsal,
    endangered,
)
from rebal.planner.rehearsal.script import Deed, Scene, Script, ScriptEvent

_HOUR: Final = 3600.0
_REJECTED: Final = "rejected"


def rehearse(
    scene: Scene,
    script: Script,
    *,
    seed: int = 0,
    keep: bool = True,
    assignors: Mapping[str, Assignor] | None = None,
) -> Rehearsal:
    """Return what happens to the group of `scene` when the events of `script` happen.

    The result depends on the arguments alone. `keep` keeps each partition's owners over time, of
    which a large group has millions. `assignors` are custom ones by name.
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
    """Return the figures of so many runs; their seeds follow from `seed`."""
    return distribution(
        [
            rehearse(scene, script, seed=seed + number, keep=False, assignors=assignors)
            for number in range(runs)
        ]
    )


def distribution(made: Sequence[Rehearsal]) -> Distribution:
    """Return the figures of rehearsals that differ in their seed."""
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
    """Return the process that starts when `event` restarts this one."""
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
    """One run."""

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
        self._at_rest = True
        self._phases: list[Phase] = []
        self._open = "", self._so_far(self._world.ledger.totals(0.0))
        self._longest = 0.0
        for event in script.events:
            self._take(event)
        self._at_rest = self._world.settle(script.rests)
        self._close_phase()

    def result(self) -> Rehearsal:
        """Return what happened."""
        world, group = self._world, self._world.group.now
        return Rehearsal(
            about=self._script.about,
            seed=self._seed,
            at_rest=self._at_rest,
            state=group.phase.value,
            assignor=group.assignor,
            measures=replace(
                self._so_far(world.ledger.totals(world.agenda.now)), longest=self._longest
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
            self._at_rest = world.settle(self._script.rests)
        if event.phase:
            self._close_phase()
            self._open = event.phase, self._so_far(world.ledger.totals(world.agenda.now))
        self._do(event)

    def _do(self, event: ScriptEvent) -> None:
        world, seconds = self._world, event.seconds or 0.0
        match event.do:
            case Deed.RESTART:
                self._restart(event)
            case Deed.STOP:
                for name in event.members:
                    world.stop(name)
            case Deed.START:
                self._start(event)
            case Deed.KILL:
                for name in event.members:
                    world.kill(name)
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
            if name in self._world.consumers:
                self._world.restart(name, self._varied(takes), process)
            else:
                self._world.start(process, self._varied(takes))

    def _start(self, event: ScriptEvent) -> None:
        for process in event.processes:
            self._set[process.name] = process
            self._world.start(process, self._varied(event.seconds or 0.0))

    def _each(self, event: ScriptEvent, deed: Callable[[SimulatedMember], object]) -> None:
        for name in event.members:
            deed(self._world.consumers[name])

    def _varied(self, seconds: float) -> float:
        spread = self._scene.spread
        return seconds * (1 + spread * (2 * self._random.random() - 1)) if spread else seconds

    def _so_far(self, totals: Measures) -> Measures:
        world = self._world
        return replace(
            totals,
            rebalances=sum(one.members > 0 for one in world.rebalances),
            rejected=sum(one.what == _REJECTED for one in world.happened),
        )

    def _close_phase(self) -> None:
        name, before = self._open
        now = self._so_far(self._world.ledger.begin_phase(self._world.agenda.now))
        self._longest = max(self._longest, now.longest)
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

    def _partitions(self) -> tuple[PartitionStory, ...]:
        if not self._keep or self._world.opaque:
            return ()
        ledger = self._world.ledger
        spans, gaps = ledger.close(), ledger.gaps(self._world.agenda.now)
        return tuple(
            PartitionStory(
                topic=topic,
                partition=partition,
                unowned=gaps[topic, partition][0],
                longest=gaps[topic, partition][1],
                owners=tuple(spans.get(number, ())),
            )
            for (topic, partition), number in ledger.numbers.items()
        )


def _not_modelled(assignor: str) -> str:
    what = f"the assignment of {assignor} is"
    if assignor == "stream":
        what = "the tasks that Kafka Streams assigns are"
    return f"{what} not modelled: the rehearsal shows rebalances and rejections, but no downtime"


def _member(
    consumer: SimulatedMember, process: Process, now: float, *, modelled: bool
) -> MemberStory:
    """Return a member's state and the metrics that its client would report (KIP-429)."""
    known = modelled or process.protocol != "classic"
    did, hours = consumer.rebalances, max(now, 1e-9) / _HOUR
    state = "running" if consumer.alive else "stopped"
    return MemberStory(
        name=process.name,
        state=_REJECTED if consumer.rejected else state,
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
    average = kind.total / kind.count if kind.count else 0.0
    return CallbackTimes(count=kind.count, average=average, longest=kind.longest)


def _range(values: Sequence[float]) -> Range:
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low, high = math.floor(place), math.ceil(place)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return Range(p5=at(0.05), median=at(0.5), p95=at(0.95))
