"""`Wire`: one connection to a broker, for requests whose answers may be long in coming."""

import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.consumer.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from kafka.protocol.parser import KafkaProtocol
from rebal.inspectors.kafka.wire import message
from tests.kafka.broker import Broker

PATIENCE = 20.0


class Wire:
    """One connection: a request is sent now, its answer is read when it is there."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._socket: socket.socket | None = None

    def fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def send(self, request: Any) -> None:
        if self._socket is None:
            host, port = self._broker.bootstrap.split(":")
            self._socket = socket.create_connection((host, int(port)), timeout=10)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._parser = KafkaProtocol(client_id="raw")
        self._parser.send_request(request)
        self._socket.sendall(self._parser.send_bytes())

    def receive(self, timeout: float) -> Any:
        """The next answer, or None where it does not come in time."""
        end = time.monotonic() + timeout
        while ready([self], max(0.0, end - time.monotonic())):
            assert self._socket is not None
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("the broker closed a raw member's connection")
            for _, answer in self._parser.receive_bytes(data):
                return answer
        return None

    def ask(self, request: Any) -> Any:
        self.send(request)
        answer = self.receive(PATIENCE)
        assert answer is not None, f"no answer to {type(request).__name__}"
        return answer


def ready(wires: Sequence[Wire], timeout: float) -> list[Wire]:
    """Those of `wires` with something to read within `timeout`."""
    if not wires:
        return []
    with selectors.PollSelector() as selector:
        for wire in wires:
            selector.register(wire, selectors.EVENT_READ, wire)
        return [key.data for key, _ in selector.select(timeout)]


def join_request(
    group: str,
    member_id: str,
    sent: Mapping[str, bytes],
    *,
    session_ms: int,
    rebalance_ms: int = 60_000,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
) -> Any:
    """JoinGroup v7 of one member: assignor → its subscription."""
    return message(
        JoinGroupRequest, 7, group_id=group, session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms, member_id=member_id, group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[{"name": name, "metadata": data} for name, data in sent.items()],
    )  # fmt: skip


def sync_request(
    group: str,
    member_id: str,
    generation: int,
    given: Mapping[str, bytes],
    instance_id: str | None = None,
) -> Any:
    """SyncGroup v3; a leader's `given` are member id → assignment."""
    return message(
        SyncGroupRequest, 3, group_id=group, generation_id=generation, member_id=member_id,
        group_instance_id=instance_id,
        assignments=[{"member_id": each, "assignment": data} for each, data in given.items()],
    )  # fmt: skip


def leave_request(group: str, found: Mapping[str, str | None]) -> Any:
    """LeaveGroup of members: member id → instance id."""
    wanted = [{"member_id": each, "group_instance_id": i} for each, i in found.items()]
    return message(LeaveGroupRequest, 3, group_id=group, members=wanted)


def consumer_heartbeat(broker: Broker, group: str, member_id: str = "") -> str:
    """Join a group with KIP-848's protocol, or leave it as `member_id`; the new member's id.

    ConsumerGroupHeartbeat v0, written by hand: kafka-python has no such message.
    """
    epoch = -1 if member_id else 0
    request = struct.pack(">hhih3sb", 68, 0, 1, 3, b"raw", 0)
    request += _compact(group) + _compact(member_id) + struct.pack(">ibbi", epoch, 0, 0, 60_000)
    request += struct.pack(">b", 2) + _compact("raw") + struct.pack(">bbb", 0, 1, 0)
    host, port = broker.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as plain:
        plain.sendall(struct.pack(">i", len(request)) + request)
        with plain.makefile("rb") as answers:
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    # Correlation id, tags and throttle time come before the error; then its text, and the id.
    (code,) = struct.unpack(">h", answer[9:11])
    assert code == 0, f"ConsumerGroupHeartbeat was answered with {code}"
    return answer[13 : 12 + answer[12]].decode()


def _compact(text: str) -> bytes:
    return struct.pack(">b", len(text) + 1) + text.encode()
