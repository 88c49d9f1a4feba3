"""Where a roll-out stands: `verify(plan, entries, snapshot)`; pure.

The step that a group is in is the last one that has begun: somebody is proven to have made it, the
journal says so, or an id that was not there before came after the former step's gate had held. A
gate holds only where every expected member is there and proven; what cannot be told is no yes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rebal.groups.model import GroupSnapshot, GroupState, Moment, Record, Tri
from rebal.planner.context import Context
from rebal.planner.plan import Plan, Step
from rebal.planner.verify_dangers import Danger, dangers, lag_of, new_refusals
from rebal.planner.verify_journal import JournalEntry, SeenMember, plan_key
from rebal.planner.verify_members import (
    Aim,
    Ledger,
    MemberStanding,
    Missing,
    aim_of,
    context_of,
    missing_from,
    owned,
    standing_of,
)

HOLDS: Final = 0
DANGER: Final = 3
NOT_YET: Final = 4


class StepStanding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One step of the plan now: member ids by answer, and whether its gate holds and why not.

    `not_restarted` are those of `to_do` of which only that is known: their id was there before.
    """

    id: int
    title: str
    gate: Tri = Tri.CANNOT_TELL
    why: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    to_do: tuple[str, ...] = ()
    not_restarted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Standing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The live group against its plan.

    `step` is the step that the group is in (None: the plan has none), `gate` that step's answer,
    `why` what keeps it from holding. `next` is what to do. `exit_code` is 0 where the gate holds,
    3 where a danger shows, 4 otherwise. `blind_since` is set while the group cannot be read.
    """

    group_id: str
    at: Moment
    step: int | None
    gate: Tri
    why: tuple[str, ...] = ()
    next: str = ""
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
) -> Standing:
    """How `snapshot` stands to `plan`; `entries` are the journal's earlier looks, oldest first.

    `step` asks for the gate of that step, else for that of the step the group is in.
    `expect_members` replaces the plan's own count.
    """
    entries = [entry for entry in entries if entry.at <= snapshot.captured_at]
    expected = expect_members or plan.expected_members or len(plan.baseline.members)
    context = context_of(plan, snapshot, expected)
    missing = missing_from(plan, entries, snapshot, expected)
    ledger = Ledger(plan, entries, context)
    views = {each.id: standing_of(context, each, aim_of(plan, each), ledger) for each in plan.steps}
    gates = {each.id: _step(plan, each, context, views[each.id], missing) for each in plan.steps}
    number = step if step is not None else _begun(plan, entries, context, ledger)
    found = list(dangers(plan, entries, context, missing))
    if number is not None:
        found += _went_back(plan, context, number, views)
    current = gates.get(number) if number is not None else None
    last = plan.steps[-1].id if plan.steps else None
    gate = current.gate if current else Tri.CANNOT_TELL
    finished = gate is Tri.YES and number == last
    code = DANGER if found else HOLDS if gate is Tri.YES else NOT_YET
    return Standing(
        group_id=plan.group_id,
        at=snapshot.captured_at,
        step=number,
        gate=gate,
        why=current.why if current else ("the plan has no step to verify",),
        next=_next(plan, current, found, context, missing),
        finished=finished and not found,
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
        notes=tuple(_notes(plan, snapshot, expected)),
        exit_code=code,
    )


def entry_of(plan: Plan, standing: Standing, snapshot: GroupSnapshot) -> JournalEntry:
    """What this look adds to the journal."""
    # "Not restarted" is no proof that lasts: only what evidence says of an id does.
    by_step = {
        each.id: (frozenset(each.done), frozenset(each.to_do) - frozenset(each.not_restarted))
        for each in standing.steps
    }
    labels = {member.member_id: member.name for member in standing.members}
    lag, committed = lag_of(snapshot)
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
                lacks=tuple(n for n, (_, lacks) in by_step.items() if member.member_id in lacks),
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
    )


def _begun(
    plan: Plan, entries: Sequence[JournalEntry], context: Context, ledger: Ledger
) -> int | None:
    """The last step that has begun."""
    if not plan.steps:
        return None
    here = {facts.member.member_id for facts in context.members}
    seen = [entry for entry in entries if entry.blind is None]
    current = plan.steps[0].id
    for before, step in zip(plan.steps, plan.steps[1:], strict=False):
        made = any(ledger.answer(step.id, member_id) is Tri.YES for member_id in here)
        reached = any(entry.step >= step.id for entry in seen)
        opened = plan.next_step == step.id or any(
            entry.step == before.id and entry.gate is Tri.YES for entry in seen
        )
        there = ledger.before(step.id)
        if made or reached or (opened and there and bool(here - there)):
            current = step.id
    return current


def _step(
    plan: Plan,
    step: Step,
    context: Context,
    members: Sequence[MemberStanding],
    missing: Sequence[Missing],
) -> StepStanding:
    aim = aim_of(plan, step)
    by: dict[Tri, list[MemberStanding]] = {answer: [] for answer in Tri}
    # A refresh changes no member: one restart is enough, whoever's it is.
    for member in members if aim is not Aim.REFRESH else ():
        by[member.done].append(member)
    refuted, open_ = [], []
    if context.missing:
        refuted.append(_missing_text(context, missing))
    if by[Tri.NO]:
        refuted.append(f"not done: {_named(by[Tri.NO])}")
    if by[Tri.CANNOT_TELL]:
        open_.append(f"not known: {_named(by[Tri.CANNOT_TELL])}")
    if not members:
        refuted.append(f"the group has no member ({context.group.state})")
    elif not _settled(context, aim):
        open_.append(f"the group is not Stable ({context.group.state})")
    elif any(item.member_id in (None, *_ids(members)) for item in context.snapshot.contradictions):
        open_.append("evidence about its members is at odds: see rebal inspect")
    elif not refuted and not open_ and aim in (Aim.WIDEN, Aim.REFRESH):
        open_ += _remembered(plan, step, context)
    gate = Tri.NO if refuted else Tri.CANNOT_TELL if open_ else Tri.YES
    return StepStanding(
        id=step.id,
        title=step.title,
        gate=gate,
        why=(*refuted, *open_),
        done=_ids(by[Tri.YES]),
        to_do=_ids(by[Tri.NO]),
        not_restarted=_ids([member for member in by[Tri.NO] if not member.proven]),
        unknown=_ids(by[Tri.CANNOT_TELL]),
    )


def _settled(context: Context, aim: Aim) -> bool:
    return context.stable if aim is not Aim.CONSUMER else context.group.state is GroupState.STABLE


def _remembered(plan: Plan, step: Step, context: Context) -> Iterator[str]:
    """RB113: does the coordinator remember what the next, narrowing step needs?"""
    later = [other for other in plan.steps if other.id > step.id]
    if not later or aim_of(plan, later[0]) is not Aim.NARROW:
        return
    if context.elected == context.target or context.probed(context.target) is Tri.YES:
        return
    # All lists may be known and the coordinator's memory still hold the elected assignor alone.
    if context.reloaded is not Tri.NO:
        has = "has been" if context.reloaded is Tri.YES else "may have been"
        hint = "" if context.snapshot.probe is not None else " (--probe tells)"
        yield (
            f"the coordinator {has} loaded again since the last rebalance and then remembers only "
            f"{context.elected}{hint}: restart one member with its CURRENT list (RB113)"
        )


def _went_back(
    plan: Plan, context: Context, number: int, views: Mapping[int, Sequence[MemberStanding]]
) -> Iterator[Danger]:
    """In a narrowing step, a member that lacks the target: whoever restarts next is refused."""
    step = next((each for each in plan.steps if each.id == number), None)
    if step is None or aim_of(plan, step) is not Aim.NARROW or not context.stable:
        return
    if not any(member.done is Tri.YES or member.restarted for member in views[number]):
        return
    lacking = context.lacking
    widened = any(aim_of(plan, each) is Aim.WIDEN and each.id < number for each in plan.steps)
    if lacking and (widened or len(lacking) < len(context.members)):
        named = context.named(lacking)
        yield Danger(
            kind="went-back",
            message=f"{named} runs without {context.target} while others drop the old assignor: "
            f"each member restarted with [{context.target}] is refused and stops.",
            fix=f"Restart {named} with the first step's list before any other restart.",
            members=tuple(facts.member.member_id for facts in lacking),
        )


def _next(
    plan: Plan,
    current: StepStanding | None,
    found: Sequence[Danger],
    context: Context,
    missing: Sequence[Missing],
) -> str:
    if found:
        return "restart nothing more until this is dealt with (→)"
    if current is None:
        return f"make a new plan: rebal plan-upgrade {plan.group_id}"
    if current.gate is Tri.YES:
        later = [step for step in plan.steps if step.id > current.id]
        if not later:
            return "nothing: the plan is carried out"
        return f"begin step {later[0].id}: {later[0].title}"
    if context.missing:
        who = ", ".join(one.name for one in missing[:6]) if len(missing) <= context.missing else ""
        return f"wait for {who or 'the missing members'}, or bring them back with this step's list"
    if not context.stable and context.members:
        return "wait until the group is Stable"
    step = next(each for each in plan.steps if each.id == current.id)
    brings = f" with [{', '.join(step.target_list)}]" if step.target_list else ""
    if current.to_do:
        labels = {facts.member.member_id: facts.name for facts in context.members}
        return f"restart {labels[current.to_do[0]]}{brings}; one member at a time"
    if current.unknown:
        return "give the evidence that is missing (--request-log or --client-log of its start)"
    return current.why[0] if current.why else "start the members"


def _notes(plan: Plan, snapshot: GroupSnapshot, expected: int) -> Iterator[str]:
    if len(snapshot.members) > expected:
        yield (
            f"{len(snapshot.members)} members, {expected} expected: a second service on this "
            "group, an autoscaler, or old and new processes at once (RB607)"
        )
    if plan.baseline.redacted:
        yield "the plan's baseline is redacted: its member ids say nothing of the live group"
    past = new_refusals(plan, snapshot)
    if past:
        yield f"joins refused since the plan was made: {len(past)}"
    yield from snapshot.notes


def _missing_text(context: Context, missing: Sequence[Missing]) -> str:
    sure = [f"{one.name}{f' ({one.host})' if one.host else ''}" for one in missing if one.sure]
    maybe = [one.name for one in missing if not one.sure]
    named = f": {', '.join(sure)}" if sure else ""
    if maybe:
        named = f": {context.missing} of {', '.join(maybe[:6])}"
    verb = "is" if context.missing == 1 else "are"
    return (
        f"{context.missing} of {context.expected} expected members {verb} not in the group{named}"
    )


def _named(members: Sequence[MemberStanding], most: int = 6) -> str:
    labels = [member.name for member in members]
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more


def _ids(members: Sequence[MemberStanding]) -> tuple[str, ...]:
    return tuple(member.member_id for member in members)
