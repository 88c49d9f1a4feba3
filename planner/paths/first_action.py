"""The first action of a plan that was just made: `first_action`; data, no text."""

from msgspec.structs import replace

from rebal.groups.model import GroupState, Tri
from rebal.planner.admission.check import Needs
from rebal.planner.advice import actions as advised
from rebal.planner.advice.steps import Actions, step_action, with_setting
from rebal.planner.context import Context
from rebal.planner.facts import listed
from rebal.planner.plan import Advice, Aim, Plan, Step, Verdict
from rebal.planner.verdict import BLOCKED, gating


def first_action(plan: Plan, context: Context) -> Actions:
    """Return the first action of a plan that was just made, or the reason why its step cannot
    start.
    """
    step = plan.step(plan.next_step)
    if step is None:
        if plan.verdict is Verdict.DONE:
            return advised.nothing("nothing is left to do"), ()
        return _hindered(plan, None, context), ()
    if context.members and context.group.state is not GroupState.STABLE:
        return advised.wait(f"the group is {context.group.state}, not Stable"), ()
    if not context.members:
        if step.exit_code:
            return _hindered(plan, step, context), ()
        made = advised.start_of(context, ["the members"], [step.target_list])
        return with_setting(made, step), ()
    open_ = (*step.to_do, *step.unknown)
    left = [context.by_id[each] for each in open_ if each in context.by_id]
    made, withheld = step_action(plan, step, context, left, ignore=plan.accepted.ignore)
    own = made.assignors == step.target_list or step.aim is Aim.REFRESH
    if step.exit_code and made.recommended and own:
        first = _hindered(plan, step, context)
        if first.evidence_needed and step.unknown:
            # Nobody may need it, and who cannot give the evidence has another way.
            first = advised.worded(replace(first, also=(f"or {made.text}, which is admitted",)))
        return first, withheld
    return made, withheld


def _hindered(plan: Plan, step: Step | None, context: Context) -> Advice:
    """Return what the rules or the step's own precondition ask for first."""
    number = step.id if step is not None else None
    blocks = gating(plan.findings, number)
    said = [each for each in blocks if each.result is Tri.YES]
    if said:
        return advised.stop_for(said[0])
    if blocks:
        return advised.open_question(blocks[0])
    if step is not None and step.exit_code == BLOCKED:
        return advised.stop(step.precondition)
    unseen = [f.name for f in context.members if step and f.member.member_id in step.unknown]
    if step is not None and unseen:
        why = f"nothing shows the {step.brings} of {listed(unseen)}"
        return advised.show(context, Needs.LISTS, why)
    if step is None:
        # No look changes a goal that is none of this group.
        return replace(advised.nothing(plan.summary), verdict=Tri.CANNOT_TELL)
    return advised.wait(plan.summary)
