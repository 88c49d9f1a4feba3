"""The next action of a plan on the live group: `next_action`, `step_action`; data, no text.

The order protects the members: first those that were rejected or left out, then missing ones, then
the current step, and the next step only when the gate of the current one holds. Each action is
checked against the coordinator's memory (planner/advice/actions.py) before it is recommended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import proven_family
from rebal.groups.model import GroupState, Knowledge, Refusal, Tri
from rebal.planner.admission.check import Needs
from rebal.planner.admission.rejected import may_be_back, rejected_again, starts_of, still_out
from rebal.planner.advice import actions as advised
from rebal.planner.advice import wording as texts
from rebal.planner.advice.steps import Actions, step_action, wide_list, with_setting
from rebal.planner.clients import is_mixed, refuses_mixed
from rebal.planner.context import Context
from rebal.planner.facts import listed
from rebal.planner.plan import Advice, Aim, Finding, Plan, Step, StepKind
from rebal.planner.rules import Trait, has, rules
from rebal.planner.verification.dangers import decides
from rebal.planner.verification.members import Missing, StepStanding, missing_text
from rebal.planner.verification.plan_context import context_of

_NO_LIST: Final = "no list is known that these clients start with and that leads on"


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
        return with_setting(replace(started, names=tuple(one.name for one in sure)), step)
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
