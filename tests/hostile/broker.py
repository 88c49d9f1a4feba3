"""A broker that answers wrongly: damaged, too late, too much, or not at all."""

import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from kafka.protocol.admin.configs import DescribeConfigsResponse
from kafka.protocol.admin.groups import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import (
    FetchResponse,
    ListOffsetsResponse,
    OffsetFetchResponse,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.consumer.group import JoinGroupResponse
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from kafka.record.memory_records import MemoryRecordsBuilder

from rebal.inspectors.kafka.wire import message

_OFFERED = {1: 11, 2: 3, 3: 8, 9: 5, 10: 2, 11: 5, 15: 4, 16: 2, 18: 2, 23: 3, 32: 2}
_TOPIC = b"__consumer_offsets"
# A GroupMetadata record of the group `g` at generation 3, without members.
_KEY = b"\0\2\0\1g"
_VALUE = b"\0\3\0\x08consumer\0\0\0\3\0\5range\0\3m-1" + bytes(8) + bytes(4)


class WrongBroker:
    """A listener on loopback; `way` is what it does from the answer number `after` on."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.way = "honest"
        self.after = 0
        self.seed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(5)
        way, after, drawn = self.way, self.after, random.Random(self.seed)
        try:
            with client, client.makefile("rb") as stream:
                answered = 0
                while len(head := stream.read(4)) == 4:
                    request = stream.read(struct.unpack(">i", head)[0])
                    answer: bytes | None = self._answer(request)
                    if answered >= after:
                        answer = _SPOILED[way](answer, drawn)
                    answered += 1
                    if answer is None:
                        return
                    client.sendall(answer)
        except OSError:
            return

    def _answer(self, request: bytes) -> bytes:
        key, version, correlation = struct.unpack_from(">hhi", request)
        head = struct.pack(">i", correlation)
        topic = _TOPIC.decode() if _TOPIC in request else "t"
        made = _body(key, version, topic, self.port)
        return b"" if made is None else struct.pack(">i", len(head + made)) + head + made


@cache
def _body(key: int, version: int, topic: str, port: int) -> bytes | None:
    if version > _OFFERED.get(key, -1):
        # The oldest form of the answer, with UNSUPPORTED_VERSION (KIP-511); else the end.
        return _body(18, 0, "UNSUPPORTED_VERSION", port) if key == 18 else None
    kind, fields = _fields(topic, port)[key]
    return bytes(message(kind, version, **fields).encode(version=version))


def _fields(topic: str, port: int) -> dict[int, tuple[Any, dict[str, Any]]]:
    """Return the honest answer to each kind of request: one broker, topic, group and member.

    What is not named is 0, empty or null.
    """
    here: dict[str, Any] = {"node_id": 1, "host": "127.0.0.1", "port": port}
    rights = {"authorized_operations": {3, 8, 11}}

    def of_topic(key: str = "name", **part: Any) -> dict[str, Any]:
        return {key: topic, "partitions": [part]}

    records = of_topic(
        "topic", high_watermark=1, last_stable_offset=1, log_start_offset=0, records=_records()
    )
    leader = of_topic(leader_id=1, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]) | rights
    committed = of_topic(committed_offset=1, committed_leader_epoch=0)
    member = {
        "member_id": "m-1", "client_id": "m", "client_host": "/127.0.0.1",
        "member_metadata": b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0",
        "member_assignment": b"\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\0\0\0\0",
    }  # fmt: skip
    group = {
        "group_id": "g", "group_state": "Stable", "protocol_type": "consumer",
        "protocol_data": "range", "members": [member], **rights,
    }  # fmt: skip
    listed = {"group_id": "g", "protocol_type": "consumer"}
    apis = [{"api_key": key, "max_version": highest} for key, highest in _OFFERED.items()]
    refused = 35 if topic == "UNSUPPORTED_VERSION" else 0
    config = {"name": "group.max.size", "value": "9", "config_source": 5}
    return {
        1: (FetchResponse, {"responses": [records]}),
        2: (ListOffsetsResponse, {"topics": [of_topic(offset=1)]}),
        3: (MetadataResponse, {
            "brokers": [here], "cluster_id": "c", "controller_id": 1, **rights,
            "topics": [leader]}),
        9: (OffsetFetchResponse, {"topics": [committed]}),
        10: (FindCoordinatorResponse, here),
        11: (JoinGroupResponse, {"error_code": 25}),
        15: (DescribeGroupsResponse, {"groups": [group]}),
        16: (ListGroupsResponse, {"groups": [listed]}),
        18: (ApiVersionsResponse, {"error_code": refused, "api_keys": apis}),
        23: (OffsetForLeaderEpochResponse, {
            "topics": [of_topic("topic", leader_epoch=3, end_offset=0)]}),
        32: (DescribeConfigsResponse, {
            "results": [{"resource_type": 4, "resource_name": "1", "configs": [config]}]}),
    }  # fmt: skip


def _records() -> bytes:
    made = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=4096)
    made.append(timestamp=0, key=_KEY, value=_VALUE)
    made.close()
    return bytes(made.buffer())


def _flipped(answer: bytes, drawn: random.Random) -> bytes:
    made = bytearray(answer)
    for _ in range(drawn.randint(1, 6)):
        if len(made) > 8:
            made[drawn.randrange(8, len(made))] = drawn.randrange(256)
    return bytes(made)


def _noise(answer: bytes, drawn: random.Random) -> bytes:
    body = drawn.randbytes(drawn.randrange(200))
    return struct.pack(">i", len(body) + 4) + answer[4:8] + body


def _silent(_: bytes, __: random.Random) -> bytes | None:
    time.sleep(5)
    return None


_SPOILED: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "honest": lambda answer, _: answer or None,
    "flipped": _flipped,
    "cut": lambda answer, drawn: answer[: drawn.randrange(len(answer) + 1)],
    "noise": _noise,
    "huge": lambda answer, drawn: (
        struct.pack(">i", drawn.choice([-1, 99_000_000, 2**31 - 1])) + answer[4:]
    ),
    "closed": lambda _, __: None,
    "silent": _silent,
    "other": lambda answer, _: answer[:4] + b"\x7f\0\0\1" + answer[8:],
    "text": lambda _, __: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "ones": lambda answer, _: answer[:8] + b"\xff" * max(0, len(answer) - 8),
}
WAYS = tuple(_SPOILED)
