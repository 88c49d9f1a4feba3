"""Encoders of what rebal only reads: they show that reading loses nothing, and make test data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeVar

from rebal.groups.errors import WireError
from rebal.groups.model import Subscription, TopicPartitions
from rebal.groups.wire.consumer_protocol import (
    ConsumerAssignment,
    decode_assignment,
    decode_subscription,
)
from rebal.groups.wire.user_data import (
    ConnectorTasks,
    StreamsUserData,
    WorkerAssignment,
    WorkerMetadata,
    decode_worker,
    decode_worker_assignment,
)

HIGHEST_SUBSCRIPTION: Final = 3
HIGHEST_STREAMS: Final = 11
_LATEST_SINCE: Final = 3
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_STRING_MAX: Final = 2**15 - 1
_BYTES_MAX: Final = 2**31 - 1


class _Sent(Protocol):
    @property
    def wire(self) -> bytes | None: ...


_S = TypeVar("_S", bound=_Sent)


def as_sent(record: _S, decode: Callable[[bytes], _S], write: Callable[[_S], bytes]) -> bytes:
    """Return the bytes kept in `wire` where they still say what the record says, else new ones."""
    wire = record.wire
    return wire if wire is not None and decode(wire) == record else write(record)


class Writer:
    """Bytes being written; a value that its type cannot hold raises `WireError`."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def done(self) -> bytes:
        """All that was written."""
        return b"".join(self._parts)

    def _fixed(self, form: struct.Struct, value: int, field: str) -> None:
        try:
            self._parts.append(form.pack(value))
        except struct.error:
            raise WireError(f"{field} cannot be written: {value} is out of its range.") from None

    def int16(self, value: int, field: str) -> None:
        """A signed 16-bit number."""
        self._fixed(_INT16, value, field)

    def int32(self, value: int, field: str) -> None:
        """A signed 32-bit number."""
        self._fixed(_INT32, value, field)

    def int64(self, value: int, field: str) -> None:
        """A signed 64-bit number."""
        self._fixed(_INT64, value, field)

    def int32_array(self, values: Collection[int], field: str) -> None:
        """Signed 32-bit numbers after a 32-bit count."""
        self.int32(len(values), field)
        for value in values:
            self.int32(value, field)

    def raw(self, data: bytes) -> None:
        """Bytes as they are, without a length."""
        self._parts.append(data)

    def string(self, value: str | None, field: str) -> None:
        """Text with a 16-bit length, -1 for null."""
        if value is None:
            self.int16(-1, field)
            return
        try:
            raw = value.encode("utf-8")
        except UnicodeEncodeError:
            raise WireError(f"{field} cannot be written: it is not valid text.") from None
        if len(raw) > _STRING_MAX:
            raise WireError(f"{field} cannot be written: it is longer than {_STRING_MAX} bytes.")
        self.int16(len(raw), field)
        self._parts.append(raw)

    def bytes_(self, value: bytes | None, field: str) -> None:
        """Bytes with a 32-bit length, -1 for null."""
        if value is None:
            self.int32(-1, field)
            return
        if len(value) > _BYTES_MAX:
            raise WireError(f"{field} cannot be written: it is longer than {_BYTES_MAX} bytes.")
        self.int32(len(value), field)
        self._parts.append(value)


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of `subscription`; a field that its version lacks is not written.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(subscription, decode_subscription, _write_subscription)


def encode_assignment(assignment: ConsumerAssignment) -> bytes:
    """Return the bytes of `assignment`.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(assignment, decode_assignment, _write_assignment)


def _write_partitions(writer: Writer, partitions: TopicPartitions, field: str) -> None:
    writer.int32(len(partitions), field)
    for topic, numbers in partitions.items():
        writer.string(topic, "a topic")
        writer.int32_array(numbers, field)


def _write_subscription(subscription: Subscription) -> bytes:
    if subscription.version < 0:
        raise WireError(f"A subscription has no version {subscription.version}.")
    known = min(subscription.version, HIGHEST_SUBSCRIPTION)
    writer = Writer()
    writer.int16(subscription.version, "the version")
    writer.int32(len(subscription.topics), "the topics")
    for topic in subscription.topics:
        writer.string(topic, "a topic")
    writer.bytes_(subscription.user_data, "the user data")
    if known >= 1:
        _write_partitions(writer, subscription.owned_partitions or {}, "the owned partitions")
    if known >= 2:
        generation = subscription.generation_id
        writer.int32(-1 if generation is None else generation, "the generation")
    if known >= 3:
        writer.string(subscription.rack_id, "the rack")
    return writer.done()


def _write_assignment(assignment: ConsumerAssignment) -> bytes:
    if assignment.version < 0:
        raise WireError(f"An assignment has no version {assignment.version}.")
    writer = Writer()
    writer.int16(assignment.version, "the version")
    _write_partitions(writer, assignment.partitions, "the assigned partitions")
    writer.bytes_(assignment.user_data, "the user data")
    return writer.done()


def encode_worker(metadata: WorkerMetadata) -> bytes:
    """Return the bytes of `metadata`.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(metadata, decode_worker, _write_worker)


def encode_worker_assignment(assignment: WorkerAssignment) -> bytes:
    """Return the bytes of `assignment`.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(assignment, decode_worker_assignment, _write_worker_assignment)


def _write_worker(metadata: WorkerMetadata) -> bytes:
    writer = _writer(metadata.version)
    writer.string(metadata.url, "the url")
    writer.int64(metadata.config_offset, "the config offset")
    if metadata.version:
        now = metadata.assignment
        blob = None if now is None else encode_worker_assignment(now)
        writer.bytes_(blob, "the current assignment")
    return writer.done()


def _write_worker_assignment(assignment: WorkerAssignment) -> bytes:
    writer = _writer(assignment.version)
    writer.int16(assignment.error, "the error")
    writer.string(assignment.leader, "the leader")
    writer.string(assignment.leader_url, "the leader's url")
    writer.int64(assignment.config_offset, "the config offset")
    _write_tasks(writer, assignment.version, assignment.assigned, "the assignment")
    if assignment.version:
        _write_tasks(writer, assignment.version, assignment.revoked, "what is revoked")
        writer.int32(assignment.delay_ms, "the delay")
    return writer.done()


def _write_tasks(writer: Writer, version: int, tasks: ConnectorTasks | None, field: str) -> None:
    if tasks is None:
        if not version:
            raise WireError(f"{field} cannot be null in v0.")
        writer.int32(-1, field)
        return
    writer.int32(len(tasks), field)
    for connector, numbers in tasks:
        writer.string(connector, "a connector")
        writer.int32_array(numbers, "the tasks")


def _writer(version: int) -> Writer:
    if version < 0:
        raise WireError(f"Connect's protocol has no version {version}.")
    writer = Writer()
    writer.int16(version, "the version")
    return writer


def encode_streams(user_data: StreamsUserData) -> bytes:
    """Return the bytes of `user_data`.

    Raises:
        WireError: a version below 1, a field that its version has and that is None (or the other
            way round), or a highest version below the one in use.
    """
    version, latest, process_id = user_data.version, user_data.latest, user_data.process_id
    if version < 1:
        raise WireError(f"Streams' user data has no version {version}.")
    if (latest is None) is (version >= _LATEST_SINCE):
        raise WireError(f"The highest version cannot be {latest} in v{version}.")
    if (process_id is None) is (version <= HIGHEST_STREAMS):
        raise WireError(f"The process id cannot be {process_id} in v{version}.")
    if latest is not None and latest < version:
        raise WireError(f"The highest version {latest} is below the version {version}.")
    writer = Writer()
    writer.int32(version, "the version")
    if latest is not None:
        writer.int32(latest, "the highest version")
    if process_id is not None:
        writer.raw(process_id.bytes)
    writer.raw(user_data.rest)
    return writer.done()
