"""`__consumer_offsets` of a live cluster through Spark's own Kafka source; it only reads.

The ranges are fixed by the brokers' own begin and end offsets before Spark starts: what is to be
read is known, so reading nothing from it is an error. Partitions are assigned, never subscribed to
(that would make a consumer group), and transactions that were aborted are left out.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition

from rebal.groups.commands import Command
from rebal.groups.model import Record
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.tokens import token_of
from rebal.inspectors.connection.translate import to_confluent
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.fleet.manifest import Manifest
from rebal.inspectors.fleet.sources.kafka_options import java_options, subject_claim
from rebal.inspectors.fleet.sources.source import SOURCE, TOPIC, Source
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.kafka.doctor import acl
from rebal.inspectors.kafka.read import read_brokers
from rebal.inspectors.kafka.session import connect
from rebal.inspectors.kafka.wire import Deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP_PREFIX: Final = "rebal-fleet"
NEEDED: Final = (
    f"grant READ on it, and READ on the groups with the prefix {GROUP_PREFIX}: Spark's consumer "
    "has such a name; no group is made"
)


class KafkaRange(Record, frozen=True, kw_only=True):
    """The offsets to read of each partition: from the first up to, not including, the second.

    `notes` say what cannot be read; `subject` is the claim that names the user in OAUTHBEARER's
    tokens; `brokers` is what the brokers say beside records.
    """

    partitions: dict[int, tuple[int, int]]
    subject: str | None = None
    brokers: ClusterReading | None = None
    notes: tuple[str, ...] = ()


def find_cluster_id(config: ClusterConfig) -> str | None:
    """Return the id of the cluster, if its brokers say it.

    Raises:
        ConnectError: the cluster cannot be reached, or the login is rejected.
        RequestError: no broker describes the cluster.
        SettingError: a token that Java's client cannot use.
    """
    _subject(config)
    with connect(config) as session:
        return session.resources.cluster(Deadline(config.timeout_ms))[0]


def find_range(config: ClusterConfig, previous: Manifest | None) -> KafkaRange:
    """Return the offsets of `__consumer_offsets` that `previous` has not read.

    Raises:
        ConnectError: the login is rejected.
        RequestError: the topic is not there or may not be described, or it is not the one that
            `previous` read.
        SettingError: a token that Java's client cannot use.
    """
    subject = _subject(config)
    deadline = Deadline(config.timeout_ms)
    with connect(config) as session:
        found, failed = session.resources.topics([TOPIC], deadline)
        if not found:
            left_out = RequestError("CORRUPT_MESSAGE", f"the brokers left {TOPIC} out")
            raise _refused(failed.get(TOPIC, left_out), config)
        edges = session.resources.edges(TOPIC, found[0].partitions, deadline)
    read = previous.offsets if previous else {}
    wanted: dict[int, tuple[int, int]] = {}
    notes: list[str] = []
    for partition, (begin, stable, end) in sorted(edges.items()):
        start = max(begin, read.get(partition, -1) + 1)
        if start > end:
            raise RequestError(
                "OFFSET_OUT_OF_RANGE",
                f"{TOPIC}: partition {partition} ends at {end}, before the {start} that the last "
                "scan came to: it was made anew or is another cluster's; scan again with --full",
            )
        if stable < end:
            notes.append(
                f"partition {partition} of {TOPIC}: a transaction is open since offset {stable}, "
                f"so {end - stable:,} offsets are left for a later scan."
            )
        if start < stable:
            wanted[partition] = (start, stable)
    brokers = None
    try:
        brokers = read_brokers(config)
        notes += brokers.notes
    except (ConnectError, RequestError) as error:
        notes.append(f"what the brokers say of themselves was not read: {error}")
    return KafkaRange(partitions=wanted, subject=subject, brokers=brokers, notes=tuple(notes))


def read_kafka(spark: SparkSession, config: ClusterConfig, what: KafkaRange) -> Source:
    """Return the records in `what`, as a source."""
    from pyspark.sql import functions as sql

    address = config.bootstrap
    if not what.partitions:
        from pyspark.sql.pandas.types import from_arrow_schema

        empty = spark.createDataFrame([], from_arrow_schema(SOURCE, prefer_timestamp_ntz=False))
        return Source(empty, (address,), notes=what.notes, brokers=what.brokers)
    starts = {str(partition): start for partition, (start, _) in what.partitions.items()}
    ends = {str(partition): end for partition, (_, end) in what.partitions.items()}
    rows = (
        spark.read.format("kafka")
        .options(**java_options(config, what.subject))
        .option("assign", json.dumps({TOPIC: sorted(what.partitions)}))
        .option("startingOffsets", json.dumps({TOPIC: starts}))
        .option("endingOffsets", json.dumps({TOPIC: ends}))
        # Spark's consumer asks for its group's commits; there are none, and no group is made. Its
        # name is another one each time: Spark keeps consumers by it, with their settings.
        .option("groupIdPrefix", GROUP_PREFIX)
        # Compaction may remove records between two looks; the counts are compared all the same.
        .option("failOnDataLoss", "false")
        .load()
        .select(
            "key",
            "value",
            "partition",
            "offset",
            "timestamp",
            sql.lit(address).alias("source"),
            sql.lit(None).cast("string").alias("problem"),
        )
    )
    return Source(
        rows,
        (address,),
        holds_records=partial(_holds_records, config, what),
        notes=what.notes,
        brokers=what.brokers,
    )


def _holds_records(config: ClusterConfig, what: KafkaRange) -> bool:
    """Return whether `what` holds a record; offsets alone may be those of transaction markers."""
    settings = to_confluent(config) | {
        "group.id": GROUP_PREFIX,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    deadline = Deadline(config.timeout_ms)
    consumer = Consumer(settings)
    try:
        left = set(what.partitions)
        consumer.assign([TopicPartition(TOPIC, n, what.partitions[n][0]) for n in sorted(left)])
        while left and not deadline.over:
            message = consumer.poll(deadline.left())
            if message is None:
                continue
            number = message.partition()
            assert number is not None
            if message.error() is None and (message.offset() or 0) < what.partitions[number][1]:
                return True
            left.discard(number)
        # Without an answer nothing is proven, and an empty report must not pass.
        return bool(left)
    finally:
        consumer.close()


def _subject(config: ClusterConfig) -> str | None:
    if config.oauth is None:
        return None
    return subject_claim(token_of(config.oauth, config.timeout_ms / 1000).value)


def _refused(error: RequestError, config: ClusterConfig) -> RequestError:
    if error.name == "TOPIC_AUTHORIZATION_FAILED":
        why = f"{TOPIC}: this user may not describe it: {NEEDED}"
        return RequestError(error.name, why, *grants(config))
    why = f"{TOPIC}: {error.reason}"
    if error.name.startswith("UNKNOWN_TOPIC_OR_PART"):
        why = f"the cluster has no topic {TOPIC}: no group has ever joined or committed there"
    return RequestError(error.name, why)


def grants(config: ClusterConfig) -> tuple[Command, Command]:
    """Return the commands that allow this user to read what a scan reads."""
    return (
        acl(config, "READ", "--topic", TOPIC),
        acl(config, "READ", "--group", GROUP_PREFIX, "--resource-pattern-type", "prefixed"),
    )
