"""The files of hostile runs: what a path may name that is no document and no log."""

import contextlib
import gzip
import os
import socket
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECRET = "hunter2Tr0ub4dor"
GOOD = (
    *(ROOT / "cli/data/demo").glob("*.rebal.yaml"),
    *sorted((ROOT / "tests/data/client_logs").glob("*.log"))[:2],
)
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
    for good in GOOD:
        (folder / good.name).write_bytes(good.read_bytes())
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
