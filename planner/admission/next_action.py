"""The next action of a plan on the live group: `next_action`, `step_action`; data, no text.

The order protects the members: first those that were rejected or left out, then missing ones, then
the current step, and the next step only when the gate of the current one holds. Each action is
checked against the coordinator's memory (planner/admission/advice.py) before it is recommended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import proven_family
from rebal.groups.model import GroupState, Knowledge, Refusal, Tri
from rebal.planner.admission import advice as advised
from rebal.planner.admission import wording as texts
from rebal.planner.admission.check import Needs
from rebal.planner.admission.rejected import may_be_back, rejected_again, starts_of, still_out
from rebal.planner.clients import is_mixed, refuses_mixed
from rebal.planner.context import Context, Facts
from rebal.planner.facts import listed
from rebal.planner.kip848 import allows, clients, online
from rebal.planner.plan import Advice, Aim, Finding, Plan, Step, StepKind, Verdict
from rebal.planner.rules import Risk, Trait, has, rules
from rebal.planner.verdict import BLOCKED, gating
from rebal.planner.verification.dangers import decides
from rebal.planner.verification.gates import wide_list
from rebal.planner.verification.members import Missing, StepStanding, missing_text
from rebal.planner.verification.plan_context import context_of

Actions = tuple[Advice, tuple[Advice, ...]]

AGREED: Final = "the interruption is agreed"
"""The reason that a printed command gives for accepting a cut-over."""
_NO_LIST: Final = "no list is known that these clients start with and that leads on"


def first_action(plan: Plan, context: Context) -> Actions:
    """Return the first action of a plan that was just made, or the reason why its step cannot
    start.
    """
    step = plan.step(plan.next_step)
    if step is None:
        done = plan.verdict is Verdict.DONE
        if done:
            return advised.nothing("nothing is left to do"), ()
        return _hindered(plan, None, context), ()
    if context.members and context.group.state is not GroupState.STABLE:
        return advised.wait(f"the group is {context.group.state}, not Stable", step=step.id), ()
    if not context.members:
        if step.exit_code:
            return _hindered(plan, step, context), ()
        made = advised.start_of(context, ["the members"], [step.target_list], step=step.id)
        return _with_setting(made, step), ()
    by_id = {facts.member.member_id: facts for facts in context.members}
    left = [by_id[each] for each in (*step.to_do, *step.unknown) if each in by_id]
    made, withheld = step_action(plan, step, context, left, ignore=plan.accepted.ignore)
    own = made.assignors == step.target_list or step.aim is Aim.REFRESH
    if step.exit_code and made.recommended and own:
        return _hindered(plan, step, context), withheld
    return made, withheld


def comes_before(step: Step, made: Advice, withheld: Sequence[Advice]) -> bool:
    """Return whether the advice `made` only prepares `step`, because its own list is not admitted
    yet.
    """
    return made.assignors != step.target_list and any(
        one.assignors == step.target_list for one in withheld
    )


def _hindered(plan: Plan, step: Step | None, context: Context) -> Advice:
    """Return what the rules or the step's own precondition ask for first."""
    number = step.id if step is not None else None
    blocks = gating(plan.findings, number)
    said = [each for each in blocks if each.result is Tri.YES]
    if said:
        return advised.stop(said[0].message, by=said[0].rule, step=number)
    if blocks:
        return advised.open_question(blocks[0], step=number)
    if step is not None and step.exit_code == BLOCKED:
        return advised.stop(step.precondition, step=number)
    unseen = [f.name for f in context.members if step and f.member.member_id in step.unknown]
    if unseen:
        why = f"the list of {listed(unseen)} was not seen"
        return advised.show(context, Needs.LISTS, why, step=number)
    return advised.wait(plan.summary, step=number)


def step_action(
    plan: Plan,
    step: Step,
    context: Context,
    to_do: Sequence[Facts],
    *,
    ignore: Mapping[str, str],
) -> Actions:
    """Return the first action of `step` for the members `to_do`, and the restarts that are
    withheld.
    """
    made, withheld = _of_aim(plan, step, context, to_do, ignore=ignore)
    kept = context.given.plan is not None
    command = context.given.verify() if kept else step.gate.command
    return replace(made, command=made.command or command), withheld


def _of_aim(
    plan: Plan,
    step: Step,
    context: Context,
    to_do: Sequence[Facts],
    *,
    ignore: Mapping[str, str],
) -> Actions:
    aim = step.aim
    if plan.path == "cut_over" and not Risk.STOP.accepted_in(ignore):
        agreed = context.accepting(Risk.STOP.rule, AGREED)
        return replace(advised.stop(step.precondition, step=step.id), command=agreed.line), ()
    if step.kind is StepKind.CUT_OVER:
        if not to_do:
            return advised.replan(context, "no member is left to stop", step=step.id), ()
        made, withheld = advised.cutting_over(
            context, to_do, step.target_list, wide_list(plan, context), step=step.id
        )
        return _accepted(_with_setting(made, step), withheld, ignore)
    if aim is Aim.REFRESH:
        return advised.cure_of(context, step=step.id), ()
    if aim is Aim.CONSUMER:
        return _converted(context, to_do, step), ()
    if aim in (Aim.WIDEN, Aim.NARROW, Aim.CLASSIC) and step.target_list:
        made, withheld = advised.narrowing(
            context, to_do, step.target_list, wide_list(plan, context), step=step.id
        )
        return _accepted(made, withheld, ignore)
    if not to_do:
        return advised.nothing("no member is left to restart in this step", step=step.id), ()
    return _with_setting(advised.restart_of(context, to_do[0], step=step.id), step), ()


def _with_setting(made: Advice, step: Step) -> Advice:
    """Return the advice with what `step` brings, where that is no assignor list but a setting."""
    changed = (texts.RESTART, texts.CUT_OVER, texts.START)
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
    return advised.accepted(chosen), rest


def _converted(context: Context, to_do: Sequence[Facts], step: Step) -> Advice:
    """Return the restart with group.protocol=consumer, which the conversion's conditions admit."""
    if not to_do:
        return advised.nothing("no member is left to restart in this step", step=step.id)
    answers = online(context)
    verdict = allows(answers)
    against = next((a for a in answers if a.allows is verdict is not Tri.YES), None)
    if verdict is Tri.CANNOT_TELL and against in clients(context):
        return advised.show(context, Needs.LISTS, against.why, step=step.id)
    made = Advice(
        action=texts.RESTART,
        members=(to_do[0].member.member_id,),
        names=(to_do[0].name,),
        verdict=verdict,
        reason=against.why if against is not None else "the coordinator converts the group",
        change="group.protocol=consumer",
        step=step.id,
    )
    return advised.worded(made)


def next_action(
    plan: Plan,
    current: StepStanding | None,
    context: Context,
    *,
    missing: Sequence[Missing],
    findings: Sequence[Finding],
    rejected: Sequence[Refusal],
    stopped_by: Sequence[str],
    outdated: str | None,
    ignore: Mapping[str, str],
) -> Actions:
    """Return the one thing to do from here, and the restarts that are withheld.

    `rejected` are the clients that were rejected and have not rejoined. `stopped_by` are the
    dangers that forbid any restart. `outdated` is the reason why the plan no longer fits the group.
    """
    step = plan.step(current.id if current else None)
    steady = context.group.state is GroupState.STABLE or not context.members
    if rejected and steady:
        others = _also_out(context, rejected, missing)
        families = [*_families(plan, context, rejected, missing), *_as_planned(plan, others)]
        lists = _startable(context, _lists(plan, step, context), families, findings)
        return _bring_back(step, context, _ours_first(rejected, missing), others, lists), ()
    if stopped_by:
        return advised.stop(stopped_by[0], step=step.id if step else None), ()
    blocking = [f for f in findings if decides(f, Tri.YES) and not has(f, Trait.ADMISSION)]
    if blocking:
        return _blocked(context, blocking[0]), ()
    if current is None or not plan.steps or step is None:
        return _without_steps(context, current), ()
    if context.missing and current.gate is not Tri.YES:
        return _missing(plan, step, context, missing, findings), ()
    if context.members and context.group.state is not GroupState.STABLE:
        return advised.wait(f"the group is {context.group.state}, not Stable", step=step.id), ()
    return _in_step(
        plan, current, step, context, findings=findings, outdated=outdated, ignore=ignore
    )


def _blocked(context: Context, finding: Finding) -> Advice:
    """Return what a blocking finding asks for: a new plan where this path is shut."""
    stays = rules()[finding.rule].stays
    if has(finding, Trait.OTHER_PATH) and not (stays and stays(context, finding)):
        return advised.replan(context, finding.message)
    return advised.stop(finding.message, by=finding.rule)


def _in_step(
    plan: Plan,
    current: StepStanding,
    step: Step,
    context: Context,
    *,
    findings: Sequence[Finding],
    outdated: str | None,
    ignore: Mapping[str, str],
) -> Actions:
    by_id = {facts.member.member_id: facts for facts in context.members}
    later = plan.after(step)
    open_ = [f for f in findings if decides(f, Tri.CANNOT_TELL) and not has(f, Trait.ADMISSION)]
    if current.gate is Tri.YES:
        if open_:
            return advised.open_question(open_[0], step=step.id), ()
        if later is None:
            vouched = [by_id[each].name for each in current.vouched if each in by_id]
            return advised.finished(vouched, step=step.id), ()
        return _or_outdated(plan, context, _begin(plan, later, context, ignore), outdated)
    unasked = [f for f in open_ if not has(f, Trait.PENDING)]
    lists = [by_id[each].member.assignors for each in current.unknown if each in by_id]
    # A list that was seen is open only where a rule asks what its names stand for.
    seen = bool(lists) and all(one.knowledge is Knowledge.EXACT for one in lists)
    if (current.to_do or seen) and unasked:
        return advised.open_question(unasked[0], step=step.id), ()
    if current.to_do:
        to_do = [by_id[member_id] for member_id in current.to_do if member_id in by_id]
        actions = step_action(plan, step, context, to_do, ignore=ignore)
        return _or_outdated(plan, context, actions, outdated)
    if current.changed_since:
        again = [by_id[each] for each in current.changed_since if each in by_id]
        return _or_outdated(
            plan, context, step_action(plan, step, context, again, ignore=ignore), outdated
        )
    if current.by_hand and len(current.by_hand) == len(current.unknown):
        open_members = [by_id[each] for each in current.by_hand if each in by_id]
        names = current.by_hand_list
        made = advised.confirm(
            context, step.id, open_members, names, shown=step.aim is not Aim.BY_HAND
        )
        return made, ()
    if current.unknown:
        rest = [each for each in current.unknown if each not in current.by_hand]
        labels = [by_id[each].name for each in rest if each in by_id]
        why = f"the list of {listed(labels)} was not seen"
        needs = Needs.DECLARED if current.by_hand_list else Needs.LISTS
        return advised.show(context, needs, why, step=step.id), ()
    at_odds = any(one.member_id in (None, *by_id) for one in context.snapshot.contradictions)
    if later is not None and context.members and later.aim is Aim.NARROW and not at_odds:
        return _or_outdated(plan, context, _begin(plan, later, context, ignore), outdated)
    return advised.wait(current.why[0] if current.why else "no member is in the group"), ()


def _begin(plan: Plan, later: Step, context: Context, ignore: Mapping[str, str]) -> Actions:
    """Return the first restart of the step that comes next."""
    done = set(later.done) if later.aim not in (Aim.NARROW, Aim.CLASSIC) else set()
    left = [f for f in context.members if f.member.member_id not in done]
    if later.aim is Aim.NARROW:
        left = [f for f in context.members if f not in context.settled]
    order = {member_id: n for n, member_id in enumerate((*later.to_do, *later.unknown))}
    left.sort(key=lambda f: (order.get(f.member.member_id, len(order)), f.name))
    if later.left_out:
        left = [f for f in left if f.family not in later.left_out]
    if later.kind is StepKind.CUT_OVER and later.id > 1:
        aside = {family for each in plan.steps for family in each.left_out}
        left = [f for f in left if not aside or f.family in aside]
    made, withheld = step_action(plan, later, context, left, ignore=ignore)
    if made.recommended and made.assignors == later.target_list:
        made = replace(made, text=f"begin step {later.id}: {made.text}")
    return made, withheld


def _or_outdated(plan: Plan, context: Context, found: Actions, outdated: str | None) -> Actions:
    """Return the plan's action, or a new plan where the group no longer admits its list."""
    made, withheld = found
    planned = {step.target_list for step in plan.steps} | {()}
    if outdated is None or (made.recommended and made.assignors in planned):
        return found
    return advised.replan(context, outdated, step=made.step), withheld


def _without_steps(context: Context, current: StepStanding | None) -> Advice:
    if current is not None and current.gate is Tri.YES:
        return advised.nothing("the plan is carried out")
    why = current.why[0] if current is not None and current.why else "this one has no step left"
    return advised.replan(context, why, verdict=Tri.CANNOT_TELL)


def _startable(
    context: Context,
    lists: Sequence[tuple[str, ...]],
    families: Sequence[str | None],
    findings: Sequence[Finding],
) -> list[tuple[str, ...]]:
    """Return those of `lists` that clients of these families start with, the elected one last.

    An unknown client (None) takes no mixed list while a rule asks for the members' clients, and one
    that may refuse it ("") never.
    """
    asked = any(
        has(one, Trait.CLIENT_UNKNOWN) and decides(one, Tri.CANNOT_TELL) for one in findings
    )
    refuses = any(asked if key is None else not key or refuses_mixed(key) for key in families)
    kept = [names for names in lists if not (refuses and is_mixed(names))]
    return [*kept, (context.elected,)] if context.elected else kept


def _lists(plan: Plan, step: Step | None, context: Context) -> list[tuple[str, ...]]:
    """Return the lists that lead on: the step's own, then one that holds what is elected."""
    own = [step.target_list] if step is not None and step.target_list else []
    return [names for names in (*own, wide_list(plan, context)) if names]


def _families(
    plan: Plan, context: Context, rejected: Sequence[Refusal], missing: Sequence[Missing]
) -> list[str | None]:
    """Return each rejected client's family: its own word, else that of the member it was.

    Where more members are out, those of the same client id follow: the name is theirs, too.
    """
    named = {one.client_id for one in rejected if not one.instance_id}
    more = context.missing > len(rejected)
    namesakes = [one for one in missing if more and one.name.partition(" …")[0] in named]
    said = dict(plan.accepted.families)
    said |= {one.name: one.family for one in context.members if one.family and one.family_proven}
    said |= {one.name: one.family for one in missing if one.family}
    every = {one.family for one in missing}
    same = every.pop() if len(every) == 1 else said.get("*")
    own = (
        proven_family(one.software) or said.get(one.instance_id or one.client_id, same)
        for one in rejected
    )
    return [*own, *_as_planned(plan, namesakes)]


def _as_planned(plan: Plan, missing: Sequence[Missing]) -> list[str | None]:
    """Return each missing member's family; "" if its bytes, when the plan was made, left open
    whether its client accepts a mixed list.
    """
    unknown = [one for one in missing if one.family is None]
    then = context_of(plan, plan.baseline) if unknown and not plan.baseline.redacted else None
    open_ = {
        name
        for facts in (then.members if then is not None else ())
        if then is not None and then.may_take_mixed(facts) is not Tri.YES
        # Without the others of its client id it has a shorter name.
        for name in (facts.name, facts.member.client_id)
    }
    return ["" if one.family is None and one.name in open_ else one.family for one in missing]


def _also_out(
    context: Context, rejected: Sequence[Refusal], missing: Sequence[Missing]
) -> list[Missing]:
    """Return the missing members that are none of the rejected clients under another name.

    A static member keeps its instance id. Where the rejected clients may be back, none of them is
    a dynamic member that is still missing.
    """
    instances = {one.instance_id for one in rejected}
    back = all(may_be_back(context.snapshot, one) for one in rejected)
    return [
        one
        for one in missing
        if one.sure and (one.instance_id not in instances if one.instance_id else back)
    ]


def _ours_first(rejected: Sequence[Refusal], missing: Sequence[Missing]) -> list[Refusal]:
    """Return the rejected clients, missing members of the service first."""
    ours = {one.instance_id or one.name.partition(" …")[0] for one in missing}
    return sorted(rejected, key=lambda one: (one.instance_id or one.client_id) not in ours)


def _bring_back(
    step: Step | None,
    context: Context,
    rejected: Sequence[Refusal],
    others: Sequence[Missing],
    lists: Sequence[tuple[str, ...]],
) -> Advice:
    """Return the start of the clients that are out with the first list that is admitted now.

    Where the brokers allow fewer members, the first clients take the free places.
    """
    if not lists:
        return advised.wait(_NO_LIST, step=step.id if step is not None else None)
    names = [*starts_of(context.snapshot, rejected), *(one.name for one in others)]
    instances = [*(one.instance_id for one in rejected), *(one.instance_id for one in others)]

    def start(number: int) -> Advice:
        return advised.start_of(
            context,
            names[:number],
            lists,
            instances=instances[:number],
            step=step.id if step is not None else None,
        )

    together, limit = start(len(names)), context.memory.max_size
    if together.verdict is Tri.YES or limit is None or limit >= context.memory.size + len(names):
        return together
    fewer = range(1, len(names))
    fit = bisect_left(fewer, True, key=lambda number: start(number).verdict is not Tri.YES)
    if not fit:
        return together
    why = f"the brokers allow {limit} members, which leaves no place for {listed(names[fit:])}"
    made = start(fit)
    return replace(made, text=f"{made.text}; {why}")


def _may_hold_another(plan: Plan, context: Context) -> bool:
    """Return whether a list that a missing member may hold is not known to be admitted now.

    It may hold a list that the plan gives out, or be the client that was rejected.
    """
    given = {one.target_list for one in plan.steps if one.target_list}
    starts = [advised.start_of(context, ["it"], [names]).verdict for names in given]
    again = [rejected_again(context.memory, one).verdict for one in still_out(context.snapshot)]
    return any(verdict is not Tri.YES for verdict in (*starts, *again))


def _missing(
    plan: Plan,
    step: Step,
    context: Context,
    missing: Sequence[Missing],
    findings: Sequence[Finding],
) -> Advice:
    """Return the start of missing members; most of them are just restarting."""
    sure = [one for one in missing if one.sure][: context.missing]
    if not sure and not context.members and step.kind is StepKind.CUT_OVER:
        sure = [Missing(name="the members")]
    if not sure:
        return _counted(context, advised.wait(missing_text(context, ()), step=step.id))
    if not context.members and not step.target_list:
        # All start alike, so the first one decides, and no list of another is in its way.
        started = advised.start_of(context, ["the members"], [()], step=step.id)
        return _with_setting(replace(started, names=tuple(one.name for one in sure)), step)
    wide = step.aim in (Aim.WIDEN, Aim.NARROW)
    lists = _lists(plan, step, context)[: None if wide else -1]
    if not lists and _may_hold_another(plan, context):
        # A restart of another step may have left it with a list that is not admitted now.
        lists = [names for names in (wide_list(plan, context),) if names]
        if not lists:
            return _counted(context, advised.wait(_NO_LIST, step=step.id))
    lists = _startable(context, lists, _as_planned(plan, sure), findings) if lists else [()]
    if not lists:
        return _counted(context, advised.wait(_NO_LIST, step=step.id))
    made = advised.start_of(
        context,
        [one.name for one in sure],
        lists,
        instances=[one.instance_id for one in sure],
        step=step.id,
    )
    if made.verdict is not Tri.YES:
        return _counted(context, replace(made, action=texts.WAIT))
    here = {facts.member.client_id for facts in context.members if not facts.static}
    # Nobody can see which process of several with one client id is down, or that none is.
    alike = any(not one.instance_id and one.name.partition(" …")[0] in here for one in sure)
    return _counted(context, made) if alike else made


def _counted(context: Context, made: Advice) -> Advice:
    """Return the advice on missing members with the option that corrects their number."""
    if not context.members:
        return made
    count = f"if the service has no more members: --expect-members {len(context.members)}"
    return replace(made, text=f"{made.text}; {count}")
