"""The answers of the baseline, the journal and this look on the members of a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rebal.groups.model import Tri
from rebal.planner.context import Context, Facts
from rebal.planner.plan import Plan, Step, StepKind
from rebal.planner.verdict import agreed
from rebal.planner.verification.gates import Proof, proof_of
from rebal.planner.verification.journal import JournalEntry, assumed
from rebal.planner.verification.plan_context import PlanContext


class Ledger:
    """Answers about member ids from the baseline, the journal and this look.

    `answers(step, id)` are the distinct answers, each with its source. `before[step]` are the ids
    that were there before the step began; `opened` are the steps whose beginning a look shows.
    `kept` are the ids that had kept partitions when they joined, with the look that shows it.
    `first_seen` is the time of the first look with an id, which is this look for a new one.
    `words` are the user's own answers, by step and id. Entries `later` than this look prove nothing
    of it, but what they say against the user's word stands: clocks differ.
    """

    def __init__(
        self,
        plan: Plan,
        entries: Sequence[JournalEntry],
        context: Context,
        later: Sequence[JournalEntry] = (),
    ) -> None:
        self._plan = plan
        self._said: dict[tuple[int, str], dict[Tri, str]] = defaultdict(dict)
        self.before: dict[int, set[str]] = defaultdict(set)
        self.opened: set[int] = set()
        self.words: dict[tuple[int, str], str] = {}
        self.kept: dict[str, datetime] = {}
        self.first_seen: dict[str, datetime] = {}
        self._from_baseline()
        self._from_journal(entries)
        for entry in later:
            self._void(entry)
        for member in context.snapshot.members:
            self.first_seen.setdefault(member.member_id, context.snapshot.captured_at)
        self.now = self._add(context, "")

    def _from_baseline(self) -> None:
        baseline = self._plan.baseline
        if baseline.redacted:
            return
        first = self._plan.next_step or 1
        self.opened.add(first)
        here = {member.member_id for member in baseline.members}
        for step in self._plan.steps:
            if step.id >= first:
                self.before[step.id] |= here
        if not any(map(assumed, baseline.members)):
            self._add(PlanContext(self._plan, baseline), "the plan's baseline")

    def _void(self, entry: JournalEntry) -> None:
        for member in entry.members:
            for number in member.contradicted:
                self.words.pop((number, member.member_id), None)

    def _from_journal(self, entries: Iterable[JournalEntry]) -> None:
        for entry in entries:
            if entry.blind is not None:
                continue
            where = f"the journal, {entry.at:%b %d %H:%MZ}"
            for member in entry.members:
                self.first_seen.setdefault(member.member_id, entry.at)
                if member.kept:
                    self.kept[member.member_id] = entry.at
                for answer, steps in ((Tri.YES, member.made), (Tri.NO, member.lacks)):
                    for number in steps:
                        self._said[number, member.member_id][answer] = where
            self._void(entry)
            for step in self._plan.steps:
                if step.id > entry.step:
                    self.before[step.id] |= entry.ids
            if entry.gate is Tri.YES:
                self.opened.add(entry.step + 1)
            if entry.confirmed is not None:
                word = entry.confirmed
                runs = f"[{', '.join(word.list)}], " if word.list else ""
                who = word.by or "the operator"
                said = f"confirmed by {who}, {entry.at:%b %d %H:%MZ}: {runs}{word.reason}"
                for member_id in word.members:
                    self.words[word.step, member_id] = said

    def _add(self, context: Context, where: str) -> Mapping[tuple[int, str], Proof]:
        found: dict[tuple[int, str], Proof] = {}
        for step in self._plan.steps:
            for facts in context.members:
                key = step.id, facts.member.member_id
                found[key] = proof = proof_of(context, step, facts)
                if proof.done is not Tri.CANNOT_TELL:
                    self._said[key][proof.done] = where
                    if assumed(facts.member):
                        self.words[key] = "assumed by the user"
        return found

    def answers(self, step: int, member_id: str) -> Mapping[Tri, str]:
        """Return answer → source (empty text: this look)."""
        return self._said.get((step, member_id), {})

    def answer(self, step: int, member_id: str) -> Tri:
        """Return the answer; cannot tell if there is none, or if several answers differ."""
        return agreed(self.answers(step, member_id))

    def came_finished(self, step: Step, facts: Facts) -> bool:
        """Return whether this member may have got its final list before `step` began.

        This is so for clients that an earlier step stops and starts together; the other steps do
        not concern them.
        """
        aside = {family for each in self._plan.steps for family in each.left_out}
        stops = [s.id for s in self._plan.steps if s.kind is StepKind.CUT_OVER and s.id < step.id]
        maybe = facts.family is None or facts.family in aside
        return maybe and any(facts.member.member_id not in self.before[number] for number in stops)
