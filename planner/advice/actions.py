"""Restart advice as data: no other module recommends a restart.

Every advice asks the admission check first (check.py): a restart is recommended only where the
coordinator is proven to admit it. An advice that is not proven names the evidence that would prove
it; one that is proven to be rejected gives the reason. wording.py makes the text from the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from rebal.groups.commands import option, options
from rebal.groups.model import GroupState, GroupType, Knowledge, Member, Tri
from rebal.planner.admission.check import (
    Admission,
    Event,
    Join,
    Leave,
    Needs,
    Settle,
    admitted,
    restart,
)
from rebal.planner.admission.memory import INCONSISTENT, memory_of
from rebal.planner.advice import wording as text
from rebal.planner.advice.suspects import left_behind, short, shortened, undated
from rebal.planner.advice.wording import (
    CONFIRM,
    CUT_OVER,
    EVIDENCE,
    NONE,
    REPLAN,
    RESTART,
    START,
    STOP,
    TEMPORARY,
    WAIT,
)
from rebal.planner.clients import is_mixed
from rebal.planner.context import Context, Facts, ids
from rebal.planner.plan import Advice, Finding, ValidWhile
from rebal.planner.risks import Risk

# How many members are tried for one that is admitted, and how many withheld restarts are listed.
TRIED: Final = 50
_LISTED: Final = 20
# Up to so many static members are restarted one by one, with no rebalance, to cure a reload.
_FEW: Final = 2
_EVIDENCE: Final = {
    Needs.PROBE: ("probe", "client log", "request log"),
    Needs.LISTS: ("client log", "request log"),
    Needs.DECLARED: ("client log", "inventory", "request log"),
    Needs.RELOAD: ("probe",),
    Needs.CLOCK: ("log timezone",),
    Needs.LOAD: ("offsets topic", "log timezone"),
    Needs.BROKER: ("broker settings", "probe"),
    Needs.STATE: (),
    Needs.CONFLICT: ("client log", "request log"),
}
# What the user accepts by ignoring a rule, where the admission cannot be told.
_ACCEPTS: Final = {
    Risk.UNKNOWN_LISTS: ("client log", "request log"),
    Risk.FORGOTTEN_LISTS: ("probe",),
}


def restart_of(
    context: Context, facts: Facts, assignors: tuple[str, ...] = (), *, step: int | None = None
) -> Advice:
    """Return the advice to restart one member with a list (empty: its list of today)."""
    names = assignors or _next_list(facts)
    answer = _asked(context, facts, names, killed=False)
    after = []
    dynamic = not facts.static
    if answer.verdict is Tri.YES and dynamic:
        killed = _asked(context, facts, names, killed=True)
        if killed.verdict is not Tri.YES:
            after.append(
                f"see that {facts.name} has left the group before it starts: beside its old entry "
                f"it is {'rejected' if killed.verdict is Tri.NO else 'not known to be admitted'}"
            )
    if answer.verdict is Tri.YES and not dynamic:
        after.append(f"never run two processes with the instance id {facts.member.instance_id}")
    return worded(
        Advice(
            action=RESTART,
            members=(facts.member.member_id,),
            names=(facts.name,),
            assignors=assignors,
            after=tuple(after),
            step=step,
            risks=(*_race(context, answer), *_risks(context, [facts])),
            **_judged(context, answer),
        )
    )


def start_of(
    context: Context,
    names: Sequence[str],
    lists: Iterable[tuple[str, ...]],
    *,
    instances: Sequence[str | None] = (),
    step: int | None = None,
) -> Advice:
    """Return the advice to start members that are not in the group, with the first of `lists` that
    is admitted.
    """
    found: list[Advice] = []
    # Whoever was a member before found room.
    memory = replace(context.memory, room=max(context.memory.room, len(names)))
    static = tuple(instances) or (None,) * len(names)
    for assignors in dict.fromkeys(lists):
        joins = [
            Join(
                assignors=assignors or None,
                name=name,
                instance_id=instance,
                protocol_type=context.group.protocol_type or "consumer",
            )
            for name, instance in zip(names, static, strict=True)
        ]
        answer = admitted(memory, joins)
        found.append(
            Advice(
                action=START,
                names=tuple(names),
                assignors=assignors,
                step=step,
                **_judged(context, answer),
            )
        )
        if answer.verdict is Tri.YES:
            break
    return worded(_first(found))


def cut_over_of(
    context: Context,
    stopped: Sequence[Facts],
    assignors: tuple[str, ...],
    *,
    step: int | None = None,
) -> Advice:
    """Return the advice to stop all of `stopped`, and only then to start them with the list."""
    answer = admitted(context.memory, _stop_and_start(context, stopped, assignors))
    static = [facts for facts in stopped if facts.static]
    everybody = len(stopped) == len(context.members)
    without = "Empty" if everybody else "Stable without the stopped members"
    after = [f"check that the group is {without}"]
    if static:
        after.append(
            f"{context.named(static)} "
            f"{'is' if len(static) == 1 else 'are'} static and counted until the session ends"
        )
    return worded(
        Advice(
            action=CUT_OVER,
            members=ids(stopped),
            names=tuple(facts.name for facts in stopped),
            assignors=assignors,
            after=tuple(after),
            step=step,
            **_judged(context, answer),
        )
    )


def _stop_and_start(
    context: Context, stopped: Sequence[Facts], assignors: tuple[str, ...]
) -> list[Event]:
    """Return the events of a cut-over: all leave, the others rebalance, all join."""
    leaves = [Leave(member_id=facts.member.member_id) for facts in stopped]
    joins = [
        Join(
            assignors=assignors or None,
            name=facts.name,
            instance_id=facts.member.instance_id,
            protocol_type=context.group.protocol_type or "consumer",
        )
        for facts in stopped
    ]
    return [*leaves, Settle(), *joins]


def cutting_over(
    context: Context,
    stopped: Sequence[Facts],
    assignors: tuple[str, ...],
    wide: tuple[str, ...],
    *,
    step: int | None = None,
) -> tuple[Advice, tuple[Advice, ...]]:
    """Return the advice to stop `stopped` together, and the restarts that are withheld.

    Where the start is not admitted, the advice prepares it, as in `narrowing`.
    """
    made = cut_over_of(context, stopped, assignors, step=step)
    if made.verdict is Tri.YES:
        return made, ()
    sent = memory_of(context, rejoined=True)
    whole = [admitted(sent, _stop_and_start(context, stopped, assignors))]
    others = [facts for facts in context.members if facts not in stopped]
    if (
        context.reloaded is Tri.CANNOT_TELL
        and not context.can_probe
        and whole[0].verdict is Tri.YES
    ):
        # A probe answers no while the stopped members are in the group: it shows no cure.
        return show(context, Needs.LOAD, made.reason, step=step), (made,)
    remedy = _remedy(context, others, assignors, wide=wide, first=made, by_lists=whole, step=step)
    return remedy, (made,)


def cure_of(context: Context, *, step: int | None = None) -> Advice:
    """Return the cheapest way to have the coordinator remember every list again (RB113).

    A rebalance makes every running member join with its whole list. A dynamic member's restart
    starts one; a static member's restart does not, and shows the coordinator its own list only. So:
    a dynamic member's restart; where all are static, a temporary member that joins and leaves (two
    rebalances, whatever the size), or each one's restart where there are no more than two. If the
    coordinator still holds a shortened list after a rebalance, that list is of a static member that
    was down during the rebalance, and only its own restart helps. What was restarted since the plan
    was made is not restarted for it again: then the time of the load, or of the logs, is missing. A
    dynamic member is, where the probe itself shows that a load came after the restarts.
    """
    dynamic = [facts for facts in context.members if not facts.static]
    static = [facts for facts in context.members if facts.static]
    rested = not any(facts.member.member_id in context.restarted for facts in dynamic)
    open_ = rested or (not static and shortened(context))
    if dynamic and (context.reloaded is Tri.YES or (context.reloaded is not Tri.NO and open_)):
        return rebalance_of(context, dynamic, step=step)
    suspects = short(context, static)
    down = left_behind(context, suspects)
    if suspects and (context.reloaded is Tri.NO or len(down or suspects) <= _FEW):
        suspects = down or suspects
        left = [f for f in suspects if f.member.member_id not in context.restarted]
        if left:
            return _first(_as_it_runs(context, facts, step) for facts in left[:TRIED])
        why = f"{context.named(suspects)} joined again, and whether a load came later is not known"
        return show(context, Needs.LOAD, why, step=step)
    if not static:
        return show(
            context, Needs.CONFLICT, "the coordinator's lists and the logs are at odds", step=step
        )
    if context.reloaded is Tri.CANNOT_TELL and undated(context):
        why = "the logs show every list, and not whether it was sent after the load"
        return show(context, Needs.CLOCK, why, step=step)
    return rebalance_of(context, (), step=step)


def rebalance_of(context: Context, dynamic: Sequence[Facts], *, step: int | None = None) -> Advice:
    """Return the advice that starts a rebalance and changes no list: the restart of one of
    `dynamic`, else a temporary member, as always in a KIP-848 group.
    """
    online = context.group.type is GroupType.CONSUMER
    if dynamic and not online:
        return _first(_as_it_runs(context, facts, step) for facts in dynamic[:TRIED])
    common = () if online else _common_list(context)
    join = Join(assignors=common or None, protocol_type="consumer")
    made = Advice(
        action=TEMPORARY,
        assignors=common,
        change="group.protocol=consumer" if online else "",
        after=text.TEMPORARY_AFTER,
        step=step,
        risks=tuple(_risks(context, ())),
        **_judged(context, admitted(context.memory, [join])),
    )
    return worded(made)


def _as_it_runs(context: Context, facts: Facts, step: int | None) -> Advice:
    """Return the advice on a restart that changes no list: by name where the file differs."""
    runs, declared = facts.member.assignors, _next_list(facts)
    exact = runs.knowledge is Knowledge.EXACT
    return restart_of(
        context, facts, runs.list if exact and declared != runs.list else (), step=step
    )


def _first(found: Iterable[Advice]) -> Advice:
    """Return the first that is admitted, else the first."""
    first = None
    for one in found:
        if one.verdict is Tri.YES:
            return one
        first = first or one
    assert first is not None
    return first


def narrowing(
    context: Context,
    to_do: Sequence[Facts],
    assignors: tuple[str, ...],
    wide: tuple[str, ...],
    *,
    step: int | None = None,
) -> tuple[Advice, tuple[Advice, ...]]:
    """Return the advice to restart one of `to_do` with the list, and the restarts that are
    withheld.

    A member whose client does not start with the list, as its evidence has it, is left as it is.
    Where none is admitted, the advice prepares it: give the `wide` list to the members that lack
    the assignor, make the coordinator remember every list again, or add the evidence that decides.
    """
    able = [f for f in to_do if starts_with(context, f, assignors) is not Tri.NO]
    if to_do and not able:
        return _no_wide_list(context, to_do, assignors, step), ()
    tried = [restart_of(context, facts, assignors, step=step) for facts in able[:TRIED]]
    good = next((one for one in tried if one.verdict is Tri.YES), None)
    withheld = tuple(one for one in tried if one.verdict is not Tri.YES)[:_LISTED]
    if good is not None:
        return good, withheld
    if not tried:
        return nothing("no member is left to restart in this step", step=step), ()
    first = next((one for one in tried if one.verdict is Tri.NO), tried[0])
    sent = memory_of(context, rejoined=True)
    by_lists = [
        admitted(sent, restart(sent, facts.member.member_id, assignors)) for facts in able[:TRIED]
    ]
    made = _remedy(
        context, context.members, assignors, wide=wide, first=first, by_lists=by_lists, step=step
    )
    return made, withheld


def _remedy(
    context: Context,
    others: Sequence[Facts],
    assignors: tuple[str, ...],
    *,
    wide: tuple[str, ...],
    first: Advice,
    by_lists: Sequence[Admission],
    step: int | None,
) -> Advice:
    """Return what must come before `first`, which is not admitted.

    `others` are those that may get the `wide` list, `by_lists` the answers once every member has
    joined again with its whole list.
    """
    if context.group.state is not GroupState.STABLE:
        return wait(first.reason, step=step)
    lacking = [f for f in others if _lacks_all(context, f, assignors)]
    able = [f for f in lacking if starts_with(context, f, wide) is Tri.YES]
    if able and wide:
        back = _first(restart_of(context, f, wide, step=step) for f in able[:TRIED])
        if back.verdict is Tri.YES:
            return back
    elif lacking and wide:
        return _no_wide_list(context, lacking, wide, step)
    if first.error not in (None, INCONSISTENT):
        return stop(first.reason, step=step)
    asked = any(n in {*context.memory.in_all, *context.memory.not_in_all} for n in assignors)
    if any(one.verdict is Tri.YES for one in by_lists):
        if context.reloaded is not Tri.YES and not asked and context.can_probe:
            return show(context, Needs.PROBE, first.reason, step=step)
        return cure_of(context, step=step)
    if first.verdict is Tri.NO:
        return replan(context, first.reason, step=step)
    if asked and context.reloaded is not Tri.NO and _knows_nothing_more(context):
        return cure_of(context, step=step)
    needs = first.evidence_needed or ("client log", "request log")
    return _evidence(context, needs, first.reason, step)


def starts_with(context: Context, facts: Facts, assignors: Sequence[str]) -> Tri:
    """Return whether this member's client starts with the list; some clients reject a mixed one."""
    return context.may_take_mixed(facts) if is_mixed(assignors) else Tri.YES


def _no_wide_list(
    context: Context, lacking: Sequence[Facts], wide: Sequence[str], step: int | None
) -> Advice:
    """Return the advice where no client of these members is known to start with the wide list."""
    open_ = [f for f in lacking if starts_with(context, f, wide) is Tri.CANNOT_TELL]
    if not open_:
        why = f"{context.named(lacking)} cannot start with [{', '.join(wide)}] (RB104)"
        return replan(context, why, step=step)
    why = f"the client of {context.named(open_)} is not known, and not every client starts with"
    return show(context, Needs.LISTS, f"{why} [{', '.join(wide)}] (RB906)", step=step)


def _knows_nothing_more(context: Context) -> bool:
    """No list is known, so that a rebalance (which shows every list) is the next evidence."""
    return not any(f.member.assignors.knowledge is Knowledge.EXACT for f in context.members)


def _lacks_all(context: Context, facts: Facts, assignors: Sequence[str]) -> bool:
    return all(context.supports(facts, name) is Tri.NO for name in assignors)


def show(context: Context, needs: Needs, reason: str, *, step: int | None = None) -> Advice:
    """Return the advice to add the evidence that decides whether a join is admitted."""
    return _evidence(context, _EVIDENCE[needs], reason, step)


def _evidence(context: Context, needed: Sequence[str], reason: str, step: int | None) -> Advice:
    return worded(
        Advice(
            action=EVIDENCE,
            verdict=Tri.CANNOT_TELL,
            reason=reason,
            evidence_needed=_kinds(context, needed),
            step=step,
        )
    )


def _kinds(context: Context, needed: Sequence[str]) -> tuple[str, ...]:
    """Return those of `needed` that this group can give."""
    kinds = tuple(kind for kind in needed if kind != "probe" or context.can_probe)
    return kinds or ("client log", "request log")


def wait(reason: str, *, step: int | None = None) -> Advice:
    """Return the advice to look again later."""
    return worded(Advice(action=WAIT, verdict=Tri.CANNOT_TELL, reason=reason, step=step))


def stop(reason: str, *, by: str = "this", step: int | None = None) -> Advice:
    """Return the advice to restart nothing until the operator has dealt with `by`, a rule's id."""
    made = Advice(action=STOP, verdict=Tri.NO, reason=reason, step=step)
    return replace(made, text=text.stop(by))


def nothing(reason: str, *, step: int | None = None) -> Advice:
    """Return the advice that nothing is left to do."""
    return worded(Advice(action=NONE, reason=reason, step=step))


def replan(
    context: Context, reason: str, *, verdict: Tri = Tri.NO, step: int | None = None
) -> Advice:
    """Return the advice to make a new plan."""
    return worded(
        Advice(
            action=REPLAN,
            verdict=verdict,
            reason=reason,
            command=context.replan(),
            step=step,
        )
    )


def acceptable(advice: Advice, ignore: Mapping[str, str]) -> bool:
    """Return whether the user accepts the risk of an advice that cannot tell, with `--ignore`.

    An advice whose join is proven to be rejected is never acceptable.
    """
    kinds = {kind for risk, kinds in _ACCEPTS.items() if risk.accepted_in(ignore) for kind in kinds}
    return advice.verdict is Tri.CANNOT_TELL and bool(kinds & set(advice.evidence_needed))


def accepted(advice: Advice) -> Advice:
    """Return the advice with the verdict yes and the reason that the user accepted its risk."""
    made = replace(advice, verdict=Tri.YES, reason=f"accepted by you: {advice.reason}")
    return worded(made)


def finished(vouched: Sequence[str], *, step: int) -> Advice:
    """Return the end of a plan; `vouched` are the members that are done by the operator's statement
    alone.
    """
    if not vouched:
        return nothing("the plan is carried out", step=step)
    return nothing(f"finished; confirmed, not verified: {', '.join(vouched)}", step=step)


def confirm(
    context: Context, step: int, members: Sequence[Facts], names: Sequence[str], *, shown: bool
) -> Advice:
    """Return the advice to check by hand what no evidence shows of `members`, and to confirm it.

    `names` is the assignor list to confirm (empty: another setting, which is confirmed for all of
    them). `shown`: evidence could show it as well.
    """
    words: tuple[str, ...] = ("--confirm", str(step))
    reason = "looked at each of them"
    if names:
        words += options("--member", ids(members[:_LISTED]))
        words += option("--list", ",".join(names))
        reason = f"each process was started with this list after step {step} began"
    return worded(
        Advice(
            action=CONFIRM,
            members=ids(members),
            names=tuple(facts.name for facts in members),
            assignors=tuple(names),
            verdict=Tri.CANNOT_TELL,
            reason="no evidence shows it",
            evidence_needed=_kinds(context, _EVIDENCE[Needs.LISTS]) if shown else (),
            command=context.given.confirm(*words, "--reason", reason),
            step=step,
        )
    )


def open_question(finding: Finding, *, step: int | None = None) -> Advice:
    """Return the advice to settle a rule whose answer is cannot tell."""
    said = f"first {finding.rule}: {finding.fix or finding.message}"
    return Advice(
        action=EVIDENCE, verdict=Tri.CANNOT_TELL, reason=finding.message, step=step, text=said
    )


def worded(advice: Advice) -> Advice:
    """Return the same advice with its `text` filled in."""
    return replace(advice, text=text.worded(advice))


def _judged(context: Context, answer: Admission) -> dict[str, Any]:
    """Return the advice's fields that an admission gives."""
    group = context.group
    coordinator = group.coordinator
    needed = _EVIDENCE[answer.needs] if answer.needs is not None else ()
    return {
        "verdict": answer.verdict,
        "error": answer.error,
        "reason": answer.reason,
        "evidence_needed": tuple(k for k in needed if k != "probe" or context.can_probe),
        "valid_while": ValidWhile(
            generation=group.generation,
            assignor=group.assignor,
            leader_epoch=None
            if answer.elected or coordinator is None
            else coordinator.leader_epoch,
        ),
    }


def _asked(
    context: Context, facts: Facts, names: tuple[str, ...] | None, *, killed: bool
) -> Admission:
    events = restart(
        context.memory,
        facts.member.member_id,
        names,
        killed=killed,
        protocol_type=context.group.protocol_type or None,
        session_ms=_session(context, facts.member),
    )
    return admitted(context.memory, events)


def _session(context: Context, member: Member) -> int | None:
    """Return the session timeout of the next start; None for one that brokers accepted before."""
    declared = member.declared.session_timeout_ms if member.declared is not None else None
    own = member.timeouts.session_ms if member.timeouts is not None else None
    if declared is not None and declared != own:
        return declared
    return own if context.memory.session_ms is not None else None


def _next_list(facts: Facts) -> tuple[str, ...] | None:
    """Return the list of a restart without a change: its file's, else the one it runs."""
    declared = facts.member.declared
    if declared is not None and declared.list and declared.group_protocol != "consumer":
        return declared.list
    known = facts.member.assignors
    return known.list if known.knowledge is Knowledge.EXACT else None


def _common_list(context: Context) -> tuple[str, ...]:
    """Return the exact list that all members have; empty where they differ or one is unknown."""
    lists = {
        facts.member.assignors.list if facts.member.assignors.knowledge is Knowledge.EXACT else ()
        for facts in context.members
    }
    return lists.pop() if len(lists) == 1 else ()


def _race(context: Context, answer: Admission) -> Iterator[str]:
    """Yield the event between look and join that would have the join rejected."""
    if answer.verdict is Tri.YES and not answer.elected and context.group.assignor:
        yield (
            f"the list does not hold {context.group.assignor}, which is elected: a coordinator "
            "reload before the restart has it rejected, so look again right before each restart"
        )


def _risks(context: Context, restarted: Sequence[Facts]) -> Iterator[str]:
    """Yield the risks that end no member and that an operator must know."""
    own = set(ids(restarted))
    static = [f for f in context.members if f.static and f.member.member_id not in own]
    rebalances = not restarted or any(not f.static for f in restarted)
    if static and rebalances:
        yield (
            f"if one of the static members ({context.named(static, 3)}) is down, the rebalance "
            "waits for it up to the rebalance timeout"
        )
