"""Restart advice as data (`planner.plan.Advice`), judged by the admission check.

The admission check (planner/admission/check.py) predicts whether the coordinator admits a join. A
restart is recommended only if its admission is proven. Advice that is not proven names the evidence
that would prove it. Advice on a join that would be rejected gives the reason. wording.py makes the
text from the data.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from rebal.groups.commands import option, options
from rebal.groups.model import GroupType, Knowledge, Member, Tri
from rebal.planner.admission.check import (
    Admission,
    Event,
    JoinEvent,
    LeaveEvent,
    Needs,
    Settle,
    admitted,
    restart,
)
from rebal.planner.advice import wording as text
from rebal.planner.clients import cooperative, is_mixed
from rebal.planner.commands import ACCEPT
from rebal.planner.context import CONSUMER, Context, Facts, ids
from rebal.planner.facts import listed, owned
from rebal.planner.plan import Action, Advice, Finding, Risk, ValidWhile
from rebal.planner.settings import consumer_change
from rebal.planner.verdict import reasons

# Most members that are tried to find one whose restart is admitted.
TRIED: Final = 50
# Most withheld restarts, or members of one command, that are listed.
LISTED: Final = 20
_EVIDENCE: Final = {
    Needs.PROBE: ("probe", "client log", "request log"),
    Needs.LISTS: ("client log", "request log"),
    Needs.DECLARED: ("client log", "inventory", "request log"),
    Needs.RELOAD: ("probe",),
    Needs.CLOCK: ("log timezone",),
    Needs.LOAD: ("offsets topic", "log timezone"),
    Needs.BROKER: ("broker settings", "probe"),
    Needs.CONFLICT: ("client log", "request log"),
}
DEFAULTS: Final = "the brokers keep Kafka's defaults (group.max.size and the like are not set)"
# Ignored rule → kinds of missing evidence that the user accepts (verdict `cannot tell`).
_ACCEPTS: Final = {
    Risk.UNKNOWN_LISTS: ("client log", "request log"),
    Risk.FORGOTTEN_LISTS: ("probe",),
}


def restart_of(context: Context, facts: Facts, assignors: tuple[str, ...] = ()) -> Advice:
    """Return the advice to restart one member with the assignor list `assignors`.

    Its verdict is the predicted answer to the member's join. An empty `assignors` is a restart
    without a change of the configuration.
    """
    names = assignors or _next_list(facts)
    answer = _restart_answer(context, facts, names, killed=False)
    admits, killed = answer.verdict is Tri.YES, Tri.YES
    if admits and not facts.static:
        killed = _restart_answer(context, facts, names, killed=True).verdict
    after = (
        (
            admits and facts.static,
            f"never run two processes with the instance id {facts.member.instance_id}",
        ),
        (
            killed is not Tri.YES,
            f"see that {facts.name} has left the group before it starts: beside its old entry it "
            f"is {'rejected' if killed is Tri.NO else 'not known to be admitted'}",
        ),
    )
    return worded(
        Advice(
            action=Action.RESTART,
            members=(facts.member.member_id,),
            names=(facts.name,),
            assignors=assignors,
            after=reasons(*after),
            risks=_risks(context, [facts], answer),
            **_judged(context, answer),
        )
    )


def start_of(
    context: Context,
    names: Sequence[str],
    lists: Iterable[tuple[str, ...]],
    *,
    own: Sequence[tuple[str, ...]] = (),
    instances: Sequence[str | None] = (),
    change: str = "",
) -> Advice:
    """Return the advice to start the clients `names`, which are not in the group, all in one way.

    The ways are tried in order, and the first that the coordinator would admit is advised: to start
    all clients with the same list, for each of `lists`; then to start them with `change`, if given,
    which is the setting group.protocol=consumer. An empty tuple in `lists` stands for starting each
    client with its own list. If no way is admitted, the advice is about the first.

    `own` and `instances` have an item for each of `names`: the client's own list (an empty tuple:
    not known), and its instance id (None: a dynamic member).
    """
    # Whoever was a member before found room.
    memory = replace(context.memory, room=max(context.memory.room, len(names)))
    static = tuple(instances) or (None,) * len(names)
    lists_ = tuple(own) or ((),) * len(names)
    ways = [*((each, "") for each in dict.fromkeys(lists)), *([((), change)] if change else [])]

    def start(assignors: tuple[str, ...], brings: str) -> Advice:
        joins = [
            JoinEvent(
                assignors=assignors or list_ or None,
                name=name,
                instance_id=instance,
                protocol_type=context.memory.protocol_type or "consumer",
                kip848=bool(brings),
            )
            for name, instance, list_ in zip(names, static, lists_, strict=True)
        ]
        return Advice(
            action=Action.START,
            names=tuple(names),
            assignors=assignors,
            change=brings,
            **_judged(context, admitted(memory, joins)),
        )

    return worded(first_admitted(start(*way) for way in ways))


def cut_over_of(context: Context, stopped: Sequence[Facts], assignors: tuple[str, ...]) -> Advice:
    """Return the advice to stop all of `stopped`, and to start them only when all have stopped.

    They start with the list `assignors`. The verdict is the predicted answer to these joins.
    """
    static = [facts for facts in stopped if facts.static]
    everybody = len(stopped) == len(context.members)
    without = "Empty" if everybody else "Stable without the stopped members"
    counted = (
        f"{context.named(static)} {'is' if len(static) == 1 else 'are'} static and counted until "
        "the session ends"
    )
    return worded(
        Advice(
            action=Action.CUT_OVER,
            members=ids(stopped),
            names=tuple(facts.name for facts in stopped),
            assignors=assignors,
            after=(f"check that the group is {without}", *((counted,) if static else ())),
            **_judged(
                context,
                admitted(context.memory, stop_and_start(context, stopped, assignors)),
            ),
        )
    )


def stop_and_start(
    context: Context, stopped: Sequence[Facts], assignors: tuple[str, ...]
) -> list[Event]:
    """Return the events of a cut-over: all of `stopped` leave, the others rebalance, then all join.

    They join with the list `assignors`. If it is empty, they join with `stream` in a Kafka Streams
    group, and with an unknown list in any other.
    """
    # Every Streams program that goes back to the classic protocol has this one assignor.
    back = ("stream",) if context.group.type is GroupType.STREAMS else None
    joins = [
        JoinEvent(
            assignors=assignors or back,
            name=facts.name,
            instance_id=facts.member.instance_id,
            protocol_type=context.memory.protocol_type or "consumer",
        )
        for facts in stopped
    ]
    return [*(LeaveEvent(member_id=each) for each in ids(stopped)), Settle(), *joins]


def rebalance_of(context: Context, dynamic: Sequence[Facts]) -> Advice:
    """Return the advice to cause a rebalance without changing any assignor list.

    It is to restart one of the `dynamic` members. If there is none, or the group is a KIP-848
    group, it is to let a temporary member join and leave.
    """
    online = context.group.type is GroupType.CONSUMER
    if dynamic and not online:
        return first_admitted(as_it_runs(context, facts) for facts in dynamic[:TRIED])
    common = () if online else context.common_list
    answer = admitted(context.memory, [JoinEvent(assignors=common or None, kip848=online)])
    return worded(
        Advice(
            action=Action.TEMPORARY,
            assignors=common,
            change=consumer_change(None) if online else "",
            after=text.TEMPORARY_AFTER,
            risks=_risks(context, (), answer),
            **_judged(context, answer),
        )
    )


def as_it_runs(context: Context, facts: Facts) -> Advice:
    """Return the advice to restart a member without changing its assignor list.

    The advice names the list if it is known exactly and the member's next start may have another:
    its configuration file has another, or a file in the inventory matches no member and may be this
    member's. If there is such an unmatched file and the list is not known exactly, the advice is to
    add evidence.
    """
    runs, declared = facts.member.assignors, _next_list(facts)
    exact = runs.knowledge is Knowledge.EXACT
    unbound = facts.member.declared is None and any(
        one.may_start for one in context.snapshot.unmatched
    )
    named = exact and (unbound or declared != runs.list)
    made = restart_of(context, facts, runs.list if named else ())
    if made.verdict is not Tri.YES or exact or not unbound:
        return made
    return ask_for(
        context,
        Needs.LISTS,
        f"no file of the inventory is known to be {facts.name}'s, and one may be, with another "
        "list",
    )


def first_admitted(found: Iterable[Advice], ignore: Mapping[str, str] | None = None) -> Advice:
    """Return the first advice that is admitted or accepted by the user, else the first of all.

    `ignore` is rule id → reason. Ignoring a rule accepts its risk (`acceptable`).
    """
    tried = []
    for one in found:
        if one.verdict is Tri.YES or acceptable(one, ignore or {}):
            return one
        tried.append(one)
    return tried[0]


def client_accepts(context: Context, facts: Facts, assignors: Sequence[str]) -> Tri:
    """Return whether the member's client can start with the assignor list `assignors`.

    Some clients reject a list that mixes eager and cooperative assignors.
    """
    return context.may_take_mixed(facts) if is_mixed(assignors) else Tri.YES


def ask_for(context: Context, needs: Needs, reason: str) -> Advice:
    """Return the advice to add the evidence `needs`, which decides whether a join is admitted.

    If the brokers' settings were not read and are needed, the advice also has the command that
    states that they are Kafka's defaults.
    """
    # A probe asks for a place in the classic group.
    unprobed = needs is Needs.BROKER and context.goal == CONSUMER
    made = evidence(context, _EVIDENCE[needs][: 1 if unprobed else None], reason)
    if needs is not Needs.BROKER or context.snapshot.cluster.settings:
        return made
    return with_statement(context, made, Risk.UNREAD_SETTINGS, DEFAULTS)


def evidence(context: Context, needed: Sequence[str], reason: str) -> Advice:
    """Return the advice to add evidence of one of the kinds `needed`.

    A probe is left out if this group cannot be probed. If no kind is left, the kinds are the client
    log and the request log.
    """
    kinds = tuple(kind for kind in needed if kind != "probe" or context.can_probe)
    return worded(
        Advice(
            action=Action.EVIDENCE,
            verdict=Tri.CANNOT_TELL,
            reason=reason,
            evidence_needed=kinds or ("client log", "request log"),
        )
    )


def with_statement(context: Context, made: Advice, risk: Risk, fact: str) -> Advice:
    """Return `made` with an alternative: the command by which the user states `fact`.

    The command accepts `risk`, with `fact` as the reason.
    """
    return worded(
        replace(
            made,
            also=(f"or, if {fact}, say so",),
            command=context.accepting(risk, fact).line,
        )
    )


def wait(reason: str) -> Advice:
    """Return the advice to wait and read the group again later, because of `reason`."""
    return worded(Advice(action=Action.WAIT, verdict=Tri.CANNOT_TELL, reason=reason))


def stop(reason: str, *, until: str = "") -> Advice:
    """Return the advice to restart nothing because of `reason`, or until `until` (a text) holds."""
    return Advice(
        action=Action.STOP,
        verdict=Tri.NO,
        reason=reason,
        text=f"restart nothing until {until}" if until else f"restart nothing: {reason}",
    )


def nothing(reason: str) -> Advice:
    """Return the advice that nothing is left to do."""
    return worded(Advice(action=Action.NONE, reason=reason))


def replan(context: Context, reason: str, *, verdict: Tri = Tri.NO) -> Advice:
    """Return the advice to make a new plan because of `reason`.

    `verdict` is whether a restart by the present plan would be admitted.
    """
    return worded(
        Advice(
            action=Action.REPLAN,
            verdict=verdict,
            reason=reason,
            command=context.replan(),
        )
    )


def acceptable(advice: Advice, ignore: Mapping[str, str]) -> bool:
    """Return whether the user accepts the missing evidence of an advice by ignoring a rule.

    `ignore` is rule id → reason. Only advice with the verdict `cannot tell` is acceptable, never
    advice on a join that is proven to be rejected.
    """
    kinds = {kind for risk, kinds in _ACCEPTS.items() if risk in ignore for kind in kinds}
    return advice.verdict is Tri.CANNOT_TELL and bool(kinds & set(advice.evidence_needed))


def confirm(context: Context, step: int, members: Sequence[Facts], names: Sequence[str]) -> Advice:
    """Return the advice to check by hand how `members` were started, and then to confirm it.

    The command is `rebal verify --confirm`, for a change of `step` that no evidence shows. `names`
    is the assignor list to confirm. If it is empty, the step changes another setting, which is
    confirmed for all its members at once.
    """
    words: tuple[str, ...] = ()
    reason = "looked at each of them"
    if names:
        words = (*options("--member", ids(members[:LISTED])), *option("--list", ",".join(names)))
        reason = f"each process was started with this list after step {step} began"
    return worded(
        Advice(
            action=Action.CONFIRM,
            members=ids(members),
            names=tuple(facts.name for facts in members),
            assignors=tuple(names),
            verdict=Tri.CANNOT_TELL,
            reason="no evidence shows it",
            evidence_needed=_EVIDENCE[Needs.LISTS],
            command=context.given.confirm("--confirm", str(step), *words, "--reason", reason),
            step=step,
            also=tuple(_next_rebalance(context, members, names)),
        )
    )


def _next_rebalance(
    context: Context, members: Sequence[Facts], names: Sequence[str]
) -> Iterator[str]:
    """Yield one sentence: the next rebalance can prove that some of `members` run the list `names`.

    Nothing is yielded if it cannot. It can if `names` are cooperative assignors, the elected one
    among them, a join with them is admitted, and a member owns partitions whose client fixes its
    rebalance protocol at its start: it sends them in a rejoin only if it runs COOPERATIVE.
    """
    found = [facts for facts in members if facts.fixes_protocol and owned(facts.member)]
    shows = found and set(map(cooperative, names)) == {Tri.YES} and context.elected in names
    if shows and admitted(context.memory, [JoinEvent(assignors=tuple(names))]).verdict is Tri.YES:
        yield text.NEXT_REBALANCE.format(who=context.named(found), names=", ".join(names))


def ask_member_count(rejected: Sequence[str], here: int) -> Advice:
    """Return the advice to state the number of members of the service (`--expect-members`).

    `here` is the number of members in the group. The clients `rejected` are not in it; they are to
    be added if they belong to the service.
    """
    one, more = ("was", "it rejoined", "it belongs"), ("were", "they rejoined", "they belong")
    were, rejoined, belong = one if len(rejected) == 1 else more
    reason = f"{listed(rejected)} {were} rejected and no log shows that {rejoined}"
    return Advice(
        action=Action.EVIDENCE,
        verdict=Tri.CANNOT_TELL,
        reason=reason,
        text=f"give the number of members: {reason}; --expect-members {here + len(rejected)} if "
        f"{belong} to the service, --expect-members {here} if not",
    )


def stop_for(finding: Finding) -> Advice:
    """Return the advice to restart nothing before a blocking finding is resolved."""
    return replace(open_question(finding), action=Action.STOP, verdict=Tri.NO)


def open_question(finding: Finding) -> Advice:
    """Return the advice to settle a finding whose result is `cannot tell`.

    Its command accepts the finding's risk, if there is such a command.
    """
    what = finding.fix or finding.message
    if any(one.states_client for one in finding.commands):
        what = f"restart nothing before the client is known: {finding.message}"
    return Advice(
        action=Action.EVIDENCE,
        verdict=Tri.CANNOT_TELL,
        reason=finding.message,
        command=next((one.line for one in finding.commands if one.use.startswith(ACCEPT)), ""),
        text=f"first {finding.rule}: {what}",
    )


def worded(advice: Advice) -> Advice:
    """Return the same advice with its `text` filled in."""
    return replace(advice, text=text.worded(advice))


def _judged(context: Context, answer: Admission) -> dict[str, Any]:
    """Return the fields of an `Advice` that an admission answer decides: name → value."""
    group, coordinator = context.group, context.group.coordinator
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


def _restart_answer(
    context: Context, facts: Facts, names: tuple[str, ...] | None, *, killed: bool
) -> Admission:
    return admitted(
        context.memory,
        restart(
            context.memory,
            facts.member.member_id,
            names,
            killed=killed,
            session_ms=_session(context, facts.member),
        ),
    )


def _session(context: Context, member: Member) -> int | None:
    """Return the session timeout, in ms, to check against the brokers' bounds at the next start.

    None if there is nothing to check: the timeout is not known, or it stays as the brokers have
    accepted it and their bounds were not read.
    """
    declared = member.declared.session_timeout_ms if member.declared is not None else None
    own = member.timeouts.session_ms if member.timeouts is not None else None
    if declared is not None and declared != own:
        return declared
    return own if context.memory.session_ms is not None else None


def _next_list(facts: Facts) -> tuple[str, ...] | None:
    """Return the assignor list with which a member restarts if its configuration does not change.

    It is the list in the member's configuration file, else the list that the member is proven to
    run. None if neither is known.
    """
    declared = facts.member.declared
    if declared is not None and declared.list and declared.group_protocol != "consumer":
        return declared.list
    known = facts.member.assignors
    return known.list if known.knowledge is Knowledge.EXACT else None


def _risks(context: Context, restarted: Sequence[Facts], answer: Admission) -> tuple[str, ...]:
    """Return the dangers of an admitted restart that its verdict does not cover, one sentence each.

    They are a coordinator reload before the join, if it would have the join rejected, and static
    members that may be down and delay the rebalance.
    """
    static = [facts for facts in context.members if facts.static and facts not in restarted]
    return reasons(
        (
            # No load shortens the lists of a KIP-848 group, and its assignor is the brokers'.
            answer.verdict is Tri.YES
            and not answer.elected
            and context.group.assignor
            and context.group.type is GroupType.CLASSIC,
            f"the list does not hold {context.group.assignor}, which is elected: a coordinator "
            "reload before the restart has it rejected, so look again right before each restart",
        ),
        (
            static and (not restarted or any(not facts.static for facts in restarted)),
            f"if one of the static members ({context.named(static, 3)}) is down, the rebalance "
            "waits for it up to the rebalance timeout",
        ),
    )
