"""One consumer of confluent-kafka, kafka-python or aiokafka as a process, for `members.ClientHost`.

The same interface as java/Member.java: standard input takes `start`, `stop`, `hold` and `exit`
lines with words separated by tabs, standard output gives one JSON event a line, standard error is
the client's log. Run as `pymember.py SOFTWARE [FOLDER_OF_ITS_PACKAGES]`.
"""

import asyncio
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

_commands: "queue.Queue[list[str]]" = queue.Queue()
_NUMBER_KEYS = ("_ms", "_records", "_bytes", "retries")


def _read_commands() -> None:
    for line in sys.stdin:
        _commands.put(line.rstrip("\n").split("\t"))
    os._exit(3)


class _Reporter:
    def __init__(self, member: str) -> None:
        self._member = member

    def emit(self, event: str, **fields: Any) -> None:
        record = {"t_ms": int(time.time() * 1000), "id": self._member, "event": event, **fields}
        print(json.dumps(record), flush=True)

    def partitions(self, event: str, partitions: Iterable[Any]) -> None:
        by_topic: dict[str, list[int]] = {}
        for each in partitions:
            by_topic.setdefault(each.topic, []).append(each.partition)
        self.emit(event, partitions={t: sorted(by_topic[t]) for t in sorted(by_topic)})


def _held_or_stopped() -> bool:
    while not _commands.empty():
        words = _commands.get()
        if words[0] in ("stop", "exit"):
            return True
        if words[0] == "hold":
            time.sleep(int(words[2]) / 1000)
    return False


def _run_librdkafka(report: _Reporter, settings: dict[str, str], topics: list[str]) -> int:
    from confluent_kafka import Consumer, KafkaError

    def failed(error: Any) -> None:
        if error.fatal():
            report.emit("error", kind="KafkaError", message=str(error))

    log = logging.getLogger("librdkafka")
    consumer = Consumer({**settings, "error_cb": failed}, logger=log)
    report.emit("started", pid=os.getpid())
    consumer.subscribe(
        topics,
        on_assign=lambda _, parts: report.partitions("assigned", parts),
        on_revoke=lambda _, parts: report.partitions("revoked", parts),
        on_lost=lambda _, parts: report.partitions("lost", parts),
    )
    records, joined, refused = 0, "", False
    while not _held_or_stopped():
        message = consumer.poll(0.1)
        if message is None:
            pass
        elif message.error() is None:
            records += 1
        elif message.error().code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            # librdkafka retries for ever: once is enough to know.
            if not refused:
                report.emit("error", kind="refused", message=str(message.error()))
            refused = True
        else:
            report.emit("error", kind="KafkaError", message=str(message.error()))
        member_id = consumer.memberid() or ""
        if member_id != joined and consumer.assignment():
            joined = member_id
            report.emit("joined", member_id=member_id, generation=None)
    consumer.close()
    return records


def _run_kafka_python(report: _Reporter, settings: dict[str, Any], topics: list[str]) -> int:
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            report.partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            report.partitions("assigned", assigned)

        def on_partitions_lost(self, lost: Any) -> None:
            report.partitions("lost", lost)

    consumer = KafkaConsumer(**settings)
    report.emit("started", pid=os.getpid())
    # A leader that has not yet read a topic's metadata assigns nothing, and kafka-python 3.0 can
    # then stay without an assignment for ever. So the metadata is read before the first join.
    for topic in topics:
        consumer.partitions_for_topic(topic)
    consumer.subscribe(topics=topics, listener=Listener())
    records, joined = 0, ("", -1)
    while not _held_or_stopped():
        records += sum(map(len, consumer.poll(timeout_ms=100).values()))
        metadata = consumer.group_metadata()
        now = (metadata.member_id, metadata.generation_id)
        if now != joined and now[1] is not None and now[1] >= 0:
            joined = now
            report.emit("joined", member_id=now[0], generation=now[1])
    consumer.close()
    return records


async def _run_aiokafka(report: _Reporter, settings: dict[str, Any], topics: list[str]) -> int:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            report.partitions("revoked", revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            report.partitions("assigned", assigned)
            coordinator = consumer._coordinator
            report.emit(
                "joined", member_id=coordinator.member_id, generation=coordinator.generation
            )

    consumer = AIOKafkaConsumer(**settings)
    report.emit("started", pid=os.getpid())
    consumer.subscribe(topics=topics, listener=Listener())
    await consumer.start()
    records = 0
    while not _held_or_stopped():
        records += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
    await consumer.stop()
    return records


def _aiokafka_settings(settings: dict[str, str]) -> dict[str, Any]:
    """Kafka's dotted keys as aiokafka's keyword arguments: its default list alone is asked for."""
    named = {key.replace(".", "_"): value for key, value in settings.items()}
    return {k: int(value) if k.endswith(_NUMBER_KEYS) else value for k, value in named.items()}


def _kafka_python_settings(settings: dict[str, str]) -> dict[str, Any]:
    """Kafka's dotted keys as kafka-python's keyword arguments, with its class objects and types."""
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    classes = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    arguments: dict[str, Any] = {}
    for key, value in settings.items():
        name = key.replace(".", "_")
        if name == "partition_assignment_strategy":
            arguments[name] = tuple(classes[each] for each in value.split(","))
        elif name.endswith(_NUMBER_KEYS):
            arguments[name] = int(value)
        elif value in ("true", "false"):
            arguments[name] = value == "true"
        else:
            arguments[name] = value
    return arguments


def main() -> None:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    threading.Thread(target=_read_commands, daemon=True).start()
    words = _commands.get()
    if words[0] != "start":
        raise SystemExit(f"expected a start line, got {words}")
    settings = dict(word.split("=", 1) for word in words[2:])
    topics = settings.pop("topics").split(",")
    report = _Reporter(words[1])
    try:
        if sys.argv[1] == "kafka-python":
            records = _run_kafka_python(report, _kafka_python_settings(settings), topics)
        elif sys.argv[1] == "aiokafka":
            sys.path.insert(0, sys.argv[2])
            records = asyncio.run(_run_aiokafka(report, _aiokafka_settings(settings), topics))
        else:
            records = _run_librdkafka(report, settings, topics)
        report.emit("closed", records=records)
    except Exception as failure:
        report.emit("error", kind=type(failure).__name__, message=str(failure))
        raise


main()
