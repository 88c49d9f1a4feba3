"""Random groups on a real broker, evidence hidden at random, and a random restart that is tried.

`Case.form` makes the group and its history, `Case.decide` asks `admitted` with the evidence alone
and then sends the joins for real. All cases of a broker share one coordinator load.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from rebal.groups.model import AssignorList, Knowledge, Source, Tri
from rebal.planner.admission.check import Admission, Event, JoinEvent, LeaveEvent, admitted
from rebal.planner.admission.memory import memory_of
from rebal.planner.context import Context
from tests.kafka.broker import Broker, wait_for
from tests.kafka.rawgroup import (
    FENCED,
    FULL,
    INCONSISTENT,
    NONE,
    SESSION,
    UNKNOWN_MEMBER,
    RawGroup,
    RawMember,
)
from tests.planner.builder import AT, group_of, seen

_T = TypeVar("_T")
NAMES = ("range", "cooperative-sticky", "sticky", "roundrobin")
CODES = {
    "INCONSISTENT_GROUP_PROTOCOL": INCONSISTENT,
    "GROUP_MAX_SIZE_REACHED": FULL,
    "INVALID_SESSION_TIMEOUT": SESSION,
    "FENCED_INSTANCE_ID": FENCED,
}
AFTER_LOAD = ("nothing", "nothing", "statics", "rebalance", "one down", "temporary member")
AFTER_LOAD_KIP848 = (*AFTER_LOAD, "converted", "converted before")
BEFORE = ("nothing", "restarts", "killed", "preparing", "completing", "empty", "rejected")
BEFORE_KIP848 = (*BEFORE, "converted")
# Actions on these groups are single joins, and no rebalance may end in between.
_STILL = ("killed", "preparing", "completing")
# Short enough to wait for, long enough for the live members of a slow machine.
_SHORT_MS = 2_000
_WORKERS = 10


@dataclass
class Step:
    """One event: the member that leaves, or the join that is sent. `old` is silent before it."""

    leaves: RawMember | None = None
    joins: RawMember | None = None
    old: RawMember | None = None


@dataclass
class Outcome:
    """`verdict` and `error` are the planner's, `wrong` is a disagreement with the broker."""

    verdict: Tri
    error: str | None = None
    wrong: str = ""


def _id(member: RawMember) -> str:
    """The key of `RawGroup.remembered`: a static member that waits does not know its id."""
    return member.member_id or f"waiting {member.instance_id}"


@dataclass
class Case:
    """One group, its history and what is shown of it."""

    broker: Broker
    seed: str
    load: bool = False
    max_size: int | None = None
    history: str = ""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        scala = self.broker.is_scala_coordinator
        before, after = (BEFORE, AFTER_LOAD) if scala else (BEFORE_KIP848, AFTER_LOAD_KIP848)
        self.history = self.rng.choice(after if self.load else before)
        short = self.history == "one down"
        self.group = RawGroup(self.broker, rebalance_ms=_SHORT_MS if short else 60_000)

    # --- history --------------------------------------------------------------------------------

    def form(self) -> None:
        rng = self.rng
        statics = rng.choice((0.0, 0.5, 0.5, 1.0))
        online = self.history.startswith("converted")
        kind = "connect" if rng.random() < 0.06 and not online else "consumer"
        base = self._list()
        shared = rng.choice(base)
        made = []
        for number in range(rng.choice((1, 2, 2, 3, 3) if online else (1, 2, 2, 3, 3, 4))):
            own = list(base if rng.random() < 0.5 else self._list())
            if shared not in own:
                own.insert(rng.randint(0, len(own)), shared)
            instance = f"i{number}" if rng.random() < statics else None
            made.append(self.group.member(*own, instance=instance, protocol_type=kind))
        self.group.form(made)
        if self.load:
            if self.history == "converted before":
                self.group.convert()
            # Hundreds of groups wait for one load.
            self.group.disconnect()
        else:
            self._before()

    def _list(self, most: int = 4) -> list[str]:
        return self.rng.sample(NAMES, self.rng.randint(1, most))

    @property
    def live(self) -> list[RawMember]:
        return [m for m in self.group.members if m.alive]

    def _before(self) -> None:
        rng, group = self.rng, self.group
        if self.history == "restarts":
            for _ in range(rng.randint(1, 2)):
                # A static member that is rejected is down, and holds every rebalance up.
                if all(m.alive for m in self._counted()):
                    self._restart_for_real(rng.choice(self.live))
        elif self.history == "killed":
            group.die(rng.choice(self.live))
        elif self.history == "empty":
            group.leave(*self.live)
        elif self.history == "converted":
            group.convert()
        elif self.history == "completing":
            group.rejoin()
        elif self.history == "preparing" and len(self.live) > 1:
            chosen = rng.choice(self.live)
            chosen.assignors = tuple(rng.sample(chosen.assignors, len(chosen.assignors)))
            group.knock(chosen)
            preparing = lambda: group.describe().group_state == "PreparingRebalance"  # noqa: E731
            wait_for("the rebalance", preparing, timeout=10)
            assert chosen.waiting
        elif self.history == "rejected":
            common = self._common()
            others = [name for name in NAMES if name not in common]
            if others:
                names = rng.sample(others, rng.randint(1, len(others)))
                made = group.member(*names, protocol_type=self._type())
                code = group.knock(made)
                assert code in (INCONSISTENT, FULL), code
                made.wire.close()

    def _restart_for_real(self, member: RawMember, names: Sequence[str] = ()) -> None:
        group = self.group
        if member.instance_id is None:
            group.leave(member)
        else:
            group.die(member)
        names = tuple(dict.fromkeys(names or (*member.assignors[:1], *self._list())))
        made = group.member(*names, instance=member.instance_id, protocol_type=member.protocol_type)
        if group.knock(made) in (None, NONE):
            group.settle()

    def after_load(self) -> None:
        """What happens between the load and the look."""
        rng, group = self.rng, self.group
        if group.online:
            return
        group.describe()
        statics = [m for m in self.live if m.instance_id is not None]
        if self.history == "statics":
            for member in rng.sample(statics, rng.randint(0, len(statics))):
                self._restart_for_real(member, member.assignors)
        elif self.history == "one down" and statics and len(self.live) > 1:
            group.die(rng.choice(statics))
            group.rebalance()
        elif self.history == "temporary member" and group.elected is not None:
            made = group.member(group.elected, protocol_type=self._type())
            if group.knock(made) is None:
                group.settle()
                group.leave(made)
                group.settle()
        elif self.history == "rebalance":
            group.rebalance()
        elif self.history == "converted":
            group.convert()

    def _type(self) -> str:
        return self.group.members[0].protocol_type

    def _common(self) -> frozenset[str]:
        lists = [frozenset(names) for names in self.group.remembered().values()]
        return frozenset.intersection(*lists) if lists else frozenset()

    # --- evidence -------------------------------------------------------------------------------

    def _counted(self) -> list[RawMember]:
        """The members that the coordinator counts, dead ones too, the latest of each id."""
        ids = self.group.remembered()
        found = {
            _id(m): m for m in self.group.members if m.error in (None, NONE, FENCED, UNKNOWN_MEMBER)
        }
        assert ids.keys() <= found.keys(), (ids, found)
        return [found[each] for each in ids]

    def _evidence(self) -> dict[str, Any]:
        rng, group = self.rng, self.group
        counted = self._counted()
        described = group.describe()
        state = "Stable" if group.online else described.group_state
        if not group.online:
            assert len(counted) == len(described.members), (state, group.shown(), group.held)
        told = rng.choice((1.0, 0.8, 0.4))
        members = []
        for number, member in enumerate(counted):
            spec: dict[str, Any] = {"id": f"m{number}", "family": None}
            if member.instance_id:
                spec["instance"] = member.instance_id
            own = member.assignors
            others = [name for name in NAMES if name not in own]
            if rng.random() < told:
                spec["list"] = list(own)
            elif rng.random() < 0.6:
                spec["at_least"] = rng.sample(own, rng.randint(0, len(own)))
                spec["lacks"] = rng.sample(others, rng.randint(0, len(others)))
            if group.online:
                spec["protocol_type"] = "classic"
            if group.loaded and rng.random() < 0.5:
                spec["joined"] = 5 if member.member_id in group.fresh else -5
            members.append(spec)
        if group.online:
            members.append({"id": "online", "family": None, "protocol_type": "consumer"})
        reloaded = group.loaded and not group.rebalanced
        stable = state == "Stable" and not group.online
        settings = {
            "group.max.size": str(self.max_size or 2**31 - 1),
            "group.consumer.max.size": str(self.max_size or 2**31 - 1),
            "group.min.session.timeout.ms": "500",
            "group.max.session.timeout.ms": "1800000",
        }
        return {
            "state": state,
            "type": "consumer" if group.online else "classic",
            "elected": described.protocol_data or None if stable else None,
            "protocol_type": "consumer" if group.online else described.protocol_type,
            "members": members,
            "reloaded": None if rng.random() < 0.35 else reloaded,
            "probe": self._probe(stable and bool(counted)),
            "cluster": {"settings": settings if rng.random() < 0.85 else {}},
        }

    def _context(self, spec: dict[str, Any]) -> Context:
        """The evidence as the planner reads it, with what the shorthand has no word for."""
        rng, group = self.rng, self.group
        snapshot = group_of(spec)
        coordinator = snapshot.group.coordinator
        assert coordinator is not None
        if rng.random() < 0.4:
            at = AT - timedelta(minutes=1) if group.loaded else None
            coordinator = replace(coordinator, loaded_at=at, leader_epoch=int(group.loaded))
        members = list(snapshot.members)
        held = group.remembered()
        for number, counted in enumerate(self._counted() if group.online else ()):
            if rng.random() < 0.5:
                # The record that the conversion wrote (or a later join) has the remembered list.
                known = AssignorList(
                    knowledge=Knowledge.EXACT,
                    list=held[counted.member_id],
                    evidence=(seen(Source.OFFSETS_TOPIC),),
                )
                members[number] = replace(members[number], assignors=known)
        vouched = all(held[_id(m)] == m.assignors for m in self._counted())
        return Context(
            replace(
                snapshot,
                group=replace(snapshot.group, coordinator=coordinator),
                members=tuple(members),
            ),
            remembers=vouched and rng.random() < 0.1,
        )

    def _probe(self, may: bool) -> dict[str, bool | None] | None:
        """The real probe's answers: all are held against the record, some are shown."""
        rng = self.rng
        if not may or self._type() != "consumer":
            return None
        meaning = {UNKNOWN_MEMBER: True, INCONSISTENT: False, FULL: None}
        answers = {name: meaning[self.group.holds(name)] for name in NAMES}
        full = self.max_size is not None and len(self.group.remembered()) >= self.max_size
        common = self._common()
        for name, answer in answers.items():
            wanted = None if full else name in common
            assert answer is wanted, f"{self.seed}: {name} {answer}, record {self.group.held}"
        if rng.random() < 0.5:
            return None
        return {name: answers[name] for name in rng.sample(NAMES, rng.randint(1, 3))}

    # --- action ---------------------------------------------------------------------------------

    def _steps(self, counted: list[RawMember]) -> tuple[str, list[Step]]:
        """A random action: its kind, and what is sent."""
        rng = self.rng
        simple = self.history in _STILL or any(not m.alive for m in counted)
        simple = simple or self.group.online is not None
        kinds = ["restart"] * 9 + ["new"] * 2 + ["new static", "type", "session", "none"]
        if not simple:
            kinds += ["two", "two", "all"]
        kind = rng.choice(kinds)
        steps: list[Step] = []
        if not counted or kind in ("new", "new static", "type", "session", "none"):
            names = [] if kind == "none" else self._wish()
            made = self._member(names, "new" if kind == "new static" else None)
            if kind == "type":
                made.protocol_type = "connect" if self._type() == "consumer" else "consumer"
            if kind == "session":
                made.session_ms = rng.choice((100, 499, 500, 1_800_000, 1_800_001))
            return kind, [Step(joins=made)]
        if kind == "all":
            steps = [Step(leaves=m) for m in counted]
            steps += [Step(joins=self._member(self._wish(), None)) for _ in range(2)]
            return kind, steps
        for old in rng.sample(counted, min(len(counted), 2 if kind == "two" else 1)):
            names = self._wish(old)
            made = self._member(names, old.instance_id)
            stays = not old.alive or (kind == "restart" and rng.random() < 0.25)
            if old.instance_id is None and not stays and self.history not in _STILL[1:]:
                steps.append(Step(leaves=old))
                old = None  # noqa: PLW2901
            steps.append(Step(joins=made, old=old))
        return kind, steps

    def _wish(self, old: RawMember | None = None) -> Sequence[str]:
        rng = self.rng
        if old is not None and rng.random() < 0.15:
            return old.assignors
        return self._list(rng.choice((1, 1, 2, 3)))

    def _member(self, names: Sequence[str], instance: str | None) -> RawMember:
        return self.group.member(*names, instance=instance, protocol_type=self._type())

    def decide(self) -> Outcome:
        """Ask, act, compare."""
        group = self.group
        try:
            spec = self._evidence()
            shown = (f"{m['id']}-0f0f" for m in spec["members"])
            # A KIP-848 group's own member comes last.
            ids = dict(zip(shown, self._counted(), strict=False))
            context = self._context(spec)
            memory = memory_of(context)
            kind, steps = self._steps(list(ids.values()))
            events = self._events(steps, ids, kind)
            answer = admitted(memory, events)
            told = f"{self.seed} {self.history}: {group.shown()}; holds {group.remembered()}; "
            told += f"shown {spec}; asked {events}; {answer}"
            wrong = self._compare(answer, self._carry_out(steps), steps)
        finally:
            group.end()
        return Outcome(answer.verdict, answer.error, f"{wrong}: {told}" if wrong else "")

    def _events(self, steps: list[Step], ids: dict[str, RawMember], kind: str) -> list[Event]:
        names = {id(member): each for each, member in ids.items()}
        events: list[Event] = []
        for step in steps:
            if step.leaves is not None:
                events.append(LeaveEvent(member_id=names[id(step.leaves)]))
                continue
            made = step.joins
            assert made is not None
            unsaid = kind == "restart" and step.old is not None
            unsaid = unsaid and made.assignors == step.old.assignors and self.rng.random() < 0.5
            bounds = made.session_ms if kind == "session" or self.rng.random() < 0.2 else None
            events.append(
                JoinEvent(
                    assignors=None if unsaid else made.assignors,
                    instance_id=made.instance_id,
                    protocol_type=made.protocol_type,
                    session_ms=bounds,
                )
            )
        return events

    def _carry_out(self, steps: list[Step]) -> int:
        """Send the joins: the first one's error code that is rejected, or 0."""
        group, rng = self.group, self.rng
        for step in steps:
            whole = all(m.alive for m in self._counted()) and self.history not in _STILL
            whole = whole and not group.online
            if step.leaves is not None:
                group.leave(step.leaves)
                if whole and rng.random() < 0.5:
                    group.settle()
                continue
            made = step.joins
            assert made is not None
            if step.old is not None and step.old.alive:
                group.die(step.old)
            # A killed dynamic member counts until a rebalance ends without it: none may end here.
            whole = whole and (step.old is None or step.old.instance_id is not None)
            if step is not steps[-1]:
                assert whole
            code = group.knock(made)
            if code in (None, NONE) and (whole or step is not steps[-1]):
                group.settle()
                code = made.error
            elif code is None:
                code = self._waits(made)
            if code != NONE:
                return int(code or 0)
        return NONE

    def _waits(self, made: RawMember) -> int:
        """The coordinator counts a member whose join waits; a late rejection has a code."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if self.group.has(made):
                return NONE
            answer = made.wire.receive(0.05)
            if answer is not None:
                made.error = answer.error_code
                return int(answer.error_code)
        raise AssertionError(f"{self.seed}: the join is neither counted nor rejected")

    def _compare(self, answer: Admission, code: int, steps: list[Step]) -> str:
        """Why the planner's word and the broker's do not agree; empty where they do."""
        if answer.verdict is Tri.CANNOT_TELL:
            return ""
        if answer.verdict is Tri.YES:
            return f"admitted, but the broker says {code}" if code else ""
        if answer.error is None:
            return "" if code else "rejected, but the broker admits it"
        wanted = CODES.get(answer.error)
        if wanted == FENCED:
            (old,) = [step.old for step in steps]
            fenced = old is not None and old.error == FENCED
            return "" if code == NONE and fenced else f"not fenced, the broker says {code}"
        return "" if code == wanted else f"rejected with {wanted}, but the broker says {code}"


def tried(cases: Sequence[Case]) -> list[Outcome]:
    """Each case's outcome, several at a time: most of it is waiting for the broker."""
    return _at_once(lambda case: (case.form(), case.decide())[1], cases)


def formed(cases: Sequence[Case]) -> Sequence[Case]:
    """The cases' groups are made; then one coordinator load is due for all of them."""
    _at_once(Case.form, cases)
    return cases


def tried_after_load(cases: Sequence[Case]) -> list[Outcome]:
    """Each case's outcome once the coordinator was loaded again."""

    def after(case: Case) -> Outcome:
        case.group.reloaded()
        case.after_load()
        return case.decide()

    return _at_once(after, cases)


def _at_once(work: Callable[[Case], _T], cases: Sequence[Case]) -> list[_T]:
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(work, cases))


def tally(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How often each verdict and each error was given."""
    found: Counter[str] = Counter(each.verdict.value for each in outcomes)
    found.update(each.error for each in outcomes if each.error)
    found["disagreements"] = sum(bool(each.wrong) for each in outcomes)
    return found
