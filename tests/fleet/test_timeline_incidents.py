"""What the timeline calls an incident: crash loops, storms, members that own nothing."""

from __future__ import annotations

from tests.fleet.timeline_input import tables
from tests.fleet.timeline_story import M, Story, at, facts, only


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
