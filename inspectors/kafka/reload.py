"""Has a rebalance completed since the coordinator loaded the group? `rebalanced_since_load`.

A coordinator loads a group when its partition of `__consumer_offsets` gets a leader, and each
election raises that partition's leader epoch (KIP-101). A completed rebalance appends a
GroupMetadata record (key version 2) with a new generation. So the records appended since the
current epoch began tell: none means no rebalance. A static member's restart appends one too, at the
SAME generation: a lone record is compared with the group's newest one from before the epoch, or
by the time of the state change that it holds.

Checked on 4.1.1 and 3.9.1: a clean restart raises the epoch, SIGKILL and restart raise it on 4.1.1,
and do not on a one-broker 3.9.1 (its controller, started anew with it, never fences it).

Only Fetch requests are sent: no consumer group, nothing committed. The leader's answer about where
its epoch begins (OffsetForLeaderEpoch) bounds what must be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rebal.groups.model import Tri
from rebal.groups.wire.group_metadata import GroupMetadata, GroupMetadataMember
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.errors import RequestError
from rebal.inspectors.kafka.reload_log import (
    EARLIEST,
    LATEST,
    MOST_SECONDS,
    OFFSETS_TOPIC,
    OffsetsLog,
    StoredGroup,
    TooMuchError,
    check,
    offsets_partition,
)
from rebal.inspectors.kafka.wire import Deadline


class Reading(NamedTuple):
    """Whether a rebalance has completed since the load, why, and the newest stored generation.

    `generation` is None when no record of the group was read; `members` are those of that record,
    and the state of that record began at `generation_ms`. `epoch` and `loaded_ms` are the
    `leader_epoch` and `loaded_at` of `Coordinator`; times are milliseconds since 1970.
    """

    rebalanced: Tri
    why: str
    generation: int | None = None
    members: tuple[GroupMetadataMember, ...] = ()
    generation_ms: int | None = None
    epoch: int | None = None
    loaded_ms: int | None = None


class Earlier(NamedTuple):
    """The group's records before the epoch; `whole`: nothing before it has been compacted away."""

    records: list[StoredGroup]
    whole: bool


def rebalanced_since_load(
    cluster: RawCluster, group_id: str, deadline: Deadline | None = None
) -> Reading:
    """Whether a rebalance of the classic group has completed since its coordinator loaded it.

    Everything that stands in the way (no READ on the topic, a partition too large to read in
    a few seconds) gives `cannot tell` and the reason.

    Raises:
        ConnectError: the cluster cannot be reached.
    """
    deadline = deadline or cluster.deadline()
    try:
        return _unless_unnoticed(cluster, _read(cluster, group_id, deadline), deadline)
    except TooMuchError:
        return Reading(
            Tri.CANNOT_TELL,
            f"{OFFSETS_TOPIC} holds more than could be read in {MOST_SECONDS:g} s",
        )
    except RequestError as error:
        if "AUTHORIZATION" in error.name:
            return Reading(
                Tri.CANNOT_TELL,
                f"no right to read {OFFSETS_TOPIC}: allow READ and DESCRIBE on that topic",
            )
        return Reading(Tri.CANNOT_TELL, f"{OFFSETS_TOPIC} could not be read: {error}")


def seen_by_probe(reading: Reading, elected: str | None, supported: Iterable[str]) -> Reading:
    """`reading`, or yes where the probe itself proves it.

    A load leaves every member's list as just [the elected assignor]: a list that holds another
    one too was sent by its member since.
    """
    for assignor in supported:
        if elected is not None and assignor != elected:
            why = f"every list in the coordinator's memory holds {assignor} beside {elected}"
            return reading._replace(rebalanced=Tri.YES, why=why)
    return reading


def _unless_unnoticed(cluster: RawCluster, reading: Reading, deadline: Deadline) -> Reading:
    """Before Kafka 4.0 a cluster's only broker that is killed comes back in the SAME epoch."""
    if len(cluster.brokers) > 1 or cluster.release(deadline) >= (4, 0):
        return reading
    reading = reading._replace(epoch=None, loaded_ms=None)
    if reading.rebalanced is not Tri.YES:
        return reading
    return reading._replace(
        rebalanced=Tri.CANNOT_TELL,
        why=f"{reading.why}, but a cluster of one broker before Kafka 4.0 keeps its leader epoch "
        "when it is killed",
    )


def _read(cluster: RawCluster, group_id: str, deadline: Deadline) -> Reading:
    metadata = cluster.metadata([OFFSETS_TOPIC], deadline)
    topic = metadata.topics[0]
    check(topic.error_code)
    number = offsets_partition(group_id, len(topic.partitions))
    partition = next(each for each in topic.partitions if each.partition_index == number)
    check(partition.error_code)
    epoch = partition.leader_epoch
    if epoch is None or epoch < 0:
        return Reading(Tri.CANNOT_TELL, "the broker does not tell leader epochs")
    leader = cluster.node(partition.leader_id, deadline)
    log = OffsetsLog(leader, number, epoch, deadline)
    if epoch == 0:
        return Reading(
            Tri.YES,
            f"the coordinator has held the group since its partition was made (leader epoch 0 of "
            f"{OFFSETS_TOPIC}-{number})",
            *_stored(_newest_of_all(log, group_id)),
            epoch=0,
        )
    begin, end = log.epoch_start(), log.offset(LATEST)
    since = list(log.records(group_id, begin, end))
    began_ms = log.first_timestamp_ms
    where = f"leader epoch {epoch} of {OFFSETS_TOPIC}-{number}"

    def earlier() -> Earlier:
        start = log.offset(EARLIEST)
        log.counted = 0
        records = list(log.records(group_id, start, begin))
        return Earlier(records, whole=start == 0 and log.counted == begin)

    return judge(since, began_ms, earlier, where)._replace(epoch=epoch, loaded_ms=began_ms)


def judge(
    since: list[StoredGroup],
    began_ms: int | None,
    earlier: Callable[[], Earlier],
    where: str,
) -> Reading:
    """What the group's records prove.

    `since` are those of the current epoch, `earlier()` reads those before it. `began_ms` is the
    time of the epoch's first record of any kind, by the coordinator's own clock.
    """
    known = [record for record in since if record.value is not None]
    newest = _stored(known[-1].value if known else None)
    # A rebalance is complete when a generation's assignment was stored: a record with members.
    filled = [record for record in since if record.value is not None and record.value.members]
    if not filled:
        held = newest if known else _stored(_newest(earlier().records))
        return Reading(Tri.NO, f"no rebalance is stored since {where} began", *held)
    last = filled[-1].value
    assert last is not None
    stored = f"generation {last.generation} is stored in {where}"
    preceding = since[: since.index(filled[-1])]
    if any(each.value is None or each.value.generation != last.generation for each in preceding):
        return Reading(Tri.YES, stored, *newest)
    # A rebalance changes the state, a static member's restart stores the old state's time again.
    if began_ms is not None and (last.state_timestamp_ms or -1) > began_ms:
        return Reading(Tri.YES, stored, *newest)
    before = earlier()
    if not before.records and not before.whole:
        return Reading(
            Tri.CANNOT_TELL,
            f"{stored}, but what the group was before it has been compacted away",
            *newest,
        )
    if not before.records or before.records[-1].value is None:
        return Reading(Tri.YES, f"the group is new in {where}", *newest)
    if before.records[-1].value.generation != last.generation:
        was = before.records[-1].value.generation
        return Reading(Tri.YES, f"{stored}, {was} was the last one before it", *newest)
    return Reading(
        Tri.NO,
        f"since {where} began only a static member's restart is stored, at the same generation "
        f"{last.generation}",
        *newest,
    )


def _newest_of_all(log: OffsetsLog, group_id: str) -> GroupMetadata | None:
    """The newest record of the group, where the topic is small enough to look."""
    try:
        return _newest(log.records(group_id, log.offset(EARLIEST), log.offset(LATEST)))
    except TooMuchError:
        return None


def _newest(records: Iterable[StoredGroup]) -> GroupMetadata | None:
    newest = None
    for record in records:
        newest = record.value
    return newest


def _stored(
    value: GroupMetadata | None,
) -> tuple[int | None, tuple[GroupMetadataMember, ...], int | None]:
    """The generation, the members and the time of the state of a record."""
    if value is None:
        return None, (), None
    return value.generation, value.members, value.state_timestamp_ms
