"""A plan carried out on a live group: its texts used as they are, `verify` held to the truth.

A `Service` is rolled out as the plan says, to its end; `Workers` are a Connect cluster; a
`Terminal` runs printed commands as an operator types them.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import jars
from tests.kafka.broker import Administration, Broker, wait_for
from tests.kafka.cluster import Cluster
from tests.kafka.connect import ConnectHost, Worker, wait_workers
from tests.kafka.members import Member, Members, Rolling, answer, inspect, named, properties_of

LISTS = "partition.assignment.strategy"
PARTITIONS = 6


class Plan:
    """One plan of a group, as a file, and what `rebal verify` says of it.

    `evidence` are the words that every look gives (`--request-log FILE`).
    """

    def __init__(
        self,
        broker: Administration,
        group: str,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        name: str = "plan",
        evidence: tuple[str, ...] = (),
    ) -> None:
        self.broker = broker
        self.group = group
        self.file = folder / f"{name}.yaml"
        self.evidence = evidence
        self._capsys = capsys
        self.body: dict[str, Any] = {}

    def make(self, *more: str) -> dict[str, Any]:
        """Make the plan and write it; its JSON."""
        self.body = self.look(*more, "--out", str(self.file), "--new-attempt")
        return self.body

    def look(self, *more: str) -> dict[str, Any]:
        """What a plan made now would say, in JSON."""
        return self.ask("plan-upgrade", self.group, *self.evidence, *more)

    def verify(self, *more: str) -> dict[str, Any]:
        """What `rebal verify` says now, in JSON."""
        return self.ask("verify", str(self.file), *self.evidence, *more)

    def settings(self, step: int) -> dict[str, str]:
        """The step's own configuration text, read as what it is: Java properties."""
        (one,) = self.body["steps"][step - 1]["config"]
        return properties_of(one["text"])

    def texts(self) -> str:
        """Every configuration text of the plan."""
        return "\n".join(one["text"] for step in self.body["steps"] for one in step["config"])

    def ask(self, command: str, *words: str) -> dict[str, Any]:
        """What any command says, in JSON."""
        return answer(self.broker, self._capsys, command, *words)


class PlannedGroup(Rolling, Plan):
    """Members of one client library (None: of those in their names), and a plan of their group."""

    def __init__(
        self,
        broker: Administration,
        members: Members,
        group: str,
        topic: str,
        *,
        software: str | None,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        Plan.__init__(self, broker, group, folder, capsys)
        names = (broker, members, group, topic)
        Rolling.__init__(self, *names, partitions=PARTITIONS, software=software)

    def logs(self, *missing: int) -> tuple[str, ...]:
        """The options that give the request logs of all brokers but these nodes."""
        on = self.broker
        logs = on.request_logs if isinstance(on, Cluster) else {1: on.request_log_path}
        kept = [path for node, path in logs.items() if node not in missing]
        return tuple(word for path in kept for word in ("--request-log", str(path)))


GroupOn = Callable[..., Any]
"""Makes the test's group on a broker or cluster, of a kind of PlannedGroup and a client."""


Places = set[tuple[str, int]]
BOTH_COORDINATORS = ["kafka41", pytest.param("kafka39", marks=pytest.mark.full)]
"""On the Java coordinator, and in `make test-full` on the Scala one, too."""
FAMILIES = {"java": "java", "confluent-kafka": "librdkafka", "kafka-python": "kafka-python"}
FORMATS = {
    "java": "Java properties",
    "librdkafka": "librdkafka properties",
    "kafka-python": "Python",
    "aiokafka": "Python",
    "kafkajs": "JS",
}


class Service(PlannedGroup):
    """A group whose evidence is the request log, and whose plan is carried out to its end."""

    def __init__(self, *names: Any, **options: Any) -> None:
        super().__init__(*names, **options)
        self.evidence = self.logs()

    def start_as(self, name: str, step: dict[str, Any]) -> None:
        """Start `name` with the step's own text for its client (Go's with the step's list)."""
        settings = settings_of(step, name)
        assignors = [] if settings else step["target_list"]
        self.running[name] = self.start(name, assignors, settings=settings)
        self.lists[name] = step["target_list"]

    def plan(self, *more: str) -> dict[str, Any]:
        """A plan by the probe, too, of as many members as run."""
        return self.look("--probe", "--expect-members", str(len(self.running)), *more)

    def steps_of(self, path: str, *words: str) -> list[dict[str, Any]]:
        """Write a plan that has this path and begins with step 1; its steps."""
        plan = self.plan(*words, "--out", str(self.file))
        said = (plan["path"], plan["next_step"], plan["exit_code"])
        assert said == (path, 1, 0), plan["summary"]
        return list(plan["steps"])

    def inspect(self, *words: str, log: bool = True) -> dict[str, Any]:
        return inspect(self.broker, self.group, *(self.evidence if log else ()), *words)

    def runs(self) -> dict[str, str]:
        """What inspect says that each member runs."""
        return {m["client_id"]: m["rebalance_protocol"] for m in self.inspect()["members"]}

    def verify(self, *words: str) -> dict[str, Any]:
        return super().verify("--probe", *words)

    def verify_unlogged(self, *words: str) -> dict[str, Any]:
        """With a journal of its own: it never learns what a log said."""
        journal = str(self.file.with_suffix(".unlogged.jsonl"))
        return self.ask("verify", str(self.file), "--journal", journal, *words)

    def check(self, gate: int, done: set[str], *words: str) -> dict[str, Any]:
        """With the log verify names the truth; without it it says less, and nothing else."""
        told = self.verify(*words)
        assert named(told, "yes") == done
        assert named(told, "no") == set(self.running) - done
        assert told["exit_code"] == gate, told
        self.look_unlogged(done, gate)
        return told

    def look_unlogged(self, done: set[str], gate: int) -> dict[str, Any]:
        """Without the log verify says less of the step than this, and nothing else."""
        told = self.verify_unlogged()
        assert named(told, "yes") <= done
        assert not named(told, "no") & done
        assert told["exit_code"] in (gate, 4), told
        return told

    def carry_out(
        self, step: dict[str, Any], order: list[str], *words: str, of: Sequence[str] | None = None
    ) -> None:
        """Each member gets the step's list, by the step's own text where the client reads it.

        verify (with these further words) is checked after each restart; the gate waits for all, or
        for those whom the step is `of`.
        """
        wanted = step["target_list"]
        for name in order:
            self.running[name].stop()
            self.start_as(name, step)
            self.settle()
            concerned = self.lists if of is None else of
            truth = {name for name in concerned if self.lists[name] == wanted}
            told = self.check(0 if len(truth) == len(concerned) else 4, truth, *words)
            assert (told["step"], told["dangers"]) == (step["id"], [])

    def is_over(self, *goal: str) -> None:
        """The plan is carried out, a new one has nothing to do, and no member failed."""
        assert self.verify()["finished"]
        assert self.plan(*goal)["verdict"] == "done"
        assert not self.errors()

    def given_up(self, newcomer: str, assignors: list[str]) -> dict[str, tuple[Places, Places]]:
        """Start one more member: what each other one owned before, and what of it it gave up.

        COOPERATIVE members give up a part at most, EAGER ones everything.
        """
        before = {name: (one.owned, len(one.events)) for name, one in self.running.items()}
        self.begin([newcomer], assignors)
        return {
            name: (owned, gave_up(self.running[name], since))
            for name, (owned, since) in before.items()
        }


def gave_up(member: Member, since: int) -> Places:
    """What it gave up from its event number `since` on."""
    events = [event for event in member.events[since:] if event.kind in ("revoked", "lost")]
    return set().union(*(event.partitions for event in events))


def rule(body: dict[str, Any], name: str) -> str | None:
    """The result of this rule's finding; None where it says nothing."""
    return {one["rule"]: one["result"] for one in body["findings"]}.get(name)


def texts(step: dict[str, Any], family: str) -> str:
    return "\n".join(one["text"] for one in step["config"] if one["family"] == family)


def settings_of(step: dict[str, Any], name: str) -> dict[str, str]:
    """What the step's own text sets for the client of the member `name`.

    Properties are read as they are, Python's and JavaScript's text is run by the member itself.
    Empty for Go, whose text would have to be compiled.
    """
    software = name.rpartition("-")[0]
    family = next((FAMILIES[key] for key in FAMILIES if software.startswith(key)), software)
    if family not in FORMATS:
        return {}
    (text,) = (
        one["text"]
        for one in step["config"]
        if (one["family"], one["format"]) == (family, FORMATS[family])
    )
    if not FORMATS[family].endswith("properties"):
        return {"plan.text": text.encode().hex()}
    return properties_of(text)


_JOINED = re.compile(
    r"clientId=(\S+), groupId=(\S+)\] Joined group at generation (\d+) .*?"
    r"connectorIds=\[(.*?)\], taskIds=\[(.*?)\], revokedConnectorIds=\[(.*?)\]"
    r", revokedTaskIds=\[(.*?)\](?:, delay=(\d+))?"
)


class Workers:
    """Workers in one JVM, restarted one after the other."""

    def __init__(self, broker: Broker, host: ConnectHost, group: str) -> None:
        self.broker = broker
        self.group = group
        self.running: dict[str, Worker] = {}
        self._host = host

    def start(self, name: str, settings: Mapping[str, str]) -> None:
        self.running[name] = self._host.launch(self.broker, name, self.group, settings)

    def restart(self, name: str, settings: Mapping[str, str]) -> None:
        self.running[name].stop()
        self.start(name, settings)
        self.settle()

    def settle(self) -> None:
        for worker in self.running.values():
            worker.wait_for("joined", timeout=60)
        wait_workers(self.broker, list(self.running.values()))

    def wait_quiet(self, seconds: float) -> None:
        """Wait until no worker has joined a new generation for so long."""
        seen, since = 0, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            if (newest := max(self.rebalances())) != seen:
                seen, since = newest, time.monotonic()
            return time.monotonic() - since >= seconds

        wait_for(f"{seconds} s without a rebalance", quiet, timeout=60, every=0.3)

    @property
    def protocols(self) -> set[str | None]:
        return {worker.protocol for worker in self.running.values()}

    def end(self) -> None:
        for worker in self.running.values():
            worker.stop()

    def rebalances(self) -> dict[int, dict[str, set[str]]]:
        """What each worker (by client id) held after each generation, by its own log."""
        seen: dict[int, dict[str, set[str]]] = {}
        for client, generation, connectors, tasks, *_ in self._joins():
            held = {*connectors.split(", "), *tasks.split(", ")} - {""}
            seen.setdefault(int(generation), {})[client] = held
        return seen

    def delays(self) -> dict[int, int]:
        """How long each generation keeps a lost worker's work for it, in ms, by the same log."""
        seen: dict[int, int] = {}
        for _, generation, *_, delay in self._joins():
            seen[int(generation)] = max(int(delay or 0), seen.get(int(generation), 0))
        return seen

    def _joins(self) -> Iterator[tuple[str, ...]]:
        """What workers of this group logged of each join: `_JOINED` without the group."""
        log = self._host.process.log_path.read_text(errors="replace")
        for client, group, *rest in _JOINED.findall(log):
            if group == self.group:
                yield client, *rest


def configure(worker: Worker, connector: str, config: dict[str, str]) -> None:
    """Create the connector, or give it another configuration, which restarts its tasks."""
    wait_for(
        f"{connector} to be configured",
        lambda: worker.ask("PUT", f"/connectors/{connector}/config", config) is not None,
        timeout=30,
        every=0.3,
    )


REBAL = str(Path(sys.executable).with_name("rebal"))
# Kafka's own tools, as its scripts start them.
TOOLS = {
    "kafka-configs.sh": ("broker-4.1.1", "kafka.admin.ConfigCommand"),
    "kafka-acls.sh": ("tools-4.1.1", "org.apache.kafka.tools.AclCommand"),
    "kafka-consumer-groups.sh": (
        "tools-4.1.1",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    ),
    "kafka-features.sh": ("tools-4.1.1", "org.apache.kafka.tools.FeatureCommand"),
}


class Shell:
    """Runs rebal in a folder of its own, without the environment's own settings."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.broker = broker

    def __call__(self, *words: str, code: int, **env: str) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REBAL_")}
        done = subprocess.run(
            [REBAL, *words],
            cwd=self.folder,
            env=clean | {"REBAL_BOOTSTRAP": self.broker.bootstrap} | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def json(self, *words: str, code: int) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self(*words, "-o", "json", code=code))
        assert answer["exit_code"] == code
        return answer


class Terminal(Shell):
    """Runs printed lines as they stand, in bash, with rebal and Kafka's own tools on the PATH."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder, broker)
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "rebal").symlink_to(REBAL)
        java = jars.tool("java")
        assert java is not None
        for name, (artifacts, tool) in TOOLS.items():
            script = self.bin / name
            words = shlex.join([java, "-Xmx96m", "-XX:TieredStopAtLevel=1", "-cp"])
            classes = shlex.quote(jars.classpath(artifacts))
            script.write_text(f'#!/bin/sh\nexec {words} {classes} {tool} "$@"\n')
            script.chmod(0o755)

    def env(self) -> dict[str, str]:
        """Its environment, in which nothing names a broker."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REBAL_")}
        return clean | {"PATH": f"{self.bin}:{os.environ['PATH']}", "COLUMNS": "40"}

    def run(self, line: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a printed line; rebal must not call it wrong, and Kafka's tools must take it."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.env() | env, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        good = (0, 3, 4) if line.startswith("rebal ") else (0,)
        assert done.returncode in good, f"{line}\n{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def last(self, line: str, **env: str) -> str:
        """Run a line, and return the command on the last line of its screen."""
        screen = self.run(line, **env).stdout.rstrip().splitlines()
        return screen[-1].partition("rebal ")[1] + screen[-1].partition("rebal ")[2]
