"""Iteration orders recorded from java.util.HashSet and HashMap (OpenJDK 17).

`java_tables.jsonl.gz` holds sets of one topic's partitions that were changed step by step, with
the partition that iteration began with after each step; and maps of texts, many of equal hash.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.assignors.javatable import HashTable, hash_order
from rebal.groups.jvmhash import partition_hash, string_hash

RECORDED = Path(__file__).parent / "java_tables.jsonl.gz"


@pytest.fixture
def records() -> list[dict]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_sets_of_partitions_change_as_in_java(records: list[dict]) -> None:
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
def test_string_hash_is_javas(text: str, java: int) -> None:
    assert string_hash(text) == java % 2**32


@given(st.lists(st.integers(0, 400), unique=True, max_size=300), st.integers(0, 11))
def test_a_table_holds_what_was_put_in(numbers: list[int], shift: int) -> None:
    table: HashTable[int] = HashTable()
    for number in numbers:
        table.add(number, number << shift)
    assert sorted(table) == sorted(numbers)
    for number in numbers[::2]:
        table.remove(number)
    assert sorted(table) == sorted(numbers[1::2])
    if table:
        assert table.first() == next(iter(table))
