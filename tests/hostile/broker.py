"""A broker that answers wrongly: damaged, too late, too much, or not at all."""

import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka.protocol.admin.groups import DescribeGroupsResponse
from kafka.protocol.metadata import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataResponse,
)

_OFFERED = {
    3: 8,
    10: 2,
    15: 4,
    16: 2,
    18: 2,
    2: 3,
    9: 5,
    11: 7,
    32: 2,
}
WAYS = (
    "honest", "flipped", "cut", "noise", "huge", "closed", "silent", "other", "text", "ones",
)  # fmt: skip


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
                    answer = self._answer(request)
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
        made = self._body(key, version)
        return b"" if made is None else struct.pack(">i", len(head + made)) + head + made

    def _body(self, key: int, version: int) -> bytes | None:
        here = {"node_id": 1, "host": "127.0.0.1", "port": self.port}
        made: Any = None
        if key == 18:
            api = ApiVersionsResponse.ApiVersion
            keys = [api(api_key=k, min_version=0, max_version=v) for k, v in _OFFERED.items()]
            if version > _OFFERED[18]:
                # The oldest form of the answer, with UNSUPPORTED_VERSION (KIP-511).
                made, version = ApiVersionsResponse(version=0, error_code=35, api_keys=keys), 0
            else:
                made = ApiVersionsResponse(version=version, error_code=0, api_keys=keys)
        elif key == 3:
            broker = MetadataResponse.MetadataResponseBroker
            made = MetadataResponse(
                version=version, brokers=[broker(**here, rack=None)], cluster_id="c",
                controller_id=1, topics=[],
            )  # fmt: skip
        elif key == 10:
            made = FindCoordinatorResponse(
                version=version, error_code=0, error_message="", **here, throttle_time_ms=0
            )
        elif key == 15:
            group = DescribeGroupsResponse.DescribedGroup
            member = group.DescribedGroupMember
            made = DescribeGroupsResponse(
                version=version,
                groups=[
                    group(
                        error_code=0, group_id="g", group_state="Stable",
                        protocol_type="consumer", protocol_data="range",
                        members=[
                            member(
                                member_id="m-1", client_id="m", client_host="/127.0.0.1",
                                member_metadata=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0",
                                member_assignment=b"\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0",
                            )
                        ],
                    )
                ],
            )  # fmt: skip
        return None if made is None else bytes(made.encode(version=version))


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
