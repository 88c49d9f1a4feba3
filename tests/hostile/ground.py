"""What hostile runs meet: files, and a broker that answers wrongly.

The files are good ones of each kind, and what a path may name that is none. The answers are
damaged, too late, too much, or none.
"""

import contextlib
import gzip
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
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
from tests.fleet.synthetic import fleet, write_tables
from tests.fleet.test_segments import batch

ROOT = Path(__file__).parents[2]
SECRET = "hunter2Tr0ub4dor"
LAKE = "a-lake"


def _read(*patterns: str) -> dict[str, bytes]:
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return {path.name: path.read_bytes() for path in found}


def _begin(name: str, lines: int) -> bytes:
    with gzip.open(ROOT / "tests/data/captures" / name) as file:
        return b"".join(islice(file, lines))


# Good files by their kind, which the lines of `runs.WHOLE` name.
KINDS: dict[str, dict[str, bytes]] = {
    "SNAPSHOT": _read("cli/data/demo/*.rebal.yaml"),
    "CLIENT": _read("tests/data/client_logs/java-[24]*.log", "tests/data/other_logs/*.log"),
    "BROKER": {"broker.log": _begin("broker-group-coordinator.log.gz", 60)},
    "REQUESTS": {"requests.log": _begin("kafka-request.log.gz", 60)},
    "INVENTORY": _read("tests/data/inventory/*.*", "tests/data/inventory/*/*"),
    "SCRIPT": _read("examples/scripts/*.yaml"),
    "OFFSETS": {"offsets.jsonl": _begin("consumer_offsets.jsonl.gz", 40)},
    "SEGMENT": {
        f"__consumer_offsets-7/{0:020}.log": batch(0, [(b"k", b"v"), (b"l", None)]) * 2,
        f"__consumer_offsets-8/{0:020}.log": batch(0, [(b"k", b"v" * 99)], codec=1, producer=1),
    },
    "PROFILES": {"prod.yaml": b"profiles:\n  prod: {bootstrap: '127.0.0.1:1', sasl.username: u}\n"},
    "PROPERTIES": {"client.properties": b"bootstrap.servers=127.0.0.1\\:1\nsasl.username=u\n"},
}
_TEXTS = {
    "empty.yaml": b"",
    "nul.yaml": b"\0" * 5000,
    "bom.json": b"\xef\xbb\xbf{}",
    "utf16.yaml": "schema: rebal.snapshot/1".encode("utf-16"),
    "latin.yaml": b"schema: caf\xe9\n",
    "date.yaml": b"profiles:\n  prod:\n    since: 2001-99-99\n",
    "number.yaml": b"profiles:\n  prod: {a: " + b"9" * 5000 + b"}\n",
    "number.json": b'{"schema": ' + b"9" * 5000 + b"}",
    "tag.yaml": b"profiles: !!python/object:os.system [x]\n",
    "binary.yaml": b"profiles: {prod: {a: !!binary '%%%'}}\n",
    "surrogate.yaml": b'profiles: {prod: {"sasl.username": "\\ud800", bootstrap: "\\udcff:1"}}\n',
    "surrogate.json": b'{"schema": "rebal.snapshot/1", "group": {"group_id": "\\ud800"}}',
    "bomb.yaml": b"a: &a [x]\n" + b"".join(b"b%d: &b%d [*a,*a]\n" % (n, n) for n in range(50)),
    "deep.yaml": b"[" * 3000,
    "deep.json": b"[" * 100_000,
    "keys.yaml": b"? [a, b]\n: 1\n? {c: d}\n: 2\n",
    "list.yaml": b"profiles: [prod]\n",
    "none.yaml": b"profiles: {prod: null, 1: {2: 3}}\n",
    "good.properties": b"bootstrap.servers=127.0.0.1:1\n",
    "jaas.properties": b"sasl.jaas.config=" + SECRET.encode() + b"\n",
    "key.properties": SECRET.encode() + b"=\nbootstrap.servers=h:1\n",
    "place.properties": b"sasl.password=${" + SECRET.encode() + b"}\nbootstrap.servers=h:1\n",
    "escape.properties": b"sasl.username=\\ud800\nbootstrap.servers=h\\udcff:1\n",
    "u.properties": b"a=\\u12",
    "login.properties": b"bootstrap.servers=u:" + SECRET.encode() + b"@h:1\n",
    "cut.gz": gzip.compress(os.urandom(5000))[:3000],
    "crc.gz": gzip.compress(b"a\n" * 50)[:-8] + b"x" * 8,
    "long.log": b"x" * 3_000_000,
    "join.log": b'{"requestHeader":{"requestApiKey":11},"request":{"groupId":"\\ud800"}}\n' * 3,
    "odd.log": b"[2026-02-31 25:61:61,999] INFO [Consumer clientId=\xff, groupId=\0] x\n" * 3,
    "zip.yaml": b"PK\x03\x04rest",
    "tables/_delta_log/00000000000000000000.json": b'{"protocol":{}}\n',
    "lake/scans/_delta_log/00000000000000000000.json": b"\xff{",
    "lake/manifest.json": b"[]",
    "conf/app.yml": b"a: *b\n",
    "conf/c.properties": b"group.id=\\u0000\npartition.assignment.strategy=,,\n",
}


def make_ground(folder: Path) -> list[str]:
    """Make the files in `folder`, and return the names that a run chooses from."""
    for name, data in _TEXTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name, data in [each for files in KINDS.values() for each in files.items()]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    write_tables(folder / LAKE, fleet(1))
    for name in ("sparse.yaml", "sparse.json", "sparse.log", "sparse.properties"):
        with (folder / name).open("wb") as file:
            file.truncate(1 << 30)
    with gzip.open(folder / "bomb.gz", "wb", 1) as out:
        for _ in range(1 << 7):
            out.write(bytes(1 << 20))
    os.mkfifo(folder / "fifo.yaml")
    os.mkfifo(folder / "fifo.log")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "broken.json").symlink_to("nothing")
    (folder / "a folder.yaml").mkdir()
    (folder / "wide").mkdir()
    (folder / "wide" / "fifo").symlink_to("../fifo.log")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.yaml")).write_bytes(b"{}")
    (folder / ("n" * 200 + ".yaml")).write_bytes(b"{}")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(folder / "socket.yaml"))
    return [*sorted(os.listdir(folder)), "/dev/zero", "/dev/null", "/dev/full", "/proc/self/mem",
            "/", "/root/x", "nothing.yaml", "n" * 300, "a/" * 2500, "~", "*", "[", "-",
            "plan.yaml"]  # fmt: skip


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
