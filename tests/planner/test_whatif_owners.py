"""Two states of a group, compared by plain sets of (topic, partition)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rebal.planner.rehearsal.holdings import Share
from rebal.planner.rehearsal.owners import Owners, compare, moves

Claims = list[tuple[int, list[tuple[str, int]]]]
TOPICS = ("orders", "clicks", "gone")
COUNTS = st.fixed_dictionaries({"orders": st.integers(0, 6), "clicks": st.integers(0, 3)})
PAIRS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)), max_size=6)
CLAIMS = st.lists(st.tuples(st.integers(0, 3), PAIRS), max_size=4)


def plain(claims: Claims) -> dict[tuple[str, int], int]:
    """The last one to claim a partition is its owner, whether it exists or not."""
    return {pair: number for number, pairs in claims for pair in pairs}


@given(COUNTS, CLAIMS)
def test_each_partition_has_its_last_owner(counts: dict[str, int], claims: Claims) -> None:
    owners, expected = Owners(counts, claims), plain(claims)
    made = {
        (topic, partition): number
        for number in range(4)
        for topic, partitions in Share(owners, number).items()
        for partition in partitions
    }
    assert made == expected
    assert owners.total == len(expected)
    assert owners.sizes == Counter(expected.values())
    for topic in TOPICS:
        sizes = Counter(number for (name, _), number in expected.items() if name == topic)
        assert owners.counts_in(topic) == sizes


@given(COUNTS, COUNTS, CLAIMS, CLAIMS)
def test_two_states_differ_where_owners_do(
    before: dict[str, int], after: dict[str, int], first: Claims, second: Claims
) -> None:
    old, new = Owners(before, first), Owners(after, second)
    was, will = plain(first), plain(second)
    both = was.keys() & will.keys()
    kept = compare(old, new)
    assert kept.by_member == Counter(was[pair] for pair in both if was[pair] == will[pair])
    assert kept.owned == len(both)
    gives, gets = moves(old, new)
    for made, ours, theirs in ((gives, was, will), (gets, will, was)):
        listed = Counter(
            (number, topic, partition)
            for number, topics in made.shares.items()
            for topic, partitions in topics.items()
            for partition in partitions
        )
        assert listed == Counter(
            (number, *pair) for pair, number in ours.items() if theirs.get(pair) != number
        )


def test_a_share_is_a_mapping_like_any_other() -> None:
    share = Share(Owners({"b": 3, "a": 1}, [(0, [("b", 2), ("a", 0), ("b", 0)])]), 0)
    assert list(share) == ["a", "b"]
    assert (len(share), str(share["b"]), "c" in share) == (2, "0,2", False)
    assert share == dict(share)
    assert repr(share) == repr(dict(share))
    assert not Share(Owners({}, []), 5)
