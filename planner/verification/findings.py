"""What the rules say of the live group on its way: `live_findings`, and which of them decide.

A danger that came after the plan was made (a client that takes no mixed list, a configuration that
will be refused, a coordinator that has forgotten) is found by the rules that made the plan. Those
that a plan's own way is there for are left out, and those that the gate itself answers from more
than one look never make a danger of what is only "not yet".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rebal.groups.model import Tri
from rebal.planner.aims import Aim
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Finding, Plan, Severity, Step
from rebal.planner.rules import evaluate
from rebal.planner.rules.next_start import will_not_start
from rebal.planner.verification.gates import aim_of

# What a way is there for: its plan leaves these out, or says how they are dealt with.
_ANSWERED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "mixed_families": ("RB104",),
        "cut_over": ("RB104",),
        "kip848_offline": ("RB401", "RB402", "RB403"),
        "kip848_back_offline": ("RB401",),
        "streams_one_bounce": ("RB501", "RB502"),
        "streams_two_bounces": ("RB501", "RB502"),
        "streams_down": ("RB501", "RB502"),
        "connect": ("RB905",),
        "connect_down": ("RB905",),
    }
)
# Refusals and states have a history, which the dangers and the gate know and one look does not.
_OF_ONE_LOOK: Final = ("RB904", "RB905")
# What every way of this kind passes through is no news: mixed lists, files that are ahead.
_ON_THE_WAY: Final = ("RB106", "RB107", "RB109", "RB110", "RB116", "RB903")
# Who is missing, unknown or at odds keeps the gate from holding; that alone stops nobody.
NOT_YET: Final = ("RB606", "RB901", "RB902")
# What the next start of a member would meet counts for ever, a crash being enough.
_NEXT_START: Final = ("RB101", "RB103", "RB104", "RB108", "RB405")
# How many are here is asked at every look.
_ALWAYS: Final = ("RB606", "RB607")


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
        if finding.rule in _OF_ONE_LOOK or _answered(plan, context, finding):
            continue
        if finding.severity is Severity.BLOCK:
            speaks = _gates(plan, finding, step)
        else:
            expected = before if step is None else {*before, *_ON_THE_WAY}
            speaks = plan.path != "none" and finding.rule not in expected
        if speaks or finding.rule in _ALWAYS:
            found.append(finding)
    return tuple(found)


def decides(finding: Finding, answer: Tri) -> bool:
    """Does this finding say `answer` (yes: a danger) to whoever would go on?"""
    if finding.ignored or finding.severity is not Severity.BLOCK:
        return False
    says = Tri.CANNOT_TELL if finding.rule in NOT_YET else finding.result
    return says is answer


def _gates(plan: Plan, finding: Finding, step: Step | None) -> bool:
    if step is None:
        # What kept a plan from having a step at all still does.
        unplanned = plan.path == "none" and finding.before_step is None
        return unplanned or finding.rule in _NEXT_START
    # Which list a client takes matters to the mixed list; the target alone it has by the gate.
    if finding.rule == "RB906" and aim_of(plan, step) is Aim.NARROW:
        return False
    return finding.before_step is None or finding.before_step <= step.id


def _answered(plan: Plan, context: Context, finding: Finding) -> bool:
    if finding.rule not in _ANSWERED.get(plan.path, ()):
        return False
    if finding.rule != "RB104":
        return True
    stopped = [step for step in plan.steps if step.left_out]
    known = {facts.member.member_id: facts for facts in context.members}
    return not will_not_start(context, finding) and (
        not stopped or all(_is_stopped(stopped, known.get(id_)) for id_ in finding.members)
    )


def _is_stopped(steps: Sequence[Step], facts: Facts | None) -> bool:
    """Is this a member of the clients that the plan stops?"""
    return facts is not None and any(facts.family in step.left_out for step in steps)
