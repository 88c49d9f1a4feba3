"""The vote, with ties that Java and Scala printed, and the lists in memory after a load."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.coordinator import candidates, elect, has_whole_lists
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Converted, Left, Loaded, LogRead, Rebalanced
from rebal.groups.jvmhash import string_hash
from rebal.groups.model import Coordinator, CoordinatorKind, Evidence, Source, Timeouts, Tri
from tests.groups.observed import NOW, at, group, joined, member

JAVA, SCALA, UNKNOWN = CoordinatorKind.JAVA, CoordinatorKind.SCALA, CoordinatorKind.UNKNOWN
TIES = Path(__file__).parent.parent / "data" / "vote" / "ties.tsv"
COOP = "cooperative-sticky"

assignor = st.sampled_from(["range", "roundrobin", "sticky", COOP, "mine"])
one_list = st.lists(assignor, min_size=1, max_size=5, unique=True)
members = st.lists(one_list, min_size=1, max_size=6)


def test_candidates_of_the_vote_are_the_assignors_in_every_list():
    assert candidates([["range", COOP], [COOP, "range", "sticky"]]) == (COOP, "range")
    assert candidates([["range"], [COOP]]) == ()
    assert candidates([]) == ()
    vote = elect([["range"], [COOP]], JAVA)
    assert (vote.assignor, vote.candidates, vote.votes, vote.tie) == (None, (), {}, False)


def test_a_member_votes_for_its_first_common_assignor_not_for_its_first_entry():
    vote = elect([["sticky", "range", COOP], [COOP, "range"], ["range", COOP]], JAVA)
    assert vote.votes == {COOP: 1, "range": 2}
    assert (vote.assignor, vote.tie) == ("range", False)


@pytest.mark.parametrize("other", ["range", "roundrobin", "sticky"])
def test_the_java_and_scala_coordinators_break_a_vote_tie_differently(other):
    lists = [[COOP, other], [other, COOP]]
    assert elect(lists, JAVA).assignor == other
    assert elect(lists, SCALA).assignor == COOP
    unknown = elect(lists, UNKNOWN)
    assert (unknown.assignor, unknown.tie) == (None, True)


def test_every_recorded_vote_tie_is_predicted_right_or_left_open():
    predicted: Counter[tuple[str, bool]] = Counter()
    for row in TIES.read_text(encoding="utf-8").splitlines():
        joined, java, scala = row.split("\t")
        names = joined.split(",")
        lists = [[name, *(n for n in names if n != name)] for name in names]
        for kind, expected in ((JAVA, java), (SCALA, scala)):
            vote = elect(lists, kind)
            assert vote.tie
            assert vote.assignor in (expected, None)
            predicted[kind.value, vote.assignor is not None] += 1
    assert predicted["java", True] > 5 * predicted["java", False]
    assert predicted["scala", True] > 50 * predicted["scala", False]


@pytest.mark.parametrize("kind", [JAVA, SCALA])
def test_a_vote_tie_of_names_with_equal_hashes_is_left_open(kind):
    assert string_hash("Aa") == string_hash("BB") == 2112
    vote = elect([["Aa", "BB"], ["BB", "Aa"]], kind)
    assert (vote.assignor, vote.tie) == (None, True)


@given(members, st.sampled_from([JAVA, SCALA, UNKNOWN]))
def test_the_elected_assignor_is_a_candidate_with_the_most_votes(lists, kind):
    vote = elect(lists, kind)
    assert sum(vote.votes.values()) == (len(lists) if vote.candidates else 0)
    if vote.assignor is not None:
        assert all(vote.assignor in names for names in lists)
        assert vote.votes[vote.assignor] == max(vote.votes.values())
    elif vote.candidates:
        assert vote.tie


WHERE = {"log": "server.log", "origin": "broker 1"}
EVIDENCE = Evidence(source=Source.BROKER_LOG)


def where(line: int, **fields: Any) -> dict[str, Any]:
    return {**WHERE, "line": line, "group_id": "g", "at": at(line), "evidence": EVIDENCE} | fields


def log(**fields: Any) -> LogRead:
    made = {"broker_id": 1, "last_at": NOW - timedelta(minutes=1), "read_at": NOW}
    return LogRead(**WHERE, kind="broker", **{**made, **fields})


def coordinator_of(*seen: Any, known: Tri = Tri.CANNOT_TELL) -> Coordinator:
    return merge(group(member("a"), rebalanced=known), seen).group.coordinator


JOIN = joined("a", line=1, **WHERE)
LOAD = Loaded(**where(2))
GENERATION = Rebalanced(**where(3), generation_id=4)
OLDER = Rebalanced(**where(3, log="server.log.1"), generation_id=4)
OLD = {"log": "server.log.1", "last_at": NOW - timedelta(minutes=3)}
ROTATED = replace(log(members=frozenset({("g", "a-id")})), **OLD)


@pytest.mark.parametrize(
    ("seen", "answer"),
    [
        ((JOIN, LOAD, GENERATION, log()), Tri.YES),
        ((JOIN, GENERATION, log()), Tri.YES),
        ((JOIN, LOAD, log()), Tri.NO),
        ((LOAD, log()), Tri.NO),
        ((JOIN, GENERATION, Loaded(**where(5)), log()), Tri.NO),
        ((JOIN, log()), Tri.CANNOT_TELL),
        ((LOAD, GENERATION, log()), Tri.CANNOT_TELL),
        ((LOAD, GENERATION, log(members=frozenset({("g", "a-id")}))), Tri.YES),
        ((JOIN, OLDER, log()), Tri.CANNOT_TELL),
        ((OLDER, ROTATED, LOAD, log()), Tri.NO),
        ((JOIN, LOAD, GENERATION), Tri.CANNOT_TELL),
        ((JOIN, LOAD, GENERATION, log(broker_id=2)), Tri.CANNOT_TELL),
        ((JOIN, LOAD, GENERATION, log(last_at=NOW - timedelta(minutes=9))), Tri.CANNOT_TELL),
        ((JOIN, LOAD, GENERATION, log(last_at=None)), Tri.CANNOT_TELL),
        # Newest first, or rotated files joined by name.
        ((LOAD, Rebalanced(**where(3, at=at(1)), generation_id=4), JOIN, log()), Tri.NO),
        ((Loaded(**where(4, at=at(2))), GENERATION, JOIN, log()), Tri.YES),
        # The clock was set back between the two.
        ((JOIN, Rebalanced(**where(2, at=at(8)), generation_id=4), Loaded(**where(3)),
          joined("b", line=9, minute=9, **WHERE), log()), Tri.NO),
    ],
)  # fmt: skip
def test_a_rebalance_since_the_reload_is_proven_only_by_the_coordinators_current_log(
    seen: Any, answer: Tri
) -> None:
    assert coordinator_of(*seen).rebalanced_since_load is answer


def test_the_log_gives_the_reload_time_and_never_overrides_the_answer_of_records() -> None:
    seen = (JOIN, LOAD, GENERATION, log())
    assert coordinator_of(*seen).loaded_at == at(2)
    kept = coordinator_of(*seen, known=Tri.NO)
    assert (kept.rebalanced_since_load, kept.loaded_at) == (Tri.NO, None)


def test_a_member_with_an_expired_session_has_departed_without_a_leave_request() -> None:
    expiry = Left(**where(6), member_id="b-id", reason="session expired", expired=True)
    merged = merge(group(member("a")), (JOIN, joined("b", line=2, **WHERE), expiry, log()))
    (departed,) = merged.departed
    assert (departed.left, departed.left_at) == (False, None)
    assert (departed.reason, departed.last_seen) == ("session expired", at(6))


def test_an_expired_member_counts_as_departed_even_if_its_accepted_join_is_not_logged() -> None:
    # The Scala coordinator prints no join that comes while the group rebalances already.
    given = joined("b", line=2, new=True, accepted=False, **WHERE)
    expiry = Left(**where(6), member_id="b-id", expired=True)
    assert len(merge(group(member("a")), (JOIN, given, expiry, log())).departed) == 1
    assert merge(group(member("a")), (JOIN, given, log())).departed == ()


def test_a_process_restarted_before_its_old_session_expired_counts_as_replaced() -> None:
    expiry = Left(**where(6), member_id="b-id", expired=True)
    again = joined("a", minute=4, line=4, new=True, client_id="b", **WHERE)
    first = joined("b", minute=2, line=2, client_id="b", **WHERE)
    assert merge(group(member("a")), (first, again, expiry, log())).departed == ()


def test_a_group_conversion_in_the_broker_log_is_noted() -> None:
    made = Converted(**where(6), what="Converted the classic group to a consumer group")
    (note,) = merge(group(member("a")), (JOIN, made, log())).notes
    assert note.startswith("the broker's log (): Converted the classic group")


SECOND = timedelta(seconds=1)
LOADED = NOW - 60 * SECOND


@pytest.mark.parametrize(
    ("rebalanced", "whole"), [(Tri.YES, True), (Tri.NO, False), (Tri.CANNOT_TELL, False)]
)
def test_the_coordinator_knows_dynamic_members_lists_only_after_a_rebalance(
    rebalanced: Tri, whole: bool
) -> None:
    assert has_whole_lists(group(member("a"), rebalanced=rebalanced)) is whole


@pytest.mark.parametrize(
    ("epoch", "joined", "generation", "compared", "whole"),
    [
        (0, None, None, True, True),  # never loaded
        (3, None, None, True, False),
        (3, LOADED + SECOND, None, True, False),  # the log's clock may be ahead
        (3, LOADED + 10 * SECOND, None, True, True),
        (3, None, NOW - 40 * SECOND, True, False),  # its session may still last
        (3, None, NOW - 46 * SECOND, True, False),
        (3, None, NOW - 51 * SECOND, True, True),
        (3, None, NOW - 51 * SECOND, False, False),  # by a clock that was not compared
    ],
)
def test_lists_are_incomplete_while_a_static_member_may_be_down_since_the_reload(
    epoch: int, joined: Any, generation: Any, compared: bool, whole: bool
) -> None:
    static = member("a", instance_id="a", joined_at=joined, timeouts=Timeouts(session_ms=45_000))
    made = group(static, member("b"))
    coordinator = replace(made.group.coordinator, leader_epoch=epoch, loaded_at=LOADED)
    about = replace(made.group, coordinator=coordinator, generation_at=generation)
    assert has_whole_lists(replace(made, group=about, clock_compared=compared)) is whole
