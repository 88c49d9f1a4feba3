"""The last coordinator reload: has a rebalance completed since? `rebalanced_since_load`.

A coordinator loads a group when its partition of `__consumer_offsets` gets a leader, and each
election raises that partition's leader epoch (KIP-101). A completed rebalance appends a
GroupMetadata record (key version 2) with a new generation. So if the current epoch has no such
record, no rebalance has completed. A static member's restart appends a record too, at the SAME
generation: a single record is therefore compared with the group's last record before the epoch, or
by the time of the state change in it.

Verified on 4.1.1 and 3.9.1: a clean restart raises the epoch. SIGKILL and restart raise it on
4.1.1, but not on a one-broker 3.9.1 cluster, whose controller restarts too and never fences the
broker.

Only Fetch, ListOffsets, OffsetForLeaderEpoch and Metadata requests are sent: no consumer group,
nothing committed. Reads are limited in bytes and time.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.record.memory_records import MemoryRecords

from rebal.groups.errors import WireError
from rebal.groups.jvmhash import string_hash
from rebal.groups.model import Tri
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
)
from rebal.inspectors.errors import RequestError, error_name
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.wire import Connection, Deadline

OFFSETS_TOPIC: Final = "__consumer_offsets"
LATEST, EARLIEST = -1, -2
_FETCH_BYTES: Final = 4 * 1024 * 1024
_FETCH_MAX_VERSION: Final = 12  # later versions name a topic by its id
_MOST_BYTES: Final = 512 * 1024 * 1024
_MOST_KEPT: Final = 64 * 1024 * 1024
MOST_SECONDS: Final = 5.0
# Offsets within a record batch's header, and its size.
_BATCH_PREFIX, _ATTRIBUTES, _LAST_DELTA, _BASE_TIMESTAMP, _COUNT = 12, 21, 23, 27, 57
_BATCH_HEADER: Final = 61


class StoredGroup(NamedTuple):
    """One GroupMetadata record of the group; `value` is None for a tombstone."""

    offset: int
    value: GroupMetadata | None


class _Fetched(NamedTuple):
    """The whole record batches of one fetch, and the offset after them."""

    size: int
    batches: tuple[bytes, ...]
    next_offset: int


class Fetches:
    """Batches of `__consumer_offsets` that were fetched in one look, for all groups of a partition.

    The records below an offset stay the same within a leader epoch; a longer life than one look
    would miss a topic that was made anew.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], _Fetched] = {}
        self._bytes = 0

    def get(self, partition: int, epoch: int, offset: int) -> _Fetched | None:
        """Return the batches from `offset` on, if they were fetched before."""
        return self._kept.get((partition, epoch, offset))

    def keep(self, partition: int, epoch: int, offset: int, fetched: _Fetched) -> None:
        """Keep these batches, unless all of them together take too much memory."""
        if self._bytes + fetched.size <= _MOST_KEPT:
            self._kept[partition, epoch, offset] = fetched
            self._bytes += fetched.size


class TooMuchError(Exception):
    """The limit on bytes or time was reached."""


def offsets_partition(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that stores a group (Java's hash of its id)."""
    value = string_hash(group_id)
    # Java's abs of the lowest int is negative; Kafka uses 0 instead.
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % partitions


class OffsetsLog:
    """One partition of `__consumer_offsets`, read from its leader within limits.

    `first_timestamp_ms` is the time of the first batch that was read, `counted` the number of
    records in all batches.
    """

    def __init__(
        self,
        leader: Connection,
        partition: int,
        epoch: int,
        deadline: Deadline,
        fetches: Fetches | None = None,
    ) -> None:
        self._leader = leader
        self._fetches = fetches or Fetches()
        self._partition = partition
        self._epoch = epoch
        self._deadline = deadline
        self._bytes = 0
        self._end = time.monotonic() + MOST_SECONDS
        self.first_timestamp_ms: int | None = None
        self.counted = 0

    def epoch_start(self) -> int:
        """Return the first offset of the current leader epoch (OffsetForLeaderEpoch, KIP-320)."""
        response = self._leader.send(
            OffsetForLeaderEpochRequest,
            self._deadline,
            min_version=2,
            replica_id=-1,
            topics=[
                {
                    "topic": OFFSETS_TOPIC,
                    "partitions": [
                        {
                            "partition": self._partition,
                            "current_leader_epoch": self._epoch,
                            "leader_epoch": self._epoch - 1,
                        }
                    ],
                }
            ],
        )
        answer = response.topics[0].partitions[0]
        check(answer.error_code)
        return self.offset(EARLIEST) if answer.end_offset < 0 else int(answer.end_offset)

    def offset(self, timestamp: int) -> int:
        """Return the log's first (`EARLIEST`) or next (`LATEST`) offset."""
        response = self._leader.send(
            ListOffsetsRequest,
            self._deadline,
            min_version=1,
            replica_id=-1,
            isolation_level=0,
            topics=[
                {
                    "name": OFFSETS_TOPIC,
                    "partitions": [
                        {
                            "partition_index": self._partition,
                            "current_leader_epoch": self._epoch,
                            "timestamp": timestamp,
                        }
                    ],
                }
            ],
        )
        answer = response.topics[0].partitions[0]
        check(answer.error_code)
        return int(answer.offset)

    def records(self, group_id: str, begin: int, end: int) -> Iterator[StoredGroup]:
        """Yield the group's GroupMetadata records with `begin` <= offset < `end`, oldest first."""
        at = begin
        key = group_metadata_key(group_id)
        while at < end:
            if self._bytes > _MOST_BYTES or time.monotonic() > self._end:
                raise TooMuchError
            fetched = self._fetched(at)
            self._bytes += fetched.size
            for batch in fetched.batches:
                self.counted += struct.unpack_from(">i", batch, _COUNT)[0]
                if self.first_timestamp_ms is None:
                    self.first_timestamp_ms = struct.unpack_from(">q", batch, _BASE_TIMESTAMP)[0]
                # Nearly all records are committed offsets: only batches with the key are parsed.
                if not _is_compressed(batch) and key not in batch:
                    continue
                for record in _records(batch):
                    if at <= record.offset < end and record.key == key:
                        yield StoredGroup(record.offset, _value(record.value))
            if fetched.next_offset <= at:
                return
            at = fetched.next_offset

    def _fetched(self, offset: int) -> _Fetched:
        kept = self._fetches.get(self._partition, self._epoch, offset)
        if kept is not None:
            return kept
        data = self._fetch(offset)
        found = list(_batches(data))
        fetched = _Fetched(
            size=len(data),
            batches=tuple(batch for batch, _ in found),
            next_offset=max([offset, *(after for _, after in found)]),
        )
        if found:
            self._fetches.keep(self._partition, self._epoch, offset, fetched)
        return fetched

    def _fetch(self, offset: int) -> bytes:
        response = self._leader.send(
            FetchRequest,
            self._deadline,
            max_version=_FETCH_MAX_VERSION,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            session_epoch=-1,
            topics=[
                {
                    "topic": OFFSETS_TOPIC,
                    "partitions": [
                        {
                            "partition": self._partition,
                            "current_leader_epoch": self._epoch,
                            "fetch_offset": offset,
                            "partition_max_bytes": _FETCH_BYTES,
                        }
                    ],
                }
            ],
        )
        check(response.error_code)
        answer = response.responses[0].partitions[0]
        check(answer.error_code)
        return bytes(answer.records or b"")


def check(code: int) -> None:
    """Raise a RequestError unless the code is 0."""
    if code:
        raise RequestError(error_name(code), error_name(code))


def group_metadata_key(group_id: str) -> bytes:
    """Return the record key of a classic group: version 2 and the id (GroupMetadataKey)."""
    name = group_id.encode()
    return struct.pack(">hh", 2, len(name)) + name


def _batches(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each whole record batch (magic 2, KIP-98) of a fetch, and the offset after it."""
    view = memoryview(data)
    at = 0
    while at + _BATCH_HEADER <= len(view):
        base, length, _, magic = struct.unpack_from(">qiib", view, at)
        stop = at + _BATCH_PREFIX + length
        if stop > len(view):
            return
        if magic != 2:
            raise RequestError("UNSUPPORTED_FORMAT", f"message format {magic} is not read")
        last_delta = struct.unpack_from(">i", view, at + _LAST_DELTA)[0]
        yield bytes(view[at:stop]), base + last_delta + 1
        at = stop


def _is_compressed(batch: bytes) -> bool:
    return bool(struct.unpack_from(">h", batch, _ATTRIBUTES)[0] & 0x07)


def _records(batch: bytes) -> Iterator[Any]:
    parsed = MemoryRecords(batch).next_batch()
    if not parsed.is_control_batch:
        yield from parsed


def _value(value: bytes | None) -> GroupMetadata | None:
    """Return the record's value; one that cannot be decoded counts as a failed fetch."""
    if value is None:
        return None
    try:
        return decode_group_metadata(bytes(value))
    except WireError as error:
        raise RequestError("CORRUPT_MESSAGE", f"a record is damaged ({error})") from None


class Reading(NamedTuple):
    """The answer, its reason, and the newest stored generation.

    `generation` is None if no record of the group was read. `members` are those of that record,
    whose state began at `generation_ms`. `epoch` and `loaded_ms` are the `leader_epoch` and
    `loaded_at` of `Coordinator`. Times are milliseconds since 1970.
    """

    rebalanced: Tri
    why: str
    generation: int | None = None
    members: tuple[GroupMetadataMember, ...] = ()
    generation_ms: int | None = None
    epoch: int | None = None
    loaded_ms: int | None = None


class Earlier(NamedTuple):
    """The group's records before the epoch; `whole` is True if compaction has removed none
    of them.
    """

    records: list[StoredGroup]
    whole: bool


def rebalanced_since_load(
    cluster: RawCluster,
    group_id: str,
    deadline: Deadline | None = None,
    *,
    fetches: Fetches | None = None,
) -> Reading:
    """Return whether a rebalance of the classic group has completed since its last load.

    The answer is `cannot tell`, with the reason, if this user may not read the topic or the
    partition is too large to read in a few seconds. `fetches` is shared with other groups.

    Raises:
        ConnectError: the cluster cannot be reached.
    """
    deadline = deadline or cluster.deadline()
    try:
        return _unless_unnoticed(cluster, _read(cluster, group_id, deadline, fetches), deadline)
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
        return Reading(Tri.CANNOT_TELL, f"{OFFSETS_TOPIC} could not be read: {error.reason}")


def proven_by_probe(reading: Reading, elected: str | None, supported: Iterable[str]) -> Reading:
    """Return `reading`, with the answer yes if the probe proves a rebalance since the load.

    A load leaves only [the elected assignor] of every list. So if the probe finds another assignor
    in every list, the members have sent their lists after the load.
    """
    for assignor in supported:
        if elected is not None and assignor != elected:
            why = f"every list in the coordinator's memory contains {assignor} besides {elected}"
            return reading._replace(rebalanced=Tri.YES, why=why)
    return reading


def _unless_unnoticed(cluster: RawCluster, reading: Reading, deadline: Deadline) -> Reading:
    """Return `reading`, or `cannot tell` where a reload may have left the leader epoch unchanged.

    Before Kafka 4.0, the only broker of a cluster keeps its leader epoch when it is killed.
    """
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


def _read(
    cluster: RawCluster, group_id: str, deadline: Deadline, fetches: Fetches | None
) -> Reading:
    metadata = cluster.metadata([OFFSETS_TOPIC], deadline)
    topic = metadata.topics[0]
    check(topic.error_code)
    number = offsets_partition(group_id, len(topic.partitions))
    partition = next(each for each in topic.partitions if each.partition_index == number)
    check(partition.error_code)
    epoch = partition.leader_epoch
    if epoch is None or epoch < 0:
        return Reading(Tri.CANNOT_TELL, "the broker does not report leader epochs")
    leader = cluster.node(partition.leader_id, deadline)
    log = OffsetsLog(leader, number, epoch, deadline, fetches)
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
    """Return what the group's records prove.

    `since` are the records of the current epoch, `earlier()` reads those before it. `began_ms` is
    the time of the epoch's first record of any kind, by the coordinator's clock.
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
    # A rebalance changes the state; a static member's restart stores the old state's time again.
    if began_ms is not None and (last.state_timestamp_ms or -1) > began_ms:
        return Reading(Tri.YES, stored, *newest)
    before = earlier()
    if not before.records and not before.whole:
        return Reading(
            Tri.CANNOT_TELL,
            f"{stored}, but the group's earlier records have been compacted away",
            *newest,
        )
    if not before.records or before.records[-1].value is None:
        return Reading(Tri.YES, f"the group is new in {where}", *newest)
    if before.records[-1].value.generation != last.generation:
        was = before.records[-1].value.generation
        return Reading(Tri.YES, f"{stored}; the one before it was {was}", *newest)
    return Reading(
        Tri.NO,
        f"since {where} began, only a static member's restart is stored, at generation "
        f"{last.generation}",
        *newest,
    )


def _newest_of_all(log: OffsetsLog, group_id: str) -> GroupMetadata | None:
    """Return the newest record of the group; None if the topic is too large to read."""
    try:
        return _newest(log.records(group_id, log.offset(EARLIEST), log.offset(LATEST)))
    except TooMuchError:
        return None


def _newest(records: Iterable[StoredGroup]) -> GroupMetadata | None:
    newest = deque(records, maxlen=1)
    return newest[0].value if newest else None


def _stored(
    value: GroupMetadata | None,
) -> tuple[int | None, tuple[GroupMetadataMember, ...], int | None]:
    """Return the generation, the members and the time of the state of a record."""
    if value is None:
        return None, (), None
    return value.generation, value.members, value.state_timestamp_ms
