"""`__consumer_offsets` of a live cluster, read by Spark's tasks with librdkafka; read-only.

The offset ranges are fixed before Spark starts, from the brokers' begin and end offsets. Partitions
are assigned and not subscribed to, so that no consumer group is made. Records of aborted
transactions are left out.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)
from msgspec.structs import replace

from rebal.groups.commands import Command
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.settings import Pem
from rebal.inspectors.connection.translate import to_confluent, token_of
from rebal.inspectors.errors import ConnectError, RequestError, SettingError
from rebal.inspectors.files import read_text
from rebal.inspectors.fleet.sources.source import TOPIC, RecordSource, SourceRow, batches_of
from rebal.inspectors.fleet.spark.tasks import shares_of
from rebal.inspectors.kafka.doctor import acl
from rebal.inspectors.kafka.read import read_brokers
from rebal.inspectors.kafka.session import connect
from rebal.inspectors.kafka.wire import Deadline

NEEDED: Final = "grant READ on it"
_TASKS_PER_CORE: Final = 4
# Offsets for one task: each task costs a tenth of a second and a login.
_LEAST: Final = 50_000
# Seconds without a record, at least, after which a broker is silent: a quota may hold it back.
_PATIENCE: Final = 60.0
_AT_ONCE: Final = 4000
# Records of a batch, and kilobytes that wait for it.
_QUEUED_KB: Final = 16 << 10


class PartitionRange(NamedTuple):
    """Offsets of one partition to read: from `start` up to, but not including, `end`."""

    number: int
    start: int
    end: int


def find_records(config: ClusterConfig) -> RecordSource:
    """Return the record source for a live cluster's `__consumer_offsets`; read no record yet.

    The offset ranges end at the present last stable offsets. What the brokers say of themselves and
    of the topics is read too; if that fails, a note says so.

    Raises:
        ConnectError: the cluster cannot be reached, or the login is rejected.
        RequestError: the topic is not there or may not be described.
        SettingError: a PEM file cannot be read.
    """
    deadline = Deadline(config.timeout_ms)
    with connect(config) as session:
        cluster = session.raw.cluster_id
        found, failed = session.topics([TOPIC], deadline)
        if not found:
            left_out = RequestError("CORRUPT_MESSAGE", f"the brokers left {TOPIC} out")
            raise _explained(failed.get(TOPIC, left_out), config)
        edges = session.edges(TOPIC, found[0].partitions, deadline)
    notes = [
        f"partition {partition} of {TOPIC}: a transaction is open since offset {stable}, "
        f"so {end - stable:,} offsets are left for a later scan."
        for partition, (_, stable, end) in sorted(edges.items())
        if stable < end
    ]
    brokers = None
    try:
        brokers = read_brokers(config)
        notes += brokers.notes
    except (ConnectError, RequestError) as error:
        notes.append(f"what the brokers say of themselves was not read: {error}")
    return RecordSource(
        names=(config.bootstrap,),
        share=partial(share_ranges, edges),
        read=partial(read_partitions, config=carried(config)),
        cluster=cluster,
        notes=tuple(notes),
        brokers=brokers,
    )


def share_ranges(
    edges: Mapping[int, tuple[int, int, int]], cores: int, read: Mapping[int, int]
) -> list[list[PartitionRange]]:
    """Return the offset ranges to read, split into shares for the tasks of `cores` cores.

    Args:
        edges: Of each partition the first offset, the last stable offset and the end offset.
        cores: How many tasks run at once.
        read: Of each partition the last offset that an earlier scan has read.

    Raises:
        RequestError: a partition ends before that offset, so the topic is another one.
    """
    parts: list[tuple[PartitionRange, int]] = []
    for partition, (begin, stable, end) in sorted(edges.items()):
        start = max(begin, read.get(partition, -1) + 1)
        if start > end:
            raise RequestError(
                "OFFSET_OUT_OF_RANGE",
                f"{TOPIC}: partition {partition} ends at {end}, before the {start} that the last "
                "scan came to: it was made anew or is another cluster's; scan again with --full",
            )
        if start < stable:
            parts.append((PartitionRange(partition, start, stable), stable - start))
    return shares_of(
        parts, min(_TASKS_PER_CORE * cores, -(-sum(size for _, size in parts) // _LEAST))
    )


def read_partitions(
    ranges: Sequence[PartitionRange], config: ClusterConfig
) -> Iterator[pa.RecordBatch]:
    """Yield the committed records in these ranges as batches of `SOURCE`.

    A range is finished when a record at or after its end has arrived, or the end of the partition.

    Raises:
        ConnectError: no broker answers any more, or the OAuth token cannot be fetched.
        RequestError: a broker rejects the request.
    """
    left = {one.number: one.end for one in ranges}
    seconds = config.timeout_ms / 1000
    wait = max(_PATIENCE, seconds)
    if config.oauth is not None:
        # librdkafka waits for its first token, and does not say why there is none.
        token_of(config.oauth, seconds)
    trouble: list[str] = []
    consumer = Consumer(_settings(config) | {"error_cb": lambda error: trouble.append(error.str())})
    try:
        consumer.assign([TopicPartition(TOPIC, one.number, one.start) for one in ranges])
        last_answer = time.monotonic()
        while left:
            first = consumer.poll(wait)
            # Errors alone are no answer, however many come.
            if first is None or time.monotonic() - last_answer > wait:
                why = f": {trouble[-1]}" if trouble else ""
                raise ConnectError(f"{TOPIC}: no answer within {wait:g} s{why}.", "timeout")
            rows: list[SourceRow] = []
            answered = False
            for message in (first, *consumer.consume(_AT_ONCE, 0)):
                error = message.error()
                if error is not None and message.topic() is None:
                    # It looks for its group's coordinator, which this user may not see: no matter.
                    trouble.append(error.str())
                    continue
                answered = True
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise RequestError(error.name(), f"{TOPIC}: {error.name()}: {error.str()}")
                number, offset = message.partition() or 0, message.offset() or 0
                if number not in left:
                    continue
                if offset >= left[number]:
                    del left[number]
                    consumer.pause([TopicPartition(TOPIC, number)])
                elif error is None:
                    rows.append(_row(message, number, offset, config.bootstrap))
            yield from batches_of(rows)
            if answered:
                last_answer = time.monotonic()
    finally:
        consumer.close()


def _row(message: Message, number: int, offset: int, source: str) -> SourceRow:
    kind, at = message.timestamp()
    micros = None if kind == TIMESTAMP_NOT_AVAILABLE else at * 1000
    return message.key(), message.value(), number, offset, micros, source, None


def _settings(config: ClusterConfig) -> dict[str, Any]:
    return to_confluent(config) | {
        # It makes no group: partitions are assigned, and nothing is committed.
        "group.id": "rebal-fleet",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "check.crcs": True,
        # Records may be removed between two looks: the counts are compared all the same.
        "auto.offset.reset": "earliest",
        "queued.max.messages.kbytes": _QUEUED_KB,
    }


def carried(config: ClusterConfig) -> ClusterConfig:
    """Return the connection with the text of its PEM files, so that executors need no files."""
    return replace(
        config,
        ca=_inline(config.ca),
        certificate=_inline(config.certificate),
        key=_inline(config.key),
    )


def _inline(pem: Pem | None) -> Pem | None:
    if pem is None or pem.file is None:
        return pem
    try:
        return Pem(inline=read_text(Path(pem.file)))
    except OSError:
        raise SettingError(f"{pem.file}: is not a PEM file that can be read.") from None


def _explained(error: RequestError, config: ClusterConfig) -> RequestError:
    if error.name == "TOPIC_AUTHORIZATION_FAILED":
        why = f"{TOPIC}: this user may not describe it: {NEEDED}"
        return RequestError(error.name, why, grant(config))
    why = f"{TOPIC}: {error.reason}"
    if error.name.startswith("UNKNOWN_TOPIC_OR_PART"):
        why = f"the cluster has no topic {TOPIC}: no group has ever joined or committed there"
    return RequestError(error.name, why)


def grant(config: ClusterConfig) -> Command:
    """Return the command by which an administrator lets this user read `__consumer_offsets`."""
    return acl(config, "READ", "--topic", TOPIC)
