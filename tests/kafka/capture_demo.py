"""Capture the groups that `rebal demo` walks through: `python -m tests.kafka.capture_demo`.

Starts a real Kafka 4.1.1 broker and real members, brings each group into the state its comment
names, reads it with rebal itself, and writes the snapshots into cli/data/demo.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members, Rolling

DEMO = Path(__file__).resolve().parents[2] / "cli" / "data" / "demo"


class Story(NamedTuple):
    """One group: all members of one client start with one list, some restart with another one."""

    group: str
    software: str
    members: int
    topic: str
    partitions: int
    assignors: list[str]
    restarted: int = 0
    then: Sequence[str] = ()


STORIES = (
    # Nothing has begun.
    Story("shipping", "java-3.9.1", 4, "parcels", 24, ["range"]),
    # Bounce 1 done on three of them, the fourth forgotten.
    Story("checkout", "java-2.8.2", 4, "orders", 12, ["range"], 3, ["cooperative-sticky", "range"]),
    # The client's default list, rolled to cooperative-sticky.
    Story("billing", "java-4.1.1", 3, "payments", 6, [], 3, ["cooperative-sticky"]),
    # The client's default list.
    Story("ml-features", "confluent-kafka", 2, "features", 8, []),
)


def carry_out(story: Story, broker: Broker, members: Members) -> None:
    """Bring the group into its state, and read it as an operator would."""
    group = Rolling(
        broker, members, story.group, story.topic,
        partitions=story.partitions, software=story.software,
    )  # fmt: skip
    names = [f"{story.group}-{number}" for number in range(story.members)]
    group.begin(names, story.assignors)
    for name in names[: story.restarted]:
        group.restart(name, list(story.then))
    # The log by its bare name, so that no path is kept.
    log = broker.request_log_path
    subprocess.run(
        [Path(sys.executable).with_name("rebal"), "inspect", group.group,
         "-b", broker.bootstrap, "--probe", "--request-log", log.name,
         "--save-to", str(DEMO / f"{group.group}.rebal.yaml")],
        check=True, cwd=log.parent,
    )  # fmt: skip


def main() -> None:
    members = Members()
    with Broker(jars.EARLY, secure=False, request_log=True) as broker:
        try:
            for story in STORIES:
                carry_out(story, broker, members)
        finally:
            members.end()
            Members.end_shared()


if __name__ == "__main__":
    main()
