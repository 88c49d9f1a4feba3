"""A team that rolls out by what `rebal` prints and by nothing else: `Team`.

Each process has a configuration file. The team changes it by the output of `rebal show --set`,
restarts whom the printed advice names, and runs the printed commands as they are.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from rebal.groups.clients import assignor_of
from tests.kafka.broker import Broker
from tests.kafka.members import JAVA_ASSIGNORS, Member, Members, wait_assigned

LISTS = "partition.assignment.strategy"
PARTITIONS = 6
_LOOKS = 40


@dataclass(frozen=True)
class Pod:
    """One process of the service: its client, and its instance id if it is a static member."""

    name: str
    software: str
    static: bool = False


class Team:
    """A service on a broker, and the operators who carry out a plan for it.

    `evidence` are the options that this team can give. `forgets` is a process that they first take
    for restarted when its turn comes in the second bounce.
    """

    def __init__(
        self,
        broker: Broker,
        members: Members,
        group: str,
        topic: str,
        *,
        pods: Sequence[Pod],
        begins: Sequence[str],
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        forgets: str | None = None,
    ) -> None:
        self.broker = broker
        self.group = group
        self.topic = broker.create_topic(topic, PARTITIONS)
        self.pods = {pod.name: pod for pod in pods}
        self.running: dict[str, Member] = {}
        self.files = folder / "conf"
        self.logs = folder / "logs"
        self.plan = folder / "a plan.yaml"
        self.told: list[str] = []
        self.confirmed: list[str] = []
        self.refused = ""
        self._members = members
        self._capsys = capsys
        self._forgets = forgets
        for each in (self.files, self.logs):
            each.mkdir()
        classes = ",".join(JAVA_ASSIGNORS[name] for name in begins)
        for pod in pods:
            self._deploy(pod, f"{LISTS}={classes}\n")
            self._start(pod)

    def roll_out(self, goal: str, *evidence: str) -> dict[str, Any]:
        """Carry out the plan to `goal`; the last answer of verify."""
        count = ("--expect-members", str(len(self.pods)))
        reach = ("-b", self.broker.bootstrap)
        out = ("--out", str(self.plan))
        body = self._ask(
            ["plan-upgrade", self.group, "--to", goal, *reach, *evidence, *count, *out]
        )
        for _ in range(_LOOKS):
            advice = body["advice"]
            self.told.append(advice["text"])
            if advice["action"] == "none" and body.get("finished"):
                return body
            if advice["action"] == "confirm":
                self.confirmed += advice["members"]
            elif advice["action"] == "restart":
                assert advice["verdict"] == "yes", self.report(body)
                self._restart(advice)
            elif advice["action"] == "wait":
                time.sleep(1)
            else:
                assert advice["action"] == "none", self.report(body)
            body = self._printed(advice.get("command") or body["steps"][0]["gate"]["command"])
            failed = {name: one.error for name, one in self.running.items() if one.error}
            assert not failed, self.report(body)
        raise AssertionError(self.report(body))

    def lists(self) -> dict[str, list[str | None]]:
        """The list that each process runs, by the file that it was started with."""
        found = {}
        for name, member in self.running.items():
            classes = member.settings[LISTS].split(",")
            found[name] = [assignor_of(each) for each in classes]
        return found

    def report(self, body: dict[str, Any]) -> str:
        shown = {key: body.get(key) for key in ("advice", "why", "members", "dangers", "findings")}
        return "\n".join([*self.told, json.dumps(shown, indent=1)])

    def _claims(self, advice: dict[str, Any]) -> str:
        """Confirm that a member has restarted that has not; what rebal says of that."""
        words = shlex.split(advice["command"])[1:]
        words += ["--confirm", str(advice["step"]), "--member", advice["members"][0]]
        words += ["--list", ",".join(advice["assignors"]), "--reason", "thought so"]
        assert app.run(words) == 4
        return self._capsys.readouterr().err

    def _restart(self, advice: dict[str, Any]) -> None:
        (name,) = advice["names"]
        pod = next(each for each in self.pods.values() if name in (each.name, self._id(each)))
        if pod.name == self._forgets and advice["step"] > 1:
            # Taken for restarted: nothing has happened, and no word makes it so.
            self._forgets = None
            self.told.append(f"forgot {pod.name}")
            self.refused = self._claims(advice)
            return
        self.restart(pod.name, self._shown(advice["step"]) if advice["assignors"] else None)

    def restart(self, name: str, settings: str | None = None) -> None:
        """Restart a process, with these lines in its configuration file if there are any."""
        pod = self.pods[name]
        self.running[name].stop()
        if settings is not None:
            self._deploy(pod, settings)
        self._start(pod)

    def _id(self, pod: Pod) -> str | None:
        return self.running[pod.name].member_id

    def _shown(self, step: int) -> str:
        """The step's configuration, as `rebal show --set` prints it for a Java client."""
        words = ["show", str(self.plan), "--set", "--step", str(step), "--family", "java"]
        assert app.run(words) == 0
        return self._capsys.readouterr().out

    def _deploy(self, pod: Pod, settings: str) -> None:
        own = f"group.id={self.group}\nclient.id={pod.name}\nbootstrap.servers=b:1\n"
        own += f"group.instance.id={pod.name}\n" if pod.static else ""
        (self.files / f"{pod.name}.properties").write_text(own + settings)

    def _start(self, pod: Pod) -> None:
        text = (self.files / f"{pod.name}.properties").read_text()
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        settings = dict(line.split("=", 1) for line in lines)
        member = self._members.start(
            pod.software,
            self.broker,
            pod.name,
            self.group,
            topics=[self.topic],
            instance_id=pod.name if pod.static else None,
            session_timeout_ms=10_000,
            settings={LISTS: settings[LISTS]},
        )
        self.running[pod.name] = member
        # A COOPERATIVE group is Stable for a moment before its follow-up rebalance.
        wait_assigned(list(self.running.values()), PARTITIONS, quiet=0.5)
        self.broker.wait_stable(self.group, len(self.running))
        link = self.logs / member.host.log_path.name
        if not link.exists():
            link.symlink_to(member.host.log_path)

    def _printed(self, line: str) -> dict[str, Any]:
        """Run a printed command as a shell reads it."""
        words = shlex.split(line)
        assert words[0] == "rebal", line
        return self._ask(words[1:])

    def _ask(self, words: Sequence[str]) -> dict[str, Any]:
        code = app.run([*words, "-o", "json"])
        said = self._capsys.readouterr()
        assert code in (0, 3, 4), f"{shlex.join(words)}\n{said.err}"
        body: dict[str, Any] = json.loads(said.out)
        return body
