"""A large request log, plain and packed, scanned to all tables: megabytes of text per second.

The log is the captured one, over and over, each round five minutes later: so the mix of lines is
that of tests/data/captures, a quarter of them about groups. Times, generations and epochs move on
with each round, so that it brings new rebalances and not copies of the old.
"""

import gzip
import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from zlib import crc32

from bench.fleet_bench import Figure, in_session

CAPTURED = Path(__file__).parents[1] / "tests" / "data" / "captures" / "kafka-request.log.gz"
MEGABYTES = 1000
OF_BROKERS = 300_000_000
"""Bytes of the two brokers' logs together."""
ROTATED = 8
LEAST = 50
_TIME = re.compile(rb"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\]")
_NUMBER = re.compile(rb'"(generationId|memberEpoch)":([1-9]\d*)')
_GROUP = re.compile(rb'"groupId":"([^"]*)"')
_ROUND_NUMBERS = 1000
_ROUND = timedelta(minutes=5)


def rows() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, rotated, packed = (folder / each for each in ("plain", "rotated", "packed"))
        for each in (plain, rotated, packed):
            each.mkdir()
        files = [rotated / f"kafka-request.log.{number}.gz" for number in range(ROTATED)]
        megabytes = write_log(plain / "kafka-request.log", files, MEGABYTES)
        # Members one after another are one gz file.
        whole = b"".join(file.read_bytes() for file in files)
        (packed / "kafka-request.log.gz").write_bytes(whole)
        for path, what, least in (
            (plain, "plain", LEAST),
            (rotated, f"packed in {ROTATED} .gz files", LEAST),
            (packed, "packed in one .gz file, which one core must read", 0),
        ):
            yield Figure(
                f"request log of {megabytes:.0f} MB, {what}, to all tables",
                tuple(megabytes / each for each in in_session("log", path)["times"][1:]),
                "MB/s of text",
                least,
                at_least=True,
            )
        with (plain / "kafka-request.log").open("rb") as log:
            write_brokers(log.read(OF_BROKERS), folder / "brokers")
        whole_logs, rest = in_session("grown logs", folder / "brokers")["times"]
        yield Figure(
            "a scan of 1 % new lines of two brokers' logs, of which one is behind the other, takes "
            "this share of the first scan",
            (rest / whole_logs,),
            "×",
            0.2,
        )


def write_brokers(text: bytes, folder: Path) -> None:
    """Write the log as two brokers', each with its groups: all but 1 %, then all of it.

    In the first, one broker's log ends before the other's.
    """
    lines: tuple[list[bytes], list[bytes]] = ([], [])
    for line in text.splitlines(keepends=True):
        found = _GROUP.search(line)
        lines[crc32(found[1]) % 2 if found else 0].append(line)
    for step, shares in enumerate(((0.985, 0.995), (1.0, 1.0))):
        (folder / str(step)).mkdir(parents=True)
        for broker, share in enumerate(shares):
            said = lines[broker][: int(len(lines[broker]) * share)]
            (folder / str(step) / f"{broker}.log").write_bytes(b"".join(said))


def write_log(plain: Path, packed: Sequence[Path], megabytes: int) -> float:
    """Write the log plain and as rotated .gz files; return the megabytes of its text."""
    with gzip.open(CAPTURED, "rb") as lines:
        captured = lines.readlines()
    size = number = 0
    with plain.open("wb") as text:
        for count, file in enumerate(packed, start=1):
            with gzip.open(file, "wb", compresslevel=6) as gz:
                while size < megabytes * 1e6 * count / len(packed):
                    made = b"".join(_later(line, number) for line in captured)
                    text.write(made)
                    gz.write(made)
                    size += len(made)
                    number += 1
    return size / 1e6


def _later(line: bytes, number: int) -> bytes:
    found = _TIME.match(line)
    if found is None:
        return line
    at = datetime.strptime(found[1].decode(), "%Y-%m-%d %H:%M:%S") + number * _ROUND
    moved = b"[" + at.strftime("%Y-%m-%d %H:%M:%S").encode() + b"," + found[2] + b"]"
    return moved + _NUMBER.sub(
        lambda one: b'"%s":%d' % (one[1], int(one[2]) + number * _ROUND_NUMBERS),
        line[found.end() :],
    )
