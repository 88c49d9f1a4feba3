"""How Connect's leaders share work out: recorded rebalances of the real jar.

data/connect/rebalances.jsonl.gz holds random histories with what the assignors of connect-runtime
4.1.1 gave on OpenJDK 17, a line a rebalance (tests/assignors/connect_jar.py wrote it).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rebal.groups.assignors.connect import (
    Given,
    Memory,
    Round,
    by_connector,
    eager,
    incremental,
    work_of,
)
from rebal.groups.wire.user_data import CONNECTOR

RECORDED = Path(__file__).parents[1] / "data" / "connect" / "rebalances.jsonl.gz"


def recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def test_every_recorded_rebalance_is_exact() -> None:
    memories: dict[tuple[int, str], Memory] = {}
    protocols = {"default": 0, "compatible": 0, "sessioned": 0}
    for line in recorded():
        workers = {worker: work_of(sent) for worker, sent in line["workers"].items()}
        configured = frozenset(
            (name, number)
            for name, count in line["config"].items()
            for number in (CONNECTOR, *range(count))
        )
        where = (line["history"], line["generation"])
        protocols[line["protocol"]] += 1
        if line["protocol"] == "default":
            given = {
                worker: Given(assigned=work) for worker, work in eager(workers, configured).items()
            }
        else:
            key = (line["history"], line["leader"])
            round_ = Round(
                workers=workers,
                configured=configured,
                generation=line["generation"],
                last_generation=line["last_generation"],
                now_ms=line["now_ms"],
                max_delay_ms=line["max_delay_ms"],
            )
            given, memories[key] = incremental(round_, memories.get(key, Memory()))
        assert {
            worker: [
                _plain(by_connector(one.assigned)),
                _plain(by_connector(one.revoked, hashed=False)),
                one.delay_ms,
            ]
            for worker, one in given.items()
        } == line["given"], where
    assert all(count > 10 for count in protocols.values()), protocols


def _plain(sent: Any) -> list[Any]:
    return [[name, list(numbers)] for name, numbers in sent]
