"""One consumer of confluent-kafka, kafka-python or aiokafka as a process, for `members.Host`.

The same interface as java/Member.java: standard input takes `start`, `stop`, `hold` and `exit`
lines with words separated by tabs, standard output gives one JSON event a line, standard error is
the client's log. Run as `pymember.py SOFTWARE [FOLDER_OF_ITS_PACKAGES]`. The setting `plan.text`
holds a plan's own text for this client, in hexadecimals: it is run as it is, and gives the list.
`log.level` is the level of the client's log.
"""

import asyncio
import importlib
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
    from kafka import KafkaConsumer
    from kafka.consumer.subscription_state import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            report.partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            report.partitions("assigned", assigned)

        def on_partitions_lost(self, lost: Any) -> None:
            report.partitions("lost", lost)

    consumer = KafkaConsumer(**settings)

    def identity() -> tuple[str, int]:
        if hasattr(consumer, "group_metadata"):
            metadata = consumer.group_metadata()
            return metadata.member_id, metadata.generation_id
        # kafka-python 2 tells it nowhere else.
        generation = consumer._coordinator._generation
        return generation.member_id, generation.generation_id

    report.emit("started", pid=os.getpid())
    consumer.subscribe(topics=topics, listener=Listener())
    # A leader that has not yet read a topic's metadata assigns nothing, or rejoins when it has; and
    # where a poll's time is up in the middle of that, kafka-python 3.0 leaves the join unfinished
    # for ever. So the metadata is read between subscribing and the first join.
    for topic in topics:
        consumer.partitions_for_topic(topic)
    records, joined = 0, ("", -1)
    while not _held_or_stopped():
        records += sum(map(len, consumer.poll(timeout_ms=100).values()))
        now = identity()
        if now != joined and now[1] is not None and now[1] >= 0:
            joined = now
            report.emit("joined", member_id=now[0], generation=now[1])
    consumer.close()
    return records


async def _run_aiokafka(report: _Reporter, settings: dict[str, Any], topics: list[str]) -> int:
    # Installed beside the live tests (tests/kafka/clients.py), not in the locked environment.
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener  # pyright: ignore[reportMissingImports]

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


def _arguments(package: str, settings: dict[str, str]) -> dict[str, Any]:
    """Kafka's dotted keys as the keyword arguments of kafka-python and aiokafka, with their types.

    A list is given by the assignors' names, or by a plan's text.
    """
    text = settings.pop("plan.text", None)
    arguments: dict[str, Any] = _from_text(bytes.fromhex(text).decode()) if text else {}
    for key, value in settings.items():
        name = key.replace(".", "_")
        if name == "partition_assignment_strategy":
            arguments[name] = tuple(_assignor(package, each) for each in value.split(","))
        elif name.endswith(_NUMBER_KEYS):
            arguments[name] = int(value)
        elif value in ("true", "false"):
            arguments[name] = value == "true"
        else:
            arguments[name] = value
    return arguments


def _assignor(package: str, name: str) -> Any:
    module, kind = {
        "range": ("range", "RangePartitionAssignor"),
        "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
        "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
        "cooperative-sticky": ("cooperative_sticky", "CooperativeStickyAssignor"),
    }[name]
    return getattr(importlib.import_module(f"{package}.coordinator.assignors.{module}"), kind)


def _from_text(text: str) -> dict[str, Any]:
    """The keyword arguments that a plan's text adds to those that stand there already (`…`)."""
    made: dict[str, Any] = {}
    consumers = dict.fromkeys(("KafkaConsumer", "AIOKafkaConsumer"), made.update)
    exec(text.replace("(…, ", "("), consumers)
    return made


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
    logging.getLogger().setLevel(settings.pop("log.level", "INFO"))
    topics = settings.pop("topics").split(",")
    report = _Reporter(words[1])
    try:
        sys.path[:0] = sys.argv[2:]
        if sys.argv[1].startswith("kafka-python"):
            records = _run_kafka_python(report, _arguments("kafka", settings), topics)
        elif sys.argv[1] == "aiokafka":
            records = asyncio.run(_run_aiokafka(report, _arguments("aiokafka", settings), topics))
        else:
            records = _run_librdkafka(report, settings, topics)
        report.emit("closed", records=records)
    except Exception as failure:
        report.emit("error", kind=type(failure).__name__, message=str(failure))
        raise


main()
