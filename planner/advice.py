"""What to do next, as data: `Advice`; and the only texts that tell anybody to restart a member.

Every advice asks the admission check first (planner/admission.py): a restart is recommended only
where the coordinator is proven to admit it. What is not proven names the evidence that would prove
it, and what is proven to be rejected says why. The text is made from the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from rebal.groups.model import GroupState, Knowledge, Member, Tri
from rebal.planner.admission import (
    INCONSISTENT,
    Admission,
    Event,
    Join,
    Leave,
    Needs,
    admitted,
    restart,
)
from rebal.planner.context import Context, Facts, ids
from rebal.planner.memory import memory_of
from rebal.planner.plan import Advice, Finding, ValidWhile

RESTART: Final = "restart"
START: Final = "start"
TEMPORARY: Final = "temporary"
CUT_OVER: Final = "cut-over"
WAIT: Final = "wait"
EVIDENCE: Final = "evidence"
CONFIRM: Final = "confirm"
REPLAN: Final = "replan"
STOP: Final = "stop"
NONE: Final = "none"

JOINING: Final = (RESTART, START, TEMPORARY, CUT_OVER)
_VERBS: Final = {
    RESTART: "restart",
    START: "start",
    CUT_OVER: "stop and start",
    TEMPORARY: "start one more member",
}

# How many members are tried for one that is admitted, and how many withheld restarts are listed.
_TRIED: Final = 50
_LISTED: Final = 20
_EVIDENCE: Final = {
    Needs.PROBE: ("probe", "client log", "request log"),
    Needs.LISTS: ("client log", "request log"),
    Needs.RELOAD: ("probe",),
    Needs.BROKER: ("broker settings", "probe"),
    Needs.STATE: (),
    Needs.CONFLICT: ("client log", "request log"),
}
_HOW: Final = {
    "probe": "--probe",
    "client log": "--client-log FILE (its start)",
    "request log": "--request-log FILE (across a rebalance)",
    "broker settings": "the right to DESCRIBE_CONFIGS",
}


def restart_of(
    context: Context, facts: Facts, assignors: tuple[str, ...] = (), *, step: int | None = None
) -> Advice:
    """Return the advice on one member's restart with a list (empty: the one it has today)."""
    names = assignors or _next_list(facts)
    answer = _asked(context, facts, names, killed=False)
    after = []
    dynamic = facts.member.instance_id is None
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
    """Return the advice on starting members that are not in the group, with the first admitted
    one of `lists`."""
    found: list[Advice] = []
    static = tuple(instances) or (None,) * len(names)
    for assignors in dict.fromkeys(lists):
        joins = [
            Join(
                assignors=assignors,
                name=name,
                instance_id=instance,
                protocol_type=context.group.protocol_type or "consumer",
            )
            for name, instance in zip(names, static, strict=True)
        ]
        answer = admitted(context.memory, joins)
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
    best = next((one for one in found if one.verdict is Tri.YES), found[0])
    return worded(best)


def cut_over_of(
    context: Context,
    stopped: Sequence[Facts],
    assignors: tuple[str, ...],
    *,
    step: int | None = None,
) -> Advice:
    """Return the advice on stopping all of `stopped` before one of them starts with the list."""
    memory = context.memory
    kind = context.group.protocol_type or "consumer"
    events: list[Event] = [Leave(member_id=facts.member.member_id) for facts in stopped]
    events += [
        Join(
            assignors=assignors or None,
            name=facts.name,
            instance_id=facts.member.instance_id,
            protocol_type=kind,
        )
        for facts in stopped
    ]
    answer = admitted(memory, events)
    static = [facts for facts in stopped if facts.member.instance_id is not None]
    gone = "see the group Empty" if len(stopped) == len(context.members) else "see them gone"
    after = [f"{gone} before the first one starts"]
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


def cure_of(context: Context, *, step: int | None = None) -> Advice:
    """Return the cheapest way to have the coordinator remember every list again (RB113).

    A rebalance makes every running member join with its whole list. A dynamic member's restart
    starts one; a static member's restart does not, and shows the coordinator its own list only. So:
    a dynamic member's restart; where all are static, one more member that comes and leaves (two
    rebalances, whatever the size), or each one's restart where there are no more than two. Where a
    rebalance has completed since the load and a list is still short, a static member was down
    then, and its own return is the only cure.
    """
    dynamic = [facts for facts in context.members if facts.member.instance_id is None]
    static = [facts for facts in context.members if facts.member.instance_id is not None]
    if dynamic and context.reloaded is not Tri.NO:
        return _first(restart_of(context, facts, step=step) for facts in dynamic[:_TRIED])
    suspects = _short(context, static)
    if suspects and (context.reloaded is Tri.NO or len(suspects) <= _FEW):
        return _first(restart_of(context, facts, step=step) for facts in suspects[:_TRIED])
    if not static:
        return show(
            context, Needs.CONFLICT, "the coordinator's lists and the logs are at odds", step=step
        )
    common = _common_list(context)
    join = Join(assignors=common or None, protocol_type="consumer")
    made = Advice(
        action=TEMPORARY,
        assignors=common,
        after=(
            "wait until the group is Stable, then stop that member cleanly and wait again",
            "it must have no instance id of another member",
        ),
        step=step,
        risks=tuple(_risks(context, ())),
        **_judged(context, admitted(context.memory, [join])),
    )
    return worded(made)


_FEW: Final = 2


def _short(context: Context, static: Sequence[Facts]) -> list[Facts]:
    """Static members of which the coordinator may still hold what a load left."""
    open_ = {e.member_id for case in context.memory.cases for e in case if len(e.lists) > 1}
    return [facts for facts in static if facts.member.member_id in open_]


def _first(found: Iterable[Advice]) -> Advice:
    """The first that is admitted, else the first."""
    tried = list(found)
    return next((one for one in tried if one.verdict is Tri.YES), tried[0])


def narrowing(
    context: Context,
    to_do: Sequence[Facts],
    assignors: tuple[str, ...],
    wide: tuple[str, ...],
    *,
    step: int | None = None,
) -> tuple[Advice, tuple[Advice, ...]]:
    """Return the advice on restarting one of `to_do` with the list, and what is withheld.

    Where none is admitted, the advice is what must come before: the `wide` list for who lacks the
    assignor, a cure for a coordinator that has forgotten, or the evidence that would tell.
    """
    tried = [restart_of(context, facts, assignors, step=step) for facts in to_do[:_TRIED]]
    good = next((one for one in tried if one.verdict is Tri.YES), None)
    withheld = tuple(one for one in tried if one.verdict is not Tri.YES)[:_LISTED]
    if good is not None:
        return good, withheld
    if not tried:
        return nothing("no member is left to restart in this step", step=step), ()
    first = next((one for one in tried if one.verdict is Tri.NO), tried[0])
    return _remedy(context, to_do, assignors, wide=wide, first=first, step=step), withheld


def _remedy(
    context: Context,
    to_do: Sequence[Facts],
    assignors: tuple[str, ...],
    *,
    wide: tuple[str, ...],
    first: Advice,
    step: int | None,
) -> Advice:
    if context.group.state is not GroupState.STABLE:
        return wait(first.reason, step=step)
    lacking = [f for f in context.members if _lacks_all(context, f, assignors)]
    if lacking and wide:
        back = _first(restart_of(context, f, wide, step=step) for f in lacking[:_TRIED])
        if back.verdict is Tri.YES:
            return back
    if first.error not in (None, INCONSISTENT):
        return stop(first.reason, step=step)
    sent = memory_of(context, rejoined=True)
    by_lists = [
        admitted(sent, restart(sent, facts.member.member_id, assignors)) for facts in to_do[:_TRIED]
    ]
    asked = any(n in {*context.memory.in_all, *context.memory.not_in_all} for n in assignors)
    if any(one.verdict is Tri.YES for one in by_lists):
        if not asked and context.can_probe:
            return show(context, Needs.PROBE, first.reason, step=step)
        return cure_of(context, step=step)
    if first.verdict is Tri.NO:
        return replan(context.group.group_id, first.reason, step=step)
    if asked and context.reloaded is not Tri.NO and _knows_nothing_more(context):
        return cure_of(context, step=step)
    needs = first.evidence_needed or ("client log", "request log")
    return _evidence(context, needs, first.reason, step)


def _knows_nothing_more(context: Context) -> bool:
    """No list is known, so that a rebalance (which shows every list) is the next evidence."""
    return not any(f.member.assignors.knowledge is Knowledge.EXACT for f in context.members)


def _lacks_all(context: Context, facts: Facts, assignors: Sequence[str]) -> bool:
    return all(context.supports(facts, name) is Tri.NO for name in assignors)


def show(context: Context, needs: Needs, reason: str, *, step: int | None = None) -> Advice:
    """Return the advice to add the evidence that would decide."""
    return _evidence(context, _EVIDENCE[needs], reason, step)


def _evidence(context: Context, needed: Sequence[str], reason: str, step: int | None) -> Advice:
    kinds = tuple(k for k in needed if k != "probe" or context.can_probe)
    return worded(
        Advice(
            action=EVIDENCE,
            verdict=Tri.CANNOT_TELL,
            reason=reason,
            evidence_needed=kinds or ("client log", "request log"),
            step=step,
        )
    )


def wait(reason: str, *, step: int | None = None) -> Advice:
    """Return the advice to look again later."""
    return worded(Advice(action=WAIT, verdict=Tri.CANNOT_TELL, reason=reason, step=step))


def stop(reason: str, *, step: int | None = None) -> Advice:
    """Return the advice to restart nothing until a person has looked."""
    return worded(Advice(action=STOP, verdict=Tri.NO, reason=reason, step=step))


def nothing(reason: str, *, step: int | None = None) -> Advice:
    """Return the advice that nothing is left to do."""
    return worded(Advice(action=NONE, reason=reason, step=step))


def replan(group_id: str, reason: str, *, step: int | None = None) -> Advice:
    """Return the advice to make a new plan."""
    return worded(
        Advice(
            action=REPLAN,
            verdict=Tri.NO,
            reason=reason,
            command=f"rebal plan-upgrade {group_id}",
            step=step,
        )
    )


def accepted(advice: Advice) -> Advice:
    """Return an open advice as the user accepted it, by ignoring the rule that asks."""
    made = replace(advice, verdict=Tri.YES, reason=f"accepted by you: {advice.reason}")
    return worded(made)


def confirm(step: int, *, by_hand: bool) -> Advice:
    """Return the advice that a person looks at what no evidence shows of a step."""
    return worded(
        Advice(
            action=CONFIRM,
            verdict=Tri.CANNOT_TELL,
            reason="no evidence shows it",
            evidence_needed=() if by_hand else ("request log", "client log"),
            command=f'rebal verify PLAN --confirm {step} --reason "…"',
            step=step,
        )
    )


def open_question(finding: Finding, *, step: int | None = None) -> Advice:
    """Return the advice to answer a rule that cannot tell."""
    text = finding.fix or finding.message
    return Advice(
        action=EVIDENCE,
        verdict=Tri.CANNOT_TELL,
        reason=finding.message,
        step=step,
        text=f"first {finding.rule}: {text}",
    )


def worded(advice: Advice) -> Advice:
    """Return the advice with its text."""
    return replace(advice, text=_text(advice))


def _text(advice: Advice) -> str:
    who = named(advice.names)
    brings = f"with {advice.change or 'the list it has today'}"
    if advice.assignors:
        brings = f"with [{', '.join(advice.assignors)}]"
    if advice.action in JOINING and advice.verdict is not Tri.YES:
        open_ = "rejected" if advice.verdict is Tri.NO else "not proven to be admitted"
        return f"do not {_VERBS[advice.action]} {who} {brings}: {open_}, {advice.reason}"
    how = ", or ".join(_HOW.get(kind, kind) for kind in advice.evidence_needed)
    logs = f"{how}; else " if how else ""
    one = len(advice.names) == 1
    texts = {
        RESTART: f"restart {who} {brings}; one member at a time",
        START: f"start {who} {brings} if {'it is' if one else 'they are'} down",
        TEMPORARY: f"start one more member {brings}, wait until the group is Stable, then stop it",
        CUT_OVER: f"stop {who} together, {', '.join(advice.after[:1])}, then start them {brings}",
        EVIDENCE: f"add {how}: {advice.reason}",
        CONFIRM: f"{logs}look at each of them, then: {advice.command}",
        WAIT: f"wait: {advice.reason}",
        REPLAN: f"make a new plan ({advice.command}): {advice.reason}",
        STOP: f"restart nothing more until this is dealt with: {advice.reason}",
    }
    return texts.get(advice.action, advice.reason)


def named(labels: Sequence[str], most: int = 6) -> str:
    """`a, b and 3 more`."""
    more = len(labels) - most
    return ", ".join(labels[:most]) + (f" and {more} more" if more > 0 else "")


def _judged(context: Context, answer: Admission) -> dict[str, Any]:
    """The fields that an admission gives."""
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
        session_ms=_session(facts.member),
    )
    return admitted(context.memory, events)


def _session(member: Member) -> int | None:
    """The session timeout of its next start."""
    declared = member.declared.session_timeout_ms if member.declared is not None else None
    return declared or (member.timeouts.session_ms if member.timeouts is not None else None)


def _next_list(facts: Facts) -> tuple[str, ...] | None:
    """The list that a restart without a change brings: its file's, else the one it runs."""
    declared = facts.member.declared
    if declared is not None and declared.list and declared.group_protocol != "consumer":
        return declared.list
    known = facts.member.assignors
    return known.list if known.knowledge is Knowledge.EXACT else None


def _common_list(context: Context) -> tuple[str, ...]:
    """The one exact list that every member has; empty where they differ or one is not known."""
    lists = {
        facts.member.assignors.list if facts.member.assignors.knowledge is Knowledge.EXACT else ()
        for facts in context.members
    }
    return lists.pop() if len(lists) == 1 else ()


def _race(context: Context, answer: Admission) -> Iterator[str]:
    """What may come between the look and the join."""
    if answer.verdict is Tri.YES and not answer.elected and context.group.assignor:
        yield (
            f"the list does not hold {context.group.assignor}, which is elected: a coordinator "
            "reload before the restart has it rejected, so look again right before each restart"
        )


def _risks(context: Context, restarted: Sequence[Facts]) -> Iterator[str]:
    """What ends no member, and an operator must still know."""
    own = set(ids(restarted))
    static = [
        f
        for f in context.members
        if f.member.instance_id is not None and f.member.member_id not in own
    ]
    rebalances = not restarted or any(f.member.instance_id is None for f in restarted)
    if static and rebalances:
        yield (
            f"if one of the static members ({context.named(static, 3)}) is down, the rebalance "
            "waits for it up to the rebalance timeout"
        )


def restart_fix(
    context: Context,
    members: Sequence[Facts],
    assignors: tuple[str, ...] = (),
    *,
    change: str = "",
    then: str = "",
) -> str:
    """Return the sentence that has `members` restarted, if each of the restarts is admitted.

    `change` is a sentence that comes before it, `then` words that go on after the list. Where one
    is not admitted, the sentence says so and why.
    """
    found = [restart_of(context, facts, assignors) for facts in members]
    bad = next((one for one in found if one.verdict is Tri.NO), None)
    bad = bad or next((one for one in found if one.verdict is not Tri.YES), None)
    lead = f"{change} " if change else ""
    who = context.named(members)
    brings = f" with [{', '.join(assignors)}]" if assignors else ""
    if bad is None:
        each = ", one at a time" if len(members) > 1 else ""
        return f"{lead}Restart {who}{brings}{each}{then}."
    answer = "is rejected" if bad.verdict is Tri.NO else "is not proven to be admitted"
    return f"{lead}Do not restart {bad.names[0]}{brings} yet: it {answer}, {bad.reason}."
