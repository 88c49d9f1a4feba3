"""The timeline, story by story: what a coordinator writes and logs, what the tables say of it."""

from __future__ import annotations

import random
from collections import deque
from datetime import datetime
from typing import Any

import pytest

from rebal.inspectors.fleet import timeline_causes as causes
from rebal.inspectors.fleet.timeline_group import GroupTimeline, Shared
from rebal.inspectors.fleet.timeline_order import Raw
from rebal.inspectors.fleet.timeline_tables import Rows
from rebal.inspectors.fleet.timeline_values import Values
from tests.fleet.conftest import CAPTURES
from tests.fleet.timeline_input import (
    Row,
    captured_records,
    captured_requests,
    in_order,
    micros,
    tables,
)
from tests.fleet.timeline_story import SECOND, START, M, Story

EMPTY = "Empty"


def at(moment: datetime | None) -> float | None:
    """Seconds since the story's beginning."""
    return None if moment is None else (micros(moment) - START) / SECOND


def only(rows: list[Row], **wanted: Any) -> Row:
    found = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
    assert len(found) == 1, found
    return found[0]


def facts(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def numbers(row: Row, column: str = "assignment") -> list[int]:
    return [n for one in row[column] for n in one["partitions"]]


def test_a_group_from_its_birth_to_its_emptying() -> None:
    story = Story()
    story.generation(1, 0, [], protocol_type="")
    story.generation(2, 1, [M("a", (0, 1))])
    story.generation(30, 2, [M("a", (0,)), M("b", (1,))])
    story.generation(60, 4, [M("b", (0, 1))])
    story.generation(90, 5, [])
    made = tables(story.rows, observed=(START, START + 3600 * SECOND))
    group = only(made["groups"])
    assert facts(group, "type", "state", "generation", "members", "incarnation", "partition") == (
        "classic", EMPTY, 5, 0, 1, 0,
    )  # fmt: skip
    assert facts(group, "rebalance_total", "failed_rebalance_total") == (3, 1)
    assert group["sources"] == ["offsets topic"]
    assert group["rebalance_rate_per_hour"] == 3
    assert group["last_rebalance_seconds_ago"] == 3540
    assert facts(group, "refused_total", "rebalance_latency_avg_ms") == (None, None)
    rows = made["rebalances"]
    assert [
        facts(r, "generation", "cause", "joined", "left", "moved", "stopped") for r in rows
    ] == [
        (1, causes.FIRST, ["a"], [], 0, 0),
        (2, causes.JOINED, ["b"], [], 1, 2),
        (3, None, None, None, None, None),
        (4, causes.LEFT, [], ["a"], 1, 1),
        (5, causes.LEFT, [], ["b"], 0, 0),
    ]
    assert [row["failed"] for row in rows] == [False, False, True, False, False]
    assert {row["refused"] and tuple(row["refused"]) for row in rows} == {None}
    spans = [facts(m, "member_id", "first_generation", "last_generation") for m in made["members"]]
    assert sorted(spans) == [("a", 1, 1), ("a", 2, 2), ("b", 2, 2), ("b", 4, 4)]
    left = only(made["members"], member_id="b", first_generation=4)
    assert (at(left["left_at"]), left["left_reason"], left["current"]) == (90, None, False)
    assert at(only(made["members"], member_id="b", first_generation=2)["joined_at"]) == 30


def test_what_does_not_change_is_one_row() -> None:
    story = Story()
    for number in range(1, 6):
        story.generation(number * 10, number, [M("a", (0,), generation=number), M("b", (number,))])
    made = tables(story.rows)
    a = only(made["members"], member_id="a")
    assert facts(a, "first_generation", "last_generation", "subscription_generation") == (1, 5, 5)
    assert (at(a["first_at"]), at(a["last_at"]), a["current"]) == (10, 50, True)
    assert sum(row["member_id"] == "b" for row in made["members"]) == 5


def test_a_static_restart_is_no_rebalance_and_may_hide_a_list() -> None:
    old, other = M("s-1", (0,), instance="s"), M("b", (1,))
    new = M("s-2", (0,), instance="s")
    topic, log = Story(), Story()
    topic.generation(2, 3, [other, old], stamp=1.9)
    log.round(1.9, 3, [other, old])
    topic.generation(100, 3, [other, new], stamp=2)
    log.join(100.1, "s-2", 3, ("cooperative-sticky", "range"), instance_id="s", leader="b")
    for rows in ([*topic.rows, *log.rows], log.rows, topic.rows):
        made = tables(rows)
        assert [row["generation"] for row in made["rebalances"]] == [3]
        gone = only(made["members"], member_id="s-1")
        assert gone["left_reason"] == causes.RESTARTED
        back = only(made["members"], member_id="s-2")
        assert facts(back, "first_generation", "last_generation", "current") == (3, 3, True)
        assert numbers(back) == [0]
        hidden = [row for row in made["incidents"] if row["kind"] == "hidden list"]
        if rows is topic.rows:
            assert hidden == []
            assert back["assignors"] is None
            continue
        (incident,) = hidden
        assert incident["members"] == ["s-2"]
        assert (
            "s restarted with [cooperative-sticky, range] instead of [range]" in incident["detail"]
        )
        listed = only(made["assignor_lists"], member_id="s-2")
        assert listed["replaced_member_id"] == "s-1"
        assert back["assignors"] == ["cooperative-sticky", "range"]


def test_a_static_restart_that_changes_the_vote_is_one() -> None:
    story = Story()
    story.round(2, 1, [M("s-1", (0,), instance="s")], {"s-1": ("range", "sticky")})
    story.generation(2.05, 1, [M("s-1", (0,), instance="s")])
    story.round(50, 2, [M("s-2", (0,), instance="s")], {"s-2": ("cooperative-sticky",)})
    story.generation(50.05, 2, [M("s-2", (0,), instance="s")], "cooperative-sticky")
    row = tables(story.rows)["rebalances"][1]
    assert facts(row, "cause", "assignor_before", "assignor", "joined", "left", "moved") == (
        causes.LISTS, "range", "cooperative-sticky", [], [], 0,
    )  # fmt: skip
    assert facts(row, "protocol_before", "protocol") == ("EAGER", "COOPERATIVE")


def test_deleted_and_created_again() -> None:
    story = Story()
    story.generation(10, 1, [M("a", (0,))])
    story.generation(20, 2, [])
    story.tombstone(30)
    story.generation(40, 0, [], protocol_type="")
    story.generation(41, 1, [M("b", (0,))])
    made = tables(story.rows)
    group = only(made["groups"])
    assert facts(group, "incarnation", "state", "deleted_at", "members") == (2, "Stable", None, 1)
    assert [facts(r, "incarnation", "generation") for r in made["rebalances"]] == [
        (1, 1), (1, 2), (2, 1),
    ]  # fmt: skip
    assert [row["kind"] for row in made["incidents"]] == ["deleted", "recreated"]
    assert only(made["members"], member_id="b")["incarnation"] == 2


def test_deleted_with_members_in_it() -> None:
    story = Story()
    story.generation(10, 7, [M("a", (0,))])
    story.tombstone(30)
    made = tables(story.rows)
    group = only(made["groups"])
    assert facts(group, "state", "members", "generation") == ("Dead", 0, None)
    assert at(group["deleted_at"]) == 30
    member = only(made["members"])
    assert (at(member["left_at"]), member["left_reason"]) == (30, causes.DELETED)


def test_created_again_as_only_the_log_shows_it() -> None:
    story = Story()
    for number, when in ((1, 10), (2, 60), (3, 90)):
        story.round(when, number, [M("a", (0,), client="one")])
    for number, when in ((1, 200), (2, 250), (3, 300)):
        story.round(when, number, [M("b", (0,), client="one")])
    made = tables(story.rows)
    assert [facts(r, "incarnation", "generation") for r in made["rebalances"]] == [
        (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3),
    ]  # fmt: skip
    assert [row["kind"] for row in made["incidents"]] == ["recreated"]


def test_compacted_history_claims_nothing_of_before() -> None:
    story = Story()
    story.generation(100, 57, [M("a", (0,), session=5_000, rebalance=5_000)], stamp=3)
    story.generation(130, 58, [M("a", (0,)), M("b", (1,))])
    made = tables(story.rows)
    first, second = made["rebalances"]
    assert facts(first, "generation", "cause", "joined", "left", "moved", "stopped") == (
        57, None, None, None, None, None,
    )  # fmt: skip
    assert at(first["ended_at"]) == 3, "the record is a later rewrite: its state is older than it"
    assert facts(second, "cause", "joined", "left") == (causes.JOINED, ["b"], [])
    assert only(made["members"], member_id="a", first_generation=57)["joined_at"] is None


def test_online_conversion_to_kip_848_and_back() -> None:
    story = Story()
    classic, modern = M("c", (0, 1, 2, 3)), M("n", (2, 3))
    story.generation(10, 3, [classic])
    story.tombstone(50)
    story.member(50, classic, ("range", "cooperative-sticky"))
    story.epoch(50, 3)
    story.target(50, "c", (0, 1, 2, 3))
    story.target_epoch(50, 3)
    story.current(50, "c", 3, (0, 1, 2, 3))
    story.member(50, modern)
    story.epoch(50, 4)
    story.target(50, "c", (0, 1))
    story.target(50, "n", (2, 3))
    story.target_epoch(50, 4)
    story.current(50, "n", 4, ())
    story.current(52, "c", 4, (0, 1))
    story.current(53, "n", 4, (2, 3))
    story.gone(80, "n")
    story.gone(80, "c")
    story.put(80, 6, None)
    story.put(80, 3, None)
    story.generation(80, 5, [M("c", (0, 1))])
    story.generation(81, 6, [M("c", (0, 1, 2, 3))])
    made = tables(story.rows)
    kinds = [facts(row, "kind", "members") for row in made["incidents"]]
    assert kinds == [("converted to consumer", ["c"]), ("converted to classic", ["c", "n"])]
    by_number = {row["generation"]: row for row in made["rebalances"]}
    assert sorted(by_number) == [3, 4, 5, 6]
    fourth = by_number[4]
    assert facts(fourth, "cause", "joined", "left", "moved", "members") == (
        causes.JOINED, ["n"], [], 2, 2,
    )  # fmt: skip
    assert (at(fourth["started_at"]), at(fourth["ended_at"])) == (50, 53)
    assert fourth["latency_ms"] == 3000
    listed = only(made["assignor_lists"])
    assert facts(listed, "member_id", "assignors", "evidence") == (
        "c", ["range", "cooperative-sticky"], "offsets topic",
    )  # fmt: skip
    in_fourth = [m for m in made["members"] if m["first_generation"] == 4]
    assert {facts(m, "member_id", "protocol_type") for m in in_fourth} == {
        ("c", "classic"), ("n", "consumer"),
    }  # fmt: skip
    assert [one["topic"] for m in in_fourth for one in m["assignment"]] == ["t", "t"]
    assert facts(only(made["groups"]), "type", "state", "incarnation", "deleted_at") == (
        "classic", "Stable", 1, None,
    )  # fmt: skip


def test_a_kip_848_group_that_is_deleted_or_still_moving() -> None:
    story = Story()
    story.member(1, M("n"))
    story.epoch(1, 1)
    story.target_epoch(1, 1)
    story.target(1, "n", (0, 1))
    story.current(1, "n", 1, (0,))
    moving = only(tables(story.rows)["groups"])
    assert facts(moving, "type", "state", "generation", "assignment_epoch") == (
        "consumer", "Reconciling", 1, 1,
    )  # fmt: skip
    story.gone(9, "n")
    story.put(9, 6, None)
    story.put(9, 3, None)
    dead = only(tables(story.rows)["groups"])
    assert facts(dead, "state", "members") == ("Dead", 0)


def test_compacted_kip_848_records() -> None:
    story = Story()
    story.member(1, M("n", instance="i"))
    story.target(5, "n", (0,))
    story.current(6, "n", 12, (0,))
    story.epoch(7, 12)
    story.target_epoch(7, 12)
    made = tables(story.rows)
    member = only(made["members"])
    assert facts(member, "first_generation", "instance_id", "current") == (12, "i", True)
    assert numbers(member) == numbers(member, "target") == [0]


@pytest.mark.parametrize(("kind", "name"), [(11, "share"), (17, "streams")])
def test_groups_of_other_types_are_named(kind: int, name: str) -> None:
    story = Story()
    story.put(1, kind, b"\0\0\0\0\0\x01\0")
    made = tables(story.rows)
    assert facts(only(made["groups"]), "type", "state", "generation", "members") == (
        name, None, None, None,
    )  # fmt: skip
    assert made["errors"] == []


def test_what_cannot_be_read_is_told_and_the_rest_goes_on() -> None:
    story = Story()
    story.put(1, 2, b"\0\x09nonsense")
    story.generation(2, 1, [M("a", (0,), sent=b"\0\x01junk"), M("b", (1,))])
    story.put(3, 5, b"\0\0", "n")
    made = tables(story.rows)
    assert [row["offset"] for row in made["errors"]] == [0, 2]
    assert "version 9 is not one of 0 to 4" in made["errors"][0]["error"]
    assert made["errors"][0]["value"] == b"\0\x09nonsense"
    broken = only(made["members"], member_id="a")
    assert broken["topics"] is None
    assert "subscription" in broken["error"]
    assert numbers(broken) == [0]
    assert only(made["members"], member_id="b")["error"] is None


def test_connect_workers_have_no_topics() -> None:
    story = Story()
    story.generation(2, 1, [M("w", sent=b"\0\x01")], "sessioned", protocol_type="connect")
    made = tables(story.rows)
    worker = only(made["members"])
    assert facts(worker, "protocol_type", "topics", "assignment", "error") == (
        "classic", None, None, None,
    )  # fmt: skip
    assert made["rebalances"][0]["protocol"] == "COOPERATIVE"


def test_a_log_alone_tells_members_lists_and_latency() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0, 1))], took=2)
    story.round(40, 2, [M("a", (0,)), M("b", (1,))], {"b": ("sticky", "range")}, took=1)
    story.leave(70, "a", "the consumer is being closed")
    story.round(71, 3, [M("b", (0, 1))], {"b": ("sticky", "range")}, took=0.5)
    made = tables(story.rows)
    rows = made["rebalances"]
    assert [facts(r, "generation", "cause", "joined", "evidence") for r in rows] == [
        (1, causes.FIRST, ["a"], "request log"),
        (2, causes.JOINED, ["b"], "request log"),
        (3, causes.LEFT, [], "request log"),
    ]
    assert [row["latency_ms"] for row in rows] == pytest.approx([2100, 1100, 600])
    group = only(made["groups"])
    assert group["rebalance_latency_max_ms"] == pytest.approx(2100)
    assert group["rebalance_latency_total_ms"] == pytest.approx(3800)
    gone = only(made["members"], member_id="a", last_generation=2)
    assert (at(gone["left_at"]), gone["left_reason"]) == (70, "the consumer is being closed")
    assert only(made["assignor_lists"], member_id="b")["times"] == 2


def test_who_left_after_the_last_rebalance_is_gone() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0,)), M("b", (1,))])
    story.leave(50, "b")
    made = tables(story.rows)
    assert only(made["groups"])["members"] == 1
    gone = only(made["members"], member_id="b")
    assert facts(gone, "current", "left_reason") == (False, causes.LEFT)


def test_a_session_that_expired_is_told_only_where_the_log_saw_it_all() -> None:
    def story(log_from: int) -> Story:
        made = Story()
        for number, members in ((1, [M("a", (0,)), M("b", (1,))]), (2, [M("a", (0, 1))])):
            if number >= log_from:
                made.round(number * 50, number, members)
            made.generation(number * 50 + 0.05, number, members)
        return made

    seen = tables(story(1).rows)
    assert seen["rebalances"][1]["cause"] == causes.EXPIRED
    assert only(seen["incidents"])["kind"] == "session expired"
    assert only(seen["members"], member_id="b")["left_reason"] == causes.EXPIRED
    late = tables(story(2).rows)
    assert late["rebalances"][1]["cause"] == causes.LEFT
    assert late["incidents"] == []
    assert only(late["members"], member_id="b")["left_reason"] is None


def test_a_member_that_did_not_rejoin_in_time_did_not_expire() -> None:
    story = Story()
    quick = [M("a", (0,), rebalance=5_000), M("b", (1,), rebalance=5_000)]
    story.round(10, 1, quick)
    story.round(60, 2, [M("a", (0,)), M("c", (1,))], took=5)
    made = tables(story.rows)
    assert made["rebalances"][1]["cause"] == causes.JOINED
    assert only(made["members"], member_id="b")["left_reason"] == causes.NOT_REJOINED


def test_a_slow_member_says_so() -> None:
    story = Story()
    both = [M("a", (0,)), M("b", (1,))]
    story.round(10, 1, both)
    story.leave(59, "b", "consumer poll timeout has expired.")
    story.round(60, 2, [M("a", (0, 1))])
    made = tables(story.rows)
    assert made["rebalances"][1]["cause"] == causes.SLOW
    assert facts(only(made["incidents"]), "kind", "members") == ("slow member", ["b"])


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("need to revoke partitions and re-join", causes.FOLLOW_UP),
        ("cached metadata has changed from (version1) at the beginning", causes.TOPICS),
        ("rebalance failed due to UnknownMemberIdException", causes.REBALANCED_AGAIN),
        ("rebalance enforced by user", causes.REJOINED),
        ("group is already rebalancing", None),
    ],
)
def test_the_reason_of_kip_800_is_the_cause(reason: str, cause: str | None) -> None:
    story = Story()
    members = [M("a", (0,)), M("b", (1,))]
    story.round(10, 1, members)
    story.join(60, "b", 2, reason=reason, total_ms=900)
    story.join(60, "a", 2, reason="group is already rebalancing", total_ms=100)
    story.generation(60.1, 2, members)
    assert tables(story.rows)["rebalances"][1]["cause"] == cause


def test_causes_that_the_records_show() -> None:
    story = Story()
    a, b = M("a", (0, 1), (0, 1)), M("b", (), ())
    both = "cooperative-sticky"
    story.generation(10, 1, [M("a", (0, 1))], both)
    story.generation(20, 2, [M("a", (0,), (0, 1)), b], both)
    story.generation(21, 3, [M("a", (0,), (0,)), M("b", (1,))], both)
    story.generation(40, 4, [M("a", (0, 2), (0,)), M("b", (1,), (1,))], both)
    story.generation(60, 5, [M("a", (0, 2), (0, 2), topics=("t", "u")), M("b", (1,), (1,))], both)
    story.generation(80, 6, [a, M("c", (2,))], both)
    rows = tables(story.rows)["rebalances"]
    assert [row["cause"] for row in rows] == [
        causes.FIRST,
        causes.JOINED,
        causes.FOLLOW_UP,
        causes.TOPICS,
        causes.SUBSCRIPTION,
        causes.BOTH,
    ]
    assert [row["moved"] for row in rows[:4]] == [0, 0, 1, 0], "withheld by a, then given to b"
    assert [row["stopped"] for row in rows[1:4]] == [1, 0, 0]


def test_what_is_stopped_goes_by_each_members_own_protocol() -> None:
    story = Story()
    members = [M("e", (0, 1)), M("k", (2, 3))]
    lists = {"e": ("cooperative-sticky", "range"), "k": ("cooperative-sticky",)}
    assert members[0].id == "e"
    story.round(10, 1, members, lists)
    story.generation(10.05, 1, members, "cooperative-sticky")
    later = [M("e", (0,)), M("k", (2, 3), (2, 3)), M("x", (1,))]
    story.round(60, 2, later, {**lists, "x": ("cooperative-sticky",)})
    story.generation(60.05, 2, later, "cooperative-sticky")
    row = tables(story.rows)["rebalances"][1]
    assert facts(row, "stopped", "protocol_before", "protocol") == (2, "mixed", "mixed")
    silent = [r for r in story.rows if r["api"] is None]
    unknown = tables(silent)["rebalances"][1]
    assert facts(unknown, "stopped", "protocol") == (None, None), "e's list is not known"


def test_a_member_whose_sync_came_too_late_had_nothing_to_stop() -> None:
    story = Story()
    first, second = [M("a", (0,)), M("b", (1,))], [M("a", (1,)), M("b", (0,))]
    story.round(10, 1, [M("a", (0, 1))])
    story.round(60, 2, first)
    story.rows = [
        row
        for row in story.rows
        if (row["api"], row["generation"], row["member_id"]) != ("SYNC_GROUP", 2, "b")
    ]
    story.ask(61, "SYNC_GROUP", member_id="b", generation=2, error=27)
    story.round(62, 3, second)
    assert [row["stopped"] for row in tables(story.rows)["rebalances"][1:]] == [2, 1]


def test_refusals_are_counted_once_each_and_make_a_crash_loop() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0,))])
    for when in (20, 25, 31, 40):
        story.refuse(when, "bad", ("cooperative-sticky",))
    story.join(41, "a", 1, error=79)
    story.ask(42, "JOIN_GROUP", error=23, probe=True, client_id="rebal", protocols=[])
    story.round(50, 2, [M("a", (0,))])
    made = tables(story.rows)
    refused = only(made["assignor_lists"], refused=True)
    assert facts(refused, "times", "member_id", "client_id", "assignors") == (
        4, None, "bad", ["cooperative-sticky"],
    )  # fmt: skip
    assert (at(refused["at"]), at(refused["last_at"])) == (20, 40)
    assert only(made["groups"])["refused_total"] == 4
    assert made["rebalances"][1]["refused"] == ["bad"]
    loop = only(made["incidents"])
    assert facts(loop, "kind", "count", "members") == ("crash loop", 4, ["bad"])


def test_a_member_that_comes_and_dies_again_and_again() -> None:
    story = Story()
    number = 1
    story.generation(1, number, [M("a", (0, 1))])
    for life in range(4):
        number += 1
        story.generation(10 + 40 * life, number, [M("a", (0,)), M(f"x{life}", (1,), client="x")])
        number += 1
        story.generation(18 + 40 * life, number, [M("a", (0, 1))])
    (loop,) = tables(story.rows)["incidents"]
    assert facts(loop, "kind", "count") == ("crash loop", 4)
    assert loop["members"] == ["x0", "x1", "x2", "x3"]


def test_a_storm_is_many_rebalances_each_soon_after_the_last() -> None:
    def kinds(step: float) -> list[str]:
        story = Story()
        for number in range(1, 16):
            members = [M("a", (0,), session=6_000), M(f"b{number // 2}", (1,), session=6_000)]
            story.generation(step * number, number, members)
        return [row["kind"] for row in tables(story.rows)["incidents"]]

    assert kinds(3) == ["storm"]
    assert kinds(30) == []


def test_a_member_that_owns_nothing_while_others_do() -> None:
    story = Story()
    for number in range(1, 5):
        story.generation(number * 60, number, [M("a", (0, 1)), M("idle"), M(f"c{number}", (2,))])
    incident = only(tables(story.rows)["incidents"])
    assert facts(incident, "kind", "members", "count") == ("owns nothing", ["idle"], 4)


def test_a_line_without_a_time_tells_its_list_alone() -> None:
    story = Story()
    story.generation(10, 1, [M("a", (0,))])
    story.join(0, "a", 1, ("sticky", "range"))
    story.rows[-1]["at"] = None
    made = tables(story.rows)
    listed = only(made["assignor_lists"])
    assert facts(listed, "at", "assignors", "generation") == (None, ["sticky", "range"], 1)
    member = only(made["members"])
    assert facts(member, "assignors") == (["sticky", "range"],)
    assert at(only(made["groups"])["first_seen"]) == 10


def test_two_brokers_logs_out_of_order_give_the_same_generations() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0, 1))])
    story.round(14, 2, [M("a", (0,)), M("b", (1,))])
    story.round(18, 3, [M("b", (0, 1))])
    wanted = [facts(r, "generation", "joined", "left") for r in tables(story.rows)["rebalances"]]
    behind = [
        {**row, "at": row["at"] - 3 * SECOND} if row["generation"] == 2 else row
        for row in story.rows
    ]
    for rows in (story.rows, behind):
        topic = Story()
        topic.generation(10.1, 1, [M("a", (0, 1))])
        topic.generation(14.1, 2, [M("a", (0,)), M("b", (1,))])
        topic.generation(18.1, 3, [M("b", (0, 1))])
        made = tables([*rows, *topic.rows])
        got = [facts(r, "generation", "joined", "left") for r in made["rebalances"]]
        assert got == [(1, ["a"], []), (2, ["b"], []), (3, [], ["a"])]
        assert {m["assignors"] and tuple(m["assignors"]) for m in made["members"]} == {("range",)}
    assert wanted[1:] == [(2, ["b"], []), (3, [], ["a"])]


def test_records_are_ordered_by_offset_where_their_times_are_not() -> None:
    story = Story()
    for number in range(1, 6):
        story.generation(number * 2, number, [M("a", (number,))])
    story.rows[3]["at"] -= 5 * SECOND
    rows = tables(story.rows)["rebalances"]
    assert [row["generation"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["incarnation"] for row in rows] == [1] * 5


def test_a_record_that_comes_far_too_late_is_told() -> None:
    story = Story()
    for number in range(1, 6):
        story.generation(number * 100, number, [M("a", (number,))])
    story.rows[1]["at"] += 1000 * SECOND
    made = tables(story.rows)
    assert [row["offset"] for row in made["errors"]] == [1]
    assert "too late" in made["errors"][0]["error"]
    assert [row["incarnation"] for row in made["rebalances"] if not row["failed"]] == [1] * 4


@pytest.fixture(scope="module")
def captured() -> list[Row]:
    return [*captured_records(CAPTURES), *captured_requests(CAPTURES)]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_batches_of_any_size_give_the_same_tables(captured: list[Row], size: int) -> None:
    assert tables(captured, size) == tables(captured, 500)


@pytest.mark.parametrize("mode", ["log", "topic", "both"])
@pytest.mark.parametrize("seed", [1, 2])
def test_clocks_that_differ_a_little_change_no_fact(
    captured: list[Row], seed: int, mode: str
) -> None:
    """Each line of the log, or each record, up to a second off: generations tell the order."""
    rand = random.Random(seed)

    shift: dict[object, int] = {}

    def off(row: Row) -> Row:
        is_record = row["api"] is None
        if mode != "both" and is_record is (mode == "log"):
            return row
        # What a coordinator writes at once has one time.
        one = (row["group_id"], row["at"]) if is_record else (row["position"],)
        by = shift.setdefault(one, rand.randrange(-SECOND, SECOND))
        return {**row, "at": row["at"] + by}

    def of(rows: list[Row]) -> dict[str, Any]:
        made = tables(rows)
        return {
            "rebalances": sorted(
                facts(r, "group_id", "generation", "failed", "assignor", "members", "joined",
                      "left", "partitions", "moved")
                for r in made["rebalances"] if not r["failed"]
            ),
            "lists": sorted(
                (r["group_id"], r["member_id"] or "", r["client_id"], r["assignors"], r["times"])
                for r in made["assignor_lists"]
            ),
            "members": sorted(
                (m["group_id"], m["member_id"], m["first_generation"], m["assignors"] or [],
                 m["software_name"] or "", str(m["assignment"]), m["current"])
                for m in made["members"]
            ),
        }  # fmt: skip

    got, wanted = of([off(row) for row in captured]), of(captured)
    for name, rows in wanted.items():
        assert [row for row in got[name] if row not in rows] == [], name
        assert [row for row in rows if row not in got[name]] == [], name


@pytest.mark.parametrize("seed", range(4))
def test_broken_input_is_told_and_never_stops_the_rest(captured: list[Row], seed: int) -> None:
    rand = random.Random(seed)
    values = [row["value"] for row in captured if row["value"]]

    def spoilt(row: Row) -> Row:
        row, chance = dict(row), rand.random()
        if row["api"] is None and row["value"] and chance < 0.15:
            value = bytearray(row["value"])
            value[rand.randrange(len(value))] ^= rand.randrange(1, 256)
            row["value"] = bytes(value)
        elif row["api"] is None and chance < 0.25:
            row["value"] = rand.choice([None, b"", *values])
        elif chance < 0.1:
            row["at"] += rand.randrange(-30 * SECOND, 30 * SECOND)
        elif row["api"] is not None and chance < 0.2:
            names = ["generation", "member_id", "total_ms", "assignments", "members", "protocols"]
            row[rand.choice(names)] = None
        return row

    made = tables([spoilt(row) for row in captured if rand.random() > 0.05])
    assert {row["group_id"] for row in made["groups"]} == {row["group_id"] for row in captured}
    assert made["errors"]
    for row in made["members"]:
        assert row["first_generation"] <= row["last_generation"]


def test_refused_clients_stand_with_the_rebalance_after_them() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0,))])
    story.refuse(20, "x", ("sticky",))
    story.refuse(21, "y", ("sticky",))
    story.round(30, 2, [M("a", (0,))])
    story.refuse(31, "x", ("sticky",))
    story.round(60, 3, [M("a", (0,))])
    rows = tables(story.rows)["rebalances"]
    assert [row["refused"] for row in rows] == [[], ["x", "y"], ["x"]]


def test_a_log_alone_tells_kip_848_members() -> None:
    story = Story()

    def beat(when: float, member: str, asked: int, answered: int, **more: Any) -> None:
        who = {"member_id": member, "client_id": member, "host": "/h", **more}
        story.ask(when, "CONSUMER_GROUP_HEARTBEAT", generation=asked, member_epoch=answered, **who)

    beat(1, "n", 0, 1, subscribed_topics=["t"], software_name="apache-kafka-java",
         software_version="4.1.1")  # fmt: skip
    beat(20, "m", 0, 2)
    beat(21, "n", 1, 2)
    beat(40, "m", -1, -1)
    beat(41, "n", 2, 3)
    made = tables(story.rows)
    assert only(made["groups"])["type"] == "consumer"
    n, m = only(made["members"], member_id="n"), only(made["members"], member_id="m")
    names = ("first_generation", "last_generation", "current", "topics", "software_version")
    assert facts(n, *names) == (1, 3, True, ["t"], "4.1.1")
    assert facts(m, *names) == (2, 2, False, None, None)
    assert (at(m["left_at"]), m["left_reason"], m["assignment"]) == (40, causes.LEFT, None)
    assert [row["generation"] for row in made["rebalances"]] == [1, 2, 3]
    assert {row["members"] for row in made["rebalances"]} == {None}


def test_memory_does_not_grow_with_history() -> None:
    """What is kept is bounded by the members there are, not by how many there have been."""

    def kept(generations: int) -> int:
        shared = Shared()
        group = GroupTimeline("g", shared)
        story = Story()
        for number in range(1, generations):
            members = [M("a", (0,)), M(f"m{number}", (1,), client=f"c{number}")]
            story.round(number * 60, number, members)
            story.refuse(number * 60 + 5, f"r{number}", ("sticky",))
            story.generation(number * 60 + 0.05, number, members)
            for row in in_order(story.rows):
                if row["api"] is None:
                    group.record(row["at"], Raw._make(row[name] for name in Raw._fields))
                else:
                    group.request(row["at"], row)
            story.rows.clear()
            for _ in shared.rows.rest():
                pass
        return elements(group)

    few, many = kept(1_500), kept(4_500)
    assert many < 1.2 * few, (few, many)


def test_memory_does_not_grow_where_only_heartbeats_tell() -> None:
    def kept(epochs: int) -> tuple[int, int]:
        shared, story, rows = Shared(), Story(), 0
        group = GroupTimeline("g", shared)
        for epoch in range(1, epochs):
            for member in ("a", "b", f"n{epoch}"):
                asked = 0 if member.startswith("n") else epoch - 1
                who = {"member_id": member, "client_id": member, "host": "/h"}
                story.ask(
                    epoch * 60,
                    "CONSUMER_GROUP_HEARTBEAT",
                    generation=asked,
                    member_epoch=epoch,
                    **who,
                )
            for row in story.rows:
                group.request(row["at"], row)
            story.rows.clear()
            rows += sum(len(b) for name, b in shared.rows.rest() if name == "rebalances")
        size = elements(group)
        group.finish()
        return size, rows + sum(len(b) for name, b in shared.rows.rest() if name == "rebalances")

    (few, _), (many, rows) = kept(1_000), kept(3_000)
    assert many < 1.2 * few, (few, many)
    assert rows == 2_999


def elements(root: object) -> int:
    """How many things hang on it, apart from the rows and values that all groups share."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, Shared | Rows | Values | type):
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            todo += one
        elif type(one).__module__.startswith("rebal.inspectors.fleet"):
            names = [n for c in type(one).__mro__ for n in getattr(c, "__slots__", ())]
            todo += [getattr(one, n) for n in names if hasattr(one, n)]
            todo += list(getattr(one, "__dict__", {}).values())
    return len(seen)
