"""Roll-outs as scripts: what a plan's steps do to a group, restart by restart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rebal.groups.clients import worker_list
from rebal.planner.facts import names
from rebal.planner.plan import Aim, Plan, Step, StepKind
from rebal.planner.rehearsal.script import Deed, Event, Script

_PROTOCOLS: Final = {Aim.CONSUMER: "consumer", Aim.CLASSIC: "classic"}
_OFFERS: Final = {Aim.CONNECT_INCREMENTAL: "sessioned", Aim.CONNECT_EAGER: "eager"}
_REMOTE_RANGE: Final = re.compile(r"group\.remote\.assignor\W+range")


def rollout(plan: Plan, *, batch: int = 1) -> Script:
    """Return the script that carries out the rest of a plan, `batch` members at a time (0: all).

    Each step is a phase of that name. A step begins, and a batch restarts, when the group is at
    rest after what came before, as the plan's gates demand.
    """
    called = names(plan.baseline.members)
    first = plan.next_step or 1
    events: list[Event] = []
    for step in plan.steps:
        if step.id >= first:
            labels = [called[member_id] for member_id in restarted(step) if member_id in called]
            events += step_events(step, labels, batch=batch)
    return Script(about=plan.summary, events=tuple(events))


def restarted(step: Step) -> tuple[str, ...]:
    """Return the ids of the members that the step restarts, those included of unknown state."""
    return (*step.to_do, *step.unknown)


def step_events(step: Step, members: Sequence[str], *, batch: int) -> list[Event]:
    """Return the events of one step for members by name, in the order of their restarts."""
    protocol = _PROTOCOLS.get(step.aim, "")
    asked = any(_REMOTE_RANGE.search(setting.text) for setting in step.config)
    together = step.kind is StepKind.CUT_OVER
    events = restarts(
        "" if together else f"step {step.id}",
        step.target_list or worker_list(_OFFERS.get(step.aim, "")) or (),
        members,
        batch=0 if together else batch,
        protocol=protocol,
        remote_assignor="range" if asked else "",
    )
    if together:
        # All stop before the first starts.
        events.insert(0, Event(do=Deed.STOP, members=tuple(members), phase=f"step {step.id}"))
    return events


def restarts(
    phase: str,
    assignors: Sequence[str],
    members: Sequence[str],
    *,
    batch: int,
    protocol: str = "",
    remote_assignor: str = "",
) -> list[Event]:
    """Return restarts in batches with the list `assignors` (empty: each keeps its own).

    `protocol` is group.protocol and `remote_assignor` group.remote.assignor from then on (empty:
    unchanged).
    """
    size = batch or max(1, len(members))
    return [
        Event(
            do=Deed.RESTART,
            members=tuple(members[start : start + size]),
            assignors=tuple(assignors),
            protocol=protocol,
            remote_assignor=remote_assignor,
            phase="" if start else phase,
        )
        for start in range(0, len(members), size)
    ]
