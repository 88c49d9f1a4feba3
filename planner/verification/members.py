"""Members and steps of a plan on the live group: who has completed a step, and who is missing.

An answer comes from this look, from the plan's baseline, from an earlier look in the journal, or
from the operator. The last three count only for member ids that are still in the group. Without
evidence, a member whose id is older than the step was not restarted, so it is not done.

The operator can confirm an assignor list only for a member that was restarted: its member id is new
since the step began. A restart alone proves nothing of the running process, so the gate waits until
the operator has confirmed the list of each member (`rebal verify --confirm`). A configuration file
that names another list, or that was written after the member was first seen, prevents the
confirmation. The confirmation is bound to the member id, and evidence overrules it at every later
look.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from rebal.groups.model import (
    Evidence,
    GroupState,
    GroupType,
    Knowledge,
    RebalanceProtocol,
    Record,
    Tri,
)
from rebal.planner.advice.actions import TRIED, acceptable, first_admitted, restart_of
from rebal.planner.clients import cooperative, is_mixed
from rebal.planner.context import Context, Facts
from rebal.planner.facts import listed, owned
from rebal.planner.kip848 import not_range
from rebal.planner.plan import Aim, Plan, Risk, Step, StepKind
from rebal.planner.verdict import agreed, first_reason, worst
from rebal.planner.verification.gates import AnswerLedger
from rebal.planner.verification.journal import JournalEntry, list_is_assumed

# Two machines' clocks differ; what is older than the plan by more than this was seen before it.
_CLOCKS: Final = timedelta(minutes=1)


class MemberStanding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One member in one step: whether it has completed the step, and why.

    `concerned` is False if the step does not concern its client. `restarted`: a look shows that its
    member id is new since the step began. `proven`: evidence on this member answers, not its member
    id alone. `by_hand`: only the operator can answer. `changed_since`: its configuration file names
    the step's list, but was written after the member was first seen. `vouched`: the answer is yes
    only because the user says so; `contradicted`: evidence overrules what the user says. `runs` is
    its rebalance protocol, as `rebal inspect` shows it. `knowledge` is how `list` is known; a
    declared list is that of its configuration file, for the next start.
    """

    member_id: str
    name: str
    host: str = ""
    instance_id: str | None = None
    done: Tri = Tri.CANNOT_TELL
    why: str = ""
    runs: RebalanceProtocol = RebalanceProtocol.CANNOT_TELL
    list: tuple[str, ...] = ()
    knowledge: Knowledge = Knowledge.UNKNOWN
    partitions: int = 0
    concerned: bool = True
    restarted: bool = True
    proven: bool = False
    by_hand: bool = False
    changed_since: bool = False
    vouched: bool = False
    contradicted: bool = False
    evidence: tuple[Evidence, ...] = ()


def left_out(step: Step, facts: Facts) -> bool:
    """Return whether this member's client is proven to take no part in `step`."""
    return facts.family in step.left_out and facts.family_proven


def standing_of(context: Context, step: Step, ledger: AnswerLedger, facts: Facts) -> MemberStanding:
    """Return whether this member has completed `step`, and why, from all looks."""
    member = facts.member
    there = member.member_id in ledger.before[step.id]
    found = ledger.answers(step.id, member.member_id)
    proof = ledger.now[step.id, member.member_id]
    word = ledger.words.get((step.id, member.member_id))
    done = agreed(found)
    names, concerned = confirmable_list(step), not left_out(step, facts)
    newer = written_later(facts, ledger.first_seen[member.member_id])
    doubt = not_confirmable(
        facts, step, restarted=not there, opened=step.id in ledger.opened, newer=newer
    )
    claimed = names and not found and (word is not None or doubt is None)
    kept = ledger.kept.get(member.member_id, "")
    against = contrary_evidence(context, facts, names, kept) if claimed else None
    # It may have had the step's setting before the step began.
    may_be_done = (proof.by_hand and member.member_id in step.unknown) or ledger.came_finished(
        step, facts
    )
    if step.aim is Aim.CONNECT_INCREMENTAL and member.member_id in ledger.fell_back:
        done, why = Tri.NO, "the group ran default meanwhile: its tasks may run twice (RB507)"
    elif len(found) > 1:
        why = "evidence contradicts itself: " + ", ".join(
            f"{answer} ({where or 'now'})" for answer, where in found.items()
        )
    elif not concerned and done is not Tri.YES:
        why = "takes no part in this step"
    elif found:
        before = f"proven {'done' if done is Tri.YES else 'not done'} ({found[done]})"
        why = proof.why if proof.done is done else before
        if done is Tri.NO and not there and newer is None:
            why += _against_its_file(step, facts)
        if there and done is Tri.NO:
            why = f"not restarted since the step began: {why}"
    elif word is not None and against is None:
        done, why = Tri.YES, word
    elif there and step.aim is not Aim.REFRESH and not may_be_done:
        done, why = Tri.NO, "not restarted since the step began: the same member id"
    elif names and doubt is None and against is None:
        why = proof.why or f"restarted since step {step.id} began; no evidence shows its list"
        if facts.member.declared is not None and facts.member.declared.list:
            why = (
                f"declared, not verified: new member id since step {step.id} began, and "
                f"{facts.member.declared.evidence.detail} says [{', '.join(names)}]"
            )
    else:
        # Without a doubt, a list to confirm is by hand, so that evidence speaks against it here.
        why = (proof.why if word is None else "") or against or doubt or ""
    free = concerned and done is Tri.CANNOT_TELL and not found and against is None
    return MemberStanding(
        member_id=member.member_id,
        name=facts.name,
        host=member.host.lstrip("/"),
        instance_id=member.instance_id,
        done=done,
        why=why,
        runs=context.runs(facts).value,
        list=member.assignors.list,
        knowledge=member.assignors.knowledge,
        partitions=owned(member),
        concerned=concerned,
        restarted=not there and step.id in ledger.opened,
        proven=bool(found),
        by_hand=bool(proof.by_hand if not names else doubt is None) and free,
        changed_since=free and newer is not None and doubt == newer,
        vouched=done is Tri.YES and word is not None and (not found or list_is_assumed(member)),
        contradicted=word is not None and (against is not None or done is Tri.NO),
        evidence=member.assignors.evidence,
    )


def _against_its_file(step: Step, facts: Facts) -> str:
    """Return a clause for a restarted member that is proven not to run the list of `step`.

    It says that the member's configuration file has that list, so that something overrides the
    file. Empty if the file does not have that list, or was not read.
    """
    declared = facts.member.declared
    if declared is None or not step.target_list or declared.list != step.target_list:
        return ""
    return (
        f", restarted although {declared.evidence.detail} says [{', '.join(declared.list)}]: code "
        "or the environment overrides that file, or it was started with another file"
    )


class StepStanding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One step of the plan now: member ids by answer, whether its gate holds, and why not.

    `done`, `to_do` and `unknown` are the members that have completed the step, have not, and may
    have. `not_restarted` are the members of `to_do` that are known only by their member id, which
    is older than the step. `changed_since` are the members of `unknown` whose configuration file is
    newer than their process. `by_hand` are the members of `unknown` for which only the operator can
    answer, and `by_hand_list` is the assignor list to confirm (empty: the step changes another
    setting). `vouched` are the members of `done` only because the user says so. `contradicted` are
    those whose confirmation evidence overrules, `left_out` those that the step does not concern.
    `accepted` are reasons for which the gate would not hold, had the user not accepted them.
    """

    id: int
    title: str
    gate: Tri = Tri.CANNOT_TELL
    why: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    to_do: tuple[str, ...] = ()
    not_restarted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    changed_since: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    by_hand_list: tuple[str, ...] = ()
    vouched: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def step_standing(
    plan: Plan,
    step: Step,
    context: Context,
    *,
    members: Sequence[MemberStanding],
    missing: str,
    ignore: Mapping[str, str],
) -> StepStanding:
    """Return the standing of `step`: its members by answer, its gate, and the open reasons.

    `members` are its members' standings, and `missing` is the clause on missing members. `ignore`
    is rule id → reason, for the rules that the user ignores.
    """
    aim, by_list = step.aim, confirmable_list(step)
    assigned = "" if Risk.NOT_RANGE in ignore else not_range(context, step)
    # A refresh changes no member: one restart is enough, whoever's it is.
    asked = [member for member in members if member.concerned and aim is not Aim.REFRESH]
    by = {answer: [member for member in asked if member.done is answer] for answer in Tri}
    by_hand = [member for member in by[Tri.CANNOT_TELL] if member.by_hand]
    unseen = [member for member in by[Tri.CANNOT_TELL] if not member.by_hand]
    unknown, rule = f"not known: {_named(unseen)}", Risk.UNKNOWN_LISTS
    passes = (
        aim in (Aim.WIDEN, Aim.NARROW, Aim.CLASSIC)
        and rule in ignore
        and not any(member.proven for member in unseen)
    )
    state, online = context.group.state, context.group.type is GroupType.CONSUMER
    rows = (
        (context.missing, Tri.NO, missing),
        (not members, Tri.NO, f"the group has no member ({state})"),
        (
            members and not by[Tri.NO] and aim is Aim.CLASSIC and online,
            Tri.NO,
            "the group is still a KIP-848 group: it was not converted (RB401)",
        ),
        (assigned, Tri.NO, assigned),
        (by[Tri.NO], Tri.NO, f"not done: {_named(by[Tri.NO])}"),
        (unseen and not passes, Tri.CANNOT_TELL, unknown),
        (
            by_hand and by_list,
            Tri.CANNOT_TELL,
            f"restarted, not proven: {_named(by_hand)}",
        ),
        (
            by_hand and not by_list,
            Tri.CANNOT_TELL,
            f"no evidence shows it for {_named(by_hand)}: "
            f"{step.gate.by_hand or 'look at what the step changes'}",
        ),
        (
            members and state is not GroupState.STABLE,
            Tri.CANNOT_TELL,
            f"the group is not Stable ({state})",
        ),
        (
            {None, *_ids(members)} & {item.member_id for item in context.snapshot.contradictions},
            Tri.CANNOT_TELL,
            "evidence on its members contradicts itself: see rebal inspect",
        ),
        (
            context.snapshot.captured_at < plan.baseline.captured_at - _CLOCKS,
            Tri.CANNOT_TELL,
            "this look is older than the plan: take a new one",
        ),
    )
    open_ = [(answer, why) for holds, answer, why in rows if holds]
    if not open_ and aim in (Aim.WIDEN, Aim.REFRESH):
        why = _next_step_rejection(plan, step, context, ignore)
        open_ = [(Tri.CANNOT_TELL, why)] if why is not None else []
    return StepStanding(
        id=step.id,
        title=step.title,
        gate=worst(answer for answer, _ in open_),
        why=tuple(why for _, why in open_),
        accepted=(f"{unknown} ({rule} is ignored: {ignore[rule]})",) if unseen and passes else (),
        done=_ids(by[Tri.YES]),
        # One that asks for range brings it, and nothing shows who does not.
        to_do=_ids(by[Tri.NO] or (asked if assigned and not context.missing else ())),
        not_restarted=_ids([member for member in by[Tri.NO] if not member.proven]),
        unknown=_ids(by[Tri.CANNOT_TELL]),
        changed_since=_ids([one for one in by[Tri.CANNOT_TELL] if one.changed_since]),
        by_hand=_ids(by_hand),
        by_hand_list=by_list,
        vouched=_ids([member for member in by[Tri.YES] if member.vouched]),
        contradicted=_ids([member for member in members if member.contradicted]),
        left_out=_ids([member for member in members if not member.concerned]),
    )


def begun_step(
    plan: Plan,
    seen: Sequence[JournalEntry],
    context: Context,
    ledger: AnswerLedger,
    gates: Mapping[int, StepStanding],
) -> int:
    """Return the number of the last step that has begun.

    A step has begun if a member has completed it, if an earlier look was in it, or if its gate and
    the gate before it both hold. It has also begun if, after the gate before it held, a new member
    id appeared or, in a cut-over, a member left. `seen` are the earlier looks that succeeded,
    oldest first.
    """
    here = context.by_id.keys()
    current = plan.steps[0].id
    for before, step in zip(plan.steps, plan.steps[1:], strict=False):
        # Where a step stops some clients together and starts them with the last list, only their
        # answers count for that step, and none of theirs for the step after it.
        stops = step.kind is StepKind.CUT_OVER and any(each.left_out for each in plan.steps)
        made = any(
            agreed(ledger.answers(step.id, facts.member.member_id)) is Tri.YES
            for facts in context.members
            if any(left_out(each, facts) for each in plan.steps) is stops
        )
        reached = any(entry.step >= step.id for entry in seen)
        held = [entry for entry in seen if entry.step == before.id and entry.gate is Tri.YES]
        there = ledger.before[step.id]
        # Those that a step stops together, as they were when the gate before it held.
        stopped = held[-1].left_out if held else frozenset(step.to_do)
        moved = (there and here - there) or (step.kind is StepKind.CUT_OVER and stopped - here)
        passed = all(gates[each.id].gate is Tri.YES for each in (before, step))
        if made or reached or passed or (step.id in ledger.opened and moved):
            current = step.id
    return current


def _next_step_rejection(
    plan: Plan, step: Step, context: Context, ignore: Mapping[str, str]
) -> str | None:
    """Return why the coordinator may reject every possible first restart of the next step.

    None if it admits the restart of some member, because the step can begin with that one, or if
    the user accepts the risk (`ignore`: rule id → reason). None also if no step comes after `step`,
    or the next one does not drop the old assignor.
    """
    later = plan.after(step)
    if later is None or not later.aim.leaves_old or not context.ahead:
        return None
    one = first_admitted(
        (restart_of(context, f, later.target_list) for f in context.ahead[:TRIED]), ignore
    )
    if one.verdict is Tri.YES or acceptable(one, ignore):
        return None
    return f"step {later.id} is not proven to be admitted: {one.reason} ({Risk.FORGOTTEN_LISTS})"


def _named(members: Sequence[MemberStanding]) -> str:
    return listed([member.name for member in members])


def _ids(members: Sequence[MemberStanding]) -> tuple[str, ...]:
    return tuple(member.member_id for member in members)


def confirmable_list(step: Step) -> tuple[str, ...]:
    """Return the assignor list that the operator may confirm in `step`; empty if there is none.

    Only a step that leaves the target alone in the list has one. The first bounce needs no
    confirmation: its list is elected once every member holds it.
    """
    return step.target_list if step.aim in (Aim.NARROW, Aim.CLASSIC) else ()


def not_confirmable(
    facts: Facts, step: Step, *, restarted: bool, opened: bool, newer: str | None
) -> str | None:
    """Return why the operator cannot confirm this member's list in `step`; None if they can.

    `restarted`: the member's id is new since the step began. `opened`: a look at the beginning of
    the step shows which member ids are new since. `newer` is the answer of `written_later`.
    """
    names, declared = confirmable_list(step), facts.member.declared
    file = declared.evidence.detail if declared is not None else ""
    says = declared.list if declared is not None else ()
    return first_reason(
        (
            (not names, "no evidence shows whether it is done"),
            (not restarted, "not restarted since the step began: the same member id"),
            (not opened, "no earlier look shows the members that were there when the step began"),
            (
                declared is not None and declared.group_protocol == "consumer",
                f"{file} says group.protocol=consumer",
            ),
            (
                says not in ((), names),
                f"{file} says [{', '.join(says)}], and the step brings [{', '.join(names)}]",
            ),
            (newer, newer or ""),
        )
    )


def written_later(facts: Facts, first_seen: datetime) -> str | None:
    """Return a clause if the member's configuration file is newer than its process, else None.

    The file then does not show the configuration of the process. Times are compared in whole
    seconds. In the same second the file is older: a process takes longer to start and join than its
    file takes to be written.
    """
    declared = facts.member.declared
    if declared is None:
        return None
    times = ((declared.evidence.at, "written"), (declared.created_at, "created"))
    reasons = (
        f"{declared.evidence.detail} was {what} at {at:%b %d %H:%M:%SZ}, after this member "
        f"was first seen at {first_seen:%b %d %H:%M:%SZ}: the file does not show what the "
        "process was started with"
        for at, what in times
        if at is not None and at > first_seen.replace(microsecond=0)
    )
    return next(reasons, None)


def contrary_evidence(
    context: Context, facts: Facts, names: tuple[str, ...], kept: str = ""
) -> str | None:
    """Return the evidence that forbids to confirm `names` by hand as the list; None without any.

    It is evidence that shows the list, that contradicts `names` or itself, or by which the
    coordinator would reject a join with `names` now.

    `kept` names an earlier look that shows that the member kept partitions when it joined (empty:
    no look does). That stays evidence, because the list of a member id never changes.
    """
    member, known, told = facts.member, facts.member.assignors, context.runs(facts)
    protocols = {Tri.YES: RebalanceProtocol.COOPERATIVE, Tri.NO: RebalanceProtocol.EAGER}
    wanted = protocols.get(agreed(map(cooperative, names)))
    eager = wanted is RebalanceProtocol.EAGER
    admission = restart_of(context, facts, names)
    at_odds = {None, member.member_id} & {c.member_id for c in context.snapshot.contradictions}
    exact = known.knowledge is Knowledge.EXACT and not list_is_assumed(member)
    return first_reason(
        [
            (at_odds, "the evidence on it contradicts itself"),
            (exact, f"evidence shows its list: [{', '.join(known.list)}]"),
            *(
                (
                    name in known.lacks or context.supports(facts, name) is Tri.NO,
                    f"evidence shows that its list has no {name}",
                )
                for name in names
            ),
            *(
                (context.own_class(facts, name), f"the class behind {name} is not Kafka's own")
                for name in names
            ),
            *(
                (name, f"evidence shows that its list holds {name}")
                for name in sorted(context.names_held(member) - {*names})
            ),
            (
                is_mixed(names) and context.takes_mixed(facts) is Tri.NO,
                "its client does not start with eager and cooperative assignors in one list",
            ),
            (
                wanted and told.value not in (wanted, RebalanceProtocol.CANNOT_TELL),
                f"it runs {told.value}: {told.why}",
            ),
            (
                eager and member.kept_partitions,
                f"it kept {member.kept_partitions} partitions when it last joined, as no EAGER "
                "member does",
            ),
            (
                eager and kept,
                f"it had kept partitions when it joined, as no EAGER member does ({kept})",
            ),
            (
                admission.verdict is Tri.NO,
                f"the coordinator rejects this list now: {admission.reason}",
            ),
        ]
    )
