"""Which way a group can take, and the plan of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, GroupState, GroupType, Tri
from rebal.groups.protocol import group_protocol
from rebal.planner.admission.next_action import comes_before, first_action
from rebal.planner.clients import stays_eager
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context
from rebal.planner.goals import goal_of
from rebal.planner.kip848 import Answer
from rebal.planner.paths.connect import connect
from rebal.planner.paths.cut_over import cut_over, needs_cut_over
from rebal.planner.paths.from_kip848 import from_consumer
from rebal.planner.paths.judging import CODES, code_of, judged
from rebal.planner.paths.mixed_families import mixed_families, next_step
from rebal.planner.paths.one_bounce import one_bounce
from rebal.planner.paths.streams import streams
from rebal.planner.paths.to_kip848 import to_consumer
from rebal.planner.paths.two_bounces import two_bounces
from rebal.planner.paths.way import Way
from rebal.planner.paths.wording import not_checked, progress, summary
from rebal.planner.plan import Accepted, Finding, Plan, Severity, Verdict
from rebal.planner.rehearsal.costs.cost import CostModel, Speed
from rebal.planner.rehearsal.costs.rounds import by_assignors
from rebal.planner.rules import Risk, Trait, evaluate, has, own_class_risk, rules

_VERDICTS: Final = {0: Verdict.READY, 3: Verdict.BLOCKED, 4: Verdict.UNPROVEN}
_TO: Final = {COOPERATIVE: "COOPERATIVE", EAGER: "EAGER", CONSUMER: "KIP-848"}


def make_plan(
    snapshot: GroupSnapshot,
    target: str = COOPERATIVE,
    *,
    expect_members: int | None = None,
    families: Mapping[str, str] | None = None,
    ignore: Mapping[str, str] | None = None,
    made_at: datetime | None = None,
    cost: CostModel = by_assignors,
    speed: Speed | None = None,
    options: Sequence[str] = (),
    assumed: Sequence[str] = (),
    plan_file: str | None = None,
) -> Plan:
    """The plan of this group to `target`: `cooperative`, `eager`, `consumer` or an assignor's name.

    `expect_members` is how many members the service has when all are there. `families` is client
    id (or `*`) → client family, as assumed by the user where no evidence proves one. `ignore` is
    rule id → reason. `made_at` is the snapshot's own time if not given: equal input, equal plan.
    `speed` is how fast members restart, for the cost. `options` are the words that reach the
    cluster, repeated in every gate's command. `assumed` are sentences on what was assumed of lists
    (groups/evidence/assume.py): the plan records them. `plan_file` is where the plan will be
    written: its gates name it.

    Raises:
        NotPlannedError: no way to this target is planned by this version.
    """
    goal = goal_of(snapshot, target)
    context = Context(
        snapshot,
        goal=goal.kind,
        target=goal.target,
        only_target=goal.only_target,
        planning=True,
        expect_members=expect_members,
        families=families,
        options=options,
        remembers=Risk.FORGOTTEN_LISTS.accepted_in(ignore or {}),
        own_classes=own_class_risk(goal.kind).accepted_in(ignore or {}),
        speed=speed,
        plan_file=plan_file,
    )
    way = _way(context, cost, goal.back)
    findings = _findings(context, way, ignore)
    steps = tuple(judged(context, way, step, findings, ignore or {}) for step in way.steps)
    code = code_of(context, way, findings, steps)
    plan = Plan(
        group_id=snapshot.group.group_id,
        runs=group_protocol(snapshot).value,
        assignor=snapshot.group.assignor,
        to=_TO[goal.kind],
        target=_target(context, way),
        only_target=goal.only_target,
        path=way.path,
        verdict=_VERDICTS[code] if way.next_step is not None or code else Verdict.DONE,
        summary=summary(context, way, code, findings),
        next_step=way.next_step,
        steps=steps,
        findings=findings,
        not_checked=not_checked(context),
        assumptions=(*assumed, *_assumptions(families or {}, ignore or {})),
        accepted=Accepted(families=families or {}, ignore=ignore or {}),
        expected_members=context.expected,
        made_at=made_at or snapshot.captured_at,
        baseline=snapshot,
        exit_code=code,
    )
    return with_advice(plan, context, way)


def with_advice(plan: Plan, context: Context, way: Way) -> Plan:
    """Return `plan` with its first action, and not ready where that is not admitted."""
    advice, withheld = first_action(plan, context)
    made = replace(plan, advice=advice, withheld=withheld)
    now = next((step for step in plan.steps if step.id == plan.next_step), None)
    first = withheld[0] if now and comes_before(now, advice, withheld) else None
    if plan.verdict is not Verdict.READY or (advice.recommended and first is None):
        return made
    answer = Tri.CANNOT_TELL if first or advice.verdict is Tri.YES else advice.verdict
    code = CODES[answer]
    steps = tuple(
        replace(step, exit_code=code, precondition_holds=answer)
        if step.id == plan.next_step
        else step
        for step in plan.steps
    )
    way = replace(way, reasons=((first or advice).reason, *way.reasons))
    return replace(
        made,
        steps=steps,
        verdict=_VERDICTS[code],
        exit_code=code,
        summary=summary(context, way, code, plan.findings),
    )


def _way(context: Context, cost: CostModel, back: bool) -> Way:
    """The way that this group can take."""
    group = context.group
    if group.type is GroupType.CONSUMER and (back or context.goal == CONSUMER):
        return _over_kip848(context, back)
    if group.type in (GroupType.CONSUMER, GroupType.STREAMS):
        return Way(path="already_incremental")
    steady = group.state is GroupState.STABLE and bool(context.members)
    if group.protocol_type == "connect" and steady and context.goal != CONSUMER:
        return connect(context, cost)
    if context.streams and context.stable and context.goal != CONSUMER:
        return streams(context, cost)
    if context.goal == CONSUMER and group.state is GroupState.EMPTY and _of_consumers(context):
        return _over_kip848(context, back)
    if not context.classic or not context.stable:
        return Way(path="none")
    if context.goal == CONSUMER:
        return _over_kip848(context, back)
    return _by_lists(context, cost)


def _over_kip848(context: Context, back: bool) -> Way:
    everybody = len(context.members)
    path, steps, answers = from_consumer(context) if back else to_consumer(context)
    kind = "classic" if back else "consumer"
    there = sum(facts.member.protocol_type == kind for facts in context.members)
    if not back and everybody and there == everybody:
        return Way(path="finished")
    reasons = tuple(answer.why for answer in _worst_first(answers))
    stop = path.endswith("_offline")
    if stop and everybody and not reasons:
        reasons = ("an interruption must be agreed: nothing is consumed in between",)
    begun = f"{there} of {everybody} done" if there else "not begun"
    return Way(
        path=path,
        title=f"{'back from' if back else 'to'} KIP-848, {'over a stop' if stop else 'online'}",
        progress=begun if everybody else "nobody is in the group",
        steps=steps,
        next_step=1,
        reasons=reasons,
    )


def _of_consumers(context: Context) -> bool:
    return context.group.protocol_type in (None, "", "consumer") and not context.streams


def _worst_first(answers: Sequence[Answer]) -> list[Answer]:
    return [a for tri in (Tri.NO, Tri.CANNOT_TELL) for a in answers if a.allows is tri]


def _by_lists(context: Context, cost: CostModel) -> Way:
    """Of a classic consumer group whose members choose by partition.assignment.strategy."""
    if len(context.settled) == len(context.members):
        return Way(path="finished", reads_lists=True)
    ahead = [facts for facts in context.members if facts not in context.settled]
    if context.goal == COOPERATIVE and any(stays_eager(f.family) for f in ahead):
        return Way(path="none")
    if context.undecided:
        return Way(path="none")
    begun = not context.lacking and context.holding
    if context.split:
        path, steps, number = "mixed_families", mixed_families(context, cost), next_step(context)
    elif needs_cut_over(context):
        path, steps, number = "cut_over", cut_over(context), 1
    elif context.one_bounce:
        path, steps, number = "one_bounce", one_bounce(context, cost), 1
    else:
        path, steps = "two_bounces", two_bounces(context, cost)
        number = 2 if begun else 1
    return Way(
        path=path,
        title=_TITLES[path],
        progress=progress(context, path),
        steps=steps,
        next_step=number,
        reads_lists=path != "cut_over",
    )


_TITLES: Final = {
    "two_bounces": "two bounces",
    "one_bounce": "one bounce",
    "cut_over": "full cut-over",
    "mixed_families": "two bounces, with a stop of some clients between",
}


def _findings(context: Context, way: Way, ignore: Mapping[str, str] | None) -> tuple[Finding, ...]:
    """Return the rules' findings that this way leaves open; without a step, none of a step's."""
    from_empty = way.next_step is not None and not context.members
    said = tuple(
        finding
        for finding in evaluate(context, ignore=ignore)
        if not rules()[finding.rule].dealt_with(way.path, context, finding)
        and not (from_empty and has(finding, Trait.MISSING_MEMBERS))
    )
    if way.path != "none":
        return said
    return tuple(f for f in said if f.severity is not Severity.ASK and f.before_step is None)


def _target(context: Context, way: Way) -> str:
    if context.goal == CONSUMER:
        return CONSUMER
    if way.path.startswith("streams"):
        return "stream"
    return "sessioned" if way.path == "connect" else context.target


def _assumptions(families: Mapping[str, str], ignore: Mapping[str, str]) -> tuple[str, ...]:
    everybody = "every member of no proven client"
    return (
        *(
            f"{everybody if key == '*' else f'client id {key}'} is {family}"
            for key, family in families.items()
        ),
        *(f"{rule} is ignored: {reason}" for rule, reason in ignore.items()),
    )
