"""`rebal groups` and completion, with 300 groups, against Kafka's own `kafka-consumer-groups.sh`.

The peer is the class that the script runs, with the script's JVM options. Both are whole processes:
this is what an operator waits for. The peer describes every group, as rebal does.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.inspect_probe import SCRIPT_JVM
from bench.timing import Row, side_by_side, wall
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.rawgroup import PARTITIONS, Crowd

GROUPS = 300


def rows() -> Iterator[Row]:
    java = jars.tool("java")
    if java is None:
        raise SystemExit("this bench needs Java 17: install it or set JAVA_HOME")
    rebal = str(Path(sys.executable).with_name("rebal"))
    settings = {"group.max.session.timeout.ms": "3600000"}
    with Broker(jars.EARLY, secure=False, settings=settings) as broker:
        broker.wait_coordinator("any")
        broker.create_topic("orders", PARTITIONS)
        with Crowd(broker, "orders") as crowd:
            for number in range(GROUPS):
                crowd.add(f"bench-{number}", ["range"])
        ours = [rebal, "groups", "-b", broker.bootstrap, "--exit-zero"]
        peer = [
            java, *SCRIPT_JVM, "-cp", jars.classpath("tools-4.1.1"),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server", broker.bootstrap, "--describe", "--all-groups",
        ]  # fmt: skip
        yield side_by_side(
            f"rebal groups, {GROUPS} groups",
            lambda: wall(ours),
            lambda: wall(peer),
            peer_name="kafka-consumer-groups.sh --describe --all-groups",
            limit=1.0,
            runs=3,
        )
        line = f"rebal inspect -b {broker.bootstrap} bench-1"
        yield side_by_side(
            f"completion of a group's name among {GROUPS}",
            lambda: wall([rebal, "completion", "bash", "--complete", line]),
            lambda: wall([*peer[:-2], "--list"]),
            peer_name="kafka-consumer-groups.sh --list",
            limit=1.0,
        )
