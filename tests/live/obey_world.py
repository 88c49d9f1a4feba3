"""`LiveWorld`: the world of an obeying story, made of real brokers and real members.

`Operator` carries a plan out there by the printed commands alone, and counts what that takes.
"""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rebal.planner.commands import AGREED
from tests.kafka.broker import Administration
from tests.kafka.cluster import Cluster
from tests.kafka.connect import ConnectHost, Worker, wait_workers
from tests.kafka.members import JAVA_ASSIGNORS, Member, Members, properties_of
from tests.live.obey import FINAL, JOINING, RANGE, Over, Process, Story
from tests.live_support.rollout import LISTS

# What a step's own text is for: the others' texts are code, of which the list is read.
FILED = ("java", "streams", "connect", "librdkafka")
STREAMS_NEXT = "streams-3.9.1"
PARTITIONS = 8
_SESSION, _REBALANCE = 10, 15
"""Seconds."""
_PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from rebal.cli import app
answers = sys.stdout
for line in sys.stdin:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in "oe")
    with redirect_stdout(out), redirect_stderr(err):
        code = app.run(json.loads(line))
    told = [each.buffer.getvalue().decode() for each in (out, err)]
    print(json.dumps([code, *told]), file=answers, flush=True)
"""


class Rebal:
    """Runs rebal's commands in one child process that stays, so that each look is quick.

    A process of its own, because librdkafka may abort it (confluentinc/librdkafka#4605): then that
    look has failed, as an operator's would, and the next one begins in a new process.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def run(self, words: list[str]) -> tuple[int | None, str, str]:
        """The exit code (None: the process died), what it printed, and what it said of errors."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(words) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        if not line:
            self._child = None
            return None, "", f"the process ended with {child.wait(10)}"
        code, out, err = json.loads(line)
        return code, out, err

    def end(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.communicate(timeout=10)


@dataclass
class Life:
    """One run of a process: its member, and whether it has ended for the group."""

    process: Process
    member: Member
    ended: bool = False


class LiveWorld:
    """A group on a broker or a cluster; `processes` are started by `begin`.

    Each process has its configuration file in the folder `conf`. With `apart` each run of a Java
    consumer has a JVM, and so a log, of its own.
    """

    def __init__(
        self,
        broker: Administration,
        members: Members,
        group: str,
        topic: str,
        *,
        folder: Path,
        processes: Sequence[Process],
        apart: bool = False,
    ) -> None:
        self.broker = broker
        self.group = group
        self.topic = broker.create_topic(topic, PARTITIONS)
        self.processes = list(processes)
        self.rebal = Rebal()
        self._members = members
        self._folder = folder
        self._lives: list[Life] = []
        self._apart = apart
        self._hosts: dict[str, ConnectHost] = {}
        self.files = folder / "conf"
        self.files.mkdir()
        self.logs = folder / "logs"
        self.logs.mkdir()

    def begin(self) -> None:
        """Start all processes, one after the other, and wait until they are at rest."""
        for process in self.processes:
            error = self.start(process)
            assert error is None, f"the story cannot begin: {process.name}: {error}"
            process.running = True
        assert self.settle(), "the story cannot begin: the group is not Stable"

    def end(self) -> None:
        """End all members, and rebal."""
        for life in self._lives:
            if not life.ended:
                life.member.stop()
        for host in self._hosts.values():
            host.close()
        self.rebal.end()

    def now(self) -> float:
        return time.monotonic()

    # --- members --------------------------------------------------------------------------------

    def start(self, process: Process) -> str | None:
        life = self._life(process)
        if life is not None and not life.ended:
            self._end(life)
        self._write(process)
        member = self._member(process)
        link = self.logs / member.host.log_path.name
        if not link.exists():
            link.symlink_to(member.host.log_path)
        life = Life(process, member)
        self._lives.append(life)
        deadline = self.now() + 3 * _REBALANCE
        while self.now() < deadline:
            error = self.error(process)
            if error is not None:
                self._end(life)
                return error
            if member.said("joined" if process.family == "connect" else "assigned"):
                return None
            time.sleep(0.05)
        # Not rejected: it waits for the others, and the next look says so.
        return None

    def configure(self, process: Process, plan: Path, step: int) -> int:
        """Write the step's settings into its file; the number of commands that this took."""
        if process.family not in FILED:
            return 0
        words = ["show", str(plan), "--set", "--step", str(step), "--family", process.family]
        code, text, said = self.rebal.run(words)
        assert code == 0, f"{words}: exit {code}: {said}"
        process.settings = properties_of(text)
        if process.software == "streams-2.3.1":
            process.software = STREAMS_NEXT
        return 1

    def _write(self, process: Process) -> None:
        """Write the configuration file that the process is started with."""
        ids = {"group.id": self.group, "client.id": process.name, "bootstrap.servers": "b:1"}
        if process.family == "streams":
            ids["application.id"] = ids.pop("group.id")
        if process.instance_id is not None:
            ids["group.instance.id"] = process.instance_id
        if process.assignors and not process.settings:
            names = process.assignors
            java = process.family == "java"
            ids[LISTS] = ",".join(JAVA_ASSIGNORS.get(n, n) if java else n for n in names)
        lines = [f"{key}={value}\n" for key, value in (ids | process.settings).items()]
        (self.files / f"{process.name}.properties").write_text("".join(lines))

    def _member(self, process: Process) -> Member:
        """Start its client. Returns before it has joined."""
        kind, _, version = process.software.partition("-")
        filed, name = process.settings, process.name
        if kind == "connect":
            if process.software not in self._hosts:
                self._hosts[process.software] = ConnectHost(version, self._folder / kind)
            return self._hosts[process.software].launch(self.broker, name, self.group, filed)
        options: dict[str, Any] = {"topics": [self.topic], "settings": filed}
        if kind != "streams":
            options |= {
                "assignors": None if filed else process.assignors or None,
                "instance_id": process.instance_id,
                "protocol": filed.get("group.protocol"),
                "session_timeout_ms": _SESSION * 1000,
                "settings": {"max.poll.interval.ms": f"{_REBALANCE * 1000}", **filed},
            }
        own = {"own": True} if self._apart and kind == "java" else {}
        return self._members.start(
            process.software, self.broker, name, self.group, **own, **options
        )

    def stop(self, process: Process) -> None:
        life = self._life(process)
        assert life is not None
        life.member.stop()
        life.ended = True

    def crash(self, process: Process) -> None:
        """End it without a LeaveGroup."""
        life = self._life(process)
        assert life is not None
        self._end(life)

    def error(self, process: Process) -> str | None:
        life = self._life(process)
        if life is None:
            return None
        for event in life.member.said("error"):
            kind, message = event.data["kind"], event.data["message"]
            # Java and kafka-python end with their first error; the others say all and go on.
            stops = process.software.startswith(("java", "kafka-python"))
            if stops or kind == "refused" or "FENCED" in message or "fatal" in message.lower():
                return f"{kind}: {message}"
        if not life.ended and not life.member.host.process.alive:
            return "its process has ended"
        return None

    def settle(self) -> bool:
        members = [life.member for life in self._lives if not life.ended]
        workers = [member for member in members if isinstance(member, Worker)]
        if workers:
            wait_workers(self.broker, workers)
            return True

        def rests() -> bool:
            if not self._online():
                return self.broker.described(self.group)[0] == "Stable"
            owned = [place for member in members for place in member.owned]
            return len(owned) == len(set(owned)) == PARTITIONS

        return self._until(2 * _REBALANCE + _SESSION, rests, times=3)

    def _until(self, seconds: float, reached: Callable[[], bool], times: int = 1) -> bool:
        """Wait until this is so, `times` in a row; False where it is not in time."""
        deadline, seen = self.now() + seconds, 0
        while seen < times and self.now() < deadline:
            seen = seen + 1 if reached() else 0
            time.sleep(0.2)
        return seen == times

    def _online(self) -> bool:
        """Whether a member speaks KIP-848's protocol: the classic description is empty then."""
        return any(
            one.running and one.settings.get("group.protocol") == "consumer"
            for one in self.processes
        )

    def gone(self, processes: Sequence[Process]) -> bool:
        if processes[0].family == "connect":
            # kafka-python reads no worker's metadata; a worker that is stopped has left.
            return True
        names = {process.name for process in processes}

        def left() -> bool:
            state, clients = self.broker.described(self.group)
            # Streams names the consumer of each thread after its program.
            clients = [each.partition("-StreamThread-")[0] for each in clients]
            return self._online() or (bool(state) and not names & set(clients))

        return self._until(3 * _SESSION + 5, left)

    def found(self, member_id: str, name: str) -> Process | None:
        for life in reversed(self._lives):
            if member_id and life.member.member_id == member_id:
                return life.process
        name = name.partition("-StreamThread-")[0]
        return next((each for each in self.processes if each.name == name), None)

    # --- within ---------------------------------------------------------------------------------

    def _life(self, process: Process) -> Life | None:
        return next((life for life in reversed(self._lives) if life.process is process), None)

    def _end(self, life: Life) -> None:
        """A client that was rejected may try again for ever: its process ends here."""
        life.ended = True
        if not life.member.ended:
            life.member.crash()


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
