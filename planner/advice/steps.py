"""Advice that carries out one step of a plan: `step_action`; each join is checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rebal.groups.model import Tri
from rebal.groups.streams import process_names, threads_of
from rebal.planner.admission.check import Needs
from rebal.planner.advice import actions as advised
from rebal.planner.advice import remedies
from rebal.planner.commands import AGREED
from rebal.planner.context import CONSUMER, Context, Facts
from rebal.planner.kinds import Action
from rebal.planner.kip848 import allows, clients, online
from rebal.planner.plan import Advice, Aim, Plan, Step, StepKind
from rebal.planner.risks import stop_risk
from rebal.planner.settings import classic_change, consumer_change

Actions = tuple[Advice, tuple[Advice, ...]]


def wide_list(plan: Plan, context: Context) -> tuple[str, ...]:
    """Return the list of the target and the elected assignor, which is admitted today.

    The target of a plan to KIP-848 is no assignor: its list is the elected one alone.
    """
    step = next((each for each in plan.steps if each.aim is Aim.WIDEN), None)
    target = () if context.target == CONSUMER else (context.target,)
    names = step.target_list if step is not None else target
    more = [context.elected] if context.elected is not None else []
    return tuple(dict.fromkeys([*names, *more]))


def step_action(
    plan: Plan,
    step: Step,
    context: Context,
    to_do: Sequence[Facts],
    *,
    ignore: Mapping[str, str],
) -> Actions:
    """Return the first action of `step` for the members `to_do`, and the restarts that are
    withheld; each with the step's number.
    """
    made, withheld = _of_aim(plan, step, context, to_do, ignore=ignore)
    if step.aim is Aim.CLASSIC and made.assignors == step.target_list:
        families = {facts.family for facts in to_do if facts.member.member_id in made.members}
        change = classic_change(families.pop() if len(families) == 1 else None)
        made = advised.worded(replace(made, change=change))
    kept = context.given.plan is not None
    command = context.given.verify() if kept else step.gate.command
    barred = tuple(replace(one, step=step.id) for one in withheld)
    return replace(made, command=made.command or command, step=step.id), barred


def _of_aim(
    plan: Plan,
    step: Step,
    context: Context,
    to_do: Sequence[Facts],
    *,
    ignore: Mapping[str, str],
) -> Actions:
    aim = step.aim
    risk = stop_risk(plan.path)
    if risk is not None and not risk.accepted_in(ignore):
        agreed = context.accepting(risk.rule, AGREED)
        return replace(advised.stop(step.precondition), command=agreed.line), ()
    if step.kind is StepKind.CUT_OVER:
        if not to_do:
            return advised.replan(context, "no member is left to stop"), ()
        made, withheld = remedies.cutting_over(
            context, to_do, step.target_list, wide_list(plan, context)
        )
        return _accepted(with_setting(made, step), withheld, ignore)
    if aim is Aim.REFRESH:
        return remedies.cure_of(context), ()
    if not to_do:
        return advised.nothing("no member is left to restart in this step"), ()
    if aim is Aim.CONSUMER:
        return _converted(context, to_do, step), ()
    if aim in (Aim.WIDEN, Aim.NARROW, Aim.CLASSIC) and step.target_list:
        made, withheld = remedies.narrowing(
            context, to_do, step.target_list, wide_list(plan, context)
        )
        return _accepted(made, withheld, ignore)
    made = advised.restart_of(context, to_do[0])
    own, members = to_do[0].member.member_id, context.snapshot.members
    if (named := process_names(members).get(own)) is not None:
        threads = tuple(one.member_id for one in threads_of(members)[own])
        made = advised.worded(replace(made, members=threads, names=(named,)))
    return with_setting(made, step), ()


def with_setting(made: Advice, step: Step) -> Advice:
    """Return the advice with what `step` brings, where that is no assignor list but a setting."""
    changed = (Action.RESTART, Action.CUT_OVER, Action.START)
    if step.target_list or not step.config or made.action not in changed:
        return made
    versions = (Aim.STREAMS_NEW, Aim.STREAMS_BRIDGE, Aim.STREAMS_OLD, Aim.STREAMS_LATEST)
    brings = "version and configuration" if step.aim in versions else "configuration"
    return advised.worded(replace(made, change=f"the {brings} of step {step.id}"))


def _accepted(made: Advice, withheld: tuple[Advice, ...], ignore: Mapping[str, str]) -> Actions:
    """Return the open answer that the user accepted by ignoring a rule; a no is never accepted."""
    chosen = next((one for one in withheld if advised.acceptable(one, ignore)), None)
    if made.recommended or chosen is None:
        return made, withheld
    rest = tuple(one for one in withheld if one is not chosen)
    reason = f"accepted by you: {chosen.reason}"
    return advised.worded(replace(chosen, verdict=Tri.YES, reason=reason)), rest


def _converted(context: Context, to_do: Sequence[Facts], step: Step) -> Advice:
    """Return the restart with group.protocol=consumer, which the conversion's conditions admit."""
    answers = online(context)
    verdict = allows(answers)
    against = next((a for a in answers if a.allows is verdict is not Tri.YES), None)
    if verdict is Tri.NO and against is not None:
        return advised.stop(against.why)
    if verdict is Tri.CANNOT_TELL and against is not None:
        needs = Needs.LISTS if against in clients(context) else None
        if not context.snapshot.cluster.settings:
            needs = needs or Needs.BROKER
        if needs is not None:
            return advised.show(context, needs, against.why)
    made = Advice(
        action=Action.RESTART,
        members=(to_do[0].member.member_id,),
        names=(to_do[0].name,),
        verdict=verdict,
        reason=against.why if against is not None else "the coordinator converts the group",
        change=consumer_change(to_do[0].family, step.config),
    )
    return advised.worded(made)


def comes_before(step: Step, made: Advice, withheld: Sequence[Advice]) -> bool:
    """Return whether the advice `made` only prepares `step`, because its own list is not admitted
    yet.
    """
    return made.assignors != step.target_list and any(
        one.assignors == step.target_list for one in withheld
    )
