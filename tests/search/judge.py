"""What a user sees of a look (`Judge`), held against the group as it really is (`Truth`).

The exit code, the dangers, the sentence to see a member leave, the end of a plan and the screen are
judged here; what becomes of obeyed advice is judged where it is obeyed (tests/search/obey.py).
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebal.cli.output import render
from rebal.cli.render.plans.screen import plan_view
from rebal.cli.render.verification import next_command, verify_line, verify_view
from rebal.groups.model import RebalanceProtocol, Tri
from rebal.planner.plan import Advice, Aim, Plan, StepKind
from rebal.planner.rehearsal.engine.consumer import Consumer
from rebal.planner.rehearsal.engine.member import Process as Settings
from rebal.planner.rehearsal.engine.member import SimulatedMember
from rebal.planner.rehearsal.engine.world import World
from rebal.planner.verification.outsiders import Doubt
from rebal.planner.verification.verify import Standing
from tests.live.obey import JOINING, Process
from tests.search.evidence import Operator
from tests.search.sources import Book, Life, Witness, life_of


class SeenWorld(World):
    def __init__(self, book_of: Any, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.book: Book = book_of(self.agenda)
        self.group = self.witness = Witness(
            self.agenda, self._brokers, self, self.chance, server=self, book=self.book
        )

    @property
    def lives(self) -> dict[str, Life]:
        return {id_: life_of(member.client) for id_, member in self.group.now._members.items()}

    def _consumer(self, process: Settings) -> SimulatedMember:
        made = super()._consumer(process)
        own = process.name in self.book.own and "cooperative-sticky" in process.assignors
        if own and isinstance(made, Consumer):
            made._fixed = made.protocol = RebalanceProtocol.EAGER
        return made

    def _metadata_seen(self, topic: str) -> None:
        # The brokers of a group that was converted meanwhile see the new partitions, too.
        self.group.refresh(topic)
        super()._metadata_seen(topic)

    def record_event(self, consumer: SimulatedMember, what: str, detail: str = "") -> None:
        if what == "started":
            self.book.built(self.witness.line(consumer).life)
        elif what == "stopped":
            self.book.closed(self.witness.line(consumer).life)
        super().record_event(consumer, what, detail)

    def generation(self, number: int, assignor: str | None, members: int) -> None:
        self.book.completed()
        super().generation(number, assignor, members)


class Truth:
    """The engine's own knowledge of a group, and what the evidence at hand shows for certain.

    `current` is each process's newest consumer, by name. `alike`: all clients have one client id.
    """

    def __init__(
        self,
        world: SeenWorld,
        operator: Operator,
        processes: Sequence[Process],
        current: Mapping[str, SimulatedMember],
        *,
        alike: bool,
    ) -> None:
        self._world, self._operator = world, operator
        self._processes, self._current, self.alike = processes, current, alike

    # --- the group ------------------------------------------------------------------------------

    @property
    def counted_members(self) -> int:
        return self._world.group.now.size

    def rejects(self, names: Sequence[str], left: frozenset[str] = frozenset()) -> bool:
        """Return whether a join with this list is rejected now, once `left` have left."""
        lists = [each for id_, each in self._world.group.now.lists().items() if id_ not in left]
        return not any(all(name in each for each in lists) for name in names)

    def names(self) -> frozenset[str]:
        return frozenset(life.process.name for life in self._world.lives.values())

    # --- processes ------------------------------------------------------------------------------

    def life_of(self, process: Process) -> Life | None:
        lives = reversed(self._world.book.lives)
        return next((one for one in lives if one.process.name == process.name), None)

    def rejected_out(self) -> list[Process]:
        """Return the processes whose last start was rejected and that are not in the group."""
        last = {
            one.who: one.what for one in self._world.happened if one.what in ("started", "rejected")
        }
        out = (one for one in self._processes if not one.running)
        return [one for one in out if last.get(one.name) == "rejected"]

    def outlives_a_load(self) -> bool:
        """Return whether a stopped process is counted, and its coordinator loaded the group last.

        Its session began anew then, and no evidence shows that load where the group's partition of
        the offsets topic is not read.
        """
        running = sum(one.alive for one in self._current.values())
        return self._world.book.in_place and self.counted_members > running

    def owned_by(self, member_id: str) -> int:
        return sum(len(one.owned) for one in self._of(member_id) if one.alive)

    def list_of(self, member_id: str) -> tuple[str, ...]:
        """Return the list that the process behind a member id runs; empty if it has ended."""
        return next((one.process.assignors for one in self._of(member_id) if one.alive), ())

    def has_own_class(self, member_id: str) -> bool:
        return any(one.process.name in self._world.book.own for one in self._of(member_id))

    def age_of(self, member_id: str) -> float:
        names = {one.process.name for one in self._of(member_id)}
        return self._world.agenda.now - max(self._starts(names), default=0.0)

    def starts_within(self, seconds: float) -> int:
        since = self._world.agenda.now - seconds
        return sum(at >= since for at in self._starts(self._current))

    def _of(self, member_id: str) -> list[SimulatedMember]:
        return [one for one in self._current.values() if one.member_id == member_id]

    def _starts(self, names: Collection[str]) -> Iterable[float]:
        happened = self._world.happened
        return (one.at for one in happened if one.what == "started" and one.who in names)

    # --- what the evidence shows for certain ------------------------------------------------------

    def shown_rejected(self, process: Process) -> bool:
        life = self.life_of(process)
        return life is not None and self._operator.shows_rejection(life)

    def shown_back(self, process: Process) -> bool:
        """Return whether the evidence shows that it joined."""
        life = self.life_of(process)
        # One log of several processes with one client id has no address that tells them apart.
        known = not (self.alike and "client log" in self._operator.kinds)
        return known and life is not None and self._operator.shows_join(life)

    def shown_all_back(self, service: Sequence[Process]) -> bool:
        """Return whether the evidence shows the join of each process, and of each other one that
        was rejected: where it was scaled away since, nobody knows which of them it was.
        """
        rejected = {one.who for one in self._world.happened if one.what == "rejected"}
        others = (one for one in self._processes if one.name in rejected)
        return all(self.shown_back(one) for one in (*service, *others))

    def shown_list(self, member_id: str) -> bool:
        life = self._world.lives.get(member_id)
        return life is not None and self._operator.shows_list(life)


_WIDTH = 4_000
# A member owns nothing in its first seconds: in the second round of a rebalance it gets some.
_FIRST_SECONDS = 10.0
# A storm is more than the restarts explain, within ten minutes; so few starts are none.
_WINDOW, _FEW = 600.0, 4
_ARROW = "(→)"
_COOPERATIVE = "cooperative-sticky"


@dataclass(frozen=True)
class Seen:
    """One look as a user sees it: its plan and its standing, and how many members were named."""

    plan: Plan
    standing: Standing
    service: Sequence[Process]
    expected: int | None


class Judge:
    """The judge of one history; `words` are confirmed lists, by step and member id."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.words: dict[str, tuple[str, ...]] = {}
        # The processes of the last look that no member was missing from.
        self._whole: frozenset[str] = frozenset()

    @property
    def false_words(self) -> dict[str, tuple[str, ...]]:
        return {
            id_: names
            for id_, names in self.words.items()
            if self._truth.list_of(id_) not in ((), names)
        }

    def faults(self, seen: Seen, *, drawn: bool) -> Iterator[str]:
        """Yield what is told wrongly; the screen is read where it is `drawn`."""
        yield from self._code(seen)
        yield from self._dangers(seen)
        yield from self._missing(seen)
        yield from self._words(seen.standing)
        yield from self._steps(seen)
        yield from self._beside(seen.standing.advice)
        yield from _agreement(seen.standing)
        if drawn:
            yield from _screen(seen.standing)

    def _code(self, seen: Seen) -> Iterator[str]:
        standing, truth = seen.standing, self._truth
        if standing.dangers and standing.exit_code != 3:
            yield f"exit {standing.exit_code} beside a danger: {standing.dangers[0].kind}"
        if standing.exit_code:
            return
        if standing.gate is not Tri.YES:
            yield f"exit 0 though the gate is {standing.gate}"
        action = standing.advice.action
        if action != "none" and not (action in JOINING and standing.advice.verdict is Tri.YES):
            yield f"exit 0 beside the advice to {action}"
        if seen.expected is not None and truth.counted_members < seen.expected:
            yield f"exit 0 with {truth.counted_members} of {seen.expected} members in the group"
        step = seen.plan.step(standing.step)
        later = seen.plan.after(step) if step is not None else None
        if later is None or later.kind is StepKind.CUT_OVER or not later.target_list:
            return
        left = [one for one in standing.members if one.list != later.target_list]
        if left:
            leaves = [frozenset({m.member_id} if not m.instance_id else ()) for m in left]
            if all(truth.rejects(later.target_list, gone) for gone in leaves):
                yield f"exit 0 though each start of step {later.id} is rejected"

    def _dangers(self, seen: Seen) -> Iterator[str]:
        standing, truth = seen.standing, self._truth
        said = " ".join(_texts(standing))
        for one in truth.rejected_out():
            named = any(name in said for name in (one.instance_id or one.name, "consumer-"))
            hidden = truth.outlives_a_load()
            shown = one in seen.service and truth.shown_rejected(one) and not hidden
            if shown and not named:
                yield f"{one.name} is rejected and out, the evidence shows it, and nothing names it"
            elif shown and not standing.exit_code:
                yield f"exit 0 while {one.name} is out, which the evidence shows rejected"
        for danger in standing.dangers:
            if danger.kind == "rejected" and not truth.rejected_out():
                if truth.shown_all_back(seen.service):
                    yield f"a danger that is over: {danger.message}"
            elif danger.kind == "idle":
                idle = [id_ for id_ in danger.members if not truth.owned_by(id_)]
                if danger.members and not idle:
                    yield f"called idle while it owns partitions: {danger.message}"
                if any(truth.age_of(id_) < _FIRST_SECONDS for id_ in idle):
                    yield f"called idle in its first seconds: {danger.message}"
            elif danger.kind == "storm" and truth.starts_within(_WINDOW) <= _FEW:
                yield f"no storm after {truth.starts_within(_WINDOW)} starts: {danger.message}"
            elif danger.kind == "lag":
                yield f"nothing lags here: {danger.message}"
        target, short = seen.plan.target, [f for f in standing.findings if f.rule == "RB102"]
        for finding in (each for each in short if each.result == "yes"):
            has = [id_ for id_ in finding.members if target in truth.list_of(id_)]
            # A probe shows that some list lacks it, and not whose.
            one_of = "the probe shows" in finding.message
            if len(has) == len(finding.members) if one_of else has:
                yield f"said to lack {target}, which they have: {', '.join(has)}"

    def _missing(self, seen: Seen) -> Iterator[str]:
        """A member of the last complete look that is gone is named, where its name is its own."""
        here = self._truth.names()
        if seen.expected is None or self._truth.alike:
            return
        if len(here) >= seen.expected:
            self._whole = here
        # A stopped member's entry may fill its place until its session ends.
        if self._truth.counted_members >= seen.expected:
            return
        said = " ".join(_texts(seen.standing))
        for one in seen.service:
            if not one.running and one.name in self._whole - here and one.name not in said:
                yield f"{one.name} was a member, is missing, and nothing names it"

    def _words(self, standing: Standing) -> Iterator[str]:
        """A confirmation that evidence contradicts is void, and the evidence against it is told."""
        for one in standing.members:
            names = self.false_words.get(one.member_id)
            if names and self._truth.shown_list(one.member_id) and (one.vouched or not one.why):
                yield f"a false confirmation of {one.name} stands, and the evidence is against it"

    def _steps(self, seen: Seen) -> Iterator[str]:
        """What is proven of a member's list is so; a class behind a name is judged elsewhere."""
        for step, told in zip(seen.plan.steps, seen.standing.steps, strict=True):
            made = {*told.done} - {*told.vouched}
            lacks = {*told.to_do} - {*told.not_restarted} if step.aim is not Aim.CLASSIC else set()
            for id_ in made | lacks if step.target_list else ():
                runs = self._truth.list_of(id_)
                right = seen.plan.target in runs and (
                    step.aim is Aim.WIDEN or len({name == _COOPERATIVE for name in runs}) == 1
                )
                if runs and right is not (id_ in made) and not self._truth.has_own_class(id_):
                    yield f"{id_} runs {runs}, and step {step.id} is said to be made: {id_ in made}"

    def _beside(self, advice: Advice) -> Iterator[str]:
        """Where a killed member's old entry rejects its start, it must be seen to have left."""
        if advice.action != "restart" or advice.verdict is not Tri.YES or not advice.assignors:
            return
        told = any("has left" in one or "instance id" in one for one in advice.after)
        if self._truth.rejects(advice.assignors) and not told:
            yield f"not told to see that it has left: {advice.text}"

    def plan_faults(self, plan: Plan, *, drawn: bool) -> Iterator[str]:
        self._whole = frozenset()
        advice = plan.advice
        if not plan.exit_code and plan.step(plan.next_step) is not None and not advice.recommended:
            yield f"exit 0 of a plan beside the advice: {advice.text}"
        yield from self._beside(advice)
        yield from _arrows([advice.text], advice)
        if drawn and _flat(advice.text) not in _flat(render(plan_view(plan), width=_WIDTH)):
            yield f"the plan's screen lacks its advice: {advice.text}"


def _texts(standing: Standing) -> Iterator[str]:
    yield standing.advice.text
    yield from standing.why
    yield from (one.message for one in standing.dangers)
    yield from (one.message for one in standing.findings)
    yield from (one.label for one in standing.outsiders)


def _agreement(standing: Standing) -> Iterator[str]:
    """What one look says in two places is the same."""
    advice = standing.advice
    if standing.next != advice.text:
        yield f"next is not the advice: {standing.next} / {advice.text}"
    if standing.finished and (standing.exit_code or standing.dangers or advice.action != "none"):
        yield f"finished with exit {standing.exit_code}, and {advice.action}"
    if advice.action == "none" and not standing.finished:
        yield f"nothing is left to do, and it is not finished: {advice.text}"
    if advice.action != "none" and not advice.command:
        yield f"no command beside the advice: {advice.text}"
    yield from _arrows(_texts(standing), advice)


def _arrows(texts: Iterator[str] | list[str], advice: Advice) -> Iterator[str]:
    for text in texts:
        if _ARROW in text and not advice.command:
            yield f"{_ARROW} without a command: {text}"


def _screen(standing: Standing) -> Iterator[str]:
    """The screen and the document agree with each other."""
    made = render([*verify_view(standing, wide=True), next_command(standing)], width=_WIDTH)
    text, body = _flat(made), json.loads(verify_line(standing))
    advice: Mapping[str, Any] = body["advice"]
    for part in (f"next: {advice['text']}", *advice["after"], *advice["risks"], advice["command"]):
        if _flat(part) not in text:
            yield f"the screen lacks: {part}"
    for one in standing.outsiders:
        if one.doubt is Doubt.NONE and one.label not in text:
            yield f"the screen lacks who is out: {one.label}"
    for danger in body["dangers"]:
        if _flat(danger["message"]) not in text:
            yield f"the screen lacks the danger: {danger['message']}"
    if body["exit_code"] != standing.exit_code:
        yield f"the document says exit {body['exit_code']}, the look {standing.exit_code}"
    verdict = {0: "gate holds", 3: "DANGER", 4: "not yet"}[body["exit_code"]]
    verdict = "done" if body["finished"] and not body["exit_code"] else verdict
    done = [one for one in body["members"] if one["concerned"] and one["done"] == "yes"]
    counted = f"{len(done)} of " if body["step"] is not None else f"{body['present']} of "
    present = f"{body['present']} of {body['expected']} member"
    if not re.search(rf"{verdict} +{counted}", text) or present not in text:
        line = next((one for one in made.splitlines() if " · " in one), "")
        yield f"the screen says {_flat(line)}, the document {verdict}, {counted}… {present}s"


def _flat(text: str) -> str:
    return " ".join(text.split())
