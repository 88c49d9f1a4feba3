"""Capture the groups that `rebal demo` walks through: `python -m tests.kafka.capture_demo`.

Starts a real Kafka 4.1.1 broker and real members, brings each group into the state its caption
names, reads it with rebal itself, and writes the snapshots into cli/data/demo.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "cli" / "data" / "demo"
MIXED = ["cooperative-sticky", "range"]
COOPERATIVE = ["cooperative-sticky"]


class Story:
    """One broker, and the groups on it."""

    def __init__(self, broker: Broker, members: Members) -> None:
        self.broker = broker
        self.members = members

    def start(
        self, software: str, group: str, number: int, topic: str, **options: object
    ) -> Member:
        return self.members.start(
            software, self.broker, f"{group}-{number}", group, topics=[topic], **options
        )

    def rolled(
        self, running: list[Member], partitions: int, restart: Callable[[int], Member], *which: int
    ) -> None:
        """Restart the members numbered `which`, one at a time, each after the group settled."""
        for number in which:
            running[number].stop()
            running[number] = restart(number)
            wait_assigned(running, partitions)

    def save(self, group: str, members: int, *, request_log: bool = False) -> None:
        """Read the group as an operator would; the log by its bare name, so no path is kept."""
        self.broker.wait_stable(group, members)
        log = self.broker.request_log_path
        subprocess.run(
            [Path(sys.executable).with_name("rebal"), "inspect", group, "-b", self.broker.bootstrap,
             "--probe", *(["--request-log", log.name] if request_log else []),
             "--save-to", str(DEMO / f"{group}.rebal.yaml")],
            check=True, cwd=log.parent,
        )  # fmt: skip

    def shipping(self) -> None:
        """Four Java 3.9.1 members on range: nothing has begun."""
        self.broker.create_topic("parcels", 24)
        group = [
            self.start("java-3.9.1", "shipping", n, "parcels", assignors=["range"])
            for n in range(4)
        ]
        wait_assigned(group, 24)
        self.save("shipping", 4, request_log=True)

    def checkout(self) -> None:
        """Four Java 2.8.2 members, bounce 1 done on three of them, the fourth forgotten."""
        self.broker.create_topic("orders", 12)
        group = [
            self.start("java-2.8.2", "checkout", n, "orders", assignors=["range"]) for n in range(4)
        ]
        wait_assigned(group, 12)
        self.rolled(
            group,
            12,
            lambda n: self.start("java-2.8.2", "checkout", n, "orders", assignors=MIXED),
            0, 1, 2,
        )  # fmt: skip
        self.save("checkout", 4, request_log=True)

    def billing(self) -> None:
        """Three Java 4.1.1 members with the client's default list, rolled to cooperative-sticky."""
        self.broker.create_topic("payments", 6)
        group = [self.start("java-4.1.1", "billing", n, "payments") for n in range(3)]
        wait_assigned(group, 6)
        self.rolled(
            group,
            6,
            lambda n: self.start("java-4.1.1", "billing", n, "payments", assignors=COOPERATIVE),
            0, 1, 2,
        )  # fmt: skip
        self.save("billing", 3, request_log=True)

    def ml_features(self) -> None:
        """Two librdkafka members with the client's default list."""
        self.broker.create_topic("features", 8)
        group = [self.start("confluent-kafka", "ml-features", n, "features") for n in range(2)]
        wait_assigned(group, 8)
        self.save("ml-features", 2, request_log=True)


def main() -> None:
    DEMO.mkdir(parents=True, exist_ok=True)
    members = Members()
    with Broker(jars.EARLY, secure=False, request_log=True) as broker:
        story = Story(broker, members)
        try:
            story.shipping()
            story.checkout()
            story.billing()
            story.ml_features()
        finally:
            members.end()
            Members.end_shared()


if __name__ == "__main__":
    main()
