"""The vote: plain majorities, and ties against tables that Java and Scala themselves printed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.jvmhash import string_hash
from rebal.groups.model import CoordinatorKind
from rebal.groups.vote import candidates, elect

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


def test_a_member_votes_for_its_first_candidate_not_for_its_first_name():
    vote = elect([["sticky", "range", COOP], [COOP, "range"], ["range", COOP]], JAVA)
    assert vote.votes == {COOP: 1, "range": 2}
    assert (vote.assignor, vote.tie) == ("range", False)


def test_no_candidate_elects_nobody():
    vote = elect([["range"], [COOP]], JAVA)
    assert (vote.assignor, vote.candidates, vote.votes, vote.tie) == (None, (), {}, False)


@pytest.mark.parametrize("other", ["range", "roundrobin", "sticky"])
def test_the_two_coordinators_break_the_tie_of_an_upgrade_differently(other):
    lists = [[COOP, other], [other, COOP]]
    assert elect(lists, JAVA).assignor == other
    assert elect(lists, SCALA).assignor == COOP
    unknown = elect(lists, UNKNOWN)
    assert (unknown.assignor, unknown.tie) == (None, True)


@pytest.mark.parametrize(
    ("one", "other", "java", "scala"),
    [("range", "roundrobin", "range", "roundrobin"), ("range", "sticky", "sticky", "range")],
)
def test_ties_of_eager_assignors(one, other, java, scala):
    lists = [[one, other], [other, one]]
    assert elect(lists, JAVA).assignor == java
    assert elect(lists, SCALA).assignor == scala


def test_every_printed_tie_is_told_right_or_left_open(capsys):
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
    with capsys.disabled():
        print(f"\nties (coordinator, told): {dict(told)}")


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


@given(members.flatmap(lambda lists: st.tuples(st.just(lists), st.permutations(lists))))
def test_the_order_of_members_does_not_matter(pair):
    lists, shuffled = pair
    assert elect(lists, JAVA) == elect(shuffled, JAVA)
    assert elect(lists, SCALA) == elect(shuffled, SCALA)


def test_what_the_captured_coordinator_elected(captures):
    """Every generation whose members all joined it while the request log was on.

    Of a group that was created again with a generation of the same number, the later one.
    """
    broker = captures.document("truth.json")["broker"]
    kind = JAVA if int(re.search(r"(\d+)\.\d", broker)[1]) >= 4 else SCALA
    lists: dict[tuple[str, int], dict[str, list[str]]] = {}
    led: dict[tuple[str, int], tuple[str, list[str]]] = {}
    for request in captures.requests("JOIN_GROUP"):
        asked, answer = request["request"], request["response"]
        if answer["errorCode"] or answer.get("skipAssignment"):
            continue
        generation = asked["groupId"], answer["generationId"]
        sent = [protocol["name"] for protocol in asked["protocols"]]
        lists.setdefault(generation, {})[answer["memberId"]] = sent
        if answer["members"]:
            members = [member["memberId"] for member in answer["members"]]
            led[generation] = answer["protocolName"], members
    checked = 0
    for generation, (elected, members) in led.items():
        known = lists[generation]
        if set(members) <= set(known):
            assert elect([known[member] for member in members], kind).assignor == elected
            checked += 1
    assert checked > (50 if captures.bundled else 0)
