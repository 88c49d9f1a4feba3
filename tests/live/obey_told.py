"""Thirty stories, each with a path, an accident and its evidence: `STORIES`, played by `Told`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kafka import jars
from tests.live.obey import DEFAULT, FINAL, RANGE, Over, Process, Story
from tests.live.obey_world import LiveWorld

LOG, CLIENT, PROBE = "request log", "client log", "probe"
_GONE = re.compile(r"--departed (\S+)")
# Neither in a list that is rolled out nor in one that is left.
_WRONG = ("roundrobin",)


@dataclass(frozen=True)
class Path:
    """Where a story begins and what it is to reach; `to` is the goal's word, where it differs."""

    goal: str
    software: tuple[str, ...]
    assignors: tuple[str, ...] = RANGE
    static: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    to: str = ""

    def processes(self) -> list[Process]:
        """The processes, in the order of their start."""
        return [
            Process(
                f"app-{number}",
                software,
                self.assignors,
                f"app-{number}" if self.static else None,
                settings=dict(self.settings),
            )
            for number, software in enumerate(self.software)
        ]


UP, JAVA = "cooperative", ("java-3.9.1",) * 4
OLD_JAVA = ("java-2.8.2", "java-2.8.2", *(f"java-{each}" for each in jars.BROKER_VERSIONS))
BOTH = ("java-3.9.1", "java-3.9.1", "java-4.1.1", "franz-go", "franz-go")
PATHS = {
    "two bounces": Path(UP, JAVA),
    "two bounces, versions": Path(UP, OLD_JAVA),
    "two bounces, static": Path(UP, JAVA, static=True),
    "one bounce": Path(UP, JAVA, DEFAULT),
    "one bounce, static": Path(UP, JAVA, DEFAULT, static=True),
    "downgrade": Path("eager", JAVA, FINAL),
    "downgrade, static": Path("eager", JAVA, FINAL, static=True),
    "mixed families": Path(UP, BOTH),
    "cut-over": Path(UP, ("confluent-kafka",) * 3),
    "cut-over, Python": Path(UP, ("kafka-python",) * 3),
    "Streams": Path(UP, ("streams-2.3.1",) * 3, ()),
    "Connect": Path(UP, ("connect-4.1.1",) * 3, (), settings=(("connect.protocol", "eager"),)),
    "to consumer": Path("consumer", ("java-4.1.1",) * 4),
    "from consumer": Path(
        UP, ("java-4.1.1",) * 4, (), settings=(("group.protocol", "consumer"),), to=FINAL[0]
    ),
}
STORIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("two bounces", "none", (PROBE,)),
    ("two bounces", "rejected client", (LOG,)),
    ("two bounces", "client left", (CLIENT, PROBE)),
    ("two bounces", "failover", (LOG, PROBE)),
    ("two bounces", "reload", (PROBE,)),
    ("two bounces", "wrong list", (CLIENT,)),
    ("two bounces", "early", (LOG,)),
    ("two bounces, versions", "wrong list", (LOG, PROBE)),
    ("two bounces, versions", "reload", (CLIENT, PROBE)),
    ("two bounces, versions", "early", (CLIENT,)),
    ("two bounces, static", "member dies", (LOG,)),
    ("two bounces, static", "failover", (CLIENT, PROBE)),
    ("two bounces, static", "early", (LOG, PROBE)),
    ("one bounce", "client left", (LOG,)),
    ("one bounce", "rejected client", (CLIENT, PROBE)),
    ("one bounce, static", "member dies", (LOG, PROBE)),
    ("downgrade", "wrong list", (LOG,)),
    ("downgrade", "failover", (CLIENT, PROBE)),
    ("downgrade", "early", (CLIENT,)),
    ("downgrade", "client left", (PROBE,)),
    ("downgrade, static", "member dies", (LOG,)),
    ("mixed families", "reload", (LOG,)),
    ("mixed families", "rejected client", (LOG, PROBE)),
    ("cut-over", "none", (LOG,)),
    ("cut-over, Python", "reload", (LOG, PROBE)),
    ("Streams", "failover", (LOG,)),
    ("Connect", "failover", (LOG,)),
    ("to consumer", "failover", (LOG,)),
    ("to consumer", "client left", (CLIENT, PROBE)),
    ("from consumer", "reload", (LOG,)),
)
# What is played instead on brokers before 4.0.
BEFORE_KIP848 = {
    "to consumer": "two bounces, static",
    "from consumer": "downgrade",
}


class Told(Story):
    """A story with one accident after so many obeyed actions, and an operator who answers."""

    world: LiveWorld

    def tell_of(self, accident: str, number: int) -> None:
        """Let this happen after some of the actions: the story's number says after how many."""
        first = self.world.processes[0]
        twice = self.goal != "consumer" and first.assignors in (RANGE, FINAL)
        actions = len(self.world.processes) * (2 if twice else 1)
        # The last step's list is early in the first bounce alone.
        most = actions - 2 if accident != "early" else actions // 2 - 1
        cut_over = first.family in ("librdkafka", "kafka-python")
        self._accident, self._after = accident, 0 if cut_over else 1 + number % max(1, most)
        self.deliberate: Counter[str] = Counter()
        self._answered: set[str] = set()
        self.blocked = 0
        self._steps: list[dict[str, Any]] = []

    def _between_looks(self) -> None:
        super()._between_looks()
        if self._accident and self.outcome.obeyed >= self._after:
            accident, self._accident = self._accident, ""
            _ACCIDENTS[accident](self)
            self._settled(required=False)

    def _configure(self, process: Process, advice: dict[str, Any]) -> None:
        super()._configure(process, advice)
        assignors, change = advice["assignors"], advice["change"]
        if process.retired or not (assignors or change):
            return
        target = next((s["target_list"] for s in self._steps if s["id"] == advice["step"]), None)
        if change or assignors == target:
            self.world.configure(process, self.world.plan_file, advice["step"])
        else:
            # A list that is not the step's is written by hand.
            process.settings = {}

    def _look(self, ask: Callable[..., dict[str, Any] | None], *more: str) -> dict[str, Any]:
        body = super()._look(ask, *more)
        if "path" in body:
            self._steps = body["steps"]
        return body

    def _carry_out(self, body: dict[str, Any]) -> None:
        """Answer first what only the operator knows: who has left for good."""
        named = _GONE.findall(str(body))
        for name in named:
            process = self.world.found("", name)
            if process is not None and process.retired and name not in self._answered:
                self._answered.add(name)
                self._say(f"answered: {name} has left")
                body = self._look(self.world.verify, "--departed", name)
        super()._carry_out(body)

    def _broken(self, text: str) -> None:
        """A dead end: see whether what is withheld would have been admitted."""
        if text.startswith("only waits"):
            self._try_what_is_blocked()
        super()._broken(text)

    def _person(self, advice: dict[str, Any]) -> None:
        try:
            super()._person(advice)
        except Over:
            self._try_what_is_blocked()
            raise

    def _try_what_is_blocked(self) -> None:
        """Restart the next member of the current step in spite of the answer."""
        body = self.outcome.last[-1]
        one = next((o for o in body["withheld"] if o["action"] == "restart"), body["advice"])
        found = [self.world.found("", name) for name in one["names"]]
        if not found or found[0] is None or not found[0].running or not one["assignors"]:
            return
        process = found[0]
        self._stop([process])
        process.assignors, process.settings = tuple(one["assignors"]), {}
        error = self.world.start(process)
        self._say(f"tried what is blocked, {process.name} {one['assignors']}: {error}")
        self.blocked += error is None

    def _finish(self, body: dict[str, Any]) -> None:
        wanted = {
            "connect": ("connect.protocol", ("sessioned", "compatible")),
            "streams": ("upgrade.from", (None,)),
        }
        for each in self._running():
            key, values = wanted.get(each.family, ("group.protocol", (None, "classic")))
            if self.goal == "consumer":
                values = ("consumer",)
            if each.settings.get(key) not in values:
                self._violated(f"called finished while {each.name} has {each.settings}")
        if self.goal == "consumer":
            raise Over("finished")
        super()._finish(body)

    # --- accidents ------------------------------------------------------------------------------

    def _no_accident(self) -> None:
        """Nothing happens."""

    def _moves(self) -> None:
        node = self.world.cluster.coordinator_of(self.world.group)
        to = self.world.cluster.move_coordinator(self.world.group)
        self._event(f"coordinator moved from {node} to {to}")

    def _fails_over(self) -> None:
        node = self.world.cluster.coordinator_of(self.world.group)
        self._event(f"coordinator {node} killed and started")
        self.world.cluster.kill(node)
        self.world.cluster.restart(node)

    def _stray(self) -> None:
        stray = Process("stray", "java-3.9.1", _WRONG, origin="event", retired=True)
        self.world.processes.append(stray)
        self._event("stray joins with a list of its own")
        self._deliberate(stray)

    def _deploys(self, process: Process, assignors: tuple[str, ...], told: str) -> None:
        self._event(f"{process.name} {told}: {list(assignors)}")
        self._stop([process])
        process.assignors, process.settings = assignors, {}
        self._deliberate(process)

    def _deliberate(self, process: Process) -> None:
        """Start it: that it is rejected is the operator's doing."""
        process.origin = "event"
        self._came(process, "is started")
        self.deliberate[process.name] += not process.running

    def _wrong_list(self) -> None:
        self._deploys(self._running()[-1], _WRONG, "gets a wrong list")

    def _early(self) -> None:
        final = FINAL if self.goal == "cooperative" else RANGE
        self._deploys(self._running()[-1], final, "gets the last step's list early")

    def _dies(self) -> None:
        process = self._running()[-1]
        self.world.crash(process)
        process.running = False
        self._event(f"{process.name} dies")


_ACCIDENTS: dict[str, Callable[[Told], Any]] = {
    "none": Told._no_accident,
    "reload": Told._moves,
    "failover": Told._fails_over,
    "rejected client": Told._stray,
    "client left": Told._scale_down,
    "wrong list": Told._wrong_list,
    "early": Told._early,
    "member dies": Told._dies,
}
