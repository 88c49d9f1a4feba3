"""A group of real members and what `rebal inspect` says of it, side by side: `Stage`."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from rebal.cli import app
from tests.kafka.administration import Administration
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned

# The clients' documented defaults, for members that leave the list unset.
DEFAULTS = {
    "java-2.3.1": ("range",),
    "java-2.8.2": ("range",),
    "java-3.9.1": ("range", "cooperative-sticky"),
    "java-4.1.1": ("range", "cooperative-sticky"),
    "confluent-kafka": ("range", "roundrobin"),
    "kafka-python": ("range", "roundrobin"),
}


@dataclass(frozen=True)
class One:
    """One member to start."""

    software: str
    assignors: tuple[str, ...] | None = None
    instance_id: str | None = None
    protocol: str | None = None

    @property
    def running(self) -> tuple[str, ...]:
        """The list the member runs with; none when the broker assigns (KIP-848)."""
        if self.protocol == "consumer":
            return ()
        return self.assignors or DEFAULTS[self.software]


@dataclass(frozen=True)
class Case:
    """Members, and the rebalance protocol that they follow together."""

    members: tuple[One, ...]
    runs: str
    elected: str | None
    kind: str = "classic"


@dataclass(frozen=True)
class Stage:
    """Where one test plays: a fresh topic and group of a broker whose request log is on.

    The log holds this test's lines alone.
    """

    broker: Broker
    members: Members
    group: str
    topic: str
    partitions: int

    @property
    def request_log(self) -> str:
        return str(self.broker.request_log_path)

    def inspect(self, *options: str) -> dict[str, Any]:
        """The group in `rebal inspect -o json`, with these further options."""
        return inspect(self.broker, self.group, *options)

    def start(self, case: Case) -> list[Member]:
        """Start the case's members one after the other, each when those before have settled."""
        started: list[Member] = []
        for number, one in enumerate(case.members):
            started.append(
                self.members.start(
                    one.software,
                    self.broker,
                    f"client-{number}",
                    self.group,
                    topics=[self.topic],
                    assignors=one.assignors,
                    instance_id=one.instance_id,
                    protocol=one.protocol,
                )
            )
            # A leader of kafka-python may rebalance once more by itself, which the others hear of
            # with their next heartbeat, half a second later.
            quiet = 1.0 if one.software == "kafka-python" else 0.3
            wait_assigned(started, self.partitions, quiet=quiet)
        self.broker.wait_stable(self.group, len(started))
        return started


def inspect(broker: Administration, group: str, *options: str) -> dict[str, Any]:
    """The one group in `rebal inspect`'s JSON."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = app.run(["inspect", group, "-o", "json", "-b", broker.bootstrap, *options])
    assert code in (0, 3, 4), err.getvalue()
    answer = json.loads(out.getvalue())
    assert answer["schema"] == "rebal.inspect/1"
    (only,) = answer["groups"]
    return only
