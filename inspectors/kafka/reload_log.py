"""One partition of `__consumer_offsets`, read for one group: `OffsetsLog`.

Only Fetch, ListOffsets and OffsetForLeaderEpoch are sent, within bounds on bytes and time.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.record.memory_records import MemoryRecords

from rebal.groups.errors import WireError
from rebal.groups.vote import java_string_hash
from rebal.groups.wire.group_metadata import GroupMetadata, decode_group_metadata
from rebal.inspectors.kafka.errors import RequestError
from rebal.inspectors.kafka.wire import Connection, Deadline, error_name, message

OFFSETS_TOPIC: Final = "__consumer_offsets"
LATEST, EARLIEST = -1, -2
_FETCH_BYTES: Final = 4 * 1024 * 1024
_FETCH_MAX_VERSION: Final = 12  # later versions name a topic by its id
_MOST_BYTES: Final = 512 * 1024 * 1024
MOST_SECONDS: Final = 5.0
# Offsets within a record batch's header, and its size.
_BATCH_PREFIX, _ATTRIBUTES, _LAST_DELTA, _BASE_TIMESTAMP, _COUNT = 12, 21, 23, 27, 57
_BATCH_HEADER: Final = 61


class StoredGroup(NamedTuple):
    """One GroupMetadata record of the group; `value` is None for a tombstone."""

    offset: int
    value: GroupMetadata | None


class TooMuchError(Exception):
    """The bound on bytes or time was reached."""


def offsets_partition(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that a group lives in, by Java's hash of its id."""
    value = java_string_hash(group_id)
    # Java's int is signed, and its abs leaves the lowest one alone: Kafka takes 0 for that.
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % partitions


class OffsetsLog:
    """One partition of `__consumer_offsets`, read from its leader within bounds.

    `first_timestamp_ms` is the time of the first batch that was read, `counted` how many records
    were in all of them.
    """

    def __init__(self, leader: Connection, partition: int, epoch: int, deadline: Deadline) -> None:
        self._leader = leader
        self._partition = partition
        self._epoch = epoch
        self._deadline = deadline
        self._bytes = 0
        self._end = time.monotonic() + MOST_SECONDS
        self.first_timestamp_ms: int | None = None
        self.counted = 0

    def epoch_start(self) -> int:
        """The first offset of the current leader epoch (KIP-320's OffsetForLeaderEpoch)."""
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
        """The log's first (`EARLIEST`) or next (`LATEST`) offset."""
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
        """The group's GroupMetadata records with `begin` <= offset < `end`, oldest first."""
        at = begin
        key = group_metadata_key(group_id)
        while at < end:
            if self._bytes > _MOST_BYTES or time.monotonic() > self._end:
                raise TooMuchError
            data = self._fetch(at)
            self._bytes += len(data)
            moved = at
            for batch, next_offset in _batches(data):
                moved = max(moved, next_offset)
                self.counted += struct.unpack_from(">i", batch, _COUNT)[0]
                if self.first_timestamp_ms is None:
                    self.first_timestamp_ms = struct.unpack_from(">q", batch, _BASE_TIMESTAMP)[0]
                # Nearly all records are committed offsets: only batches with the key are parsed.
                if not _is_compressed(batch) and key not in batch:
                    continue
                for record in _records(batch):
                    if at <= record.offset < end and record.key == key:
                        yield StoredGroup(record.offset, _value(record.value))
            if moved <= at:
                return
            at = moved

    def _fetch(self, offset: int) -> bytes:
        version = min(
            self._leader.versions.get(FetchRequest.API_KEY, (0, -1))[1], _FETCH_MAX_VERSION
        )
        request = message(
            FetchRequest,
            version,
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
        response = self._leader.exchange(request, self._deadline)
        check(response.error_code)
        answer = response.responses[0].partitions[0]
        check(answer.error_code)
        return bytes(answer.records or b"")


def check(code: int) -> None:
    """Raise a RequestError unless the code is 0."""
    if code:
        raise RequestError(error_name(code), error_name(code))


def group_metadata_key(group_id: str) -> bytes:
    """The record key of a classic group: version 2 and the id (GroupMetadataKey)."""
    name = group_id.encode()
    return struct.pack(">hh", 2, len(name)) + name


def _batches(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Each whole record batch (magic 2, KIP-98) of a fetch, and the offset after it."""
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
    """The record's value; one that cannot be read is worth as little as a fetch that failed."""
    if value is None:
        return None
    try:
        return decode_group_metadata(bytes(value))
    except WireError as error:
        raise RequestError("CORRUPT_MESSAGE", str(error)) from None
