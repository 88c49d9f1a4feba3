"""Scripts that are made for a group: what a plan's steps do to it, and what usually happens to it.

`rollout` carries out a plan, restart by restart; `READY` has the others, as functions of the group,
by the name that `--script` takes.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import family, worker_list
from rebal.groups.model import GroupSnapshot, Record, Tri
from rebal.groups.processes import threads_of
from rebal.planner.facts import listed, names
from rebal.planner.plan import Aim, Plan, Step, StepKind
from rebal.planner.rehearsal.engine.process import Process, refusal
from rebal.planner.rehearsal.script import Deed, Scene, Script, ScriptEvent

_PROTOCOLS: Final = {
    Aim.CONSUMER: "consumer",
    Aim.CLASSIC: "classic",
    Aim.STREAMS_PROTOCOL: "streams",
    Aim.STREAMS_CLASSIC: "classic",
}
_OFFERS: Final = {Aim.CONNECT_INCREMENTAL: "sessioned", Aim.CONNECT_EAGER: "eager"}
_REMOTE_RANGE: Final = re.compile(r"group\.remote\.assignor\W+range")


def rollout(plan: Plan, *, batch: int = 1) -> Script:
    """Return the script that carries out the rest of a plan, `batch` processes at a time (0: all).

    Each step is a phase of that name. A step begins, and a batch restarts, when the group is at
    rest after what came before, as the plan's gates demand.
    """
    first = plan.next_step or 1
    events: list[ScriptEvent] = []
    for step in plan.steps:
        if step.id >= first:
            events += step_events(step, restarted(plan, step), batch=batch)
    return Script(about=plan.summary, events=tuple(events))


def upgraded(scene: Scene, script: Script) -> tuple[Scene, tuple[str, ...]]:
    """Return the scene without the versions of clients that are too old for a list that a plan's
    roll-out brings, and what that takes for granted: the plan's step upgrades them.
    """
    lists = {event.assignors for event in script.events if event.assignors and not event.family}
    old = {}
    for running in scene.running:
        asked = [replace(running.process, assignors=each) for each in lists]
        if any(refusal(each) and not refusal(replace(each, version=None)) for each in asked):
            old[running.process.name] = replace(running.process, version=None)
    here = tuple(replace(r, process=old.get(r.process.name, r.process)) for r in scene.running)
    said = f"{listed([*old])}: upgraded in the restart that brings the list, as the plan says"
    return replace(scene, running=here), (said,) if old else ()


def too_old(scene: Scene, script: Script) -> str:
    """Return which step clients that are too old for KIP-848 block; empty if none does."""
    old = [one.process.name for one in scene.running if _lacks_kip848(one.process)]
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


def _lacks_kip848(process: Process) -> bool:
    return family(process.family).kip848(process.version) is Tri.NO


def restarted(plan: Plan, step: Step) -> list[tuple[str, ...]]:
    """Return the processes that the step restarts, those included of unknown state."""
    return processes(plan.baseline, (*step.to_do, *step.unknown))


def processes(snapshot: GroupSnapshot, ids: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the processes of these members (ids), each as the names of those of them that are its
    threads; all threads of a process stop and start together.
    """
    called, threads = names(snapshot.members), threads_of(snapshot)
    found: dict[str, list[str]] = {}
    for id_ in ids:
        if id_ in called:
            found.setdefault(threads[id_][0].member_id, []).append(called[id_])
    return [tuple(each) for each in found.values()]


def step_events(step: Step, members: Sequence[tuple[str, ...]], *, batch: int) -> list[ScriptEvent]:
    """Return the events of one step for processes, in the order of their restarts."""
    protocol = _PROTOCOLS.get(step.aim, "")
    asked = any(_REMOTE_RANGE.search(setting.text) for setting in step.config)
    # The brokers have one assignor for Streams groups (KIP-1071).
    tasks = "sticky" if step.aim is Aim.STREAMS_PROTOCOL else ""
    together = step.kind is StepKind.CUT_OVER
    events = restarts(
        "" if together else f"step {step.id}",
        step.target_list or worker_list(_OFFERS.get(step.aim, "")) or (),
        members,
        batch=0 if together else batch,
        protocol=protocol,
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
    """Return restarts in batches of processes (names of each one's members) with the list
    `assignors` (empty: each keeps its own).

    `protocol` is group.protocol, `remote_assignor` group.remote.assignor and `family` the client
    from then on (empty: unchanged).
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
    """The group's hosts and processes, and how many processes a script takes at a time.

    `hosts` are names of members by host, `processes` the names of each process's members (empty:
    each member is one); `batch` None: as many as the script usually takes, 0: all.
    """

    hosts: Mapping[str, Sequence[str]] = {}
    processes: Sequence[tuple[str, ...]] = ()
    batch: int | None = None


class Ready(Record, frozen=True, kw_only=True):
    """One ready script: what it does in a sentence, and its events for a group with members."""

    about: str
    events: Callable[[Scene, ScriptPace], Sequence[ScriptEvent]]


def ready_script(name: str, scene: Scene, pace: ScriptPace | None = None) -> Script | None:
    """Return the ready script of that name for the group of `scene`; None: there is none."""
    pace = pace or ScriptPace()
    numbered = _AT_A_TIME.fullmatch(name)
    if numbered is not None:
        pace = replace(pace, batch=int(numbered[1]))
    found = READY.get("rolling" if numbered else name)
    if found is None:
        return None
    events = found.events(scene, pace) if scene.running else ()
    return Script(about=about(name), events=tuple(events))


def about(name: str) -> str:
    """Return what a ready script does, in a sentence; its name must be one of theirs."""
    numbered = _AT_A_TIME.fullmatch(name)
    return f"{numbered[1]} members restart at a time." if numbered else READY[name].about


def _names(scene: Scene) -> list[str]:
    return [one.process.name for one in scene.running]


def _largest(scene: Scene) -> Process:
    """Return the member that owns most partitions, the first of several."""
    return max(scene.running, key=lambda one: len(one.owned)).process


def _rolling(scene: Scene, pace: ScriptPace) -> Sequence[ScriptEvent]:
    batch = 1 if pace.batch is None else pace.batch
    alone = [(name,) for name in _names(scene)]
    return restarts("", (), pace.processes or alone, batch=batch)


def _all_at_once(scene: Scene, _: ScriptPace) -> Sequence[ScriptEvent]:
    return restarts("", (), [tuple(_names(scene))], batch=0)


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
    green = tuple(_copy(one.process, "green") for one in scene.running)
    return (
        ScriptEvent(
            do=Deed.START, processes=green, seconds=scene.restart, at=0.0, phase="start green"
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
    number = pace.batch or max(1, math.ceil(len(running) / 2))
    new = tuple(
        _copy(running[place % len(running)].process, f"new-{place + 1}") for place in range(number)
    )
    return (
        ScriptEvent(do=Deed.START, processes=new, seconds=scene.restart, at=0.0, phase="scale out"),
        ScriptEvent(do=Deed.STOP, members=tuple(one.name for one in new), phase="scale in"),
    )


def _broker_restart(_: Scene, __: ScriptPace) -> Sequence[ScriptEvent]:
    return (
        ScriptEvent(do=Deed.COORDINATOR, seconds=_LOADING, at=0.0, phase="broker stops"),
        ScriptEvent(
            do=Deed.COORDINATOR, seconds=_LOADING, at=_BROKER_IS_BACK, phase="broker is back"
        ),
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
    late = member.rebalance * _TOO_LATE
    return (ScriptEvent(do=Deed.BUSY, members=(member.name,), seconds=late, at=0.0),)


def _copy(process: Process, ending: str) -> Process:
    """Return another process with the same settings: a new name, and a new identity."""
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
    "all-at-once": Ready(about="All members restart at the same moment.", events=_all_at_once),
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
        events=_broker_restart,
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
