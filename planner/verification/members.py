"""Which members have made a step: proven, refuted, or not to be told; and who is missing.

An answer comes from the evidence of now, of the plan's baseline, of an earlier look in the journal,
or from a person who looked; all but the first speak of member ids that are still there. Where no
evidence speaks, an id that was there before the step began has not been restarted since: not done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rebal.groups.clients import proven_family
from rebal.groups.model import Evidence, GroupSnapshot, Member, Record, Tri
from rebal.planner.aims import Aim, Proof
from rebal.planner.context import Context, Facts, names
from rebal.planner.plan import Plan, Step, StepKind
from rebal.planner.verification.context import assumed, context_of, known_before
from rebal.planner.verification.gates import aim_of, proof_of
from rebal.planner.verification.journal import JournalEntry


class MemberStanding(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One member in the current step: has it made it, and why that is said.

    `concerned` is False where the step leaves its client out. `restarted` is False where its id was
    there before the step began; `proven` is False where nothing but that is known of it. `by_hand`:
    only a person can tell; `vouched`: a yes on the user's word.
    """

    member_id: str
    name: str
    host: str = ""
    instance_id: str | None = None
    done: Tri = Tri.CANNOT_TELL
    why: str = ""
    list: tuple[str, ...] = ()
    partitions: int = 0
    concerned: bool = True
    restarted: bool = True
    proven: bool = False
    by_hand: bool = False
    vouched: bool = False
    evidence: tuple[Evidence, ...] = ()


class Missing(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A member that was there and is not now; `sure` is False where it is one of several.

    `family` is its client's, where evidence or the user said it.
    """

    name: str
    family: str | None = None
    host: str = ""
    instance_id: str | None = None
    sure: bool = True


class Ledger:
    """All that is proven of member ids: by the baseline, by the journal, and by now.

    `answers(step, id)` are the distinct answers, each with where it comes from. `before(step)` are
    the ids that were there before the step began. `vouched` are the steps and ids of which the
    user's word alone says that they are done.
    """

    def __init__(self, plan: Plan, entries: Sequence[JournalEntry], context: Context) -> None:
        self._plan = plan
        self._said: dict[tuple[int, str], dict[Tri, str]] = defaultdict(dict)
        self._before: dict[int, set[str]] = defaultdict(set)
        self._words: dict[tuple[int, str], str] = {}
        self._from_baseline()
        self._from_journal(entries)
        self.now = self._add(context, "")

    def _from_baseline(self) -> None:
        baseline = self._plan.baseline
        if baseline.redacted:
            return
        first = self._plan.next_step or 1
        here = {member.member_id for member in baseline.members}
        for step in self._plan.steps:
            if step.id >= first:
                self._before[step.id] |= here
        if not any(map(assumed, baseline.members)):
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
            if entry.confirmed is not None:
                word = f"confirmed by a person, {entry.at:%b %d %H:%MZ}: {entry.confirmed.reason}"
                for member_id in entry.confirmed.members:
                    self._words[entry.confirmed.step, member_id] = word

    def _add(self, context: Context, where: str) -> Mapping[tuple[int, str], Proof]:
        found: dict[tuple[int, str], Proof] = {}
        for step in self._plan.steps:
            aim = aim_of(self._plan, step)
            for facts in context.members:
                key = step.id, facts.member.member_id
                found[key] = proof = proof_of(context, aim, step, facts)
                if proof.done is not Tri.CANNOT_TELL:
                    self._said[key][proof.done] = where
                    if assumed(facts.member):
                        self._words[key] = "assumed by the user"
        return found

    def answers(self, step: int, member_id: str) -> Mapping[Tri, str]:
        """Answer → where it comes from (empty: seen now)."""
        return self._said.get((step, member_id), {})

    def answer(self, step: int, member_id: str) -> Tri:
        """Proven done, proven not done, or (nothing, or two evidences at odds) cannot tell."""
        found = self.answers(step, member_id)
        return next(iter(found)) if len(found) == 1 else Tri.CANNOT_TELL

    def word(self, step: int, member_id: str) -> str | None:
        """What the user said of it, in words; None for nothing."""
        return self._words.get((step, member_id))

    def before(self, step: int) -> frozenset[str]:
        """The ids that were in the group before the step began."""
        return frozenset(self._before.get(step, ()))

    def came_finished(self, step: Step, facts: Facts) -> bool:
        """May this member have come with the last list at once, before `step` began?

        So do clients that an earlier step stops together (its others leave them out).
        """
        aside = {family for each in self._plan.steps for family in each.left_out}
        stops = [s.id for s in self._plan.steps if s.kind is StepKind.CUT_OVER and s.id < step.id]
        maybe = facts.family is None or facts.family in aside
        return maybe and any(facts.member.member_id not in self.before(number) for number in stops)


def left_out(step: Step, facts: Facts) -> bool:
    """Is it proven that this member's client takes no part in `step`?"""
    return facts.family in step.left_out and facts.family_proven


def standing_of(context: Context, step: Step, aim: Aim, ledger: Ledger) -> list[MemberStanding]:
    """Every member in `step`, by name."""
    return [_standing(context, step, aim, ledger, facts) for facts in context.members]


def _standing(
    context: Context, step: Step, aim: Aim, ledger: Ledger, facts: Facts
) -> MemberStanding:
    member = facts.member
    there = member.member_id in ledger.before(step.id)
    found = ledger.answers(step.id, member.member_id)
    proof = ledger.now[step.id, member.member_id]
    word = ledger.word(step.id, member.member_id)
    done = ledger.answer(step.id, member.member_id)
    by_hand = False
    if len(found) > 1:
        why = "evidence at odds: " + ", ".join(
            f"{answer} ({where or 'now'})" for answer, where in found.items()
        )
    elif left_out(step, facts) and done is not Tri.YES:
        why = "takes no part in this step"
    elif found:
        why = _why(proof, done, found[done])
        if done is Tri.NO and not there:
            why += _against_its_file(step, facts)
        if there and done is Tri.NO:
            why = f"not restarted since the step began: {why}"
    elif word is not None:
        done, why = Tri.YES, word
    elif there and aim is not Aim.REFRESH and not _may_be_done(step, proof, facts, ledger):
        done, why = Tri.NO, "not restarted since the step began: the same member id"
    else:
        by_hand = proof.by_hand
        why = proof.why or _unknown(context, aim)
    return MemberStanding(
        member_id=member.member_id,
        name=facts.name,
        host=member.host.lstrip("/"),
        instance_id=member.instance_id,
        done=done,
        why=why,
        list=member.assignors.list,
        partitions=owned(member),
        concerned=not left_out(step, facts),
        restarted=not there,
        proven=bool(found),
        by_hand=by_hand,
        vouched=done is Tri.YES and word is not None,
        evidence=member.assignors.evidence,
    )


def _against_its_file(step: Step, facts: Facts) -> str:
    """Restarted, its file has the step's list, and it does not run it: what else can set it."""
    declared = facts.member.declared
    if declared is None or not step.target_list or declared.list != step.target_list:
        return ""
    return (
        f", restarted though {declared.evidence.detail} says [{', '.join(declared.list)}]: code or "
        "the environment wins over that file, or it was started with another one"
    )


def _may_be_done(step: Step, proof: Proof, facts: Facts, ledger: Ledger) -> bool:
    """Its setting may have been right before the step began, and no evidence tells."""
    unknown = proof.by_hand and facts.member.member_id in step.unknown
    return unknown or ledger.came_finished(step, facts)


def _why(proof: Proof, done: Tri, where: str) -> str:
    if proof.done is done:
        return proof.why
    return f"{'seen done' if done is Tri.YES else 'seen not done'} ({where})"


def _unknown(context: Context, aim: Aim) -> str:
    if aim is Aim.CONSUMER:
        return "which protocol it speaks cannot be told"
    more = "" if context.snapshot.probe is not None or aim is not Aim.WIDEN else ", --probe"
    return f"new here, its list not seen (--request-log, --client-log{more})"


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
    labels, known = names(gone), known_before(plan, entries)
    said = plan.accepted.families
    sure = len(gone) <= short
    return tuple(
        Missing(
            name=labels[member.member_id],
            family=proven_family(known.get(member.member_id, (None, None))[1])
            or said.get(member.client_id, said.get("*")),
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
