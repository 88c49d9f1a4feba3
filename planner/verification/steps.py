"""One step against the live group: does its gate hold, what keeps it, and has the step begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from rebal.groups.model import GroupState, GroupType, Record, Tri
from rebal.planner.admission.advice import acceptable, restart_of
from rebal.planner.aims import Aim
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Plan, Step, StepKind
from rebal.planner.rules import Risk
from rebal.planner.verification.gates import aim_of
from rebal.planner.verification.journal import JournalEntry
from rebal.planner.verification.members import Ledger, MemberStanding, Missing, left_out

# Two machines' clocks differ; what is older than the plan by more than this was seen before it.
_CLOCKS: Final = timedelta(minutes=1)

BY_HAND: Final = "no evidence shows it of "
"""How the reason begins that a person's look takes away (planner/verification/confirm.py)."""


class StepStanding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One step of the plan now: member ids by answer, and whether its gate holds and why not.

    `not_restarted` are those of `to_do` of which only that is known: their id was there before.
    `by_hand` are those of `unknown` that only a person can tell, `vouched` those of `done` that the
    user's word alone calls done, `left_out` those that take no part. `accepted` is what keeps the
    gate from being proven and was accepted by the user.
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
    by_hand: tuple[str, ...] = ()
    vouched: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def step_standing(
    plan: Plan,
    step: Step,
    context: Context,
    *,
    members: Sequence[MemberStanding],
    missing: Sequence[Missing],
    ignore: Mapping[str, str],
) -> StepStanding:
    """How `step` stands; `ignore` is rule id → reason, as the user accepted them."""
    aim = aim_of(plan, step)
    by: dict[Tri, list[MemberStanding]] = {answer: [] for answer in Tri}
    # A refresh changes no member: one restart is enough, whoever's it is.
    for member in members if aim is not Aim.REFRESH else ():
        if member.concerned:
            by[member.done].append(member)
    refuted, open_, accepted = [], [], []
    if context.missing:
        refuted.append(missing_text(context, missing))
    if by[Tri.NO]:
        refuted.append(f"not done: {_named(by[Tri.NO])}")
    elif members and aim is Aim.CLASSIC and context.group.type is GroupType.CONSUMER:
        refuted.append("the group is still a KIP-848 group: it was not converted (RB401)")
    by_hand = [member for member in by[Tri.CANNOT_TELL] if member.by_hand]
    unseen = [member for member in by[Tri.CANNOT_TELL] if not member.by_hand]
    by_lists = aim in (Aim.WIDEN, Aim.NARROW, Aim.CLASSIC)
    lists_accepted = by_lists and Risk.UNKNOWN_LISTS.accepted_in(ignore)
    if unseen and lists_accepted and not any(m.proven for m in unseen):
        rule = Risk.UNKNOWN_LISTS.rule
        accepted.append(f"not known: {_named(unseen)} ({rule} is ignored: {ignore[rule]})")
    elif unseen:
        open_.append(f"not known: {_named(unseen)}")
    if by_hand:
        look = step.gate.by_hand or "look at what the step changes"
        open_.append(f"{BY_HAND}{_named(by_hand)}: {look}")
    if not members:
        refuted.append(f"the group has no member ({context.group.state})")
    elif not _settled(context, aim):
        open_.append(f"the group is not Stable ({context.group.state})")
    elif any(item.member_id in (None, *_ids(members)) for item in context.snapshot.contradictions):
        open_.append("evidence about its members is at odds: see rebal inspect")
    elif not refuted and not open_ and aim in (Aim.WIDEN, Aim.REFRESH):
        forgetting = Risk.FORGOTTEN_LISTS.accepted_in(ignore)
        (accepted if forgetting else open_).extend(_remembered(plan, step, context, ignore))
    if context.snapshot.captured_at < plan.baseline.captured_at - _CLOCKS:
        open_.append("this look is older than the plan: take a new one")
    return StepStanding(
        id=step.id,
        title=step.title,
        gate=Tri.NO if refuted else Tri.CANNOT_TELL if open_ else Tri.YES,
        why=(*refuted, *open_),
        accepted=tuple(accepted),
        done=_ids(by[Tri.YES]),
        to_do=_ids(by[Tri.NO]),
        not_restarted=_ids([member for member in by[Tri.NO] if not member.proven]),
        unknown=_ids(by[Tri.CANNOT_TELL]),
        by_hand=_ids(by_hand),
        vouched=_ids([member for member in by[Tri.YES] if member.vouched]),
        left_out=_ids([member for member in members if not member.concerned]),
    )


def begun_step(
    plan: Plan, entries: Sequence[JournalEntry], context: Context, ledger: Ledger
) -> int | None:
    """The last step that has begun: somebody has made it, or came or went when it was open."""
    if not plan.steps:
        return None
    here = {facts.member.member_id for facts in context.members}
    seen = [entry for entry in entries if entry.blind is None]
    current = plan.steps[0].id
    for before, step in zip(plan.steps, plan.steps[1:], strict=False):
        own = {f.member.member_id for f in context.members if _tells(plan, step, f)}
        made = any(ledger.answer(step.id, member_id) is Tri.YES for member_id in own)
        reached = any(entry.step >= step.id for entry in seen)
        held = [entry for entry in seen if entry.step == before.id and entry.gate is Tri.YES]
        opened = plan.next_step == step.id or bool(held)
        there = ledger.before(step.id)
        came = bool(there) and bool(here - there)
        if made or reached or (opened and (came or bool(_stopped(step, held) - here))):
            current = step.id
    return current


def missing_text(context: Context, missing: Sequence[Missing]) -> str:
    """Who is not in the group, in one sentence."""
    sure = [f"{one.name}{f' ({one.host})' if one.host else ''}" for one in missing if one.sure]
    maybe = [one.name for one in missing if not one.sure]
    named = f": {', '.join(sure)}" if sure else ""
    if maybe:
        named = f": {context.missing} of {', '.join(maybe[:6])}"
    verb = "is" if context.missing == 1 else "are"
    return (
        f"{context.missing} of {context.expected} expected members {verb} not in the group{named}"
    )


def _tells(plan: Plan, step: Step, facts: Facts) -> bool:
    """Does this member's answer to `step` say that it has begun?

    Where a step stops some clients together and brings them the last list at once, only theirs
    tells of that step, and nothing of the one after it.
    """
    aside = any(left_out(each, facts) for each in plan.steps)
    stops = any(each.left_out for each in plan.steps) and step.kind is StepKind.CUT_OVER
    return aside is stops


def _stopped(step: Step, held: Sequence[JournalEntry]) -> frozenset[str]:
    """The ids that a step stops together, as they were when the gate before it held."""
    if step.kind is not StepKind.CUT_OVER:
        return frozenset()
    return held[-1].left_out if held else frozenset(step.to_do)


def _settled(context: Context, aim: Aim) -> bool:
    return context.stable if aim is not Aim.CONSUMER else context.group.state is GroupState.STABLE


def _remembered(
    plan: Plan, step: Step, context: Context, ignore: Mapping[str, str]
) -> Iterator[str]:
    """Would the coordinator admit the first restart of the next, narrowing step?"""
    later = next((other for other in plan.steps if other.id > step.id), None)
    if later is None or aim_of(plan, later) is not Aim.NARROW:
        return
    left = [facts for facts in context.members if facts not in context.settled]
    found = [restart_of(context, facts, later.target_list) for facts in left[:1]]
    for one in found:
        if one.verdict is not Tri.YES and not acceptable(one, ignore):
            rule = Risk.FORGOTTEN_LISTS.rule
            yield f"step {later.id} is not proven to be admitted: {one.reason} ({rule})"


def _named(members: Sequence[MemberStanding], most: int = 6) -> str:
    labels = [member.name for member in members]
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more


def _ids(members: Sequence[MemberStanding]) -> tuple[str, ...]:
    return tuple(member.member_id for member in members)
