"""A large request log: the captured one, over and over, each round a minute later.

The mix of lines is that of tests/data/captures; only the times move on and the generations with
them, so that each round brings new rebalances and not copies of the old.
"""

import gzip
import re
from datetime import datetime, timedelta
from pathlib import Path

CAPTURED = Path(__file__).parents[1] / "tests" / "data" / "captures" / "kafka-request.log.gz"
_TIME = re.compile(rb"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\]")
_GENERATION = re.compile(rb'"generationId":(\d+)')
_ROUND_GENERATIONS = 1000
_ROUND = timedelta(minutes=5)


def write_log(plain: Path, packed: Path, megabytes: int) -> float:
    """Writes the log plain and as .gz; gives the megabytes of its text."""
    with gzip.open(CAPTURED, "rb") as lines:
        captured = lines.readlines()
    size = number = 0
    with plain.open("wb") as text, gzip.open(packed, "wb", compresslevel=5) as gz:
        while size < megabytes * 1e6:
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
    return moved + _GENERATION.sub(
        lambda one: b'"generationId":%d' % (int(one[1]) + number * _ROUND_GENERATIONS),
        line[found.end() :],
    )
