"""Roll-outs as scripts: what a plan's steps do to a group, restart by restart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import family, worker_list
from rebal.groups.model import GroupSnapshot, Tri
from rebal.groups.processes import threads_of
from rebal.planner.facts import listed, names
from rebal.planner.plan import Aim, Plan, Step, StepKind
from rebal.planner.rehearsal.engine.process import Process, refusal
from rebal.planner.rehearsal.script import Deed, Event, Scene, Script

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
    events: list[Event] = []
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


def step_events(step: Step, members: Sequence[tuple[str, ...]], *, batch: int) -> list[Event]:
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
        events.insert(0, Event(do=Deed.STOP, members=everybody, phase=f"step {step.id}"))
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
) -> list[Event]:
    """Return restarts in batches of processes (names of each one's members) with the list
    `assignors` (empty: each keeps its own).

    `protocol` is group.protocol, `remote_assignor` group.remote.assignor and `family` the client
    from then on (empty: unchanged).
    """
    size = batch or max(1, len(members))
    return [
        Event(
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
