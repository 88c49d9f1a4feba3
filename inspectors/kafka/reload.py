"""The last coordinator reload: has a rebalance completed since? (`rebalanced_since_load`)

A coordinator loads a group when its partition of `__consumer_offsets` gets a leader, and each
election raises that partition's leader epoch (KIP-101). A completed rebalance appends a
GroupMetadata record (key version 2) with a new generation. So if the current epoch has no such
record, no rebalance has completed. A static member's restart appends a record too, at the SAME
generation. A single record is therefore compared with the group's last record before the epoch, or
the time of the state change in it with the epoch's start.

Verified on 4.1.1 and 3.9.1: a clean restart raises the epoch. SIGKILL and restart raise it on
4.1.1, but not on a one-broker 3.9.1 cluster, whose controller restarts too and never fences the
broker.

Only Fetch, ListOffsets, OffsetForLeaderEpoch and Metadata requests are sent: rebal joins no group
and commits nothing. Reads are limited in bytes and time.
"""

import struct
import time
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kafka.record.memory_records import MemoryRecords

from rebal.groups.errors import WireError
from rebal.groups.jvmhash import string_hash
from rebal.groups.model import Tri
from rebal.groups.wire.offsets_topic import GroupMetadata, decode_group_metadata
from rebal.inspectors.errors import RequestError, error_name
from rebal.inspectors.kafka.brokers import release_of
from rebal.inspectors.kafka.cluster import RawCluster, broker_version, retry
from rebal.inspectors.kafka.wire import NOT_KAFKA, BrokerConnection, Deadline, request_class

_T = TypeVar("_T")
OFFSETS_TOPIC: Final = "__consumer_offsets"
LATEST, EARLIEST = -1, -2
_FETCH_BYTES: Final = 4 * 1024 * 1024
_FETCH_MAX_VERSION: Final = 12  # later versions name a topic by its id
_MOST_BYTES: Final = 512 * 1024 * 1024
_MOST_KEPT: Final = 64 * 1024 * 1024
MOST_SECONDS: Final = 5.0
# Offsets within a record batch's header, and its size.
_BATCH_PREFIX, _ATTRIBUTES, _COUNT = 12, 21, 57
_COMPRESSION: Final = 0x07
_BATCH_HEADER: Final = 61
_LEFT_OUT: Final = "the broker left the partition out"


class StoredGroup(NamedTuple):
    """One GroupMetadata record of the group; `value` is None for a tombstone."""

    offset: int
    value: GroupMetadata | None


class _Fetched(NamedTuple):
    """The complete record batches of one Fetch response, as bytes (`data`).

    `starts` are the positions in `data` at which the batches start, then its length. `compressed`
    are the indexes of compressed batches, whose bytes cannot be searched for a key. `counted` is
    the number of records in all batches. `first_timestamp_ms` is that of the first batch, in
    milliseconds since 1970. `next_offset` is the offset after the last batch.
    """

    data: bytes
    starts: tuple[int, ...]
    compressed: frozenset[int]
    counted: int
    first_timestamp_ms: int | None
    next_offset: int

    def batches_with(self, key: bytes) -> Iterator[bytes]:
        """Yield the batches whose bytes contain `key`, and all compressed ones, in offset order."""
        found = set(self.compressed)
        at = self.data.find(key)
        while at >= 0:
            number = bisect_right(self.starts, at) - 1
            found.add(number)
            at = self.data.find(key, self.starts[number + 1])
        for number in sorted(found):
            yield self.data[self.starts[number] : self.starts[number + 1]]


class Fetches:
    """A cache of offsets and records of `__consumer_offsets`, shared by groups read together.

    Use it for one reading of the groups only. Records below an offset stay the same within a leader
    epoch, but a cache of longer life would miss that the topic was deleted and created again.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str | int, ...], Any] = {}
        self._bytes = 0

    def once(self, key: tuple[str | int, ...], ask: Callable[[], _T]) -> _T:
        """Return the kept result of an earlier call with the same `key`, else `ask()`.

        The new result is kept for later calls, unless it is a fetch without records, or would make
        the kept data exceed 64 MiB.
        """
        if key in self._kept:
            return self._kept[key]  # type: ignore[no-any-return]
        found = ask()
        size = len(found.data) if isinstance(found, _Fetched) else 1
        # A fetch that found nothing is sent again.
        if size and self._bytes + size <= _MOST_KEPT:
            self._kept[key] = found
            self._bytes += size
        return found

    def forget(self) -> None:
        """Drop everything: after an error, a partition may have a new leader."""
        self._kept.clear()
        self._bytes = 0


class TooMuchError(Exception):
    """Error: reading `__consumer_offsets` reached its limit on bytes or time."""


def offsets_partition(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that stores a group (Java's hash of its id)."""
    value = string_hash(group_id)
    # Java's abs of the lowest int is negative; Kafka uses 0 instead.
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % partitions


class OffsetsLog:
    """One partition of `__consumer_offsets`, read from its leader within limits of bytes and time.

    `first_timestamp_ms` is the time of the first batch that was read, in milliseconds since 1970
    (None: no batch was read). `counted` is the number of records in all batches that were read.
    """

    def __init__(
        self,
        leader: BrokerConnection,
        partition: int,
        epoch: int,
        deadline: Deadline,
        fetches: Fetches,
    ) -> None:
        self._leader = leader
        self._fetches = fetches
        self._partition = partition
        self._epoch = epoch
        self._deadline = deadline
        self._bytes = 0
        self._end = time.monotonic() + MOST_SECONDS
        self.first_timestamp_ms: int | None = None
        self.counted = 0

    def start(self) -> int:
        """Return the first offset of the partition."""
        return self._fetches.once(
            ("start", self._partition, self._epoch), lambda: self._offset(EARLIEST)
        )

    def end(self) -> int:
        """Return the log end offset of the partition.

        Raises:
            RequestError: the leader epoch is no longer that of this object, or another error.
        """
        return self._fetches.once(
            ("end", self._partition, self._epoch),
            lambda: retry(lambda: self._offset(LATEST), self._deadline),
        )

    def epoch_start(self) -> int:
        """Return the first offset of the current leader epoch (OffsetForLeaderEpoch, KIP-320)."""
        return self._fetches.once(("epoch", self._partition, self._epoch), self._epoch_start)

    def _epoch_start(self) -> int:
        response = self._leader.send(
            request_class("OffsetForLeaderEpoch"),
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
        answer = _of_partition(response.topics)
        return self.start() if answer.end_offset < 0 else int(answer.end_offset)

    def _offset(self, timestamp: int) -> int:
        response = self._leader.send(
            request_class("ListOffsets"),
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
        return int(_of_partition(response.topics).offset)

    def records(self, group_id: str, begin: int, end: int) -> Iterator[StoredGroup]:
        """Yield the group's GroupMetadata records with `begin` <= offset < `end`, oldest first.

        Raises:
            TooMuchError: the limit on bytes or time was reached.
        """
        at = begin
        key = group_metadata_key(group_id)
        while at < end:
            if self._bytes > _MOST_BYTES or time.monotonic() > self._end:
                raise TooMuchError
            fetched = self._fetches.once(
                (self._partition, self._epoch, at), partial(self._fetch, at)
            )
            self._bytes += len(fetched.data)
            self.counted += fetched.counted
            if self.first_timestamp_ms is None:
                self.first_timestamp_ms = fetched.first_timestamp_ms
            # Nearly all records are committed offsets: only batches with the key are parsed.
            for batch in fetched.batches_with(key):
                for record in _records(batch):
                    if at <= record.offset < end and record.key == key:
                        yield StoredGroup(record.offset, _value(record.value))
            if fetched.next_offset <= at:
                return
            at = fetched.next_offset

    def _fetch(self, offset: int) -> _Fetched:
        response = self._leader.send(
            request_class("Fetch"),
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
        return _split(bytes(_of_partition(response.responses).records or b""), offset)


def _of_partition(topics: Sequence[Any]) -> Any:
    """Return the part of a response about the one partition that was requested.

    Raises:
        RequestError: that part is an error, or is missing.
    """
    for topic in topics:
        for answer in topic.partitions:
            check(answer.error_code)
            return answer
    raise RequestError("CORRUPT_MESSAGE", _LEFT_OUT)


def check(code: int) -> None:
    """Raise a RequestError with the name of the error code `code`, unless it is 0 (NONE)."""
    if code:
        raise RequestError(error_name(code), error_name(code))


def group_metadata_key(group_id: str) -> bytes:
    """Return the record key of a classic group: version 2 and the id (GroupMetadataKey)."""
    name = group_id.encode()
    return struct.pack(">hh", 2, len(name)) + name


def _split(data: bytes, offset: int) -> _Fetched:
    """Return the complete record batches (magic 2, KIP-98) in the response to a fetch at `offset`.

    Raises:
        RequestError: a batch is damaged, or of another message format.
    """
    starts = [0]
    compressed = set()
    counted, first_timestamp_ms = 0, None
    while (at := starts[-1]) + _BATCH_HEADER <= len(data):
        base, length, _, magic = struct.unpack_from(">qiib", data, at)
        stop = at + _BATCH_PREFIX + length
        if stop > len(data):
            break
        if stop < at + _BATCH_HEADER:
            raise RequestError("CORRUPT_MESSAGE", f"a record batch of {length} bytes")
        if magic != 2:
            raise RequestError("UNSUPPORTED_FORMAT", f"message format {magic} is not read")
        attributes, last_delta, timestamp = struct.unpack_from(">hiq", data, at + _ATTRIBUTES)
        if attributes & _COMPRESSION:
            compressed.add(len(starts) - 1)
        if first_timestamp_ms is None:
            first_timestamp_ms = timestamp
        counted += struct.unpack_from(">i", data, at + _COUNT)[0]
        offset = max(offset, base + last_delta + 1)
        starts.append(stop)
    return _Fetched(
        data=data[: starts[-1]],
        starts=tuple(starts),
        compressed=frozenset(compressed),
        counted=counted,
        first_timestamp_ms=first_timestamp_ms,
        next_offset=offset,
    )


def _records(batch: bytes) -> Iterator[Any]:
    try:
        parsed = MemoryRecords(batch).next_batch()
        if not parsed.is_control_batch:
            yield from parsed
    except (*NOT_KAFKA, OSError, EOFError, zlib.error):
        raise RequestError("CORRUPT_MESSAGE", "a record batch is damaged") from None


def _value(value: bytes | None) -> GroupMetadata | None:
    """Return the decoded value of a GroupMetadata record; None for a tombstone.

    Raises:
        RequestError: CORRUPT_MESSAGE, the value cannot be decoded.
    """
    if value is None:
        return None
    try:
        return decode_group_metadata(bytes(value))
    except WireError as error:
        raise RequestError("CORRUPT_MESSAGE", f"a record is damaged ({error})") from None


class Reading(NamedTuple):
    """The answer whether a rebalance has completed since the coordinator loaded the group, and why.

    `stored` is the group's newest GroupMetadata record (None: none was read). `epoch` is the leader
    epoch of the group's partition of `__consumer_offsets`. `loaded_ms` is the time of the first
    record in that epoch, in milliseconds since 1970: the group was loaded no later than that. Both
    are None if not known.
    """

    rebalanced: Tri
    why: str
    stored: GroupMetadata | None = None
    epoch: int | None = None
    loaded_ms: int | None = None


class Earlier(NamedTuple):
    """The group's GroupMetadata records before the current leader epoch.

    `whole` is True if compaction has removed none of the partition's records before that epoch.
    """

    records: list[StoredGroup]
    whole: bool


def rebalanced_since_load(
    cluster: RawCluster,
    group_id: str,
    fetches: Fetches | None = None,
) -> Reading:
    """Return whether a rebalance of the classic group has completed since its last load.

    The answer is `cannot tell`, with the reason, if `__consumer_offsets` cannot be read (no right,
    an error), is too large to read in 5 s, or does not decide it. `fetches` is the cache shared
    with other groups (None: a new one).

    Raises:
        ConnectError: the cluster cannot be reached.
    """
    deadline = cluster.deadline()
    fetches = fetches or Fetches()
    try:
        return _unless_unnoticed(cluster, _read(cluster, group_id, deadline, fetches), deadline)
    except TooMuchError:
        return Reading(
            Tri.CANNOT_TELL,
            f"{OFFSETS_TOPIC} holds more than could be read in {MOST_SECONDS:g} s",
        )
    except RequestError as error:
        fetches.forget()
        if "AUTHORIZATION" in error.name:
            return Reading(
                Tri.CANNOT_TELL,
                f"no right to read {OFFSETS_TOPIC}: allow READ and DESCRIBE on that topic",
            )
        return Reading(Tri.CANNOT_TELL, f"{OFFSETS_TOPIC} could not be read: {error.reason}")


def proven_by_probe(reading: Reading, elected: str | None, supported: Iterable[str]) -> Reading:
    """Return `reading`, changed to yes if the probe proves a rebalance since the load.

    After a load, the coordinator holds [the elected assignor] as every member's assignor list.
    `supported` are the assignors that the probe found in every list. If one of them is not the
    elected assignor, the members have sent their lists since the load.
    """
    for assignor in supported:
        if elected is not None and assignor != elected:
            return reading._replace(
                rebalanced=Tri.YES,
                why=f"every list in the coordinator's memory contains {assignor} besides {elected}",
            )
    return reading


def _unless_unnoticed(cluster: RawCluster, reading: Reading, deadline: Deadline) -> Reading:
    """Return `reading`, less certain if a reload may have left the leader epoch unchanged.

    Before Kafka 4.0, the only broker of a cluster keeps its leader epoch when it is killed. On such
    a cluster yes becomes `cannot tell`, and the epoch and the load time are dropped.
    """
    if len(cluster.brokers) > 1 or (release_of(broker_version(cluster.any(deadline))) or ()) >= (
        4,
        0,
    ):
        return reading
    reading = reading._replace(epoch=None, loaded_ms=None)
    if reading.rebalanced is not Tri.YES:
        return reading
    return reading._replace(
        rebalanced=Tri.CANNOT_TELL,
        why=f"{reading.why}, but a cluster of one broker before Kafka 4.0 keeps its leader epoch "
        "when it is killed",
    )


def _read(cluster: RawCluster, group_id: str, deadline: Deadline, fetches: Fetches) -> Reading:
    # The later requests name the epoch: a leader that has another one by then rejects them.
    topic = fetches.once(("topic",), lambda: cluster.metadata([OFFSETS_TOPIC], deadline)).topics[0]
    check(topic.error_code)
    number = offsets_partition(group_id, max(1, len(topic.partitions)))
    partition = next((each for each in topic.partitions if each.partition_index == number), None)
    if partition is None:
        raise RequestError("CORRUPT_MESSAGE", _LEFT_OUT)
    check(partition.error_code)
    epoch = partition.leader_epoch
    if epoch is None or epoch < 0:
        return Reading(Tri.CANNOT_TELL, "the broker does not report leader epochs")
    log = OffsetsLog(cluster.node(partition.leader_id, deadline), number, epoch, deadline, fetches)
    if epoch == 0:
        return Reading(
            Tri.YES,
            f"the coordinator has held the group since its partition was made (leader epoch 0 of "
            f"{OFFSETS_TOPIC}-{number})",
            _newest_of_all(log, group_id),
            epoch=0,
        )
    begin, end = log.epoch_start(), log.end()
    since = list(log.records(group_id, begin, end))
    began_ms = log.first_timestamp_ms
    where = f"leader epoch {epoch} of {OFFSETS_TOPIC}-{number}"

    def earlier() -> Earlier:
        start = log.start()
        log.counted = 0
        return Earlier(
            list(log.records(group_id, start, begin)), whole=start == 0 and log.counted == begin
        )

    return judge(since, began_ms, earlier, where)._replace(epoch=epoch, loaded_ms=began_ms)


def judge(
    since: list[StoredGroup],
    began_ms: int | None,
    earlier: Callable[[], Earlier],
    where: str,
) -> Reading:
    """Return whether the group's GroupMetadata records prove a rebalance in the leader epoch.

    `since` are the group's records in the current leader epoch; `earlier()` reads those before it,
    and is called only if they are needed. `began_ms` is the time of the epoch's first record of any
    group, in milliseconds since 1970 (None: the epoch has no record). `where` names the epoch and
    the partition in the reason.
    """
    known = [record for record in since if record.value is not None]
    newest = known[-1].value if known else None
    # A rebalance is complete when a generation's assignment was stored: a record with members.
    filled = [record for record in since if record.value is not None and record.value.members]
    if not filled:
        return Reading(
            Tri.NO,
            f"no rebalance is stored since {where} began",
            newest if known else _newest(earlier().records),
        )
    last = filled[-1].value
    assert last is not None
    stored = f"generation {last.generation} is stored in {where}"
    # A rebalance changes the state; a static member's restart stores the old state's time again.
    if (began_ms is not None and (last.state_timestamp_ms or -1) > began_ms) or any(
        each.value is None or each.value.generation != last.generation
        for each in since[: since.index(filled[-1])]
    ):
        return Reading(Tri.YES, stored, newest)
    before = earlier()
    if not before.records and not before.whole:
        return Reading(
            Tri.CANNOT_TELL,
            f"{stored}, but the group's earlier records have been compacted away",
            newest,
        )
    if not before.records or before.records[-1].value is None:
        return Reading(Tri.YES, f"the group is new in {where}", newest)
    was = before.records[-1].value.generation
    if was != last.generation:
        return Reading(Tri.YES, f"{stored}; the one before it was {was}", newest)
    return Reading(
        Tri.NO,
        f"since {where} began, only a static member's restart is stored, at generation "
        f"{last.generation}",
        newest,
    )


def _newest_of_all(log: OffsetsLog, group_id: str) -> GroupMetadata | None:
    """Return the group's newest GroupMetadata record in the partition `log`.

    None: the group has no record, its newest one is a tombstone, or the partition is too large to
    read.
    """
    try:
        return _newest(log.records(group_id, log.start(), log.end()))
    except TooMuchError:
        return None


def _newest(records: Iterable[StoredGroup]) -> GroupMetadata | None:
    newest = deque(records, maxlen=1)
    return newest[0].value if newest else None
