"""A plan carried out on a live group: its texts used as they are, `verify` held to the truth."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.administration import Administration
from tests.kafka.cluster import Cluster
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.kafka.service import answer, properties_of

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
