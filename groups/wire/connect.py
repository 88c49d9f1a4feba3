"""What Connect workers tell their group's coordinator: metadata and assignment, v0 to v2.

Source: ConnectProtocol.java (v0: `default`) and IncrementalCooperativeConnectProtocol.java (v1:
`compatible`, v2: `sessioned`; KIP-415, KIP-507). A version above 2 is read as v2, as Kafka does.
v1 and v2 may end before their last fields, which are then null; both directions are exact.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.errors import WireError
from rebal.groups.model import Record
from rebal.groups.wire.exact import as_sent, keeping_wire
from rebal.groups.wire.primitives import Reader, Writer

CONNECTOR: Final = -1
"""The number that stands for the connector itself among its tasks' numbers."""
ConnectorTasks = tuple[tuple[str, tuple[int, ...]], ...]
"""`(connector, numbers)` in the order sent: the numbers of tasks, and `CONNECTOR`."""


class WorkerMetadata(Record, frozen=True, kw_only=True):
    """One worker's metadata, in the version of the elected protocol.

    `url` is its REST address, `config_offset` how far it has read the connectors' configuration.
    `assignment` is what it ran when it joined (v1 and later; None when null).
    """

    version: int
    url: str
    config_offset: int
    assignment: WorkerAssignment | None = None
    wire: bytes | None = None


class WorkerAssignment(Record, frozen=True, kw_only=True):
    """What the leader gave one worker. `delay_ms` is how long lost tasks are held back (v1 on).

    `assigned` and `revoked` are None when null (v1 on; v0 has no `revoked` and no delay).
    `wire` holds the bytes as sent, only where the other fields cannot express them.
    """

    version: int
    error: int = 0
    leader: str = ""
    leader_url: str = ""
    config_offset: int = 0
    assigned: ConnectorTasks | None = ()
    revoked: ConnectorTasks | None = None
    delay_ms: int = 0
    wire: bytes | None = None


def decode_worker(data: bytes) -> WorkerMetadata:
    """The metadata in `data`, as DescribeGroups shows it for the elected protocol.

    Raises:
        WireError: a negative version, a cut-off field, a negative or lying length, or text that is
            null or not UTF-8.
    """
    reader = Reader(data, "Connect worker's metadata")
    version = reader.version()
    url = reader.string("the url")
    config_offset = reader.int64("the config offset")
    blob = None
    if version and reader.remaining:
        blob = reader.nullable_bytes("the current assignment")
    read = WorkerMetadata(
        version=version,
        url=url,
        config_offset=config_offset,
        assignment=None if blob is None else decode_worker_assignment(blob),
    )
    return keeping_wire(read, data, _write_worker)


def encode_worker(metadata: WorkerMetadata) -> bytes:
    """The bytes of `metadata`.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(metadata, decode_worker, _write_worker)


def decode_worker_assignment(data: bytes) -> WorkerAssignment:
    """The assignment in `data`, as SyncGroup hands it out.

    Raises:
        WireError: as `decode_worker`.
    """
    reader = Reader(data, "Connect worker's assignment")
    version = reader.version()
    read = WorkerAssignment(
        version=version,
        error=reader.int16("the error"),
        leader=reader.string("the leader"),
        leader_url=reader.string("the leader's url"),
        config_offset=reader.int64("the config offset"),
        assigned=_read_tasks(reader, version, "the assignment"),
        revoked=_read_tasks(reader, version, "what is revoked") if version else None,
        delay_ms=reader.int32("the delay") if version and reader.remaining else 0,
    )
    return keeping_wire(read, data, _write_assignment)


def encode_worker_assignment(assignment: WorkerAssignment) -> bytes:
    """The bytes of `assignment`.

    Raises:
        WireError: a value that its field cannot hold.
    """
    return as_sent(assignment, decode_worker_assignment, _write_assignment)


def _read_tasks(reader: Reader, version: int, field: str) -> ConnectorTasks | None:
    if version and not reader.remaining:
        return None
    size = reader.int32(field)
    if size < 0 and version:
        return None
    count = reader.checked_count(size, 6, field)
    made = []
    for _ in range(count):
        connector = reader.string("a connector")
        made.append((connector, reader.int32_array("the tasks")))
    return tuple(made)


def _write_worker(metadata: WorkerMetadata) -> bytes:
    writer = _writer(metadata.version)
    writer.string(metadata.url, "the url")
    writer.int64(metadata.config_offset, "the config offset")
    if metadata.version:
        now = metadata.assignment
        blob = None if now is None else encode_worker_assignment(now)
        writer.bytes_(blob, "the current assignment")
    return writer.done()


def _write_assignment(assignment: WorkerAssignment) -> bytes:
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
