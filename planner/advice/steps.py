"""Advice on a new plan (`first_action`) or a step (`step_action`), and any action needed before it.

Every join is checked for admission first. If the coordinator would not admit a restart of the step,
the advice is a remedy: give a member the assignor list that the others need, make the coordinator
hold every whole list again, add the evidence that decides, or make a new plan. The functions
`*_fix` return such advice as a sentence, for the fixes of findings.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import worker_list
from rebal.groups.model import GroupState, Knowledge, Tri
from rebal.groups.streams import process_names, threads_of
from rebal.planner.admission.check import Admission, Needs, admitted, restart
from rebal.planner.admission.memory import INCONSISTENT, memory_of
from rebal.planner.advice import wording as text
from rebal.planner.advice.actions import (
    LISTED,
    TRIED,
    acceptable,
    as_it_runs,
    ask_for,
    client_accepts,
    cut_over_of,
    evidence,
    first_admitted,
    nothing,
    open_question,
    rebalance_of,
    replan,
    restart_of,
    start_of,
    stop,
    stop_and_start,
    stop_for,
    wait,
    with_statement,
    worded,
)
from rebal.planner.commands import AGREED
from rebal.planner.context import CONSUMER, Context, Facts, hindered
from rebal.planner.facts import listed
from rebal.planner.kip848 import allows, clients, online
from rebal.planner.plan import Action, Advice, Aim, Plan, Risk, Step, StepKind, Verdict, stop_risk
from rebal.planner.settings import WITHOUT, consumer_change
from rebal.planner.verdict import BLOCKED, gating, worst

# Up to so many static members are restarted one by one, with no rebalance, to cure a reload.
_FEW: Final = 2
Actions = tuple[Advice, tuple[Advice, ...]]


def wide_list(plan: Plan, context: Context) -> tuple[str, ...]:
    """Return a list of the target and the elected assignor, so that a join with it is admitted now.

    A plan to KIP-848 has no target assignor, so the list is the elected one alone. For Connect
    workers it has all protocols that the target value of connect.protocol offers.
    """
    step = next((each for each in plan.steps if each.aim is Aim.WIDEN), None)
    target = () if context.target == CONSUMER else worker_list(context.target) or (context.target,)
    names = step.target_list if step is not None else target
    return tuple(dict.fromkeys(filter(None, [*names, context.elected])))


def first_action(plan: Plan, context: Context) -> Actions:
    """Return the advice on a new plan's first action, and on the restarts not admitted yet.

    If the next step cannot start, the first action is to remove the reason, such as a finding.
    """
    step = plan.step(plan.next_step)
    if step is None and plan.verdict is Verdict.DONE:
        return nothing("nothing is left to do"), ()
    if step is None or (step.exit_code and not context.members):
        return _hindered(plan, step, context), ()
    if not context.members:
        return with_setting(start_of(context, ["the members"], [step.target_list]), step), ()
    if context.group.state is not GroupState.STABLE:
        return wait(f"the group is {context.group.state}, not Stable"), ()
    left = [context.by_id[each] for each in (*step.to_do, *step.unknown) if each in context.by_id]
    made, withheld = step_action(plan, step, context, left, ignore=plan.accepted.ignore)
    own = made.assignors == step.target_list or step.aim is Aim.REFRESH
    if step.exit_code and made.recommended and own:
        first = _hindered(plan, step, context)
        if first.evidence_needed and step.unknown:
            # Nobody may need it, and who cannot give the evidence has another way.
            first = worded(replace(first, also=(f"or {made.text}, which is admitted",)))
        return first, withheld
    return made, withheld


def _hindered(plan: Plan, step: Step | None, context: Context) -> Advice:
    """Return the advice to resolve what keeps `step` from starting (None: no step can be named).

    That is a blocking or open finding, the step's precondition, or missing evidence.
    """
    blocks = gating(plan.findings, step.id if step is not None else None)
    said = [each for each in blocks if each.result is Tri.YES]
    if said:
        return stop_for(said[0])
    if blocks:
        return open_question(blocks[0])
    if step is not None and step.exit_code == BLOCKED:
        return stop(step.precondition)
    unseen = [f.name for f in context.members if step and f.member.member_id in step.unknown]
    if step is not None and unseen:
        return ask_for(context, Needs.LISTS, f"nothing shows the {step.brings} of {listed(unseen)}")
    if step is None:
        # No look changes a goal that is none of this group.
        return replace(nothing(plan.summary), verdict=Tri.CANNOT_TELL)
    return wait(plan.summary)


def step_action(
    plan: Plan,
    step: Step,
    context: Context,
    to_do: Sequence[Facts],
    *,
    ignore: Mapping[str, str],
) -> Actions:
    """Return the first action of `step` for the members `to_do`, and the restarts not admitted yet.

    Each advice carries the step's number.
    """
    made, withheld = _of_aim(plan, step, context, to_do, ignore=ignore)
    if step.aim is Aim.CLASSIC and made.assignors == step.target_list:
        families = {facts.family for facts in to_do if facts.member.member_id in made.members}
        left = "kgo.ServerSideBalancer()" if families == {"franz-go"} else "group.remote.assignor"
        made = worded(replace(made, change=f"group.protocol=classic{WITHOUT}{left}"))
    command = context.given.verify() if context.given.plan is not None else step.gate.command
    made = replace(_of_process(context, made), command=made.command or command, step=step.id)
    return made, tuple(replace(one, step=step.id) for one in withheld)


def _of_aim(
    plan: Plan,
    step: Step,
    context: Context,
    to_do: Sequence[Facts],
    *,
    ignore: Mapping[str, str],
) -> Actions:
    aim = step.aim
    moved = to_do and all(facts.member.protocol_type == CONSUMER for facts in to_do)
    if aim is Aim.CONSUMER and (moved or (to_do and step.kind is not StepKind.CUT_OVER)):
        return _converted(context, to_do, step), ()
    risk = stop_risk(plan.path)
    if risk is not None and risk not in ignore:
        return replace(
            stop(step.precondition, until=f"the interruption is agreed ({risk})"),
            command=context.accepting(risk, AGREED).line,
        ), ()
    if step.kind is StepKind.CUT_OVER:
        if not to_do:
            return replan(context, "no member is left to stop"), ()
        made, withheld = cutting_over(context, to_do, step.target_list, wide_list(plan, context))
        return _accepted(with_setting(made, step), withheld, ignore)
    if aim is Aim.REFRESH:
        return cure_of(context), ()
    if not to_do:
        return nothing("no member is left to restart in this step"), ()
    if aim in (Aim.WIDEN, Aim.NARROW, Aim.CLASSIC, Aim.CLIENT) and step.target_list:
        made, withheld = restart_with_list(
            context, to_do, step.target_list, wide_list(plan, context)
        )
        return _accepted(with_setting(made, step), withheld, ignore)
    answer, why = hindered(context, step, first=step is plan.steps[0])
    if answer is not Tri.NO:
        return replan(context, why) if answer is Tri.YES else ask_for(context, Needs.LISTS, why), ()
    return with_setting(restart_of(context, to_do[0]), step), ()


def _of_process(context: Context, made: Advice) -> Advice:
    """Return the advice to restart one thread of a process as a restart of all its threads.

    Every thread of a process has the same configuration, so admission of one holds for all. Other
    advice is returned unchanged.
    """
    own = made.members[0] if made.action is Action.RESTART else ""
    if (process := process_names(context.snapshot).get(own)) is None:
        return made
    threads = tuple(one.member_id for one in threads_of(context.snapshot)[own])
    return worded(replace(made, members=threads, names=(process,)))


def with_setting(made: Advice, step: Step) -> Advice:
    """Return the advice `made`, naming also what `step` changes other than an assignor list.

    That is the new client library, or the setting of a step that gives no list. `made` is returned
    unchanged if it starts no member, or starts it without such a change.
    """
    if made.action not in (Action.RESTART, Action.CUT_OVER, Action.START) or not step.config:
        return made
    if step.aim is Aim.CLIENT and made.assignors == step.target_list:
        return worded(replace(made, change=f"{step.config[0].family} in place of the old library"))
    if step.target_list:
        return made
    return worded(replace(made, change=f"the {step.brings} of step {step.id}"))


def _accepted(made: Advice, withheld: tuple[Advice, ...], ignore: Mapping[str, str]) -> Actions:
    """Return the action to advise and the restarts still withheld, after what the user accepts.

    `made` is the action so far; `withheld` are restarts whose joins are not proven to be admitted.
    If `made` starts no member, the first of `withheld` for which a rule in `ignore` accepts the
    missing proof replaces it. A restart whose join is proven to be rejected is never accepted.
    """
    chosen = next((one for one in withheld if acceptable(one, ignore)), None)
    if made.recommended or chosen is None:
        return made, withheld
    taken = replace(chosen, verdict=Tri.YES, reason=f"accepted by you: {chosen.reason}")
    return worded(taken), tuple(one for one in withheld if one is not chosen)


def _converted(context: Context, to_do: Sequence[Facts], step: Step) -> Advice:
    """Return the advice to restart a member with group.protocol=consumer (online conversion).

    If a condition of the conversion fails, the advice is to restart nothing. If one is not known,
    it asks for evidence or has the verdict `cannot tell`.
    """
    answers = online(context)
    verdict = allows(answers)
    against = next((a for a in answers if a.allows is verdict is not Tri.YES), None)
    if verdict is Tri.NO and against is not None:
        return stop(against.why)
    by_client = against in list(clients(context))
    if (
        verdict is Tri.CANNOT_TELL
        and against is not None
        and (by_client or not context.snapshot.cluster.settings)
    ):
        return ask_for(context, Needs.LISTS if by_client else Needs.BROKER, against.why)
    return worded(
        Advice(
            action=Action.RESTART,
            members=(to_do[0].member.member_id,),
            names=(to_do[0].name,),
            verdict=verdict,
            reason=against.why if against is not None else "the coordinator converts the group",
            change=consumer_change(to_do[0].family, step.config),
        )
    )


def comes_before(step: Step, made: Advice, withheld: Sequence[Advice]) -> bool:
    """Return whether the action `made` must be done before the restarts of `step` itself.

    That is so if `made` gives another list than the step's `target_list`, and `withheld`, the
    restarts that are not admitted yet, has one with that list.
    """
    return made.assignors != step.target_list and any(
        one.assignors == step.target_list for one in withheld
    )


def cutting_over(
    context: Context,
    stopped: Sequence[Facts],
    assignors: tuple[str, ...],
    wide: tuple[str, ...],
) -> Actions:
    """Return the action to advise for a cut-over, and the cut-over itself if it must wait.

    The cut-over is to stop all of `stopped`, then to start them with the list `assignors`. If that
    start is admitted, the cut-over is the action. If not, the action is what must be done before it
    (as in `restart_with_list`), and the second item holds the cut-over.
    """
    made = cut_over_of(context, stopped, assignors)
    if made.verdict is Tri.YES:
        return made, ()
    whole = admitted(memory_of(context, rejoined=True), stop_and_start(context, stopped, assignors))
    others = [facts for facts in context.members if facts not in stopped]
    if context.reloaded is Tri.CANNOT_TELL and not context.can_probe and whole.verdict is Tri.YES:
        # A probe answers no while the stopped members are in the group: it shows no cure.
        return ask_for(context, Needs.LOAD, made.reason), (made,)
    remedy = _remedy(context, others, assignors, wide=wide, barred=made, by_lists=[whole])
    return remedy, (made,)


def cure_of(context: Context) -> Advice:
    """Return the cheapest action that makes the coordinator hold every whole list again (RB113).

    A coordinator load shortens each assignor list to the elected assignor. In a rebalance every
    running member joins with its whole list. A dynamic member's restart starts a rebalance. A
    static member's restart does not: it sends that member's list only. The action is therefore a
    dynamic member's restart. If all members are static, it is a temporary member that joins and
    leaves (two rebalances, whatever the size of the group), or each suspect member's restart if
    there are no more than two.

    If the coordinator still holds a shortened list after a rebalance, the list is of a static
    member that was down during it, and only that member's restart helps. A member that was
    restarted since the plan was made is not restarted again for this: the missing evidence is then
    the time of the load, or the time zone of the logs. The exception is a group of dynamic members
    whose probe shows that a load came after the restarts.
    """
    dynamic = [facts for facts in context.members if not facts.static]
    static = [facts for facts in context.members if facts.static]
    rested = not any(facts.member.member_id in context.restarted for facts in dynamic)
    # A probe denies an assignor that every member sent: a load came later.
    shortened = context.all_exact and any(
        all(name in facts.member.assignors.list for facts in context.members)
        for name in context.memory.not_in_all
    )
    open_ = rested or (not static and shortened)
    if dynamic and (context.reloaded is Tri.YES or (context.reloaded is not Tri.NO and open_)):
        return rebalance_of(context, dynamic)
    # The coordinator may still hold their list as a load left it.
    open_ids = {e.member_id for case in context.memory.cases for e in case if len(e.lists) > 1}
    suspects = [facts for facts in static if facts.member.member_id in open_ids]
    if suspects and (context.reloaded is Tri.NO or len(suspects) <= _FEW):
        left = [f for f in suspects if f.member.member_id not in context.restarted]
        if left:
            return first_admitted(as_it_runs(context, facts) for facts in left[:TRIED])
        return ask_for(
            context,
            Needs.LOAD,
            f"{context.named(suspects)} joined again, and whether a load came later is not known",
        )
    if not static:
        return _or_not_loaded(
            context,
            ask_for(context, Needs.CONFLICT, "the coordinator's lists and the logs are at odds"),
        )
    # Logs show each member's list, and their zone alone would show when it was sent.
    joined = any(facts.member.joined_at is not None for facts in context.members)
    undated = context.snapshot.undated_logs and context.all_exact and not joined
    if context.reloaded is Tri.CANNOT_TELL and undated:
        return ask_for(
            context,
            Needs.CLOCK,
            "the logs show every list, and not whether it was sent after the load",
        )
    return rebalance_of(context, ())


def restart_with_list(
    context: Context,
    to_do: Sequence[Facts],
    assignors: tuple[str, ...],
    wide: tuple[str, ...],
) -> Actions:
    """Return the advice to restart one of `to_do` (not empty), and the restarts not admitted yet.

    The restart is with the list `assignors`. A member whose client is known not to start with it is
    skipped. If no restart is admitted, the advice is what must be done first: to give the list
    `wide` to a member that lacks all of `assignors`, to make the coordinator hold every member's
    whole list again, to add evidence, or to make a new plan.
    """
    able = [f for f in to_do if client_accepts(context, f, assignors) is not Tri.NO]
    if not able:
        return _no_wide_list(context, to_do, assignors), ()
    tried = [restart_of(context, facts, assignors) for facts in able[:TRIED]]
    good = next((one for one in tried if one.verdict is Tri.YES), None)
    withheld = tuple(one for one in tried if one.verdict is not Tri.YES)[:LISTED]
    if good is not None:
        return good, withheld
    # Where some find the group full or their session out of bounds, the others may be admitted.
    by_list = [one for one in tried if one.error in (None, INCONSISTENT)] or tried
    barred = next((one for one in by_list if one.verdict is Tri.NO), by_list[0])
    sent = memory_of(context, rejoined=True)
    by_lists = [
        admitted(sent, restart(sent, facts.member.member_id, assignors)) for facts in able[:TRIED]
    ]
    made = _remedy(context, context.members, assignors, wide=wide, barred=barred, by_lists=by_lists)
    return made, withheld


def _remedy(
    context: Context,
    others: Sequence[Facts],
    assignors: tuple[str, ...],
    *,
    wide: tuple[str, ...],
    barred: Advice,
    by_lists: Sequence[Admission],
) -> Advice:
    """Return the action to take before `barred`, a start of members that would be rejected now.

    It is to restart one of `others` that has none of `assignors` with the longer list `wide`. If
    there is none, and the start would be admitted after a rebalance: to probe or to cause the
    rebalance. Else to add evidence or to make a new plan. `by_lists` are the coordinator's
    predicted answers to the start (one for each member tried) once it holds every member's whole
    list, as after a rebalance. The group is Stable.
    """
    lacking = [f for f in others if {context.supports(f, name) for name in assignors} <= {Tri.NO}]
    able = [f for f in lacking if client_accepts(context, f, wide) is Tri.YES]
    if able and wide:
        back = first_admitted(restart_of(context, f, wide) for f in able[:TRIED])
        if back.verdict is Tri.YES:
            return back
    elif lacking and wide:
        return _no_wide_list(context, lacking, wide)
    if barred.error not in (None, INCONSISTENT):
        return stop(barred.reason)
    if "broker settings" in barred.evidence_needed:
        return ask_for(context, Needs.BROKER, barred.reason)
    asked = any(n in {*context.memory.in_all, *context.memory.not_in_all} for n in assignors)
    if any(one.verdict is Tri.YES for one in by_lists):
        if context.reloaded is not Tri.YES and not asked and context.can_probe:
            return _or_not_loaded(context, ask_for(context, Needs.PROBE, barred.reason))
        return cure_of(context)
    if barred.verdict is Tri.NO:
        return replan(context, barred.reason)
    known = any(f.member.assignors.knowledge is Knowledge.EXACT for f in context.members)
    # Where no list is known, a rebalance, which shows every list, is the next evidence.
    if asked and context.reloaded is not Tri.NO and not known:
        return cure_of(context)
    return evidence(context, barred.evidence_needed, barred.reason)


def _or_not_loaded(context: Context, made: Advice) -> Advice:
    """Return `made`, with an option by which the operator states that no coordinator load happened.

    The statement is on the time since the newest join that the logs show. It is added only if the
    join time of every member is known and a member was restarted.
    """
    joined = [f.member.joined_at for f in context.members if f.member.joined_at is not None]
    if len(joined) < len(context.members) or not context.restarted:
        return made
    return with_statement(
        context,
        made,
        Risk.FORGOTTEN_LISTS,
        f"no broker has stopped or moved since {max(joined):%H:%M:%SZ}, nor will until the plan is "
        "carried out",
    )


def _no_wide_list(context: Context, lacking: Sequence[Facts], wide: Sequence[str]) -> Advice:
    """Return the advice for members whose clients are not known to start with the list `wide`.

    If every client is known to reject the list, it is to make a new plan, else to add evidence of
    the clients.
    """
    open_ = [f for f in lacking if client_accepts(context, f, wide) is Tri.CANNOT_TELL]
    if not open_:
        return replan(
            context, f"{context.named(lacking)} cannot start with [{', '.join(wide)}] (RB104)"
        )
    return ask_for(
        context,
        Needs.LISTS,
        f"the client of {context.named(open_)} is not known, and not every client starts with "
        f"[{', '.join(wide)}] (RB906)",
    )


def restart_fix(
    context: Context,
    members: Sequence[Facts],
    assignors: tuple[str, ...] = (),
    *,
    change: str = "",
    then: str = "",
) -> str:
    """Return the fix that tells the user to restart `members` with the list `assignors`.

    An empty `assignors` keeps each member's configuration. `change` is a sentence to put before the
    instruction, `then` a text that ends it. If a restart is not admitted, or a client is not known
    to start with the list, the fix says instead not to restart that member, and why.
    """
    refusing = [f for f in members if client_accepts(context, f, assignors) is not Tri.YES]
    if refusing:
        return (
            f"Do not restart {context.named(refusing)} with [{', '.join(assignors)}] yet: not "
            "every client starts with a list of eager and cooperative assignors, and this one is "
            "not known to (RB104, RB906)."
        )
    found = [restart_of(context, facts, assignors) for facts in members[:TRIED]]
    answer = worst(one.verdict for one in found)
    if answer is not Tri.YES:
        return text.sentence(next(one for one in found if one.verdict is answer))
    each = ", one at a time" if len(found) > 1 else ""
    return text.restart_these(context.named(members), assignors, before=change, after=each + then)


def cut_over_fix(
    context: Context, members: Sequence[Facts], assignors: tuple[str, ...] = (), *, change: str = ""
) -> str:
    """Return the fix that tells the user to stop `members` together and then start them.

    If that start is not admitted, the fix says not to do it, and why. `change` is a setting to
    start them with.
    """
    return text.sentence(replace(cut_over_of(context, members, assignors), change=change, text=""))


def cure_fix(context: Context) -> str:
    """Return the fix that makes the coordinator hold every member's whole list again (RB113)."""
    return text.sentence(cure_of(context))


def start_fix(context: Context, names: Sequence[str]) -> str:
    """Return the fix that tells the user to start the clients `names` with the elected assignor.

    They are not in the group. If no assignor is elected, the fix says to wait.
    """
    elected = context.memory.elected
    if elected is None:
        return text.sentence(wait("nothing is elected: look again when the group is Stable"))
    return text.sentence(start_of(context, names, [(elected,)]))
