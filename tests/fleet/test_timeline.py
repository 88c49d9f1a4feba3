"""The life of a group, story by story: what a coordinator writes and logs, what the tables say."""

from __future__ import annotations

import pytest

from tests.fleet.timeline_input import tables
from tests.fleet.timeline_story import M, Story, at, facts, numbers, only


def test_who_takes_a_static_members_place_is_named_by_its_own_client_and_host() -> None:
    story = Story()
    old, new = M("s-1", (0,), instance="s"), M("s-2", (0,), instance="s")
    old.client = new.client = "old"  # so the coordinator writes it
    story.round(2, 1, [old], assignor="range")
    story.generation(50, 1, [new], stamp=2)
    story.join(50.1, "s-2", 1, instance_id="s", leader="s-2", client_id="new", host="10.0.0.9")
    made = tables(story.rows)
    gone, back = only(made["members"], member_id="s-1"), only(made["members"], member_id="s-2")
    assert facts(gone, "client_id", "host") == ("old", "/h")
    assert facts(back, "client_id", "host", "current") == ("new", "/10.0.0.9", True)


def test_deleted_and_created_again() -> None:
    story = Story()
    story.generation(10, 1, [M("a", (0,))])
    story.tombstone(30)
    story.generation(40, 0, [], protocol_type="")
    story.generation(41, 1, [M("b", (0,))])
    made = tables(story.rows)
    group = only(made["groups"])
    assert facts(group, "incarnation", "state", "deleted_at", "members") == (2, "Stable", None, 1)
    assert [facts(r, "incarnation", "generation") for r in made["rebalances"]] == [(1, 1), (2, 1)]
    assert [row["kind"] for row in made["incidents"]] == ["deleted", "recreated"]
    gone, back = only(made["members"], member_id="a"), only(made["members"], member_id="b")
    assert (at(gone["left_at"]), gone["left_reason"]) == (30, "group deleted")
    assert back["incarnation"] == 2


def test_what_is_created_again_soon_after_has_joins_and_a_kind_of_its_own() -> None:
    story = Story()
    story.round(2, 1, [M("a", (0,))])
    story.round(4, 2, [M("a", (0,)), M("b", (1,))])
    story.leave(5, "a", "done")
    story.leave(5.1, "b")
    for when, number, ids in ((7, 1, "x"), (9, 2, "xy")):
        members, lists = [M(one) for one in ids], dict.fromkeys(ids, ("sessioned",))
        story.round(when, number, members, lists, protocol_type="connect")
    made = tables(story.rows)
    second = only(made["rebalances"], incarnation=2, generation=2)
    assert (at(second["started_at"]), at(second["ended_at"])) == (8.5, 9.1)
    assert facts(only(made["groups"]), "incarnation", "protocol_type") == (2, "connect")
    last = [row for row in made["members"] if row["incarnation"] == 1 and row["left_at"]]
    assert sorted((row["member_id"], at(row["left_at"]), row["left_reason"]) for row in last) == [
        ("a", 5, "done"), ("b", 5.1, "member left"),
    ]  # fmt: skip


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
    assert facts(second, "cause", "joined", "left") == ("member joined", ["b"], [])
    assert only(made["members"], member_id="a", first_generation=57)["joined_at"] is None


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
