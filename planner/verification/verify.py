"""The standing of a roll-out: `verify` compares a snapshot with the plan and its journal.

It does no I/O. The group is in the last step that has begun: a member is proven to have completed
it, the journal records it, its gate and the gate before it hold, or a new member id appeared after
the previous gate had held. A gate holds only if every expected member is in the group and proven;
cannot tell never counts as yes. The rules that made the plan are evaluated again on the live group,
since new dangers can arise after the plan was made.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rebal.groups.errors import RebalError
from rebal.groups.evidence.logs import LogCoverage, log_coverage
from rebal.groups.model import GroupSnapshot, Moment, Record, Tri
from rebal.planner.advice.steps import comes_before
from rebal.planner.commands import Given
from rebal.planner.context import EAGER, Context
from rebal.planner.difference import Change, changes_since
from rebal.planner.paths import make_plan
from rebal.planner.plan import (
    Accepted,
    Action,
    Advice,
    Aim,
    Finding,
    Gate,
    Plan,
    Setting,
    Step,
    StepKind,
    Verdict,
)
from rebal.planner.verdict import UNPROVEN, exit_code, first_reason, reasons
from rebal.planner.verification.dangers import (
    Danger,
    behind_of,
    dangers,
    decides,
    live_findings,
    not_judged,
)
from rebal.planner.verification.gates import AnswerLedger
from rebal.planner.verification.journal import (
    GOALS,
    Confirmation,
    JournalEntry,
    PlanContext,
    as_stated,
    here_again,
    known_before,
    list_is_assumed,
    look_of,
    looks_of,
    remembered,
)
from rebal.planner.verification.members import (
    MemberStanding,
    StepStanding,
    begun_step,
    standing_of,
    step_standing,
)
from rebal.planner.verification.next_action import Look, next_action
from rebal.planner.verification.outsiders import (
    Doubt,
    Outsider,
    OutsiderKind,
    missing_text,
    outsiders_of,
)

_NO_STEP: Final = Step(
    id=0,
    title="nothing was left to do",
    kind=StepKind.ROLLING,
    precondition="",
    precondition_holds=Tri.YES,
    gate=Gate(command="", shows="", aim=Aim.REFRESH),
    rollback="",
)
"""Placeholder for the step of a plan without steps."""
OLD: Final = timedelta(days=7)
"""Age from which a plan is reported as old: its order, costs and counts may no longer fit."""


class NothingToConfirmError(RebalError):
    """A `--confirm` of a step that needs no confirmation, or that the group is not in."""


class AnsweredError(RebalError):
    """A `--confirm` of what evidence already shows or disproves, or could still show."""


class Standing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The live group compared with its plan, at one look.

    `step` is the step that the group is in (None: the plan has none), `gate` the answer of its
    gate, `why` the reasons why the gate does not hold. `advice` is the action to take, `next` its
    text; `withheld` are restarts that are not recommended. `config` is the configuration text for a
    recommended restart of the step. `drift` are the facts of the plan's baseline that have changed.

    `counted`: the user gave the number of `expected` members. `departed` are the clients that left
    for good, by the user's statement. `findings` are the rules' findings for the next restart.
    `unverified` are the names of members that have completed the step only by the operator's
    statement. `client_log` says which members this look's client logs show. `exit_code` is 0 if the
    gate holds and the next step may start, 3 for a danger, 4 otherwise. While the group cannot be
    read, `blind_since` is the time of the last successful look.
    """

    group_id: str
    at: Moment
    step: int | None
    gate: Tri
    why: tuple[str, ...] = ()
    next: str = ""
    advice: Advice = Advice()
    withheld: tuple[Advice, ...] = ()
    config: tuple[Setting, ...] = ()
    drift: tuple[Change, ...] = ()
    finished: bool = False
    state: str = ""
    assignor: str | None = None
    generation: int | None = None
    present: int = 0
    expected: int = 0
    counted: bool = False
    departed: tuple[str, ...] = ()
    lag: int | None = None
    steps: tuple[StepStanding, ...] = ()
    members: tuple[MemberStanding, ...] = ()
    outsiders: tuple[Outsider, ...] = ()
    dangers: tuple[Danger, ...] = ()
    findings: tuple[Finding, ...] = ()
    accepted: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    client_log: LogCoverage = LogCoverage()
    notes: tuple[str, ...] = ()
    blind_since: Moment | None = None
    blind_why: str | None = None
    exit_code: int = UNPROVEN


def verify(
    plan: Plan,
    entries: Sequence[JournalEntry],
    snapshot: GroupSnapshot,
    *,
    step: int | None = None,
    expect_members: int | None = None,
    accepted: Accepted | None = None,
    given: Given | None = None,
) -> Standing:
    """Return the standing of the group in `snapshot` against `plan`.

    `entries` are the journal's looks, oldest first. `step` selects the gate of that step instead of
    the current step's. `expect_members` replaces the plan's number of members. `accepted` is added
    to the risks that the plan records as accepted. `given` are the options of this command line;
    without them, printed commands repeat the plan's.
    """
    ahead = [entry for entry in entries if entry.at > snapshot.captured_at]
    seen = [one for one in entries if one.blind is None and one.at <= snapshot.captured_at]
    known = remembered(plan, seen, snapshot)
    plan, known, accepted, expected = as_stated(plan, seen, known, accepted, expect_members)
    context = PlanContext(plan, known, expected, accepted, given)
    outsiders = outsiders_of(plan, seen, context, estimated=accepted.members is None)
    ledger = AnswerLedger(plan, seen, context, ahead)
    views = {
        each.id: [standing_of(context, each, ledger, facts) for facts in context.members]
        for each in plan.steps
    }
    gates = {
        each.id: step_standing(
            plan,
            each,
            context,
            members=views[each.id],
            missing=missing_text(context, outsiders),
            ignore=accepted.ignore,
        )
        for each in plan.steps
    }
    number, fresh = step or 0, None
    if not plan.steps:
        fresh = _made_now(plan, context, accepted)
    elif step is None:
        number = begun_step(plan, seen, context, ledger, gates)
    current = gates[number] if fresh is None else _still_done(plan, fresh)
    now, gate = plan.step(number) or _NO_STEP, current.gate
    later = plan.after(now) if fresh is None else None
    rejected = [
        one for one in outsiders if one.kind is OutsiderKind.REJECTED and one.doubt is Doubt.NONE
    ]
    members = tuple(views.get(number, ()))
    found = dangers(plan, seen, context, rejected)
    lags = [one.records for one in snapshot.lag if one.records is not None]
    findings = live_findings(
        plan, context, accepted.ignore, later if gate is Tri.YES or fresh is not None else now
    )
    advice, withheld = next_action(
        Look(
            plan=plan,
            context=context,
            seen=seen,
            current=current,
            step=now,
            later=later,
            outsiders=outsiders,
            dangers=found,
            findings=findings,
            ignore=accepted.ignore,
            fresh=fresh,
        )
    )
    decided = {answer for answer in Tri for finding in findings if decides(finding, answer)}
    danger = bool(found) or Tri.YES in decided or advice.verdict is Tri.NO
    # A gate that opens a step holds only where the step's first restart is admitted.
    opens = advice.action is Action.NONE or (
        later is not None and advice.recommended and not comes_before(later, advice, withheld)
    )
    holds = gate is Tri.YES and opens and Tri.CANNOT_TELL not in decided
    return Standing(
        group_id=plan.group_id,
        at=snapshot.captured_at,
        step=number or None,
        gate=gate,
        why=current.why,
        next=advice.text,
        advice=advice,
        withheld=withheld,
        config=_config(plan, advice, gates, context),
        drift=changes_since(plan, known, context.elected),
        finished=holds and later is None and not danger,
        state=str(snapshot.group.state),
        assignor=snapshot.group.assignor,
        generation=context.generation,
        present=len(snapshot.members),
        expected=expected,
        counted=accepted.members is not None,
        departed=accepted.departed,
        lag=sum(lags) if lags else None,
        steps=tuple(gates.values()),
        members=members,
        outsiders=outsiders,
        dangers=found,
        findings=findings,
        accepted=(
            *current.accepted,
            *(f"{name} left for good" for name in accepted.departed),
        ),
        client_log=log_coverage(snapshot),
        unverified=tuple(one.name for one in members if one.vouched),
        notes=_notes(
            plan,
            snapshot,
            len(ahead),
            not_judged(snapshot) if gate is Tri.YES and later is None else None,
            *(
                f"{name} was said to have left for good (--departed) and is in the group"
                for name in here_again(accepted.departed, snapshot)
            ),
        ),
        exit_code=exit_code(Tri.NO if danger else Tri.YES if holds else Tri.CANNOT_TELL),
    )


def _made_now(plan: Plan, context: Context, accepted: Accepted) -> Plan:
    """Return the plan that would be made now in place of a plan without steps."""

    def planned(group: GroupSnapshot, goal: str, count: int | None) -> Plan:
        return make_plan(
            group,
            goal,
            expect_members=count,
            families=accepted.families,
            ignore=accepted.ignore,
        )

    goal = GOALS.get(plan.to, plan.to)
    named = goal == EAGER and plan.target in ("range", "roundrobin", "sticky")
    # Where the assignor's name asks for nothing more, `--to eager` makes the same plan.
    then = planned(plan.baseline, plan.target, plan.expected_members) if named else None
    if then is not None and then.verdict is Verdict.DONE:
        goal = plan.target
    return planned(context.snapshot, goal, context.expected)


def _still_done(plan: Plan, fresh: Plan) -> StepStanding:
    """Return the standing of a plan that has no steps, in the form of a step with number 0.

    Its gate holds if both `plan` and `fresh`, the plan that would be made now, are done. Otherwise
    the gate's answer is cannot tell.
    """
    done = plan.verdict is fresh.verdict is Verdict.DONE
    left = plan.verdict is Verdict.DONE
    why = f"a new plan says: {fresh.summary}" if left else "the plan has no step to verify"
    return StepStanding(
        id=0,
        title=_NO_STEP.title,
        gate=Tri.YES if done else Tri.CANNOT_TELL,
        why=() if done else (why,),
    )


def _config(
    plan: Plan, advice: Advice, standings: Mapping[int, StepStanding], context: Context
) -> tuple[Setting, ...]:
    """Return the configuration for the advised members, if the advice carries out a step.

    It is that of their client families if all are proven, else that of all families. Empty for any
    other advice: a restart that prepares the step, or a start of a rejected client, has another
    list, and a missing member may start with its current list.
    """
    step = plan.step(advice.step)
    joins = advice.action in (Action.RESTART, Action.CUT_OVER) or (
        advice.action is Action.START and (advice.assignors or advice.change)
    )
    if step is None or not (joins and advice.recommended and advice.assignors == step.target_list):
        return ()
    clients = {
        facts.family if facts.family_proven else None
        for facts in context.members
        if facts.member.member_id in advice.members
    }
    # Some clients may have had this list from an earlier step.
    every = tuple(
        one
        for each in plan.steps
        if each is step or (step.target_list and each.target_list == step.target_list)
        for one in each.config
    )
    own = tuple(one for one in every if None not in clients and one.family in clients)
    return (own or every) if {*advice.members} <= {*standings[step.id].to_do} else ()


def confirm(
    now: Standing,
    asked: Standing,
    step: int,
    reason: str,
    *,
    members: Sequence[str] = (),
    names: tuple[str, ...] = (),
) -> Confirmation:
    """Return the operator's confirmation of `step` for `members`.

    `members` are names, instance ids or member ids. `now` is the standing of the current step,
    `asked` that of `step`. `names` is the assignor list that the members run, if the step changes
    the list; the members must then be named. A step that changes another setting is confirmed for
    every member that it concerns, unless some are named. The confirmation holds for the present
    member ids; a member that joins later needs another one.

    Raises:
        NothingToConfirmError: the step has not begun, or the options do not fit it.
        AnsweredError: evidence shows the answer, or missing evidence could.
    """
    standing = next(each for each in asked.steps if each.id == step)
    wanted, given = ",".join(standing.by_hand_list), ",".join(names)
    named = _chosen(asked, members)
    chosen = [one for one in named if one.done is not Tri.YES]
    wrong = first_reason(
        (
            (
                step > (now.step or 0) + (now.gate is Tri.YES),
                f"the group is in step {now.step}, whose gate comes first.",
            ),
            (
                wanted and standing.gate is not Tri.YES and not (members and names),
                f"name the members and the list that they run: --member NAME --list {wanted}.",
            ),
            (
                given and not wanted and any(one.by_hand for one in chosen),
                "no assignor list is confirmed in this step: leave --list out.",
            ),
            (
                given and wanted and given != wanted,
                f"--list {given} is not the list of this step: a member has completed it with "
                f"{wanted} alone.",
            ),
        )
    )
    if wrong is not None:
        raise NothingToConfirmError(f"--confirm {step}: {wrong}")
    answered = first_reason(
        (
            (standing.gate is Tri.YES, "its gate holds"),
            (
                not chosen,
                "it is done already: " + ", ".join(f"{one.name} ({one.why})" for one in named),
            ),
            *((not one.by_hand, f"{one.name}: {one.why}") for one in chosen),
        )
    )
    if answered is not None:
        raise AnsweredError(f"--confirm {step}: nothing is confirmed: {answered}.")
    return Confirmation(
        step=step,
        reason=reason,
        members=tuple(one.member_id for one in chosen),
        list=names,
    )


def _chosen(asked: Standing, members: Sequence[str]) -> list[MemberStanding]:
    """Return the members with these names or ids; all that the step concerns if none is given.

    Raises:
        NothingToConfirmError: a name or id matches no member, or several.
    """
    if not members:
        return [one for one in asked.members if one.concerned]
    found = []
    for text in dict.fromkeys(members):
        mine = [one for one in asked.members if text in (one.name, one.member_id, one.instance_id)]
        if len(mine) != 1:
            raise NothingToConfirmError(
                f"--member {text}: {len(mine) or 'no'} members of the group have this name or id."
            )
        found += mine
    return found


def entry_of(
    plan: Plan,
    standing: Standing,
    snapshot: GroupSnapshot,
    *,
    entries: Sequence[JournalEntry] = (),
    accepted: Sequence[str] = (),
) -> JournalEntry:
    """Return the journal entry of this look; `entries` are the entries already in the journal.

    `accepted` are the risks that the user accepted at this look, a sentence each.
    """
    # "Not restarted" proves nothing at a later look, and the user's word proves nothing at all.
    # What the journal has already is left out.
    by_step = {
        each.id: (
            frozenset(each.done) - frozenset(each.vouched),
            frozenset(each.to_do).difference(each.not_restarted, each.done),
        )
        for each in standing.steps
    }
    labels = {member.member_id: member.name for member in standing.members}
    lists, clients = known_before(looks_of(plan, entries) if entries else ())
    current = next((each for each in standing.steps if each.id == standing.step), None)
    later = standing.gate is Tri.YES and current not in standing.steps[-1:]
    look, advice = look_of(plan, snapshot), standing.advice
    return replace(
        look,
        step=standing.step or 1,
        # A gate that holds opens no step while a question or a danger is open.
        gate=Tri.CANNOT_TELL if later and standing.exit_code else standing.gate,
        finished=standing.finished,
        generation=standing.generation,
        members=tuple(
            replace(
                seen,
                name=labels.get(member.member_id, member.client_id),
                made=tuple(n for n, (done, _) in by_step.items() if member.member_id in done),
                lacks=tuple(
                    n
                    for n, (_, lacks) in by_step.items()
                    if member.member_id in lacks and not list_is_assumed(member)
                ),
                contradicted=tuple(
                    each.id for each in standing.steps if member.member_id in each.contradicted
                ),
                assignors=None
                if list_is_assumed(member) or seen.assignors == lists.get(member.member_id)
                else seen.assignors,
                software=None if seen.software == clients.get(member.member_id) else seen.software,
            )
            for seen, member in zip(look.members, snapshot.members, strict=True)
        ),
        behind=behind_of(snapshot, entries),
        rejected=remembered(plan, entries, snapshot).refusals,
        dangers=tuple(danger.kind for danger in standing.dangers),
        accepted=(*standing.accepted, *accepted),
        left_out=frozenset(current.left_out) if current is not None else frozenset(),
        advised=advice if advice.recommended or advice.instead_of else None,
        departed=standing.departed,
        expected=standing.expected if standing.counted else None,
    )


def _notes(plan: Plan, snapshot: GroupSnapshot, late: int, *said: str | None) -> tuple[str, ...]:
    """Return the notes of this look.

    They are the texts in `said`, the doubts about plan and journal, and the snapshot's own notes.
    `late` is the number of journal entries that are later than this look.
    """
    age = snapshot.captured_at - plan.baseline.captured_at
    rows = (
        (
            plan.baseline.redacted,
            "the plan's baseline is redacted, so its member ids say nothing about the live group",
        ),
        (
            age >= OLD,
            f"the plan is {age.days} days old: its member count, order and costs may be out of "
            "date; make a new one",
        ),
        (
            late,
            f"journal entries later than this look, left out: {late} (the clocks of two machines "
            "differ, or this is an old snapshot)",
        ),
    )
    return (*filter(None, said), *reasons(*rows), *snapshot.notes)
