"""What to do next, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rebal.groups.model import Tri
from rebal.planner.aims import Aim
from rebal.planner.context import Context
from rebal.planner.plan import Finding, Plan, Step, StepKind
from rebal.planner.verify_gates import aim_of
from rebal.planner.verify_members import Missing
from rebal.planner.verify_rules import decides
from rebal.planner.verify_steps import StepStanding

STOP: Final = "restart nothing more until this is dealt with (→)"


def what_next(
    plan: Plan,
    current: StepStanding | None,
    context: Context,
    *,
    missing: Sequence[Missing],
    findings: Sequence[Finding],
    danger: bool,
) -> str:
    """The one thing to do from here; `current` is the step that the group is in."""
    if danger:
        return STOP
    if current is not None and current.gate is Tri.YES:
        return _onward(plan, current, findings)
    if current is None or not plan.steps:
        return f"make a new plan: rebal plan-upgrade {plan.group_id}"
    if context.missing:
        who = ", ".join(one.name for one in missing[:6]) if len(missing) <= context.missing else ""
        return f"wait for {who or 'the missing members'}, or bring them back with this step's list"
    if not context.stable and context.members:
        return "wait until the group is Stable"
    if current.to_do:
        step = next(each for each in plan.steps if each.id == current.id)
        return _restart(step, current, context)
    if current.by_hand and len(current.by_hand) == len(current.unknown):
        look = f'look at each of them, then: rebal verify PLAN --confirm {current.id} --reason "…"'
        step = next(each for each in plan.steps if each.id == current.id)
        logs = "give --request-log across a rebalance, or --client-log of their start; else "
        return look if aim_of(plan, step) is Aim.BY_HAND else logs + look
    if current.unknown:
        return "give the evidence that is missing (--request-log or --client-log of its start)"
    return current.why[0] if current.why else "start the members"


def _onward(plan: Plan, current: StepStanding, findings: Sequence[Finding]) -> str:
    unsure = [finding for finding in findings if decides(finding, Tri.CANNOT_TELL)]
    if unsure:
        return f"first {unsure[0].rule}: {unsure[0].fix or unsure[0].message}"
    later = [step for step in plan.steps if step.id > current.id]
    if not later:
        return "nothing: the plan is carried out"
    return f"begin step {later[0].id}: {later[0].title}"


def _restart(step: Step, current: StepStanding, context: Context) -> str:
    labels = {facts.member.member_id: facts.name for facts in context.members}
    brings = f"with [{', '.join(step.target_list)}]" if step.target_list else "as the step says"
    if step.kind is StepKind.CUT_OVER:
        who = ", ".join(labels[member_id] for member_id in current.to_do[:6])
        more = f" and {len(current.to_do) - 6} more" if len(current.to_do) > 6 else ""
        return f"stop {who}{more} together, then start them {brings}"
    return f"restart {labels[current.to_do[0]]} {brings}; one member at a time"
