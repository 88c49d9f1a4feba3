"""Capture the groups that `rebal demo` walks through: `python -m tests.kafka.capture_demo`.

Starts a real Kafka 4.1.1 broker and real members, brings each group into the state its caption
names, reads it with rebal itself, and writes the snapshots into cli/data/demo.
"""

import subprocess
import sys
from pathlib import Path

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling

DEMO = Path(__file__).resolve().parents[2] / "cli" / "data" / "demo"


class Story:
    """One broker, and the groups on it."""

    def __init__(self, broker: Broker, members: Members) -> None:
        self.broker = broker
        self.members = members

    def begin(
        self, name: str, *assignors: str, members: int, software: str, topic: str, partitions: int
    ) -> Rolling:
        """Start a group of members of one client, all with one list."""
        group = Rolling(
            self.broker, self.members, name, topic, partitions=partitions, software=software
        )
        group.begin([f"{name}-{number}" for number in range(members)], list(assignors))
        return group

    def save(self, group: Rolling) -> None:
        """Read the group as an operator would; the log by its bare name, so no path is kept."""
        log = self.broker.request_log_path
        subprocess.run(
            [Path(sys.executable).with_name("rebal"), "inspect", group.group,
             "-b", self.broker.bootstrap, "--probe", "--request-log", log.name,
             "--save-to", str(DEMO / f"{group.group}.rebal.yaml")],
            check=True, cwd=log.parent,
        )  # fmt: skip

    def shipping(self) -> None:
        """Four Java 3.9.1 members on range: nothing has begun."""
        group = self.begin(
            "shipping", "range", members=4, software="java-3.9.1", topic="parcels", partitions=24
        )
        self.save(group)

    def checkout(self) -> None:
        """Four Java 2.8.2 members, bounce 1 done on three of them, the fourth forgotten."""
        group = self.begin(
            "checkout", "range", members=4, software="java-2.8.2", topic="orders", partitions=12
        )
        for name in list(group.running)[:3]:
            group.restart(name, ["cooperative-sticky", "range"])
        self.save(group)

    def billing(self) -> None:
        """Three Java 4.1.1 members with the client's default list, rolled to cooperative-sticky."""
        group = self.begin(
            "billing", members=3, software="java-4.1.1", topic="payments", partitions=6
        )
        for name in list(group.running):
            group.restart(name, ["cooperative-sticky"])
        self.save(group)

    def ml_features(self) -> None:
        """Two librdkafka members with the client's default list."""
        group = self.begin(
            "ml-features", members=2, software="confluent-kafka", topic="features", partitions=8
        )
        self.save(group)


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
