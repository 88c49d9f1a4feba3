"""`rebal inspect GROUP --probe` against Kafka's own `kafka-consumer-groups.sh` on the same group.

The peer is the class that the script runs, with the script's JVM options, on a real 4.1.1 broker
with four real members. Both are whole processes: this is what an operator waits for.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.timing import Row, side_by_side, wall
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members, wait_assigned

# What bin/kafka-run-class.sh of Kafka 4 adds for kafka-consumer-groups.sh, its JMX agent too. The
# time that the script itself takes to list its jars is left out.
SCRIPT_JVM = (
    "-Xmx256M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)
GROUP = "bench"


def rows() -> Iterator[Row]:
    java = jars.tool("java")
    if java is None:
        raise SystemExit("this bench needs Java 17: install it or set JAVA_HOME")
    rebal = str(Path(sys.executable).with_name("rebal"))
    members = Members()
    with Broker(jars.EARLY, secure=False) as broker:
        try:
            broker.create_topic("orders", 24)
            started = [
                members.start(
                    "java-3.9.1", broker, f"bench-{n}", GROUP, topics=["orders"],
                    assignors=["range"],
                )
                for n in range(4)
            ]  # fmt: skip
            wait_assigned(started, 24)
            broker.wait_stable(GROUP, 4)
            ours = [rebal, "inspect", GROUP, "--probe", "-b", broker.bootstrap]
            peer = [
                java, *SCRIPT_JVM, "-cp", jars.classpath("tools-4.1.1"),
                "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
                "--bootstrap-server", broker.bootstrap, "--group", GROUP,
                "--describe", "--members", "--verbose",
            ]  # fmt: skip
            yield side_by_side(
                "rebal inspect GROUP --probe, 4 members, 24 partitions",
                lambda: wall(ours),
                lambda: wall(peer),
                peer_name="kafka-consumer-groups.sh --describe --members --verbose",
                limit=0.25,
            )
        finally:
            members.end()
            Members.end_shared()
