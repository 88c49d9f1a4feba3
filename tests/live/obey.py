"""The engine of the obeying test: a story that carries out what `rebal` advises, and nothing else.

`Story` knows a `World` (obey_world.py: real brokers and members) and decides by a seeded random
generator what happens between the looks. It records each thing that rebal promised and that did not
come true: `Outcome.violations`. Nothing here starts a process, so a scripted world can test it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

JOINING = ("restart", "start", "temporary", "cut-over")
FAMILIES = {"confluent-kafka": "librdkafka"}
KINDS = ("probe", "request log", "client log")
RANGE: tuple[str, ...] = ("range",)
WIDE: tuple[str, ...] = ("cooperative-sticky", "range")
DEFAULT: tuple[str, ...] = ("range", "cooperative-sticky")
FINAL: tuple[str, ...] = ("cooperative-sticky",)
_AGREE = re.compile(r"--ignore (RB\d+)")


@dataclass
class Process:
    """One process of the service: what its configuration says, and whether it runs.

    `first` is the list of the image that the story began with. `settings` are those of its file
    that take the list's place. `origin` says who started it last: the story (initial), an obeyed
    action (advised), or an event. `due` is when a supervisor starts it again. A retired process
    belongs to the service no more.
    """

    name: str
    software: str
    assignors: tuple[str, ...]
    instance_id: str | None = None
    first: tuple[str, ...] = ()
    running: bool = False
    retired: bool = False
    origin: str = "initial"
    due: float | None = None
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first = self.first or self.assignors

    @property
    def family(self) -> str:
        """The name that rebal has for its client library."""
        return FAMILIES.get(self.software, re.sub(r"-\d.*", "", self.software))

    @property
    def mixes(self) -> bool:
        """Whether its client accepts eager and cooperative assignors together."""
        return self.software.startswith("java") or self.software == "franz-go"


class World(Protocol):
    """What a story acts on. Times are seconds of `now`."""

    processes: list[Process]
    session_seconds: float
    rebalance_seconds: float

    def now(self) -> float:
        """The time."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def start(self, process: Process) -> str | None:
        """Start it with its list and wait until it has joined; its error where it has failed."""

    def stop(self, process: Process) -> None:
        """Stop it cleanly: a dynamic member leaves the group."""

    def crash(self, process: Process) -> None:
        """End it without a LeaveGroup."""

    def error(self, process: Process) -> str | None:
        """What it said when it failed, since its last start."""

    def settle(self) -> bool:
        """Wait until the group is Stable; False where it is not in time."""

    def gone(self, processes: Sequence[Process]) -> bool:
        """Wait until the group has no member of these processes; False where it is not in time."""

    def reload(self) -> str:
        """Have the coordinator loaded again; what was done."""

    def found(self, member_id: str, name: str) -> Process | None:
        """The process behind a member id or, where there is none, a label."""

    def plan(self, expected: int | None, *more: str) -> dict[str, Any] | None:
        """`rebal plan-upgrade` to a new plan file; None where the look failed."""

    def verify(self, expected: int | None, *more: str) -> dict[str, Any] | None:
        """`rebal verify` of the newest plan; None where the look failed."""

    def grant(self, kind: str) -> bool:
        """Give one more kind of evidence, in full, from now on; False where nothing is added."""

    def spoil(self) -> str:
        """Cut or merge the logs from now on; what was done."""

    def unowned(self, since: float, breaks: Sequence[float]) -> tuple[float, str]:
        """The longest time that a partition had no owner, as cut by `breaks`, and which it was."""


@dataclass(frozen=True)
class Limits:
    """How much a story may take: seconds, and events in the first part of it."""

    seconds: float = 220.0
    events: int = 4
    events_until: float = 60.0
    event_chance: float = 0.45
    race_chance: float = 0.04
    trial_chance: float = 0.5
    opening_chance: float = 0.35
    late_opening_chance: float = 0.5
    looks: int = 90


@dataclass
class Outcome:
    """What became of a story: how it ended, what it counted, and what was promised and not kept."""

    ended: str = ""
    looks: int = 0
    obeyed: int = 0
    excused: int = 0
    granted: int = 0
    trials: int = 0
    seconds: float = 0.0
    events: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    last: list[dict[str, Any]] = field(default_factory=list)


def is_eager(name: str) -> bool:
    return "cooperative" not in name


class Over(Exception):  # noqa: N818
    """The story has ended."""


class Story:
    """One story: plan, look, obey, until rebal says that the plan is carried out."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        goal: str,
        *,
        limits: Limits | None = None,
        counted: bool = True,
    ) -> None:
        """`counted`: rebal is told how many members the service has."""
        self.world = world
        self.rng = rng
        self.goal = goal
        self.limits = limits or Limits()
        self.counted = counted
        self.outcome = Outcome()
        self._began = world.now()
        self._progress = self._began
        self._breaks: list[float] = []
        self._deployed: tuple[str, ...] | None = None
        self._tries_withheld = rng.random() < self.limits.trial_chance
        self._agreed: list[str] = []
        self._blind = 0
        self._serial = 0

    # --- the loop -------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Return what became of it; never raises for what rebal did wrong."""
        try:
            self._play()
        except Over as end:
            self.outcome.ended = str(end)
        self._judge_ownership()
        self.outcome.seconds = self.world.now() - self._began
        return self.outcome

    def _play(self) -> None:
        opening = self.rng.random() < self.limits.opening_chance
        later = self.rng.random() < self.limits.late_opening_chance
        if opening and not later:
            self._reload()
        body = self._plan()
        if opening and later:
            # What the plan advises first is from before the reload.
            self._reload()
        elif self.rng.random() < 0.5:
            self._carry_out(body)
        while True:
            self._between_looks()
            self._bystanders("between two looks")
            body = self._look(self.world.verify)
            self._carry_out(body)

    def _plan(self) -> dict[str, Any]:
        if not self._agreed:
            body = self._look(self.world.plan)
            # What a step asks a person to agree to: an interruption, say.
            texts = [str(step) for step in body.get("steps", ())]
            self._agreed = sorted({rule for text in texts for rule in _AGREE.findall(text)})
            if not self._agreed:
                return body
            self._say(f"agreed: {', '.join(self._agreed)}")
        words = [word for rule in self._agreed for word in ("--ignore", rule)]
        return self._look(self.world.plan, *words, "--reason", "agreed with the owners")

    def _look(self, ask: Callable[..., dict[str, Any] | None], *more: str) -> dict[str, Any]:
        while True:
            if self.world.now() - self._began > self.limits.seconds:
                self._broken(f"no end after {self.limits.seconds:g} s")
            if self.outcome.looks >= self.limits.looks:
                self._broken(f"no end after {self.limits.looks} looks")
            self.outcome.looks += 1
            body = ask(self._expected(), *more)
            if body is not None:
                self._blind = 0
                self.outcome.last = [*self.outcome.last[-7:], body]
                return body
            self._blind += 1
            self._say("look failed")
            if self._blind > 8:
                self._broken("rebal cannot look at the group")
            self.world.sleep(2)

    def _expected(self) -> int | None:
        return len(self._service()) if self.counted else None

    def _service(self) -> list[Process]:
        return [each for each in self.world.processes if not each.retired]

    def _running(self) -> list[Process]:
        return [each for each in self.world.processes if each.running]

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
        elif action == "replan":
            # A new plan's own advice is what follows, whatever verify would say of it.
            self._replan(advice)
        elif action == "confirm":
            self._confirm(advice)
        elif action == "evidence":
            self._evidence(advice)
        else:
            self._wait(advice)

    def _replan(self, advice: dict[str, Any]) -> None:
        body = self._plan()
        self._say(f"advice of the new plan: {body['advice']['text']}")
        if body["advice"]["action"] in ("replan", "none"):
            self._wait(advice)
        else:
            self._carry_out(body)

    def _obey(self, advice: dict[str, Any]) -> None:
        action, assignors = advice["action"], tuple(advice["assignors"])
        found = [
            self.world.found(member_id, name)
            for member_id, name in zip(
                advice["members"] or [""] * len(advice["names"]), advice["names"], strict=True
            )
        ]
        wanted = action != "start"
        concerned = [each for each in found if each is not None and each.running is wanted]
        if action != "temporary" and not concerned:
            # "if it is down", or it has crashed meanwhile: there is nothing to carry out.
            self._say("nothing to carry out: look again")
            self._wait(advice)
            return
        race = self._race() if self.rng.random() < self.limits.race_chance else None
        self.outcome.obeyed += 1
        self._progressed()
        if action == "temporary":
            self._temporary(advice, assignors, race)
        else:
            if action == "restart":
                concerned = concerned[:1]
            # A cut-over waits for the entry of a member that is down already, too.
            together = action == "cut-over"
            self._stop([one for one in found if one] if together else concerned, wait=together)
            for process in concerned:
                process.retired = False
                self._advised(process, assignors, advice, race)
        self._settled()
        self._bystanders(f"after {advice['text']}")
        self._progressed()

    def _stop(self, processes: Sequence[Process], *, wait: bool = False) -> None:
        """Stop them all, and see that those who are to leave (with `wait`: all) have left."""
        running = [each for each in processes if each.running]
        for process in running:
            self.world.stop(process)
            process.running = False
        # A lone static member's restart does not wait for its session to end.
        leaving = [each for each in running if each.instance_id is None or len(running) > 1]
        leaving = list(processes) if wait else leaving
        if leaving and not self.world.gone(leaving):
            self._broken(f"{leaving[0].name} was stopped and is still in the group")

    def _temporary(
        self, advice: dict[str, Any], assignors: tuple[str, ...], race: str | None
    ) -> None:
        pattern = self.rng.choice(self._running())
        lists = assignors or pattern.assignors
        self._serial += 1
        guest = Process(f"tmp-{self._serial}", pattern.software, lists, retired=True)
        self.world.processes.append(guest)
        self._advised(guest, lists, advice, race)
        self._settled()
        if guest.running:
            self.world.stop(guest)
            guest.running = False

    def _advised(
        self,
        process: Process,
        assignors: tuple[str, ...],
        advice: dict[str, Any],
        race: str | None,
    ) -> None:
        """Start it as advised. A rejection is a violation, unless an event came in between."""
        self._configure(process, advice)
        process.origin, process.due = "advised", None
        if assignors:
            self._deployed = assignors
        error = self.world.start(process)
        process.running = error is None
        if error is None:
            return
        elected = (advice["valid_while"] or {}).get("assignor")
        said = f"{process.name} {list(process.assignors)} failed: {error}"
        if race is not None and elected not in process.assignors:
            self.outcome.excused += 1
            self._say(f"excused by {race}: {said}")
            self._breaks.append(self.world.now())
        else:
            # What follows would only repeat it.
            self._broken(f"advised {advice['action']} ({advice['reason']}): {said}")

    def _configure(self, process: Process, advice: dict[str, Any]) -> None:
        """Write its configuration as advised; where nothing is said it stays."""
        process.assignors = tuple(advice["assignors"]) or process.assignors

    def _evidence(self, advice: dict[str, Any]) -> None:
        """Give one of the kinds that rebal asks for; it is wrong to ask for what it has."""
        if "first RB121" in advice["text"]:
            self.counted = True
            self._say(f"counted: {self._expected()}")
            self._progressed()
            return
        kinds = list(advice["evidence_needed"] or KINDS)
        self.rng.shuffle(kinds)
        if not self._granted(kinds):
            self._wait(advice)

    def _granted(self, kinds: Sequence[str]) -> bool:
        """Give the first of these kinds that adds something."""
        kind = next((each for each in kinds if each in KINDS and self.world.grant(each)), None)
        if kind is None:
            return False
        self.outcome.granted += 1
        self._say(f"granted: {kind}")
        self._progressed()
        return True

    def _wait(self, advice: dict[str, Any]) -> None:
        """Do nothing and look again; for ever is too long."""
        action = advice["action"]
        patience = self.world.session_seconds + self.world.rebalance_seconds + 12
        if self.world.now() - self._progress <= (10 if action == "stop" else patience):
            self.world.sleep(1.5)
        elif action == "stop":
            self._person(advice)
        elif action == "evidence" or not self._granted(advice["evidence_needed"]):
            self._broken(f"only waits ({action}): {advice['text']}")

    def _person(self, advice: dict[str, Any]) -> None:
        """A person looks at what stays stopped: a new plan, and no more than that."""
        if self.outcome.stops.count(advice["reason"]) >= 3:
            raise Over(f"blocked: {advice['reason']}")
        self.outcome.stops.append(advice["reason"])
        self._progressed()
        self._replan(advice)

    def _confirm(self, advice: dict[str, Any]) -> None:
        if self._granted(advice["evidence_needed"]):
            return
        self._progressed()
        words = ("--confirm", str(advice["step"]), "--reason", "looked at each of them")
        self._look(self.world.verify, *words)

    def _finish(self, body: dict[str, Any]) -> None:
        # The coordinator counts a crashed member until its session ends.
        down = [each.name for each in self._service() if not each.running and each.due is None]
        if down and self.counted:
            self._violated(f"called finished while {', '.join(down)} are down")
        for each in self._running():
            wrong = [
                name for name in each.assignors if is_eager(name) is (self.goal == "cooperative")
            ]
            if wrong and each.software.startswith("java"):
                self._violated(f"called finished while {each.name} has {list(each.assignors)}")
        raise Over("finished")

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
        self.outcome.trials += 1
        self._stop([process])
        process.assignors = lists
        error = self.world.start(process)
        process.running = error is None
        self._say(f"tried withheld {process.name} {list(lists)}: {error}")
        if error is None:
            self._violated(f"withheld as rejected, and admitted: {one['text']}")
        return True

    # --- events ---------------------------------------------------------------------------------

    def _between_looks(self) -> None:
        """What may happen before the next look, and who a supervisor starts again."""
        now = self.world.now()
        for process in self.world.processes:
            if process.due is not None and process.due <= now and not process.running:
                process.due, process.origin = None, "event"
                self._came(process, "comes back")
        happened = len(self.outcome.events)
        early = now - self._began < self.limits.events_until
        if not early or happened >= self.limits.events:
            return
        if self.rng.random() < self.limits.event_chance:
            event = self.rng.choice(_EVENTS)
            event(self)
            if self.rng.random() < 0.5:
                self._settled(required=False)

    def _race(self) -> str:
        """An event between the look and the join."""
        if self.rng.random() < 0.7:
            return self._reload()
        return self._crash() or self._reload()

    def _reload(self) -> str:
        return self._event(f"coordinator reload ({self.world.reload()})")

    def _crash(self) -> str | None:
        victims = self._running()
        if len(victims) < 2:
            return None
        victim = self.rng.choice(victims)
        self.world.crash(victim)
        victim.running = False
        delay = self.rng.choice([0.2, 2.0, self.world.session_seconds + 3])
        victim.due = self.world.now() + delay
        return self._event(f"{victim.name} crashed, back in {delay:g} s")

    def _scale_up(self) -> str | None:
        pattern = self.rng.choice(self._service())
        lists = self._deployed or pattern.assignors
        return self._joiner("more", pattern.software, lists)

    def _old_image(self) -> str | None:
        pattern = self.rng.choice(self._service())
        return self._joiner("old", pattern.software, pattern.first)

    def _joiner(self, label: str, software: str, lists: tuple[str, ...]) -> str | None:
        self._serial += 1
        made = Process(f"{label}-{self._serial}", software, lists, origin="event")
        if not made.mixes and len({is_eager(name) for name in lists}) == 2:
            return None
        self.world.processes.append(made)
        told = self._event(f"{made.name} joins with {list(lists)}")
        self._came(made, "joins")
        # A new one that is rejected is taken back: it was never part of the service.
        made.retired = not made.running
        return told

    def _scale_down(self) -> str | None:
        running = self._running()
        if len(running) < 3:
            return None
        victim = self.rng.choice(running)
        self.world.stop(victim)
        victim.running, victim.retired = False, True
        self.counted = True
        return self._event(f"{victim.name} is scaled away")

    def _roll_back(self) -> str | None:
        changed = [each for each in self._running() if each.assignors != each.first]
        if not changed:
            return None
        victim = self.rng.choice(changed)
        self.world.stop(victim)
        victim.running, victim.assignors, victim.origin = False, victim.first, "event"
        told = self._event(f"{victim.name} is rolled back to {list(victim.first)}")
        self._came(victim, "is rolled back")
        return told

    def _spoil(self) -> str | None:
        return self._event(f"logs: {self.world.spoil()}")

    def _came(self, process: Process, how: str) -> None:
        error = self.world.start(process)
        process.running = error is None
        self._event_time()
        self._say(f"{process.name} {how} with {list(process.assignors)}: {error or 'admitted'}")

    def _event(self, text: str) -> str:
        self.outcome.events.append(text)
        self._say(f"event: {text}")
        self._event_time()
        return text

    def _event_time(self) -> None:
        self._breaks.append(self.world.now())
        self._progressed()

    # --- judging --------------------------------------------------------------------------------

    def _bystanders(self, when: str) -> None:
        """A member that runs and fails, though nobody touched it, is a violation."""
        for process in self._running():
            error = self.world.error(process)
            if error is not None:
                process.running = False
                self._violated(f"{process.name} {list(process.assignors)} failed {when}: {error}")

    def _settled(self, *, required: bool = True) -> None:
        if not self.world.settle() and required:
            self._say("the group is not Stable yet")

    def _judge_ownership(self) -> None:
        bound = 2 * self.world.rebalance_seconds
        longest, what = self.world.unowned(self._began, self._breaks)
        if longest > bound:
            self._violated(f"{what} had no owner for {longest:.0f} s")

    def _progressed(self) -> None:
        self._progress = self.world.now()

    def _say(self, text: str) -> None:
        self.outcome.told.append(f"{self.world.now() - self._began:6.1f} s  {text}")

    def _violated(self, text: str) -> None:
        self._say(f"VIOLATION: {text}")
        self.outcome.violations.append(text)

    def _broken(self, text: str) -> None:
        self._violated(text)
        raise Over("broken")


_EVENTS = (
    Story._reload, Story._reload, Story._crash, Story._crash, Story._scale_up,
    Story._scale_down, Story._roll_back, Story._old_image, Story._spoil,
)  # fmt: skip
