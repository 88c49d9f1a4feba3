"""Where a roll-out stands: `verify(plan, entries, snapshot)`; pure.

The step that a group is in is the last one that has begun: somebody is proven to have made it, the
journal says so, or an id that was not there before came after the former step's gate had held. A
gate holds only where every expected member is there and proven; what cannot be told is no yes. The
rules that made the plan are asked again of the live group: what has come since can be a danger too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, Moment, Record, Tri
from rebal.planner.admission.next_action import comes_before, next_action
from rebal.planner.admission.wording import NONE, START, sentence
from rebal.planner.plan import Accepted, Advice, Finding, Plan
from rebal.planner.rules import Trait, has
from rebal.planner.verification.context import (
    assumed,
    context_of,
    known_before,
    proven_list,
    proven_software,
    remembered,
)
from rebal.planner.verification.dangers import (
    CURABLE,
    Danger,
    dangers,
    first_seconds,
    lag_of,
    new_refusals,
    rejected_clients,
    went_back,
)
from rebal.planner.verification.done import still_done
from rebal.planner.verification.drift import Change, changes_since
from rebal.planner.verification.findings import decides, live_findings
from rebal.planner.verification.gates import aim_of
from rebal.planner.verification.journal import JournalEntry, SeenMember, plan_key
from rebal.planner.verification.members import (
    Ledger,
    MemberStanding,
    Missing,
    missing_from,
    owned,
    standing_of,
)
from rebal.planner.verification.steps import StepStanding, begun_step, step_standing

HOLDS: Final = 0
DANGER: Final = 3
NOT_YET: Final = 4
OLD: Final = timedelta(days=7)
"""From this age on it is said that a plan is old: its order, costs and count may not fit."""


class Standing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The live group against its plan.

    `step` is the step that the group is in (None: the plan has none), `gate` that step's answer,
    `why` what keeps it from holding. `advice` is what to do, `next` its text, `withheld` are the
    restarts that are not recommended; `drift` is what the plan rests on and is no longer so.
    `findings` are what the rules say to the
    next restart, and their news since the plan was made. `exit_code` is 0 where the gate holds,
    3 where a danger shows, 4 otherwise. `blind_since` is when the group was last seen, while it
    cannot be read.
    """

    group_id: str
    at: Moment
    step: int | None
    gate: Tri
    why: tuple[str, ...] = ()
    next: str = ""
    advice: Advice = Advice()
    withheld: tuple[Advice, ...] = ()
    drift: tuple[Change, ...] = ()
    finished: bool = False
    state: str = ""
    assignor: str | None = None
    generation: int | None = None
    present: int = 0
    expected: int = 0
    lag: int | None = None
    steps: tuple[StepStanding, ...] = ()
    members: tuple[MemberStanding, ...] = ()
    missing: tuple[Missing, ...] = ()
    dangers: tuple[Danger, ...] = ()
    findings: tuple[Finding, ...] = ()
    accepted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blind_since: Moment | None = None
    blind_why: str | None = None
    exit_code: int = NOT_YET


def verify(
    plan: Plan,
    entries: Sequence[JournalEntry],
    snapshot: GroupSnapshot,
    *,
    step: int | None = None,
    expect_members: int | None = None,
    accepted: Accepted | None = None,
) -> Standing:
    """How `snapshot` stands to `plan`; `entries` are the journal's earlier looks, oldest first.

    `step` asks for the gate of that step, else for that of the step the group is in.
    `expect_members` replaces the plan's own count, `accepted` is added to what the plan records.
    """
    late = sum(entry.at > snapshot.captured_at for entry in entries)
    entries = [entry for entry in entries if entry.at <= snapshot.captured_at]
    seen = [entry for entry in entries if entry.blind is None]
    accepted = _both(plan.accepted, accepted)
    expected = expect_members or plan.expected_members or len(plan.baseline.members)
    known = remembered(plan, entries, snapshot)
    context = context_of(plan, known, expected, accepted)
    missing = missing_from(plan, entries, snapshot, expected)
    ledger = Ledger(plan, entries, context)
    views = {each.id: standing_of(context, each, aim_of(plan, each), ledger) for each in plan.steps}
    gates = {
        each.id: step_standing(
            plan,
            each,
            context,
            members=views[each.id],
            missing=missing,
            ignore=accepted.ignore,
        )
        for each in plan.steps
    }
    number = step if step is not None else begun_step(plan, entries, context, ledger)
    goal = still_done(plan, known, expected, accepted)
    current = gates.get(number) if number is not None else goal
    gate = current.gate if current else Tri.CANNOT_TELL
    now = next((each for each in plan.steps if each.id == number), None)
    later = next((each for each in plan.steps if now and each.id > now.id), None)
    rejected = rejected_clients(plan, context)
    found = list(dangers(plan, entries, context, rejected))
    if number is not None:
        found += went_back(plan, context, number, views)
    findings = live_findings(plan, context, accepted.ignore, later if gate is Tri.YES else now)
    drift = changes_since(plan, context)
    advice, withheld = next_action(
        plan,
        current,
        context,
        missing=missing,
        findings=findings,
        rejected=rejected,
        stopped_by=[f"{each.message} {each.fix}" for each in found if each.kind not in CURABLE],
        outdated=next((change.text for change in drift if change.outdates), None),
        ignore=accepted.ignore,
    )
    if advice.action == START:
        findings = tuple(_with_its_start(each, advice, snapshot) for each in findings)
    danger = bool(found) or any(decides(finding, Tri.YES) for finding in findings)
    danger = danger or advice.verdict is Tri.NO
    unsure = any(decides(finding, Tri.CANNOT_TELL) for finding in findings)
    # A gate that opens a step holds only where the step's first restart is admitted.
    opens = advice.recommended or advice.action == NONE
    opens = opens and not (later and comes_before(later, advice, withheld))
    unsure = unsure or (later is not None and not opens)
    holds = gate is Tri.YES and not unsure
    return Standing(
        group_id=plan.group_id,
        at=snapshot.captured_at,
        step=number,
        gate=gate,
        why=current.why if current else ("the plan has no step to verify",),
        next=advice.text,
        advice=advice,
        withheld=withheld,
        drift=drift,
        finished=holds and later is None and not danger,
        state=str(snapshot.group.state),
        assignor=snapshot.group.assignor,
        generation=snapshot.group.generation,
        present=len(snapshot.members),
        expected=expected,
        lag=lag_of(snapshot)[0],
        steps=tuple(gates.values()),
        members=tuple(views[number]) if number in views else (),
        missing=missing,
        dangers=tuple(found),
        findings=findings,
        accepted=current.accepted if current else (),
        notes=tuple(_notes(plan, snapshot, late, first_seconds(seen, context))),
        exit_code=DANGER if danger else HOLDS if holds else NOT_YET,
    )


def entry_of(
    plan: Plan,
    standing: Standing,
    snapshot: GroupSnapshot,
    *,
    entries: Sequence[JournalEntry] = (),
    accepted: Sequence[str] = (),
) -> JournalEntry:
    """What this look adds to the journal, where `entries` are in it already.

    `accepted` is what the user took upon themselves now.
    """
    # "Not restarted" is no proof that lasts, and a word is none: only what evidence says of an id.
    by_step = {
        each.id: (
            frozenset(each.done) - frozenset(each.vouched),
            frozenset(each.to_do) - frozenset(each.not_restarted),
        )
        for each in standing.steps
    }
    labels = {member.member_id: member.name for member in standing.members}
    known = known_before(plan, entries) if entries else {}
    lag, committed = lag_of(snapshot)
    current = next((each for each in standing.steps if each.id == standing.step), None)
    return JournalEntry(
        at=standing.at,
        plan=plan_key(plan),
        group_id=plan.group_id,
        step=standing.step or 1,
        gate=standing.gate,
        state=standing.state,
        assignor=standing.assignor,
        generation=standing.generation,
        members=tuple(
            SeenMember(
                member_id=member.member_id,
                name=labels.get(member.member_id, member.client_id),
                client_id=member.client_id,
                host=member.host,
                instance_id=member.instance_id,
                partitions=owned(member),
                made=tuple(n for n, (done, _) in by_step.items() if member.member_id in done),
                lacks=tuple(
                    n
                    for n, (_, lacks) in by_step.items()
                    if member.member_id in lacks and not assumed(member)
                ),
                assignors=_news(proven_list(member), known.get(member.member_id)),
                software=_news(proven_software(member), known.get(member.member_id)),
            )
            for member in snapshot.members
        ),
        lag=lag,
        committed=committed,
        refused=tuple(
            f"{refusal.instance_id or refusal.client_id} [{', '.join(refusal.list)}]"
            for refusal in new_refusals(plan, snapshot)
        ),
        dangers=tuple(danger.kind for danger in standing.dangers),
        findings=tuple(finding.rule for finding in standing.findings if decides(finding, Tri.YES)),
        accepted=(*standing.accepted, *accepted),
        left_out=frozenset(current.left_out) if current else frozenset(),
    )


def _with_its_start(finding: Finding, advice: Advice, snapshot: GroupSnapshot) -> Finding:
    """Return the finding of missing members with the start that `advice` names."""
    if not has(finding, Trait.MISSING_MEMBERS):
        return finding
    gone = f"If they are gone for good: --expect-members {len(snapshot.members)}."
    return replace(finding, fix=f"{sentence(advice)} {gone}")


_T = TypeVar("_T")


def _news(fact: _T, known: tuple[object, object] | None) -> _T | None:
    """A fact of an id stays in the journal once; None where it is there."""
    return None if known is not None and fact in known else fact


def _both(planned: Accepted, given: Accepted | None) -> Accepted:
    if given is None:
        return planned
    return Accepted(
        families={**planned.families, **given.families},
        ignore={**planned.ignore, **given.ignore},
    )


def _notes(plan: Plan, snapshot: GroupSnapshot, late: int, idle: str | None) -> Iterator[str]:
    if idle is not None:
        yield idle
    if plan.baseline.redacted:
        yield "the plan's baseline is redacted: its member ids say nothing of the live group"
    age = snapshot.captured_at - plan.baseline.captured_at
    if age >= OLD:
        yield (
            f"the plan is {age.days} days old: its count, order and costs are of then; "
            f"rebal plan-upgrade {plan.group_id} makes a new one"
        )
    if late:
        yield (
            f"looks of the journal that are later than this one, and left out: {late} (the clocks "
            "of two machines differ, or this is an old snapshot)"
        )
    past = new_refusals(plan, snapshot)
    if past:
        yield f"joins refused since the plan was made: {sum(one.times for one in past)}"
    yield from snapshot.notes
