"""One history from its start to its end: `rehearse(history)` carries out rebal's advice."""

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any

from rebal.groups.model import RebalanceProtocol
from tests.live.obey import FINAL, JOINING, Outcome, Over, Process, is_eager
from tests.search.events import Eventful
from tests.search.histories import History
from tests.search.world import SimulatedWorld

SECONDS, LOOKS = 40_000, 120
# How many stories try what is withheld as rejected.
_TRIALS = 0.3
KINDS = ("probe", "request log", "client log")
RARE = ("offsets topic", "log timezone")
# What differs between two violations of one kind.
_DETAIL = re.compile(r"\([^)]*\)?|\[[^\]]*\]?|[\d.]+ s\b|\b(?:app|more|old|tmp|orders|pod)-\d+|\d+")
_LOOK_AGAIN = re.compile(r"look again after (\d\d:\d\d:\d\d)Z", re.IGNORECASE)
_AGREE = re.compile(r"--ignore (RB\d+)")
# rebal takes a rejection for settled when a full group has stood so long.
_RECENT = 75.0
_RUNS = {
    "cooperative": (RebalanceProtocol.COOPERATIVE,),
    "eager": (RebalanceProtocol.EAGER,),
    "consumer": ("CONSUMER",),
}


@dataclass
class End(Outcome):
    """The outcome of a history, with what only the operator could answer in it."""

    looks: int = 0
    granted: int = 0
    stops: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)


class Rehearsed(Eventful):
    """A whole story: plan, look, obey, until rebal says that the plan is carried out."""

    outcome: End

    def __init__(self, world: SimulatedWorld, history: History) -> None:
        super().__init__(world, history)
        self.goal = history.goal
        self.outcome = End()
        # Members that are out since the plan was made, as the evidence showed then.
        self._out: list[Process] = []
        self._waits = max(1.5, (history.session + history.rebalance) / 8)
        self._tries_withheld = self.rng.random() < _TRIALS
        self._agreed: list[str] = []
        self._last: dict[str, Any] = {}
        self._reasons: set[str] = set()
        self._told: set[str] = set()
        self._confirmed: set[tuple[str, ...]] = set()

    def run(self) -> None:
        """Play to the end; never raises for what rebal did wrong."""
        try:
            self._play()
        except Over as end:
            self.outcome.ended = str(end)

    def _play(self) -> None:
        self._happen(0)
        self._bystanders("between two looks")
        if self.world.history.evidence.late:
            self.world.cut()
        body = self._plan()
        if self.rng.random() < 0.5:
            self._carry_out(body)
        number = 0
        while True:
            number += 1
            self._comes_back()
            if self.world.now() - self._began < 60 and len(self.outcome.events) < 4:
                self._draw()
            self._happen(number)
            self._bystanders("between two looks")
            body = self._look(self.world.verify)
            self._carry_out(body)

    def _draw(self) -> None:
        """Draw a number: the histories that were found were played with one more here."""
        self.rng.random()

    def _plan(self) -> dict[str, Any]:
        body = self._planned()
        service, history = self._service(), self.world.history
        self._out = [one for one in service if not one.running and self.world.shown(one)]
        if history.alike and len(self.world.processes) > len(history.consumers):
            # A new pod with the same automatic client id may have replaced it: no log tells.
            self._out = []
        if {"RB120", "RB121"} & set(body["asked"]) and not self.counted:
            self._count()
            body = self._planned()
        return body

    def _planned(self) -> dict[str, Any]:
        if not self._agreed:
            body = self._look(self.world.plan)
            texts = [str(step) for step in body.get("steps", ())]
            self._agreed = sorted({rule for text in texts for rule in _AGREE.findall(text)})
            if not self._agreed:
                return body
            self._say(f"agreed: {', '.join(self._agreed)}")
        return self._look(self.world.plan, ignore=self._agreed)

    def _look(self, ask: Callable[..., dict[str, Any]], **more: Any) -> dict[str, Any]:
        self._forget_who_is_back()
        if self.world.now() - self._began > SECONDS:
            self._broken(f"no end after {SECONDS} s")
        if self.outcome.looks >= LOOKS:
            self._broken(f"no end after {LOOKS} looks")
        self.outcome.looks += 1
        self._last = body = ask(self._expected(), **more)
        self._told_wrongly()
        if body["finished"] and body["advice"]["action"] != "none":
            self._violated("finished, and something is still advised")
        return body

    def _expected(self) -> int | None:
        return len(self._service()) if self.counted else None

    # --- obeying --------------------------------------------------------------------------------

    def _carry_out(self, body: dict[str, Any]) -> None:
        advice = body["advice"]
        action = advice["action"]
        self._say(f"advice: {advice['text']}")
        if self._tries_withheld and self._try_withheld(body):
            raise Over("a withheld restart was tried")
        if action in JOINING and advice["verdict"] == "yes":
            self._obey(advice)
        elif action == "none":
            self._finish(body)
        else:
            # A new plan's own advice is what follows, whatever verify would say of it.
            does = {"replan": self._replan, "confirm": self._confirm, "evidence": self._evidence}
            does.get(action, self._wait)(advice)

    def _replan(self, advice: dict[str, Any]) -> None:
        body = self._plan()
        self._say(f"advice of the new plan: {body['advice']['text']}")
        if body["advice"]["action"] in ("replan", "none"):
            self._wait(advice)
        else:
            self._carry_out(body)

    def _try_withheld(self, body: dict[str, Any]) -> bool:
        """Carry out what rebal says would be rejected: the story is a throw-away copy from here."""
        bad = [
            one
            for one in body["withheld"]
            if one["verdict"] == "no"
            and one["action"] == "restart"
            and one["error"] == "INCONSISTENT_GROUP_PROTOCOL"
            and one["assignors"]
        ]
        if not bad:
            return False
        one = self.rng.choice(bad)
        process = self.world.found(one["members"][0], one["names"][0])
        if process is None or not process.running:
            return False
        lists = tuple(one["assignors"])
        if not process.mixes and len({is_eager(name) for name in lists}) == 2:
            return False
        self._stop([process])
        process.assignors = lists
        error = self.world.start(process)
        process.running = error is None
        self._say(f"tried withheld {process.name} {list(lists)}: {error}")
        if error is None:
            self._violated(f"withheld as rejected, and admitted: {one['text']}")
        return True

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

    def _count_action(self) -> None:
        self._draw()
        super()._count_action()

    def _forget_who_is_back(self) -> None:
        self._out = [one for one in self._out if not one.running]

    def _advised(
        self, process: Process, assignors: tuple[str, ...], advice: dict[str, Any]
    ) -> None:
        """Start it as advised, with KIP-848's protocol where the advice or the step brings that."""
        world = self.world
        if assignors:
            world.protocols[process.name] = "classic"
            if world.is_of_step(advice):
                self._write_files(assignors)
            if world.history.lies and advice["action"] == "restart" and self.rng.random() < 0.3:
                # Its file has the new list, and it was started with another one.
                world.filed[process.name] = assignors
                self._came(process, "is started, by mistake,", filed=False)
                return
        elif advice["change"] and self.goal == "consumer":
            world.protocols[process.name] = "consumer"
        else:
            process.assignors = world.filed.get(process.name, process.assignors)
        world.filed.pop(process.name, None)
        self._deployed = assignors or self._deployed
        super()._advised(process, assignors, advice)

    def _temporary(self, advice: dict[str, Any], assignors: tuple[str, ...]) -> None:
        if self._running():
            super()._temporary(advice, assignors)
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
        # The coordinator counts a crashed member until its session ends.
        down = [one.name for one in self._service() if not one.running and one.due is None]
        if down and self.counted:
            self._violated(f"called finished while {', '.join(down)} are down")
        for one in self._running() if self.goal != "consumer" else ():
            wrong = [is_eager(name) is (self.goal == "cooperative") for name in one.assignors]
            if any(wrong) and one.software.startswith("java"):
                self._violated(f"called finished while {one.name} has {list(one.assignors)}")
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

    def _evidence(self, advice: dict[str, Any]) -> None:
        """Give what is asked for; the right to read records and the logs' zone count as well."""
        if "first RB121" in advice["text"]:
            self._count()
            return
        if "--expect-members" in advice["text"]:
            self._wait(advice)
            return
        needed = list(advice["evidence_needed"] or KINDS)
        if self._granted(needed, RARE):
            return
        self.rng.shuffle(needed)
        if not self._granted(needed):
            self._wait(advice)

    def _granted(self, needed: Sequence[str], of: Sequence[str] = KINDS) -> bool:
        kind = next((one for one in needed if one in of and self.world.grant(one)), None)
        if kind is None:
            return False
        self.outcome.granted += 1
        self._say(f"granted: {kind}")
        self._progressed()
        return True

    def _confirm(self, advice: dict[str, Any]) -> None:
        """Confirm a list for the members that really run it, or for all: an operator may err.

        Whoever errs confirms at once; the others give what evidence they have first.
        """
        names = tuple(advice["assignors"])
        found = {id_: self.world.found(id_, "") for id_ in advice["members"]}
        lies = self.world.history.lies
        true = tuple(id_ for id_, one in found.items() if one and (lies or one.assignors == names))
        self.world.confirms = (true, names) if names else ((), ())
        if lies and true not in self._confirmed:
            self._confirmed.add(true)
            self._say(f"confirmed: {len(true)} with {list(names)}")
        elif self._granted(advice["evidence_needed"]):
            return
        self._progressed()
        self._look(self.world.verify, confirm=advice["step"])

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
        action, idle = advice["action"], self.world.now() - self._progress
        patience = self.world.session_seconds + self.world.rebalance_seconds + _RECENT
        named = self._named(advice["text"])
        if named > 0:
            # It looks again sooner too, more often as that time comes near.
            self.world.sleep(named / 3)
            self._progressed()
        elif idle < (10 if action == "stop" else patience):
            self.world.sleep(1.5)
        elif action == "stop":
            self._person(advice)
        elif action == "evidence" or not self._granted(advice["evidence_needed"]):
            self._broken(f"only waits ({action}): {advice['text']}")
        self.world.sleep(max(0.0, self._waits - (self.world.now() - before)))

    def _person(self, advice: dict[str, Any]) -> None:
        if self.outcome.stops.count(advice["reason"]) >= 3:
            raise Over(f"blocked: {advice['reason']}")
        self.outcome.stops.append(advice["reason"])
        self._progressed()
        self._replan(advice)

    def _named(self, text: str) -> float:
        """Return in how many seconds the last look says to look again; 0 where it names no time."""
        told, body = _LOOK_AGAIN.search(text), self._last
        if told is None or "at" not in body:
            return 0.0
        at = datetime.fromisoformat(body["at"])
        return (datetime.combine(at, time.fromisoformat(told[1]), at.tzinfo) - at).total_seconds()

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
