"""Who obeys: `Story` carries out one piece of `rebal`'s advice, and nothing else.

obey_world.py follows the printed commands with it on real brokers, tests/search/obey.py generated
histories on the rehearsal engine. What was promised and did not come true is in
`Outcome.violations`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

JOINING = ("restart", "start", "temporary", "cut-over")
FAMILIES = {"confluent-kafka": "librdkafka"}
RANGE: tuple[str, ...] = ("range",)
WIDE: tuple[str, ...] = ("cooperative-sticky", "range")
DEFAULT: tuple[str, ...] = ("range", "cooperative-sticky")
FINAL: tuple[str, ...] = ("cooperative-sticky",)


@dataclass
class Process:
    """One process of the service: what its configuration says, and whether it runs.

    `first` is the list of the image that the story began with. `settings` are those of its file
    that take the list's place. `due` is when a supervisor starts it again. A retired process
    belongs to the service no more.
    """

    name: str
    software: str
    assignors: tuple[str, ...]
    instance_id: str | None = None
    first: tuple[str, ...] = ()
    running: bool = False
    retired: bool = False
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

    def now(self) -> float:
        """The time."""

    def start(self, process: Process) -> str | None:
        """Start it with its list and wait until it has joined; its error where it has failed."""

    def stop(self, process: Process) -> None:
        """Stop it cleanly: a dynamic member leaves the group."""

    def error(self, process: Process) -> str | None:
        """What it said when it failed, since its last start."""

    def settle(self) -> bool:
        """Wait until the group is Stable; False where it is not in time."""

    def gone(self, processes: Sequence[Process]) -> bool:
        """Wait until the group has no member of these processes; False where it is not in time."""

    def found(self, member_id: str, name: str) -> Process | None:
        """The process behind a member id or, where there is none, a label."""


@dataclass
class Outcome:
    """What became of a story: how it ended, what it did, and what was promised and not kept."""

    ended: str = ""
    obeyed: int = 0
    events: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


def is_eager(name: str) -> bool:
    return "cooperative" not in name


class Over(Exception):  # noqa: N818
    """The story has ended."""


class Story:
    """A service whose operator does what rebal says."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.outcome = Outcome()
        self._began = self._progress = world.now()
        self._serial = 0

    def _service(self) -> list[Process]:
        return [each for each in self.world.processes if not each.retired]

    def _running(self) -> list[Process]:
        return [each for each in self.world.processes if each.running]

    # --- obeying --------------------------------------------------------------------------------

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
        self._count_action()
        if action == "temporary":
            self._temporary(advice, assignors)
        else:
            if action == "restart":
                concerned = concerned[:1]
            # A cut-over waits for the entry of a member that is down already, too.
            together = action == "cut-over"
            self._stop([one for one in found if one] if together else concerned, wait=together)
            for process in concerned:
                process.retired = False
                self._advised(process, assignors, advice)
        self._settled()
        self._bystanders(f"after {advice['text']}")
        self._progressed()

    def _count_action(self) -> None:
        self.outcome.obeyed += 1
        self._progressed()

    def _wait(self, advice: dict[str, Any]) -> None:
        """Do nothing, and let time pass until the next look."""
        raise NotImplementedError

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

    def _temporary(self, advice: dict[str, Any], assignors: tuple[str, ...]) -> None:
        pattern = self.rng.choice(self._running())
        lists = assignors or pattern.assignors
        self._serial += 1
        guest = Process(f"tmp-{self._serial}", pattern.software, lists, retired=True)
        self.world.processes.append(guest)
        self._advised(guest, lists, advice)
        self._settled()
        if guest.running:
            self.world.stop(guest)
            guest.running = False

    def _advised(
        self, process: Process, assignors: tuple[str, ...], advice: dict[str, Any]
    ) -> None:
        """Start it as advised: a rejection is a violation."""
        self._configure(process, advice)
        process.due = None
        error = self.world.start(process)
        process.running = error is None
        if error is not None:
            said = f"{process.name} {list(process.assignors)} failed: {error}"
            # What follows would only repeat it.
            self._broken(f"advised {advice['action']} ({advice['reason']}): {said}")

    def _configure(self, process: Process, advice: dict[str, Any]) -> None:
        """Write its configuration as advised; where nothing is said it stays."""
        process.assignors = tuple(advice["assignors"]) or process.assignors

    # --- events ---------------------------------------------------------------------------------

    def _scale_down(self) -> str | None:
        running = self._running()
        if len(running) < 3:
            return None
        victim = self.rng.choice(running)
        self.world.stop(victim)
        victim.running, victim.retired = False, True
        return self._event(f"{victim.name} is scaled away")

    def _came(self, process: Process, how: str) -> None:
        error = self.world.start(process)
        process.running = error is None
        self._progressed()
        self._say(f"{process.name} {how} with {list(process.assignors)}: {error or 'admitted'}")

    def _event(self, text: str) -> str:
        self.outcome.events.append(text)
        self._say(f"event: {text}")
        self._progressed()
        return text

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
