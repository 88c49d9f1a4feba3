"""Scenes and scripts: a group, and the timed events that a rehearsal simulates on it.

`rollout` makes the script that carries out a plan, restart by restart. `READY` has ready-made
scripts of common events, such as a rolling restart or a crash, by their name for `--script`.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import family, worker_list
from rebal.groups.model import GroupSnapshot, Record, Tri
from rebal.groups.streams import threads_of
from rebal.planner.facts import listed, names
from rebal.planner.plan import Aim, Plan, Step, StepKind
from rebal.planner.rehearsal.engine.member import Process, RunningProcess, client_rejection
from rebal.planner.rehearsal.engine.memory import Brokers


class Deed(StrEnum):
    """Kinds of events.

    restart, stop, start, kill (the process ends without LeaveGroup), busy (no poll for `seconds`),
    freeze (no heartbeat either), coordinator (another broker loads the group), partitions (a topic
    has `count`), delete-topic, delete-group (an administrator deletes an Empty one), subscribe (to
    `topics`), enforce-rebalance (KIP-568), commit, wait.
    """

    RESTART = "restart"
    STOP = "stop"
    START = "start"
    KILL = "kill"
    BUSY = "busy"
    FREEZE = "freeze"
    COORDINATOR = "coordinator"
    PARTITIONS = "partitions"
    DELETE_TOPIC = "delete-topic"
    DELETE_GROUP = "delete-group"
    SUBSCRIBE = "subscribe"
    ENFORCE_REBALANCE = "enforce-rebalance"
    COMMIT = "commit"
    WAIT = "wait"


class ScriptEvent(Record, frozen=True, kw_only=True):
    """One event of a script, which happens to all of `members` at once.

    It happens at `at` seconds since the start, or `after` seconds after the event before, or (both
    None) once the group is at rest. `seconds` is how long the event takes; for a restart it is the
    time until the process joins (None: the scene's `restart`). A restart can change `assignors`,
    `family`, `protocol` (group.protocol), `remote_assignor` (group.remote.assignor) and the
    listener callbacks that throw (`fails_in`; None: unchanged). A start gives its `processes`.

    `phase` names the phase that begins with this event, such as a plan's step. Results are given
    for each phase.
    """

    do: Deed
    at: float | None = None
    after: float | None = None
    members: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    seconds: float | None = None
    assignors: tuple[str, ...] = ()
    protocol: str = ""
    remote_assignor: str = ""
    family: str = ""
    fails_in: tuple[str, ...] | None = None
    topic: str = ""
    topics: tuple[str, ...] = ()
    count: int = 0
    phase: str = ""


class Scene(Record, frozen=True, kw_only=True):
    """The group when a rehearsal begins; times in seconds.

    `topics` maps topics to partition counts. In a group of Connect workers `connectors` maps
    connectors to numbers of tasks. `replicas` and `racks` are as in an assignor's `Spec`.
    `topic_ids` maps topics to ids as Kafka prints them. `user_data` names the assignors whose
    assignments carry user data, for which KIP-848 has no field.

    `running` are the members of a Stable group that elected `assignor` in `generation`; without any
    the group is Empty. If one of them speaks KIP-848, the group is a KIP-848 group and `generation`
    its epoch. `restart` is the time from the stop of a process until it joins again; it varies
    evenly by the share `spread` to both sides.
    """

    topics: Mapping[str, int]
    connectors: Mapping[str, int] = {}
    replicas: Mapping[str, Sequence[Sequence[int]]] = {}
    racks: Mapping[int, str | None] = {}
    topic_ids: Mapping[str, str] = {}
    user_data: tuple[str, ...] = ()
    brokers: Brokers = Brokers()
    running: tuple[RunningProcess, ...] = ()
    assignor: str = ""
    leader: str | None = None
    generation: int = 0
    restart: float = 30.0
    spread: float = 0.0


class Script(Record, frozen=True, kw_only=True):
    """Events to rehearse, in order.

    `about` describes them in one sentence. `rests` is the longest wait, in seconds, for the group
    to come to rest.
    """

    about: str = ""
    events: tuple[ScriptEvent, ...] = ()
    rests: float = 3600.0


_PROTOCOLS: Final = {
    Aim.CONSUMER: "consumer",
    Aim.CLASSIC: "classic",
    Aim.STREAMS_PROTOCOL: "streams",
    Aim.STREAMS_CLASSIC: "classic",
}
_REMOTE_RANGE: Final = re.compile(r"group\.remote\.assignor\W+range")


def rollout(plan: Plan, *, batch: int = 1) -> Script:
    """Return the script for a plan's remaining steps, `batch` processes at a time (0: all).

    Each step is a phase, named such as `step 2`. A step begins, and a batch restarts, once the
    group is at rest, as the plan's gates demand.
    """
    rest = (step for step in plan.steps if step.id >= (plan.next_step or 1))
    events = (step_events(step, restarted(plan, step), batch=batch) for step in rest)
    return Script(about=plan.summary, events=tuple(chain.from_iterable(events)))


def upgraded(scene: Scene, script: Script) -> tuple[Scene, tuple[str, ...]]:
    """Return the scene with all clients new enough for the script's assignor lists.

    A client that would reject a list because of its version gets `version` None, which counts as
    new enough: the plan upgrades such a client in the restart that brings the list. The second item
    has the sentence with this assumption; it is empty if no client is too old.
    """
    lists = {event.assignors for event in script.events if event.assignors and not event.family}
    old = {}
    for running in scene.running:
        asked = [replace(running.process, assignors=each) for each in lists]
        if any(
            client_rejection(each) and not client_rejection(replace(each, version=None))
            for each in asked
        ):
            old[running.process.name] = replace(running.process, version=None)
    here = tuple(replace(r, process=old.get(r.process.name, r.process)) for r in scene.running)
    said = f"{listed([*old])}: upgraded in the restart that brings the list, as the plan says"
    return replace(scene, running=here), (said,) if old else ()


def too_old(scene: Scene, script: Script) -> str:
    """Return why a step is blocked by clients that are too old for KIP-848; empty if none is.

    The message is about the first such step of the script.
    """
    here = [one.process for one in scene.running]
    old = [one.name for one in here if family(one.family).kip848(one.version) is Tri.NO]
    phase = ""
    for event in script.events:
        phase = event.phase or phase
        if event.protocol == "consumer" and not {*old}.isdisjoint(event.members):
            return (
                f"{phase or 'the script'} is blocked: {listed(old)} cannot use "
                "group.protocol=consumer. Nothing is rehearsed until they can: plan-upgrade --to "
                "consumer says what they need first."
            )
    return ""


def restarted(plan: Plan, step: Step) -> list[tuple[str, ...]]:
    """Return the processes that `step` has to restart, each as the names of its members (threads).

    Processes that the step has restarted already are left out. Those of which that is not known are
    included.
    """
    return processes(plan.baseline, (*step.to_do, *step.unknown))


def processes(snapshot: GroupSnapshot, ids: Iterable[str]) -> list[tuple[str, ...]]:
    """Group the members `ids` by process; return for each process the names of these members.

    A Kafka Streams process can run several members, one for each thread. They stop and start
    together. Ids that are not in the snapshot are left out.
    """
    called, threads = names(snapshot.members), threads_of(snapshot)
    found: dict[str, list[str]] = {}
    for id_ in ids:
        if id_ in called:
            found.setdefault(threads[id_][0].member_id, []).append(called[id_])
    return [tuple(each) for each in found.values()]


def step_events(step: Step, members: Sequence[tuple[str, ...]], *, batch: int) -> list[ScriptEvent]:
    """Return the script events that carry out one step of a plan.

    `members` are the processes to restart, in order, each as the names of its members. `batch`
    processes restart at a time (0: all). In a cut-over all stop before the first starts.
    """
    asked = any(_REMOTE_RANGE.search(setting.text) for setting in step.config)
    # The brokers have one assignor for Streams groups (KIP-1071).
    tasks = "sticky" if step.aim is Aim.STREAMS_PROTOCOL else ""
    offers = {Aim.CONNECT_INCREMENTAL: "sessioned", Aim.CONNECT_EAGER: "eager"}.get(step.aim, "")
    together = step.kind is StepKind.CUT_OVER
    events = restarts(
        "" if together else f"step {step.id}",
        step.target_list or worker_list(offers) or (),
        members,
        batch=0 if together else batch,
        protocol=_PROTOCOLS.get(step.aim, ""),
        remote_assignor="range" if asked else tasks,
        family=step.config[0].family if step.config and step.aim is Aim.CLIENT else "",
    )
    if together:
        # All stop before the first starts.
        everybody = tuple(chain(*members))
        events.insert(0, ScriptEvent(do=Deed.STOP, members=everybody, phase=f"step {step.id}"))
    return events


def restarts(
    phase: str,
    assignors: Sequence[str],
    members: Sequence[tuple[str, ...]],
    *,
    batch: int,
    protocol: str = "",
    remote_assignor: str = "",
    family: str = "",
) -> list[ScriptEvent]:
    """Return the events that restart processes in batches of `batch` (0: all at once).

    `members` are the processes, each as the names of its members. `phase` is the phase that begins
    with the first batch. `assignors` is the assignor list after the restart, `protocol`
    group.protocol, `remote_assignor` group.remote.assignor, and `family` the client family (each
    empty: unchanged).
    """
    size = batch or max(1, len(members))
    return [
        ScriptEvent(
            do=Deed.RESTART,
            members=tuple(chain(*members[start : start + size])),
            assignors=tuple(assignors),
            protocol=protocol,
            remote_assignor=remote_assignor,
            family=family,
            phase="" if start else phase,
        )
        for start in range(0, len(members), size)
    ]


_AT_A_TIME: Final = re.compile(r"([1-9][0-9]{0,5})-at-a-time")
_STORM: Final = 10
_STORM_EVERY: Final = 60.0
_BROKER_IS_BACK: Final = 300.0
_LOADING: Final = 1.0
_TOO_LATE: Final = 1.2


class ScriptPace(Record, frozen=True, kw_only=True):
    """The group's hosts and processes, and the number of processes that restart at a time.

    `hosts` maps each host to the names of its members. `processes` has the member names of each
    process (empty: each member is a process). `batch` None is the script's usual number, 0 is all.
    """

    hosts: Mapping[str, Sequence[str]] = {}
    processes: Sequence[tuple[str, ...]] = ()
    batch: int | None = None


class Ready(Record, frozen=True, kw_only=True):
    """One ready-made script: a sentence about it, and the function that makes its events.

    The function takes a scene with at least one member.
    """

    about: str
    events: Callable[[Scene, ScriptPace], Sequence[ScriptEvent]]


def ready_script(name: str, scene: Scene, pace: ScriptPace | None = None) -> Script | None:
    """Return the ready-made script `name` for the group of `scene`; None if it does not exist.

    The name `N-at-a-time` is a rolling restart of N processes at a time.
    """
    pace = pace or ScriptPace()
    numbered = _AT_A_TIME.fullmatch(name)
    if numbered is not None:
        pace = replace(pace, batch=int(numbered[1]))
    found = READY.get("rolling" if numbered else name)
    if found is None:
        return None
    return Script(
        about=about(name), events=tuple(found.events(scene, pace) if scene.running else ())
    )


def about(name: str) -> str:
    """Return the sentence that describes the ready-made script `name`, which must exist."""
    numbered = _AT_A_TIME.fullmatch(name)
    return f"{numbered[1]} members restart at a time." if numbered else READY[name].about


def _names(scene: Scene) -> list[str]:
    return [one.process.name for one in scene.running]


def _largest(scene: Scene) -> Process:
    return max(scene.running, key=lambda one: len(one.owned)).process


def _rolling(scene: Scene, pace: ScriptPace) -> Sequence[ScriptEvent]:
    alone = [(name,) for name in _names(scene)]
    batch = 1 if pace.batch is None else pace.batch
    return restarts("", (), pace.processes or alone, batch=batch)


def _by_host(scene: Scene, pace: ScriptPace) -> Sequence[ScriptEvent]:
    known = set(_names(scene))
    grouped = [
        (host, [name for name in names if name in known]) for host, names in pace.hosts.items()
    ]
    homeless = known - {name for _, names in grouped for name in names}
    grouped += [("", [name]) for name in _names(scene) if name in homeless]
    return [
        ScriptEvent(
            do=Deed.RESTART,
            members=tuple(members),
            phase=f"host {host.lstrip('/')}" if host else members[0],
        )
        for host, members in grouped
        if members
    ]


def _blue_green(scene: Scene, _: ScriptPace) -> Sequence[ScriptEvent]:
    return (
        ScriptEvent(
            do=Deed.START,
            processes=tuple(_copy(one.process, "green") for one in scene.running),
            seconds=scene.restart,
            at=0.0,
            phase="start green",
        ),
        ScriptEvent(do=Deed.STOP, members=tuple(_names(scene)), phase="stop blue"),
    )


def _crash(scene: Scene, _: ScriptPace) -> Sequence[ScriptEvent]:
    member = _largest(scene)
    return (
        ScriptEvent(do=Deed.KILL, members=(member.name,), at=0.0),
        ScriptEvent(do=Deed.RESTART, members=(member.name,), at=0.0),
    )


def _scale(scene: Scene, pace: ScriptPace) -> Sequence[ScriptEvent]:
    running = scene.running
    half = max(1, math.ceil(len(running) / 2))
    number = half if pace.batch is None else pace.batch or len(running)
    new = tuple(
        _copy(running[place % len(running)].process, f"new-{place + 1}") for place in range(number)
    )
    return (
        ScriptEvent(do=Deed.START, processes=new, seconds=scene.restart, at=0.0, phase="scale out"),
        ScriptEvent(do=Deed.STOP, members=tuple(one.name for one in new), phase="scale in"),
    )


def _rebalance_storm(scene: Scene, _: ScriptPace) -> Sequence[ScriptEvent]:
    member = _largest(scene)
    return [
        ScriptEvent(
            do=Deed.RESTART,
            members=(member.name,),
            seconds=min(scene.restart, _STORM_EVERY / 2),
            at=_STORM_EVERY * number,
        )
        for number in range(_STORM)
    ]


def _slow_member(scene: Scene, _: ScriptPace) -> Sequence[ScriptEvent]:
    member = _largest(scene)
    return (
        ScriptEvent(
            do=Deed.BUSY, members=(member.name,), seconds=member.rebalance * _TOO_LATE, at=0.0
        ),
    )


def _copy(process: Process, ending: str) -> Process:
    return replace(
        process,
        name=f"{process.name}-{ending}",
        client_id=f"{process.client_id}-{ending}" if process.client_id else "",
        instance_id=f"{process.instance_id}-{ending}" if process.instance_id else None,
    )


READY: Final[Mapping[str, Ready]] = {
    "rolling": Ready(
        about="Members restart by batches (of one, or --batch), each when the group is at rest.",
        events=_rolling,
    ),
    "all-at-once": Ready(
        about="All members restart at the same moment.",
        events=lambda scene, _: restarts("", (), [tuple(_names(scene))], batch=0),
    ),
    "by-host": Ready(
        about="The members of one host restart together, host after host.", events=_by_host
    ),
    "blue-green": Ready(
        about="A second set of members starts, and the first set stops when the group is at rest.",
        events=_blue_green,
    ),
    "crash": Ready(
        about="The member with the most partitions crashes and is started again.", events=_crash
    ),
    "scale": Ready(about="The group grows by half its members, and shrinks again.", events=_scale),
    "broker-restart": Ready(
        about="The coordinator's broker restarts: another broker loads the group, and 5 minutes "
        "later it moves back.",
        events=lambda _, __: (
            ScriptEvent(do=Deed.COORDINATOR, seconds=_LOADING, at=0.0, phase="broker stops"),
            ScriptEvent(
                do=Deed.COORDINATOR, seconds=_LOADING, at=_BROKER_IS_BACK, phase="broker is back"
            ),
        ),
    ),
    "rebalance-storm": Ready(
        about="One member restarts ten times, once a minute, whether or not the group is at rest.",
        events=_rebalance_storm,
    ),
    "slow-member": Ready(
        about="The member with the most partitions does not poll for longer than its "
        "max.poll.interval.ms.",
        events=_slow_member,
    ),
}
