"""One history from its start to its end: `rehearse(history)` carries out rebal's advice."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from random import Random
from typing import Any

from rebal.groups.model import RebalanceProtocol
from tests.live.obey import FINAL, RANGE, Limits, Outcome, Over, Process, Story, is_eager
from tests.search.histories import ROUND_ROBIN, Event, History
from tests.search.world import SimulatedWorld

LIMITS = Limits(
    seconds=40_000, event_chance=0, race_chance=0, opening_chance=0, trial_chance=0.3, looks=120
)
# What differs between two violations of one kind.
_DETAIL = re.compile(r"\([^)]*\)?|\[[^\]]*\]?|[\d.]+ s\b|\b(?:app|more|old|tmp|orders|pod)-\d+|\d+")
_LOOK_AGAIN = re.compile(r"look again after (\d\d:\d\d:\d\d)Z", re.IGNORECASE)
# rebal takes a rejection for settled when a full group has stood so long.
_RECENT = 75.0
_WRONG = (
    ("range",), ("cooperative-sticky",), ("roundrobin",), ("cooperative-sticky", "range"),
    ("range", "cooperative-sticky"), ("sticky",),
)  # fmt: skip
_RUNS = {
    "cooperative": (RebalanceProtocol.COOPERATIVE,),
    "eager": (RebalanceProtocol.EAGER,),
    "consumer": ("CONSUMER",),
}


@dataclass
class End(Outcome):
    """The outcome of a history, with what only the operator could answer in it."""

    answers: list[str] = field(default_factory=list)


class Rehearsed(Story):
    """An obeying story whose events are the history's."""

    world: SimulatedWorld
    outcome: End

    def __init__(self, world: SimulatedWorld, history: History) -> None:
        random = Random(history.seed)
        super().__init__(world, random, history.goal, limits=LIMITS, counted=history.counted)
        self.outcome = End()
        self._left = list(history.events)
        # Members that are out since the plan was made, as the evidence showed then.
        self._out: list[Process] = []
        self._waits = max(1.5, (history.session + history.rebalance) / 8)
        self._reasons: set[str] = set()
        self._told: set[str] = set()
        self._confirmed: set[tuple[str, ...]] = set()

    def _play(self) -> None:
        self._happen(0)
        self._bystanders("between two looks")
        if self.world.history.evidence.late:
            self.world.spoil()
        body = self._plan()
        carry = self.rng.random() < 0.5
        if carry:
            self._carry_out(body)
        number = 0
        while True:
            number += 1
            self._between_looks()
            self._happen(number)
            self._bystanders("between two looks")
            body = self._look(self.world.verify)
            self._carry_out(body)

    def _plan(self) -> dict[str, Any]:
        body = super()._plan()
        service, history = self._service(), self.world.history
        self._out = [one for one in service if not one.running and self.world.shown(one)]
        if history.alike and len(self.world.processes) > len(history.consumers):
            # A new pod with the same automatic client id may have replaced it: no log tells.
            self._out = []
        if {"RB120", "RB121"} & set(body["asked"]) and not self.counted:
            self._count()
            body = super()._plan()
        return body

    def _count(self) -> None:
        """Answer how many members the service has: no evidence shows it."""
        self.counted = True
        self.outcome.answers.append("member count")
        self._say(f"counted: {self._expected()}")
        self._progressed()

    def _obey(self, advice: dict[str, Any]) -> None:
        if advice["assignors"]:
            # The configuration that is printed for a list names Kafka's own classes.
            ids = advice["members"] or [""] * len(advice["names"])
            for member_id, name in zip(ids, advice["names"], strict=True):
                found = self.world.found(member_id, name)
                self.world.own.discard(found.name if found else name)
        super()._obey(advice)
        self._forget_who_is_back()

    def _forget_who_is_back(self) -> None:
        self._out = [one for one in self._out if not one.running]

    def _joiner(self, label: str, software: str, lists: tuple[str, ...]) -> str | None:
        """Let one more process join, of the image that is rolled out or of the old one."""
        world = self.world
        said = [world.protocols[one.name] for one in self._service()]
        newest = next((one for one in said if one != world.begun), world.begun)
        world.joining = newest if label == "more" else world.begun
        return super()._joiner(label, software, lists)

    def _came(self, process: Process, how: str, *, filed: bool = True) -> None:
        """Start it; with KIP-848 a supervisor tries again until its old entry is released."""
        if how == "comes back":
            process.assignors = self.world.filed.get(process.name, process.assignors)
        if filed:
            self.world.filed.pop(process.name, None)
        super()._came(process, how)
        if self.world.history.kip848 and not process.running:
            process.due = self.world.now() + 20

    def _advised(
        self,
        process: Process,
        assignors: tuple[str, ...],
        advice: dict[str, Any],
        race: str | None,
    ) -> None:
        """Start it as advised, with KIP-848's protocol where the advice or the step brings that."""
        world = self.world
        if assignors:
            world.protocols[process.name] = "classic"
            if world.is_of_step(advice):
                self._write_files(assignors)
            errs = world.history.lies and advice["action"] == "restart"
            if errs and self.rng.random() < 0.3:
                # Its file has the new list, and it was started with another one.
                world.filed[process.name] = assignors
                self._came(process, "is started, by mistake,", filed=False)
                return
        elif advice["change"] and self.goal == "consumer":
            world.protocols[process.name] = "consumer"
        else:
            process.assignors = world.filed.get(process.name, process.assignors)
        world.filed.pop(process.name, None)
        super()._advised(process, assignors, advice, race)

    def _temporary(
        self, advice: dict[str, Any], assignors: tuple[str, ...], race: str | None
    ) -> None:
        if self._running():
            super()._temporary(advice, assignors, race)
        else:
            self._say("nobody runs whose list one more member could take: look again")
            self.world.sleep(30)

    def _write_files(self, assignors: tuple[str, ...]) -> None:
        """Write a step's list into all files before the members restart, as some deployments do."""
        if self.world.history.seed % 2:
            for one in self._running():
                if one.mixes and not one.retired and one.assignors != assignors:
                    self.world.filed[one.name] = assignors

    def _stop(self, processes: Sequence[Process], *, wait: bool = False) -> None:
        """Stop them all; a cut-over goes on once the others are Stable, as its advice says."""
        super()._stop(processes, wait=wait)
        if wait:
            self._settled()

    def _bystanders(self, when: str) -> None:
        """Judge those whom nobody touched; who joins a full group first is an event's doing."""
        for one in self._running() if when == "between two looks" else ():
            if "GROUP_MAX_SIZE_REACHED" in (self.world.error(one) or ""):
                one.running = False
                self._say(f"{one.name} finds the group full")
        super()._bystanders(when)

    def _roll_back(self) -> str | None:
        if not self.world.history.kip848:
            return super()._roll_back()
        begun, protocols = self.world.begun, self.world.protocols
        changed = [one for one in self._running() if protocols[one.name] != begun]
        if not changed:
            return None
        one = self.rng.choice(changed)
        self.world.stop(one)
        protocols[one.name] = begun
        one.running, one.assignors, one.origin = False, one.first, "event"
        told = self._event(f"{one.name} is rolled back to group.protocol={begun}")
        self._came(one, "is rolled back")
        return told

    def _finish(self, body: dict[str, Any]) -> None:
        if self.world.judge.false_words and self.world.grant("client log"):
            # Somebody looks into the logs afterwards: what they show voids the false word.
            self._look(self.world.verify)
            raise Over("misled by the operator")
        for one in self._running():
            if self.world.runs(one) not in _RUNS[self.goal]:
                self._violated(f"called finished while {one.name} runs {self.world.runs(one)}")
        out = [one for one in self._service() if not one.running and one.name.startswith("pod-")]
        gone = [one for one in self._out if not (one.running or one.retired)]
        gone = [one for one in gone if not self._rejoins_done(body, one)]
        # Whose rejection no evidence shows: its old entry looks like any other member's.
        hidden = [
            one
            for one in self._service()
            if not one.running and one.due is None and not self.world.truth.shown_rejected(one)
        ]
        if (out or gone or hidden) and self.counted and self.world.counts_a_stopped_one():
            # It makes up the number until its session ends, and no evidence shows who is down.
            raise Over("finished beside the entry of a stopped member")
        for one in gone:
            self._violated(f"called finished without {one.name}, which the logs show")
        world = self.world
        unseen = world.kip848 and world.sees_no_growth
        if body.get("step") is not None and not (unseen or world.counts_a_stopped_one()):
            before = world.unowned_at_rest()
            world.deliver()
            # A rebalance that begins meanwhile takes partitions for a moment.
            left = [fault for fault in world.unowned_at_rest() if fault in before]
            if left:
                # A member may have given them up to join a rebalance that no broker shows yet.
                self._settled(required=False)
                left = [fault for fault in world.unowned_at_rest() if fault in left]
            for fault in left[:1]:
                self._violated(f"called finished while {fault}")
        for one in out:
            if self.world.truth.shown_rejected(one):
                self._violated(f"called finished without {one.name}, which the logs show rejected")
        if self.goal != "consumer":
            super()._finish(body)
        if self.counted and any(not one.running and one.due is None for one in self._service()):
            self._violated("called finished while a member is down")
        raise Over("finished")

    def _rejoins_done(self, body: dict[str, Any], one: Process) -> bool:
        """Return whether nothing was left to do and the member that is out runs the goal's list.

        Its return changes nothing, so RB120 does not ask about it. An own class may be EAGER.
        """
        done = body.get("step") is None and self.goal == "cooperative" and one.assignors == FINAL
        return done and one.name not in self.world.own

    def _count_or_find(self) -> None:
        """Answer how many members there are, then which of them is down."""
        down = [one for one in self._service() if not one.running and one.due is None]
        if not self.counted:
            self._count()
        elif down and (running := self._running()):
            # A crash loop, as the deployment shows it: the process gets what the others run, or the
            # elected assignor if its client refuses a mixed list.
            self.outcome.answers.append("missing member")
            lists, elected = self.rng.choice(running).assignors, self.world.elected
            mixed = len({is_eager(name) for name in lists}) == 2
            down[0].assignors = (elected,) if elected and mixed and not down[0].mixes else lists
            self._came(down[0], "is started by the operator")
            if "GROUP_MAX_SIZE_REACHED" in (self.world.error(down[0]) or ""):
                raise Over("blocked: group.max.size")

    def _look(self, ask: Any, *more: str) -> dict[str, Any]:
        self._forget_who_is_back()
        body = super()._look(ask, *more)
        self._told_wrongly()
        if body["finished"] and body["advice"]["action"] != "none":
            self._violated("finished, and something is still advised")
        return body

    def _told_wrongly(self) -> None:
        """Take down what a look told wrongly, each kind once: a later look says the same."""
        for fault in self.world.faults:
            kind = kind_of(fault)
            if kind not in self._told:
                self._told.add(kind)
                super()._violated(fault)
        self.world.faults.clear()

    def _violated(self, text: str) -> None:
        """Take down a broken promise, but for one that the operator's own false word broke."""
        if self.world.judge.false_words:
            raise Over("misled by the operator")
        super()._violated(text)

    def _happen(self, look: int) -> None:
        """Let the events before this look happen."""
        while self._left and self._left[0].look <= look:
            event = self._left.pop(0)
            self.rng = Random(event.pick)
            self._one(event)
            if event.pick % 2:
                self._settled(required=False)

    def _one(self, event: Event) -> None:
        done: Any = {
            "reload": self._reload,
            "crash": self._crash,
            "scale up": self._scale_up,
            "scale down": self._scale_down,
            "roll back": self._roll_back,
            "old image": self._old_image,
            "cut": self._spoil,
            "merge": lambda: self._event(f"logs: {self.world.merge()}"),
            "wrong list": self._wrong_list,
            "leave": self._leave,
            "rejected pod": self._rejected_pod,
            "topic grows": lambda: self._event(self.world.grow()),
        }[event.kind]
        done()

    def _wrong_list(self) -> None:
        """Somebody restarts a member with a list of their own."""
        running = self._running()
        if not running:
            return
        one = self.rng.choice(running)
        names = self.rng.choice(_WRONG)
        if not one.mixes and len({is_eager(name) for name in names}) == 2:
            return
        self.world.stop(one)
        one.running, one.assignors, one.origin = False, names, "event"
        self._event(f"{one.name} is restarted with {list(names)}")
        self._came(one, "is restarted")
        if not one.running:
            # A crash back-off: its supervisor starts it again later, with what it ran first.
            one.assignors, one.due = one.first, self.world.now() + 30

    def _leave(self) -> None:
        """A member stops for a while."""
        running = self._running()
        if len(running) < 2:
            return
        one = self.rng.choice(running)
        self.world.stop(one)
        one.running = False
        one.due = self.world.now() + self.rng.choice((3.0, 100.0))
        self._event(f"{one.name} is stopped for a while")

    def _rejected_pod(self) -> None:
        """A new pod of the service is rejected at its first start, and stays out."""
        running = self._running()
        if not running:
            return
        pattern = self.rng.choice(running)
        lists = [
            names
            for names in (FINAL, RANGE, ROUND_ROBIN)
            if not all({*names} & {*one.assignors} for one in running)
        ]
        if not lists:
            return
        self._serial += 1
        pod = Process(f"pod-{self._serial}", pattern.software, self.rng.choice(lists))
        self._event(f"{pod.name} is a new pod with {list(pod.assignors)}")
        self.world.processes.append(pod)
        self._came(pod, "starts")

    def _evidence(self, advice: dict[str, Any]) -> None:
        """Give what is asked for; the right to read records and the logs' zone count as well."""
        if "first RB121" in advice["text"]:
            self._count()
            return
        if "--expect-members" in advice["text"]:
            self._wait(advice)
            return
        for kind in ("offsets topic", "log timezone"):
            if kind in advice["evidence_needed"] and self.world.grant(kind):
                self.outcome.granted += 1
                self._say(f"granted: {kind}")
                self._progressed()
                return
        super()._evidence(advice)

    def _confirm(self, advice: dict[str, Any]) -> None:
        """Confirm a list for the members that really run it, or for all: an operator may err.

        Whoever errs confirms at once; the others give what evidence they have first.
        """
        names = tuple(advice["assignors"])
        found = {id_: self.world.found(id_, "") for id_ in advice["members"]}
        lies = self.world.history.lies
        true = tuple(id_ for id_, one in found.items() if one and (lies or one.assignors == names))
        self.world.confirms = (true, names) if names else ((), ())
        if not lies or true in self._confirmed:
            super()._confirm(advice)
            return
        self._confirmed.add(true)
        self._say(f"confirmed: {len(true)} with {list(names)}")
        self._progressed()
        words = ("--confirm", str(advice["step"]), "--reason", "looked at each of them")
        self._look(self.world.verify, *words)

    def _wait(self, advice: dict[str, Any]) -> None:
        if "; add --" in advice["text"] and self._granted(advice["evidence_needed"]):
            return
        before = self.world.now()
        if any(each.due is not None and not each.running for each in self.world.processes):
            # Its supervisor starts it again.
            self._progressed()
        # A later end of the wait too: each rebalance begins a stopped member's session anew.
        if advice["text"] not in self._reasons:
            self._reasons.add(advice["text"])
            self._progressed()
        self._asked(advice)
        if "--expect-members" in advice["text"]:
            about_missing = advice["action"] in ("wait", "start") or "RB606" in advice["text"]
            if not about_missing and not self.world.has_rejected:
                self._broken(f"asks about a client of another group: {advice['text']}")
            self._count_or_find()
        if advice["error"] == "GROUP_MAX_SIZE_REACHED":
            raise Over("blocked: group.max.size")
        patience = self.world.session_seconds + self.world.rebalance_seconds + _RECENT
        named = self._named(advice["text"])
        if named > 0:
            # It looks again sooner too, more often as that time comes near.
            self.world.sleep(named / 3)
            self._progressed()
        elif advice["action"] != "stop" and before - self._progress < patience:
            self.world.sleep(1.5)
        else:
            super()._wait(advice)
        self.world.sleep(max(0.0, self._waits - (self.world.now() - before)))

    def _named(self, text: str) -> float:
        """Return in how many seconds the last look says to look again; 0 where it names no time."""
        told, body = _LOOK_AGAIN.search(text), self.outcome.last[-1]
        if told is None or "at" not in body:
            return 0.0
        at = datetime.fromisoformat(body["at"])
        until = datetime.combine(at, time.fromisoformat(told[1]), at.tzinfo)
        return (until - at).total_seconds()

    def _asked(self, advice: dict[str, Any]) -> None:
        """End where only a person can answer: what an own class supports, or what a client is."""
        rule = advice["text"].removeprefix("first ")[:5]
        foreign = any(not one.software.startswith("java") for one in self._service())
        if (rule == "RB111" and self.world.own) or (rule == "RB906" and foreign):
            raise Over(f"asked: {rule}")

    def _settled(self, *, required: bool = True) -> None:
        super()._settled(required=required)
        for fault in self.world.faults:
            self._violated(fault)
        self.world.faults.clear()


def kind_of(violation: str) -> str:
    """Return what kind of promise was broken, without the names and times of this history."""
    lines = violation.strip().splitlines()
    text = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return " ".join(_DETAIL.sub("", text).split()[:6])


def rehearse(history: History) -> End | None:
    """Return what became of a history; None where its group cannot begin."""
    world = SimulatedWorld(history)
    if not world.begin():
        return None
    story = Rehearsed(world, history)
    try:
        story.run()
    except Exception:
        story.outcome.violations.append(traceback.format_exc())
    return story.outcome
