"""Two states of a group, compared by plain sets of (topic, partition)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rebal.planner.rehearsal.spec import Owners, compare

Claims = list[tuple[int, list[tuple[str, int]]]]
TOPICS = ("orders", "clicks", "gone")
PAIRS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)), max_size=6)
CLAIMS = st.lists(st.tuples(st.integers(0, 3), PAIRS), max_size=4)


def plain(claims: Claims) -> dict[tuple[str, int], int]:
    """The last one to claim a partition is its owner, whether it exists or not."""
    return {pair: number for number, pairs in claims for pair in pairs}


@given(CLAIMS)
def test_each_partition_has_its_last_owner(claims: Claims) -> None:
    owners, expected = Owners(claims), plain(claims)
    made = {
        (topic, partition): number
        for number, owned in owners.shares.items()
        for topic, partitions in owned.items()
        for partition in partitions
    }
    assert made == expected
    assert owners.total == len(expected)
    assert owners.sizes == Counter(expected.values())
    for topic, sizes in owners.by_topic.items():
        assert sizes == Counter(n for (name, _), n in expected.items() if name == topic)


@given(CLAIMS, CLAIMS)
def test_two_states_differ_where_owners_do(first: Claims, second: Claims) -> None:
    old, new = Owners(first), Owners(second)
    was, will = plain(first), plain(second)
    both = was.keys() & will.keys()
    kept = compare(old, new)
    assert kept.by_member == Counter(was[pair] for pair in both if was[pair] == will[pair])
    assert kept.owned == len(both)
    assert old.without(new).by_partition == {p: n for p, n in was.items() if will.get(p) != n}


def test_a_share_has_topics_and_partitions_in_order() -> None:
    owned = Owners([(0, [("b", 2), ("a", 0), ("b", 0)])]).shares[0]
    assert [(topic, str(some)) for topic, some in owned.items()] == [("a", "0"), ("b", "0,2")]
