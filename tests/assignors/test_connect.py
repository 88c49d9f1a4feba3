"""How Connect's leaders share work out: recorded rebalances of the real jar.

data/connect/rebalances.jsonl.gz holds random histories with what the assignors of connect-runtime
4.1.1 gave on OpenJDK 17, a line a rebalance (tests/assignors/connect_jar.py wrote it).
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path

from rebal.groups.assignors.connect import Memory
from tests.assignors.connect_jar import answer, read, written

RECORDED = Path(__file__).parents[1] / "data" / "connect" / "rebalances.jsonl.gz"


def test_every_recorded_rebalance_is_exact() -> None:
    memories: defaultdict[int, dict[str, Memory]] = defaultdict(dict)
    protocols: Counter[str] = Counter()
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            led = read(line)
            given = answer(led, memories[line["history"]])
            assert written(given) == line["given"], (line["history"], line["generation"])
            protocols[led.protocol] += 1
    assert protocols.keys() == {"default", "compatible", "sessioned"}
    assert min(protocols.values()) > 10, protocols
