"""What the rules say of the live group on its way: `live_findings`, and which of them decide.

A danger that came after the plan was made (a client that takes no mixed list, a configuration that
will be refused, a coordinator that has forgotten) is found by the rules that made the plan. Those
that a plan's own way is there for are left out, and those that the gate itself answers from more
than one look never make a danger of what is only "not yet".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebal.groups.model import Tri
from rebal.planner.aims import Aim
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Finding, Plan, Severity, Step
from rebal.planner.rules import Trait, evaluate, has, rules
from rebal.planner.verification.gates import aim_of


def live_findings(
    plan: Plan, context: Context, ignore: Mapping[str, str], step: Step | None
) -> tuple[Finding, ...]:
    """What the rules say to `step`, the next to restart members: blocks, and news since the plan.

    A block stands here as long as it gates `step` or an earlier one (None: no step is left); a
    warning or a question only where the plan had none of its rule. Who is missing or too many is
    always said.
    """
    before = {finding.rule for finding in plan.findings}
    found = []
    for finding in evaluate(context, ignore=ignore):
        if has(finding, Trait.HISTORY) or _answered(plan, context, finding):
            continue
        if finding.severity is Severity.BLOCK:
            speaks = _gates(plan, finding, step)
        else:
            passing = step is not None and has(finding, Trait.PASSING)
            speaks = plan.path != "none" and finding.rule not in before and not passing
        if speaks or has(finding, Trait.EVERY_LOOK):
            found.append(finding)
    return tuple(found)


def decides(finding: Finding, answer: Tri) -> bool:
    """Does this finding say `answer` (yes: a danger) to whoever would go on?"""
    if finding.ignored or finding.severity is not Severity.BLOCK:
        return False
    says = Tri.CANNOT_TELL if has(finding, Trait.PENDING) else finding.result
    return says is answer


def _gates(plan: Plan, finding: Finding, step: Step | None) -> bool:
    if step is None:
        # What kept a plan from having a step at all still does.
        unplanned = plan.path == "none" and finding.before_step is None
        return unplanned or has(finding, Trait.NEXT_START)
    # Which list a client takes matters to the mixed list; the target alone it has by the gate.
    if has(finding, Trait.CLIENT_UNKNOWN) and aim_of(plan, step) is Aim.NARROW:
        return False
    return finding.before_step is None or finding.before_step <= step.id


def _answered(plan: Plan, context: Context, finding: Finding) -> bool:
    if not rules()[finding.rule].dealt_with(plan.path, context, finding, verifying=True):
        return False
    stopped = [step for step in plan.steps if step.left_out]
    known = {facts.member.member_id: facts for facts in context.members}
    return not stopped or all(_is_stopped(stopped, known.get(id_)) for id_ in finding.members)


def _is_stopped(steps: Sequence[Step], facts: Facts | None) -> bool:
    """Is this a member of the clients that the plan stops?"""
    return facts is not None and any(facts.family in step.left_out for step in steps)
