"""The timeline of KIP-848 groups: conversions, epochs, heartbeats."""

from __future__ import annotations

from typing import Any

from rebal.inspectors.fleet import timeline_causes as causes
from tests.fleet.timeline_input import tables
from tests.fleet.timeline_story import M, Story, at, facts, numbers, only


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
