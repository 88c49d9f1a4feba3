"""The vote: plain majorities, and ties against tables that Java and Scala themselves printed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.coordinator import candidates, elect
from rebal.groups.jvmhash import string_hash
from rebal.groups.model import CoordinatorKind

JAVA, SCALA, UNKNOWN = CoordinatorKind.JAVA, CoordinatorKind.SCALA, CoordinatorKind.UNKNOWN
TIES = Path(__file__).parent.parent / "data" / "vote" / "ties.tsv"
COOP = "cooperative-sticky"

assignor = st.sampled_from(["range", "roundrobin", "sticky", COOP, "mine"])
one_list = st.lists(assignor, min_size=1, max_size=5, unique=True)
members = st.lists(one_list, min_size=1, max_size=6)


def test_candidates_are_what_every_list_holds():
    assert candidates([["range", COOP], [COOP, "range", "sticky"]]) == (COOP, "range")
    assert candidates([["range"], [COOP]]) == ()
    assert candidates([]) == ()
    vote = elect([["range"], [COOP]], JAVA)
    assert (vote.assignor, vote.candidates, vote.votes, vote.tie) == (None, (), {}, False)


def test_a_member_votes_for_its_first_candidate_not_for_its_first_name():
    vote = elect([["sticky", "range", COOP], [COOP, "range"], ["range", COOP]], JAVA)
    assert vote.votes == {COOP: 1, "range": 2}
    assert (vote.assignor, vote.tie) == ("range", False)


@pytest.mark.parametrize("other", ["range", "roundrobin", "sticky"])
def test_the_two_coordinators_break_the_tie_of_an_upgrade_differently(other):
    lists = [[COOP, other], [other, COOP]]
    assert elect(lists, JAVA).assignor == other
    assert elect(lists, SCALA).assignor == COOP
    unknown = elect(lists, UNKNOWN)
    assert (unknown.assignor, unknown.tie) == (None, True)


def test_every_printed_tie_is_told_right_or_left_open():
    told: Counter[tuple[str, bool]] = Counter()
    for row in TIES.read_text(encoding="utf-8").splitlines():
        joined, java, scala = row.split("\t")
        names = joined.split(",")
        lists = [[name, *(n for n in names if n != name)] for name in names]
        for kind, expected in ((JAVA, java), (SCALA, scala)):
            vote = elect(lists, kind)
            assert vote.tie
            assert vote.assignor in (expected, None)
            told[kind.value, vote.assignor is not None] += 1
    assert told["java", True] > 5 * told["java", False]
    assert told["scala", True] > 50 * told["scala", False]


@pytest.mark.parametrize("kind", [JAVA, SCALA])
def test_names_of_one_hash_stay_open(kind):
    assert string_hash("Aa") == string_hash("BB") == 2112
    vote = elect([["Aa", "BB"], ["BB", "Aa"]], kind)
    assert (vote.assignor, vote.tie) == (None, True)


@given(members, st.sampled_from([JAVA, SCALA, UNKNOWN]))
def test_the_elected_one_is_a_candidate_with_the_most_votes(lists, kind):
    vote = elect(lists, kind)
    assert sum(vote.votes.values()) == (len(lists) if vote.candidates else 0)
    if vote.assignor is not None:
        assert all(vote.assignor in names for names in lists)
        assert vote.votes[vote.assignor] == max(vote.votes.values())
    elif vote.candidates:
        assert vote.tie
