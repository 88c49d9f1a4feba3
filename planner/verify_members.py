"""Which members have made a step: proven, refuted, or not to be told; and who is missing.

An answer comes from the evidence of now, of the plan's baseline, or of an earlier look in the
journal; the latter two speak of member ids that are still there. Where no evidence speaks, an id
that was there before the step began has not been restarted since: not done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from rebal.groups.model import Evidence, GroupSnapshot, GroupType, Member, Record, Source, Tri
from rebal.planner.context import CONSUMER, COOPERATIVE, EAGER, Context, Facts, names
from rebal.planner.plan import Plan, Step
from rebal.planner.verify_journal import JournalEntry

_GOALS: Final = {"COOPERATIVE": COOPERATIVE, "EAGER": EAGER, "KIP-848": CONSUMER}


class Aim(StrEnum):
    """What a step changes, and so what proves it.

    widen: the target joins every list; narrow: nothing but the target's kind stays; refresh: a
    rebalance after the coordinator's load; consumer: KIP-848; unseen: nothing on the wire tells.
    """

    WIDEN = "widen"
    NARROW = "narrow"
    REFRESH = "refresh"
    CONSUMER = "consumer"
    UNSEEN = "unseen"


class MemberStanding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One member in the current step: has it made it, and why that is said.

    `restarted` is False where its id was there before the step began; `proven` is False where
    nothing but that is known of it.
    """

    member_id: str
    name: str
    host: str = ""
    instance_id: str | None = None
    done: Tri = Tri.CANNOT_TELL
    why: str = ""
    list: tuple[str, ...] = ()
    partitions: int = 0
    restarted: bool = True
    proven: bool = False
    evidence: tuple[Evidence, ...] = ()


class Missing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A member that was there and is not now; `sure` is False where it is one of several."""

    name: str
    host: str = ""
    instance_id: str | None = None
    sure: bool = True


def aim_of(plan: Plan, step: Step) -> Aim:
    """What `step` changes, by the list that it brings."""
    if _GOALS.get(plan.to) == CONSUMER:
        return Aim.CONSUMER
    later = any(other.id > step.id and other.target_list == (plan.target,) for other in plan.steps)
    # Where no evidence names the old assignor, the first bounce's list is the target alone too.
    if step.target_list == (plan.target,) and not later:
        return Aim.NARROW
    if plan.target in step.target_list:
        return Aim.WIDEN
    if not step.target_list and later:
        return Aim.REFRESH
    return Aim.UNSEEN


def context_of(
    plan: Plan,
    snapshot: GroupSnapshot,
    expected: int | None = None,
) -> Context:
    """`snapshot` as the plan's goal asks of it."""
    return Context(
        snapshot,
        goal=_GOALS.get(plan.to, COOPERATIVE),
        target=plan.target,
        only_target=plan.only_target,
        planning=True,
        expect_members=expected,
    )


def proven(context: Context, facts: Facts, aim: Aim) -> Tri:
    """Has this member made a step of this aim, by the evidence in `context` alone?"""
    if aim is Aim.CONSUMER:
        if context.group.type is GroupType.CONSUMER:
            speaks = facts.member.protocol_type
            return {"consumer": Tri.YES, "classic": Tri.NO}.get(speaks or "", Tri.CANNOT_TELL)
        return Tri.NO if context.group.type is GroupType.CLASSIC else Tri.CANNOT_TELL
    if aim not in (Aim.WIDEN, Aim.NARROW):
        return Tri.CANNOT_TELL
    supports = context.supports(facts, context.target)
    if aim is Aim.WIDEN:
        return supports
    old = context.holds_old(facts)
    if supports is Tri.NO or old is Tri.YES:
        return Tri.NO
    return Tri.YES if supports is Tri.YES and old is Tri.NO else Tri.CANNOT_TELL


class Ledger:
    """All that is proven of member ids: by the baseline, by the journal, and by now.

    `answers(step, id)` are the distinct answers, each with where it comes from. `before(step)` are
    the ids that were there before the step began.
    """

    def __init__(self, plan: Plan, entries: Sequence[JournalEntry], context: Context) -> None:
        self._plan = plan
        self._said: dict[tuple[int, str], dict[Tri, str]] = defaultdict(dict)
        self._before: dict[int, set[str]] = defaultdict(set)
        self._from_baseline()
        self._from_journal(entries)
        self._add(context, "")

    def _from_baseline(self) -> None:
        baseline = self._plan.baseline
        if baseline.redacted:
            return
        first = self._plan.next_step or 1
        here = {member.member_id for member in baseline.members}
        for step in self._plan.steps:
            if step.id >= first:
                self._before[step.id] |= here
        assumed = {
            member.member_id
            for member in baseline.members
            if any(item.source is Source.ASSUMED for item in member.assignors.evidence)
        }
        if not assumed:
            self._add(context_of(self._plan, baseline), "the plan's baseline")

    def _from_journal(self, entries: Iterable[JournalEntry]) -> None:
        for entry in entries:
            if entry.blind is not None:
                continue
            where = f"the journal, {entry.at:%b %d %H:%MZ}"
            for member in entry.members:
                for answer, steps in ((Tri.YES, member.made), (Tri.NO, member.lacks)):
                    for number in steps:
                        self._said[number, member.member_id][answer] = where
            for step in self._plan.steps:
                if step.id > entry.step:
                    self._before[step.id] |= entry.ids

    def _add(self, context: Context, where: str) -> None:
        for step in self._plan.steps:
            aim = aim_of(self._plan, step)
            for facts in context.members:
                answer = proven(context, facts, aim)
                if answer is not Tri.CANNOT_TELL:
                    self._said[step.id, facts.member.member_id][answer] = where

    def answers(self, step: int, member_id: str) -> Mapping[Tri, str]:
        """Answer → where it comes from (empty: seen now)."""
        return self._said.get((step, member_id), {})

    def answer(self, step: int, member_id: str) -> Tri:
        """Proven done, proven not done, or (nothing, or two evidences at odds) cannot tell."""
        found = self.answers(step, member_id)
        return next(iter(found)) if len(found) == 1 else Tri.CANNOT_TELL

    def before(self, step: int) -> frozenset[str]:
        """The ids that were in the group before the step began."""
        return frozenset(self._before.get(step, ()))


def standing_of(context: Context, step: Step, aim: Aim, ledger: Ledger) -> list[MemberStanding]:
    """Every member in `step`, by name."""
    before = ledger.before(step.id)
    made = []
    for facts in context.members:
        member = facts.member
        there = member.member_id in before
        found = ledger.answers(step.id, member.member_id)
        done = ledger.answer(step.id, member.member_id)
        if len(found) > 1:
            why = "evidence at odds: " + ", ".join(
                f"{answer} ({where or 'now'})" for answer, where in found.items()
            )
        elif found:
            why = _why(context, facts, aim, done, found[done])
            if there and done is Tri.NO:
                why = f"not restarted since the step began: {why}"
        elif there and aim is not Aim.REFRESH:
            done, why = Tri.NO, "not restarted since the step began: the same member id"
        else:
            why = _unknown(context, aim)
        made.append(
            MemberStanding(
                member_id=member.member_id,
                name=facts.name,
                host=member.host.lstrip("/"),
                instance_id=member.instance_id,
                done=done,
                why=why,
                list=member.assignors.list,
                partitions=owned(member),
                restarted=not there,
                proven=len(found) == 1,
                evidence=member.assignors.evidence,
            )
        )
    return made


def _why(context: Context, facts: Facts, aim: Aim, done: Tri, where: str) -> str:
    known = facts.member.assignors.list
    source = f" ({where})" if where else ""
    if aim is Aim.CONSUMER:
        return f"speaks the {'consumer' if done is Tri.YES else 'classic'} protocol"
    if known:
        return f"[{', '.join(known)}]{source}"
    target = context.target
    if done is Tri.YES:
        kept = "keeps its partitions when it rejoins" if aim is Aim.NARROW else f"holds {target}"
        return f"{kept}{source}"
    if context.supports(facts, target) is Tri.NO:
        return f"its list has no {target}{source}"
    return (
        f"still holds an assignor that the step drops{source}"
        if aim is Aim.NARROW
        else (f"its list has no {target}{source}")
    )


def _unknown(context: Context, aim: Aim) -> str:
    if aim is Aim.UNSEEN:
        return "restarted, but nothing that a broker sees proves this setting: look in its own log"
    if aim is Aim.REFRESH:
        return "changes nothing in this step"
    more = "" if context.snapshot.probe is not None or aim is Aim.NARROW else ", or --probe"
    return (
        f"came since the step began, and its list was not seen: --request-log, --client-log{more}"
    )


def owned(member: Member) -> int:
    """How many partitions it owns."""
    return sum(map(len, member.assignment.values()))


def missing_from(
    plan: Plan, entries: Sequence[JournalEntry], snapshot: GroupSnapshot, expected: int
) -> tuple[Missing, ...]:
    """Who is not in the group: those of the last full look that nobody who is here can be.

    A restarted member has a new id: instance id, then client id and host, then either alone where
    it is unique, say who it is. Who cannot be told apart is named with `sure` False.
    """
    short = expected - len(snapshot.members)
    if short <= 0:
        return ()
    gone = _roster(plan, entries, expected)
    here = list(snapshot.members)
    by_id = {member.member_id for member in here}
    kept = {member.member_id for member in gone} & by_id
    gone = [member for member in gone if member.member_id not in kept]
    here = [member for member in here if member.member_id not in kept]
    for key in (_instance, _client_and_host, _client, _host):
        gone, here = _paired(gone, here, key)
    labels = names(gone)
    sure = len(gone) <= short
    return tuple(
        Missing(
            name=labels[member.member_id],
            host=member.host.lstrip("/"),
            instance_id=member.instance_id,
            sure=sure,
        )
        for member in sorted(gone, key=lambda member: labels[member.member_id])
    )


def _roster(plan: Plan, entries: Sequence[JournalEntry], expected: int) -> list[Member]:
    for entry in reversed(entries):
        if len(entry.members) >= expected:
            return [
                Member(
                    member_id=seen.member_id,
                    client_id=seen.client_id,
                    host=seen.host,
                    instance_id=seen.instance_id,
                )
                for seen in entry.members
            ]
    return [] if plan.baseline.redacted else list(plan.baseline.members)


def _instance(member: Member) -> tuple[str, ...] | None:
    return (member.instance_id,) if member.instance_id else None


def _client_and_host(member: Member) -> tuple[str, ...] | None:
    return None if member.instance_id else (member.client_id, member.host)


def _client(member: Member) -> tuple[str, ...] | None:
    return None if member.instance_id else (member.client_id,)


def _host(member: Member) -> tuple[str, ...] | None:
    return None if member.instance_id else (member.host,)


def _paired(
    gone: list[Member], here: list[Member], key: object
) -> tuple[list[Member], list[Member]]:
    """Both without those that have a key in common, one for one."""
    assert callable(key)
    waiting: dict[object, list[Member]] = defaultdict(list)
    for member in here:
        waiting[key(member)].append(member)
    left = []
    for member in gone:
        same = waiting.get(key(member), []) if key(member) is not None else []
        if same:
            same.pop()
        else:
            left.append(member)
    return left, [member for members in waiting.values() for member in members]
