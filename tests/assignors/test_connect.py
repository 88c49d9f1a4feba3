"""How Connect's leaders share work out: recorded rebalances of the real jar, and KIP-415's stories.

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
    Work,
    after,
    by_connector,
    eager,
    incremental,
    work_of,
)
from rebal.groups.wire.user_data import CONNECTOR

RECORDED = Path(__file__).parents[1] / "data" / "connect" / "rebalances.jsonl.gz"
MAX = 300_000
ALL = (("a", CONNECTOR), *(("a", n) for n in range(5)))


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


class Group:
    """Workers that do what they are told; `leader` remembers."""

    def __init__(self, *workers: str, max_delay_ms: int = MAX) -> None:
        self.held: dict[str, Work] = dict.fromkeys(workers, ())
        self.memory = Memory()
        self.now = 1_000_000
        self.max_delay_ms = max_delay_ms
        self.settle()

    def rebalance(self) -> dict[str, Given]:
        given, self.memory = incremental(
            Round(
                workers=self.held,
                configured=frozenset(ALL),
                generation=self.memory.generation + 1,
                last_generation=self.memory.generation,
                now_ms=self.now,
                max_delay_ms=self.max_delay_ms,
            ),
            self.memory,
        )
        self.held = {worker: after(self.held[worker], one) for worker, one in given.items()}
        return given

    def settle(self) -> int:
        """Rebalances until nobody stops anything; how many they were."""
        count = 1
        while any(one.revoked for one in self.rebalance().values()):
            count += 1
        return count

    @property
    def running(self) -> set[Any]:
        return {item for work in self.held.values() for item in work}


def test_a_worker_that_comes_back_gets_its_work_when_the_delay_is_over() -> None:
    group = Group("w1", "w2", "w3")
    away = group.held.pop("w3")
    assert away
    assert {one.delay_ms for one in group.rebalance().values()} == {MAX}
    assert group.running == set(ALL) - set(away), "nobody takes it over"
    group.now += 30_000
    group.held["back"] = ()
    assert {one.delay_ms for one in group.rebalance().values()} == {MAX - 30_000}
    assert group.held["back"] == (), "and it does not get it back at once either"
    group.now += MAX - 30_000
    assert group.settle() == 1
    assert set(group.held["back"]) == set(away)


def test_work_of_one_that_stays_away_goes_to_the_others() -> None:
    group = Group("w1", "w2", "w3")
    del group.held["w3"]
    group.rebalance()
    group.now += MAX
    group.settle()
    assert group.running == set(ALL)


def test_a_new_leader_knows_of_no_lost_work_and_gives_it_out_at_once() -> None:
    group = Group("w1", "w2", "w3")
    del group.held["w3"]
    group.memory = Memory(generation=group.memory.generation - 1)
    given = group.rebalance()
    assert {one.delay_ms for one in given.values()} == {0}
    assert group.running == set(ALL)


def test_without_a_delay_work_moves_at_once_and_back_again() -> None:
    group = Group("w1", "w2", max_delay_ms=0)
    del group.held["w2"]
    assert group.settle() == 1
    assert group.running == set(ALL)
    group.held["w2"] = ()
    assert group.settle() == 2, "one that takes, one that gives"
    assert sorted(sum(n != CONNECTOR for _, n in work) for work in group.held.values()) == [2, 3]


def test_eager_gives_connectors_first_and_then_tasks_in_turn() -> None:
    assert eager(["w2", "w1"], [("b", CONNECTOR), ("a", 1), ("a", 0), ("a", CONNECTOR)]) == {
        "w1": (("a", CONNECTOR), ("a", 0)),
        "w2": (("b", CONNECTOR), ("a", 1)),
    }
