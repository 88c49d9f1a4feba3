"""The files of hostile runs: good ones of each kind, and what a path may name that is none."""

import contextlib
import gzip
import os
import socket
from itertools import islice
from pathlib import Path

from tests.fleet.synthetic import fleet
from tests.fleet.tablefiles import write_tables
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
