"""Single rules of the coordinator that Kafka's source fixes, request by request."""

from random import Random

import pytest

from rebal.groups.assignors.javatable import hash_order
from rebal.groups.model import CoordinatorKind, GroupState
from rebal.planner.rehearsal.engine.memory import (
    Error,
    table_order,
    table_size,
)
from tests.planner.rehearsal.scenes import Member, Table

JAVA, SCALA = CoordinatorKind.JAVA, CoordinatorKind.SCALA


def test_leader_that_leaves_is_replaced_by_the_first_member_of_the_hash_table() -> None:
    a, b, c = Member("a"), Member("b"), Member("c")
    table = Table(b, c)
    table.group.leave("b", b)
    assert table.group.leader == "c"
    # a comes before c in the hash table, but c leads already.
    table.group.join(a.request(known=False), a)
    table.join(a, c)
    assert (table.group.phase, table.group.leader) == (GroupState.COMPLETING_REBALANCE, "c")


def test_leader_gets_the_members_in_the_order_of_the_hash_table() -> None:
    members = [Member(name) for name in ("c", "a", "b")]
    table = Table(*members)
    table.join(*members)
    assert [one.member_id for one in members[0].joins[-1].members] == ["a", "b", "c"]


def test_static_member_that_is_down_is_removed_when_it_has_not_synced_in_time() -> None:
    down = Member("down", "i0")
    live = Member("live")
    table = Table(live, down)
    table.group.heartbeats_stopped("down", 0.0, down)
    live_again = live.request(stamp=object())
    table.group.join(live_again, live)
    assert table.seen[0].startswith("preparing")
    # Its session of 45 s ends within the join barrier of 60 s.
    table.later(50)
    assert "removed down: its session timed out" in table.seen

    patient = Member("patient", "i1")
    table = Table(live, patient)
    request = patient.request(session=900.0)
    table.group.seat([(live.request(), live, ()), (request, patient, ())], "range", "live")
    table.group.heartbeats_stopped("patient", 0.0, patient)
    table.group.join(live_again, live)
    table.later(61)
    assert table.group.phase is GroupState.COMPLETING_REBALANCE
    table.sync(live)
    table.later(60)
    assert table.seen[-2:] == [
        "removed patient: it did not sync in time",
        "preparing: a member did not sync in time",
    ]


@pytest.mark.parametrize("kind", [JAVA, SCALA])
def test_session_begins_anew_when_a_rebalance_ends_the_wait_for_the_assignment(
    kind: CoordinatorKind,
) -> None:
    # propagateAssignment of both coordinators schedules the next expiration, with an error too.
    leads, follows = Member("leads"), Member("follows", "i0")
    table = Table(leads, follows, kind=kind)
    table.join(leads, follows)
    table.group.sync("follows", table.group.number, follows)
    table.later(40)
    table.group.leave("leads", leads)
    assert follows.syncs[-1].error is Error.REBALANCE_IN_PROGRESS
    table.group.heartbeats_stopped("follows", 0.0, follows)
    table.later(44)
    assert "removed follows: its session timed out" not in table.seen
    table.later(2)
    assert "removed follows: its session timed out" in table.seen


def test_follower_that_syncs_after_the_leader_stays() -> None:
    a, b = Member("a"), Member("b")
    table = Table(a, b)
    table.join(a, b)
    table.sync(a)
    table.group.sync("b", table.group.number, b)
    table.later(61)
    assert b.syncs[-1].error is Error.NONE
    assert (table.group.phase, table.group.size) == (GroupState.STABLE, 2)


@pytest.mark.parametrize(("kind", "rebalances"), [(JAVA, True), (SCALA, False)])
def test_leave_of_a_pending_member_rebalances_the_group_of_a_java_coordinator(
    kind: CoordinatorKind, rebalances: bool
) -> None:
    a, late = Member("a"), Member("late")
    table = Table(a, kind=kind)
    table.group.join(late.request(known=False), late)
    assert late.joins[-1].error is Error.MEMBER_ID_REQUIRED
    table.group.leave("late", late)
    assert (table.group.phase is GroupState.PREPARING_REBALANCE) is rebalances


@pytest.mark.parametrize(("kind", "at_once"), [(JAVA, True), (SCALA, False)])
def test_expiry_of_a_pending_member_ends_the_first_delay_of_a_java_coordinator(
    kind: CoordinatorKind, at_once: bool
) -> None:
    a, late = Member("a"), Member("late")
    table = Table(kind=kind, initial_delay=50.0)
    table.group.join(a.request(known=False), a)
    table.group.join(a.request(), a)
    table.group.join(late.request(known=False, session=10.0), late)
    table.later(11)
    assert (table.group.phase is GroupState.COMPLETING_REBALANCE) is at_once


def test_group_that_is_too_large_when_it_is_loaded_rebalances() -> None:
    members = [Member(name) for name in "abc"]
    table = Table(*members, max_size=2)
    table.group.move(1.0)
    table.later(2)
    assert table.group.phase is GroupState.PREPARING_REBALANCE
    table.join(*members)
    assert members[2].joins[-1].error is Error.GROUP_MAX_SIZE_REACHED


def test_only_an_empty_group_can_be_deleted_and_a_join_makes_it_anew() -> None:
    a = Member("a")
    table = Table(a)
    assert table.group.delete() is Error.NON_EMPTY_GROUP
    table.group.leave("a", a)
    assert (table.group.phase, table.group.number) == (GroupState.EMPTY, 1)
    assert table.group.delete() is Error.NONE
    assert table.group.phase is GroupState.DEAD
    assert table.group.delete() is Error.GROUP_ID_NOT_FOUND
    table.group.join(a.request(), a)
    assert a.joins[-1].error is Error.UNKNOWN_MEMBER_ID
    table.group.join(a.request(known=False), a)
    table.group.join(a.request(), a)
    table.later(4)
    assert (table.group.phase, table.group.number) == (GroupState.COMPLETING_REBALANCE, 1)


def test_commit_is_answered_by_the_state_of_the_group() -> None:
    a, b = Member("a"), Member("b")
    table = Table(a, b)
    group = table.group
    assert group.commit("a", 0, a) is Error.NONE
    assert group.commit("a", 7, a) is Error.ILLEGAL_GENERATION
    assert group.commit("x", 0, a) is Error.UNKNOWN_MEMBER_ID
    table.join(a)
    assert group.commit("b", 0, b) is Error.NONE
    table.join(b)
    assert group.commit("a", 1, a) is Error.REBALANCE_IN_PROGRESS
    assert group.commit("a", 0, a) is Error.ILLEGAL_GENERATION
    group.move(1.0)
    assert group.commit("a", 1, a) is Error.NOT_COORDINATOR


def test_invalid_session_timeout_is_rejected_before_anything_else() -> None:
    a = Member("a")
    table = Table(max_size=0, min_session=50.0)
    table.group.join(a.request(known=False), a)
    assert a.joins[-1].error is Error.INVALID_SESSION_TIMEOUT


def test_hash_order_of_members_is_that_of_java_and_scala() -> None:
    random = Random(5)
    for count in (1, 7, 12, 13, 40, 100):
        ids = [f"m{number}-{random.getrandbits(64):x}" for number in range(count)]
        size = table_size(16, count, JAVA)
        assert table_order(ids, size, JAVA) == hash_order(ids)
    # Scala doubles its table before the twelfth entry, Java after the thirteenth.
    assert [table_size(16, count, SCALA) for count in (11, 12)] == [16, 32]
    assert [table_size(16, count, JAVA) for count in (12, 13)] == [16, 32]
    # "a" and "q" share a bucket (97 and 113): Scala sorts it, Java keeps the order of insertion.
    assert table_order(["q", "a"], 16, SCALA) == ["a", "q"]
    assert table_order(["q", "a"], 16, JAVA) == ["q", "a"]


@pytest.mark.parametrize(
    ("count", "gone", "order"),
    [
        (2, "", "m0 m1"),
        (3, "", "m2 m0 m1"),
        (5, "", "m0 m2 m4 m1 m3"),
        (6, "", "m5 m0 m2 m4 m1 m3"),
        (12, "", "m0 m5 m2 m7 m4 m11 m9 m1 m6 m3 m10 m8"),
        (12, "m0 m5 m7", "m2 m4 m11 m9 m1 m6 m3 m10 m8"),
        (21, "", "m0 m20 m5 m12 m17 m2 m7 m14 m19 m4 m11 m9 m16 m1 m6 m13 m18 m3 m10 m8 m15"),
    ],
)
def test_hash_order_of_a_kip848_group_is_that_of_kafkas_timeline_map(
    count: int, gone: str, order: str
) -> None:
    # As kafka-server-common 4.1.1 iterates, each key put twice.
    ids = [f"m{number}" for number in range(count) if f"m{number}" not in gone.split()]
    size = 2
    for number in range(count):
        size = table_size(size, number + 1, None)
    assert table_order(ids, size, None) == order.split()


def test_keys_of_one_hash_in_a_timeline_map_come_in_the_reverse_order() -> None:
    ids = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa"]
    ordered = ["BB", "Aa", "BBAa", "AaBB", "BBBB", "AaAa"]
    assert table_order(ids, table_size(2, 6, None), None) == ordered
