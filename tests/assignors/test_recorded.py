"""What the real jars (4.1.1, OpenJDK 17) gave, recorded: assignments, failures and rebalances.

- `data/oracle/*.jsonl.gz`: what the Java client returned, list order included. REBAL_ORACLE names
  another folder of the same form; its lines run instead.
- `leader_fails.jsonl`: inputs on which the real leader threw, or was still at it after 45 s.
- `data/connect/rebalances.jsonl.gz`: random histories of Connect workers with what the assignors of
  connect-runtime gave, a line a rebalance (tests/assignors/jar.py wrote it).
- `java_tables.jsonl.gz`: iteration orders of java.util.HashSet and HashMap: sets of one topic's
  partitions that were changed step by step, with the partition that iteration began with after each
  step; and maps of texts, many of equal hash.
"""

import base64
import gzip
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.assignors import NAMES, Assignment, LeaderWouldFail, Spec, SpecMember, assign
from rebal.groups.assignors.connect import Memory
from rebal.groups.assignors.javatable import HashTable, hash_order
from rebal.groups.jvmhash import partition_hash, string_hash
from tests.assignors.jar import answer, read, written

DATA = Path(__file__).parents[1] / "data"
ORACLE = Path(os.environ.get("REBAL_ORACLE") or DATA / "oracle")
FAILS = Path(__file__).with_name("leader_fails.jsonl").read_text().splitlines()
USER_DATA = {"sticky": "sticky_user_data", "cooperative-sticky": "coop_user_data"}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def spec_of(case: dict[str, Any]) -> Spec:
    key = USER_DATA.get(case["assignor"], "")

    def member(told: dict[str, Any]) -> SpecMember:
        sent = told.get(key)
        return SpecMember(
            member_id=told["member_id"],
            topics=tuple(told["topics"]),
            instance_id=told["instance_id"],
            rack=told["rack"],
            owned=tuple((topic, partition) for topic, partition in told["owned"]),
            generation=told["generation"],
            user_data=None if sent is None else base64.b64decode(sent),
        )

    return Spec(
        members=tuple(map(member, case["members"])),
        partitions={topic: len(replicas) for topic, replicas in case["topics"].items()},
        replicas=case["topics"],
        racks={broker["id"]: broker["rack"] for broker in case["brokers"]},
    )


@pytest.mark.timeout(600)
def test_every_recorded_assignment_of_java_is_reproduced_exactly() -> None:
    total: Counter[str] = Counter()
    wrong: list[str] = []
    for case in (case for path in sorted(ORACLE.glob("*.jsonl.gz")) for case in lines(path)):
        total[case["assignor"]] += 1
        expected: Assignment = {
            member: [(topic, partition) for topic, partition in owned]
            for member, owned in case["assignment"].items()
        }
        if assign(case["assignor"], spec_of(case)) != expected:
            wrong.append(f"{case['case']} {case['assignor']}")
    assert total.keys() == set(NAMES), f"too few lines in {ORACLE}"
    assert not wrong, f"{len(wrong)} differ from Java: {', '.join(wrong[:20])}"


@pytest.mark.parametrize(
    "case", [*map(json.loads, FAILS)], ids=lambda case: f"{case['case']}: {case['java']}"
)
def test_input_on_which_javas_leader_fails_raises_the_same_failure(case: dict[str, Any]) -> None:
    with pytest.raises(LeaderWouldFail) as caught:
        assign(case["assignor"], spec_of(case))
    error = caught.value
    assert error.never_ends == (case["java"] == "never ends")
    if not error.never_ends:
        assert case["java"] in str(error)
    assert error.members
    assert set(error.members) <= {member["member_id"] for member in case["members"]}
    assert error.topics
    assert set(error.topics) <= set(case["topics"])


def test_every_recorded_rebalance_of_connect_is_reproduced_exactly() -> None:
    memories: defaultdict[int, dict[str, Memory]] = defaultdict(dict)
    protocols: Counter[str] = Counter()
    for line in lines(DATA / "connect" / "rebalances.jsonl.gz"):
        led = read(line)
        given = answer(led, memories[line["history"]])
        assert written(given) == line["given"], (line["history"], line["generation"])
        protocols[led.protocol] += 1
    assert protocols.keys() == {"default", "compatible", "sessioned"}
    assert min(protocols.values()) > 10, protocols


RECORDED = Path(__file__).parent / "java_tables.jsonl.gz"


@pytest.fixture
def records() -> list[dict]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_a_changing_set_of_partitions_iterates_as_javas_hash_set(records: list[dict]) -> None:
    sets = [record for record in records if "changes" in record]
    assert len(sets) == 60
    for record in sets:
        topic = string_hash(record["topic"])
        table: HashTable[int] = HashTable()
        firsts = record["first"].split()
        for step, (change, first) in enumerate(zip(record["changes"].split(), firsts, strict=True)):
            partition = int(change[1:])
            if change[0] == "+":
                table.add(partition, partition_hash(topic, partition))
            else:
                table.remove(partition)
            got = str(table.first()) if table else "none"
            assert got == first, f"{record['topic']}, step {step}"
        assert list(table) == [int(p) for p in record["order"].split()]


def test_maps_of_texts_iterate_as_in_java(records: list[dict]) -> None:
    maps = [record for record in records if "texts" in record]
    assert len(maps) == 60
    for record in maps:
        assert hash_order(record["texts"]) == record["order"]


@pytest.mark.parametrize(
    ("text", "java"),
    [("", 0), ("Aa", 2112), ("BB", 2112), ("orders", -1008770331), ("é😀", 1996812)],
)
def test_string_hash_equals_javas_hash_code(text: str, java: int) -> None:
    assert string_hash(text) == java % 2**32


@given(st.lists(st.integers(0, 400), unique=True, max_size=300), st.integers(0, 11))
def test_a_hash_table_holds_the_items_that_were_added(numbers: list[int], shift: int) -> None:
    table: HashTable[int] = HashTable()
    for number in numbers:
        table.add(number, number << shift)
    assert sorted(table) == sorted(numbers)
    for number in numbers[::2]:
        table.remove(number)
    assert sorted(table) == sorted(numbers[1::2])
    if table:
        assert table.first() == next(iter(table))
