"""Offsets and replicas: compact in a document, the same to whoever reads them, old form or new."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.compact import NO_LAG, Lag, Lags, Replicas
from rebal.groups.errors import DocumentError
from rebal.groups.model import Group, GroupSnapshot, Topic
from rebal.groups.snapshot.documents import dump_snapshot, load_snapshot

LAG = (Lag("orders", 0, 100, 100), Lag("orders", 1, None, 7), Lag("clicks", 4, 3, None))
SNAPSHOT = GroupSnapshot(
    group=Group(group_id="g"),
    captured_at=datetime(2026, 11, 20, tzinfo=UTC),
    topics=(Topic(name="orders", partitions=3, replicas=((1, 2), (2, 3), ())),),
    lag=LAG,
)


def test_a_topic_is_a_few_lines() -> None:
    made = yaml.safe_load(dump_snapshot(SNAPSHOT))
    assert made["topics"] == [{"name": "orders", "partitions": 3, "replicas": "1,2 2,3 -"}]
    assert made["lag"] == {
        "orders": {"partitions": "0-1", "committed": "100 -", "end": "100 7"},
        "clicks": {"partitions": "4", "committed": "3", "end": "-"},
    }


def test_one_mapping_a_partition_is_read_too() -> None:
    text = (
        "schema: rebal.snapshot/1\n"
        "group: {group_id: g}\n"
        "captured_at: 2026-11-20T00:00:00Z\n"
        "topics: [{name: orders, partitions: 3, replicas: [[1, 2], [2, 3], []]}]\n"
        "lag:\n"
        "- {topic: orders, partition: 0, committed: 100, end: 100}\n"
        "- {topic: orders, partition: 1, end: 7}\n"
        "- {topic: clicks, partition: 4, committed: 3}\n"
        "...\n"
    )
    assert load_snapshot(text, "yaml") == SNAPSHOT


def test_nothing_is_written_of_nothing() -> None:
    bare = replace(SNAPSHOT, topics=(Topic(name="orders", partitions=3, replicas=()),), lag=())
    assert "lag" not in dump_snapshot(bare)
    assert "replicas" not in dump_snapshot(bare)
    given_empty = dump_snapshot(bare).replace("topics:", "lag: {}\ntopics:")
    assert dump_snapshot(load_snapshot(given_empty, "yaml")) == dump_snapshot(bare)


GOOD = dump_snapshot(SNAPSHOT)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "1,2 2,3 -",
            "1,2 2;3 -",
            'topics[0].replicas: expected brokers by partition such as "1,2',
        ),
        ("1,2 2,3 -", "[1]", "topics[0].replicas: expected brokers by partition such as"),
        ("1,2 2,3 -", "true", "topics[0].replicas: expected brokers by partition such as"),
        ("committed: 100 -", "committed: 100 x", "lag: expected offsets of orders such as 100 - 7"),
        ("committed: 100 -", "committed: -5 -", "lag: expected offsets of orders such as 100 - 7"),
        ("committed: 100 -", "committed: 1e3 -", "lag: expected offsets of orders"),
        ("committed: 100 -", "committed: '1'", "lag: orders has 2 partitions, 1 committed and 2"),
        ("committed: 100 -", "com: 1", "lag: expected partitions, committed and end of orders"),
        ("end: 100 7", "end: 9223372036854775808 7", "lag: an offset is a number from 0"),
    ],
)
def test_an_error_names_the_field(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(DocumentError) as caught:
        load_snapshot(GOOD.replace(old, new, 1), "yaml", "s.yaml")
    assert said in str(caught.value)
    assert "(line " in str(caught.value)


@pytest.mark.parametrize("one", ["5", "[5]", "[{topic: o}]", "[{topic: o, partition: true}]",
                                 "[{topic: o, partition: 0, end: -4}]",
                                 "[{topic: o, partition: -1}]"])  # fmt: skip
def test_lag_that_is_none_is_refused(one: str) -> None:
    text = GOOD[: GOOD.index("lag:")] + f"lag: {one}\n...\n"
    with pytest.raises(DocumentError, match=r"lag: (expected|an offset is|a partition is) "):
        load_snapshot(text, "yaml")


@given(st.lists(st.lists(st.integers(-1, 2**31 - 1), max_size=3).map(tuple), max_size=8))
def test_replicas_are_a_sequence_of_tuples(sets: list[tuple[int, ...]]) -> None:
    made = Replicas(sets)
    assert made == tuple(sets)
    assert Replicas.parse(str(made)) == made
    assert (len(made), list(made), made[:2]) == (len(sets), sets, tuple(sets[:2]))
    assert hash(made) == hash(Replicas(list(sets)))


def test_lags_are_a_sequence() -> None:
    made = Lags(LAG)
    assert made == LAG == tuple(made)
    assert (len(made), bool(made), bool(NO_LAG)) == (3, True, False)
    assert hash(made) == hash(Lags(list(LAG)))
    assert made != Lags(LAG[:2])
    assert made != "x"
    with pytest.raises(ValueError, match="an offset is a number from 0 to"):
        Lags([Lag("t", 0, -4)])
