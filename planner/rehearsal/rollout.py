"""Roll-outs as scripts: what a plan's steps do to a group, restart by restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rebal.planner.facts import names
from rebal.planner.plan import Aim, Plan, Step, StepKind
from rebal.planner.rehearsal.script import Deed, Event, Script

_PROTOCOLS: Final = {Aim.CONSUMER: "consumer", Aim.CLASSIC: "classic"}


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
            ids = [member_id for member_id in step.to_do if member_id in called]
            events += step_events(step, [called[member_id] for member_id in ids], batch=batch)
    return Script(about=plan.summary, events=tuple(events))


def step_events(step: Step, members: Sequence[str], *, batch: int) -> list[Event]:
    """Return the events of one step for members by name, in the order of their restarts."""
    phase = f"step {step.id}"
    if step.kind is StepKind.CUT_OVER:
        made = _cut_over(phase, step.target_list, members)
    else:
        made = restarts(phase, step.target_list, members, batch=batch)
    protocol = _PROTOCOLS.get(step.aim, "")
    return [
        replace(event, protocol=protocol) if event.do is Deed.RESTART else event for event in made
    ]


def restarts(
    phase: str, assignors: Sequence[str], members: Sequence[str], *, batch: int
) -> list[Event]:
    """Return restarts in batches with the list `assignors` (empty: each keeps its own)."""
    size = batch or max(1, len(members))
    return [
        Event(
            do=Deed.RESTART,
            members=tuple(members[start : start + size]),
            assignors=tuple(assignors),
            phase="" if start else phase,
        )
        for start in range(0, len(members), size)
    ]


def _cut_over(phase: str, assignors: Sequence[str], members: Sequence[str]) -> list[Event]:
    """Return the events of a step in which all stop before the first starts."""
    return [
        Event(do=Deed.STOP, members=tuple(members), phase=phase),
        Event(do=Deed.RESTART, members=tuple(members), assignors=tuple(assignors)),
    ]
