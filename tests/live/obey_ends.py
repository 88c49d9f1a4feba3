"""`Operator`: carries a plan out by the printed commands alone, and counts what that takes."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rebal.planner.commands import AGREED
from tests.kafka.cluster import Cluster
from tests.live.obey import FINAL, JOINING, RANGE, Over, Process, Story
from tests.live.obey_world import LiveWorld

LOOKS = 60
WAITS = 30
_BLIND = 8
# What records a fact that only a person knows, or an agreement to an interruption.
ANSWERS = ("--assume-family", "--ignore", "--expect-members", "--departed")
# Neither in a list that is rolled out nor in one that is left.
_WRONG = ("roundrobin",)


@dataclass
class End:
    """What it took to carry a plan out, and how it ended."""

    commands: int = 0
    questions: int = 0
    confirmations: int = 0
    exit_code: int | None = None
    basis: str = ""
    stuck: str = ""
    screen: str = ""
    told: list[str] = field(default_factory=list)


class Stuck(Exception):  # noqa: N818
    """The printed commands lead nowhere."""


class Operator(Story):
    """Somebody who runs what rebal prints, restarts whom it names, and knows their clients."""

    world: LiveWorld

    def __init__(
        self,
        world: LiveWorld,
        goal: str,
        folder: Path,
        reach: Sequence[str],
        *,
        accident: str = "",
        after: int = 0,
    ) -> None:
        """`reach` are the connection and the evidence of the first command.

        `accident` happens `after` so many actions.
        """
        super().__init__(world, Random(0))
        self.goal = goal
        self.end = End()
        self._accident, self._after = accident, after
        self._reach = list(reach)
        self._file = folder / "checkout.plan.yaml"
        self._waits = 0
        self._last: list[str] = []
        self._ran: set[str] = set()

    def carry_out(self) -> End:
        """Return what it took; never raises for what rebal does wrong."""
        try:
            words = ["plan-upgrade", self.world.group, "--to", self.goal, "--out", str(self._file)]
            body = self._run([*words, *self._reach])
            for _ in range(LOOKS):
                if body.get("finished") or body.get("verdict") == "done":
                    self.end.basis = str(body.get("next") or body.get("summary"))
                    break
                body = self._follow(body)
            else:
                raise Stuck(f"no end after {LOOKS} looks: {body['advice']['text']}")
        except (Stuck, Over, AssertionError) as error:
            self.end.stuck = " ".join([str(error), *self.outcome.violations])
            self.end.screen = self.world.rebal.run(self._last)[1]
        return self.end

    def _follow(self, body: dict[str, Any]) -> dict[str, Any]:
        advice = body["advice"]
        action = advice["action"]
        self.end.told.append(f"{action} {advice['verdict']}: {advice['text']}")
        # After an accident rebal may stop the roll-out until it is over.
        waits = ("wait", "stop", "evidence") if self.outcome.events else ("wait",)
        self._waits = self._waits + 1 if action in waits else 0
        asked = self._question(body)
        if asked:
            # Agreeing to an interruption confirms a step; every other answer says a fact.
            agrees = AGREED in asked
            self.end.confirmations += agrees
            self.end.questions += not agrees
            return self._printed(asked)
        if action in JOINING:
            if advice["verdict"] != "yes":
                raise Stuck(f"{action} is not proven: {advice['text']}")
            self._obey(advice)
        elif action == "confirm":
            self.end.confirmations += 1
        elif action in waits:
            self._wait(advice)
        elif action != "replan" and not advice.get("command"):
            raise Stuck(f"{action} without a command: {advice['text']}")
        elif action in ("evidence", "stop"):
            raise Stuck(f"{action}: {advice['text']} ({advice['command']})")
        line = advice.get("command") or self._gate(body)
        if self._accident and self.outcome.obeyed >= self._after:
            _ACCIDENTS[self._accident](self)
            self._accident = ""
            self._settled(required=False)
        return self._printed(line)

    def _wait(self, advice: dict[str, Any]) -> None:
        if self._waits > WAITS:
            raise Stuck(f"waits for ever: {advice['text']}")
        time.sleep(1)

    def _configure(self, process: Process, advice: dict[str, Any]) -> None:
        """Write the settings of the step into its file, by the printed command."""
        super()._configure(process, advice)
        says = advice["assignors"] or advice["change"]
        if says and advice["step"] is not None and not process.retired:
            taken = self.world.configure(process, self._file, advice["step"])
            self.end.commands += taken if process is self.world.processes[0] else 0

    def _question(self, body: dict[str, Any]) -> str:
        """The printed command that answers a question truly, where the advice waits for it."""
        advice = body["advice"]
        if advice["action"] not in ("evidence", "stop"):
            return ""
        lines = [advice["command"]]
        for one in body.get("findings", ()):
            lines += [each["line"] for each in one["commands"]]
        answers = [line for line in lines if any(word in line for word in ANSWERS)]
        return next((line for line in answers if line not in self._ran and self._true(line)), "")

    def _true(self, line: str) -> bool:
        """Whether the families, the number and the departures that a command states are so."""
        gone = {one.name for one in self.world.processes if one.retired}
        if not gone >= {*re.findall(r"--departed (\S+)", line)}:
            return False
        if {*re.findall(r"--expect-members (\d+)", line)} - {str(len(self._service()))}:
            return False
        truth = {one.name: one.family for one in self.world.processes}
        said = [said.rpartition("=") for said in re.findall(r"--assume-family (\S+)", line)]
        every = set(truth.values())
        return all(truth.get(who) == what if who else every == {what} for who, _, what in said)

    def _gate(self, body: dict[str, Any]) -> str:
        steps = body.get("steps") or []
        if not steps:
            raise Stuck(f"no command is printed: {body['advice']['text']}")
        return str(steps[(body.get("next_step") or 1) - 1]["gate"]["command"])

    def _printed(self, line: str) -> dict[str, Any]:
        self._ran.add(line)
        words = shlex.split(line)
        if words[0] != "rebal":
            raise Stuck(f"not a command of rebal: {line}")
        return self._run(words[1:])

    def _run(self, words: Sequence[str]) -> dict[str, Any]:
        # A person who waits has one command that waits: --until.
        self.end.commands += 1 if self._waits < 2 else 0
        self.end.told.append(f"$ rebal {shlex.join(words)}")
        self._last = list(words)
        code, out, err = self.world.rebal.run([*words, "-o", "json"])
        for _ in range(_BLIND if self.outcome.events else 0):
            if code not in (1, None):
                break
            # The coordinator has just gone.
            time.sleep(2)
            code, out, err = self.world.rebal.run([*words, "-o", "json"])
        self.end.exit_code = code
        if code not in (0, 3, 4):
            raise Stuck(f"exit {code}: rebal {shlex.join(words)}\n{err}")
        self.end.told.append(f"  exit {code}")
        body: dict[str, Any] = json.loads(out)
        return body

    # --- accidents ------------------------------------------------------------------------------

    def _moves(self) -> None:
        assert isinstance(self.world.broker, Cluster)
        to = self.world.broker.move_coordinator(self.world.group)
        self._event(f"coordinator moved to {to}")

    def _fails_over(self) -> None:
        cluster = self.world.broker
        assert isinstance(cluster, Cluster)
        node = cluster.coordinator_of(self.world.group)
        self._event(f"coordinator {node} killed and started")
        cluster.kill(node)
        cluster.restart(node)

    def _stray(self) -> None:
        """A client of another service knocks; that it is rejected is no fault of rebal."""
        stray = Process("stray", "java-3.9.1", _WRONG, retired=True)
        self.world.processes.append(stray)
        self._event("stray joins with a list of its own")
        self._came(stray, "is started")

    def _deploys(self, assignors: tuple[str, ...]) -> None:
        """Somebody restarts a member with a list that is not the step's."""
        process = self._running()[-1]
        self._event(f"{process.name} gets {list(assignors)}")
        self._stop([process])
        process.assignors, process.settings = assignors, {}
        self._came(process, "is started")

    def _dies(self) -> None:
        process = self._running()[-1]
        self.world.crash(process)
        process.running = False
        self._event(f"{process.name} dies")


_ACCIDENTS: dict[str, Callable[[Operator], object]] = {
    "reload": Operator._moves,
    "failover": Operator._fails_over,
    "rejected client": Operator._stray,
    "client left": Operator._scale_down,
    "wrong list": lambda one: one._deploys(_WRONG),
    "early": lambda one: one._deploys(RANGE if one.goal == "eager" else FINAL),
    "member dies": Operator._dies,
}
