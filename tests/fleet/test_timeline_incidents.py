"""What the timeline calls an incident: crash loops, storms, members that own nothing."""

from __future__ import annotations

from functools import partial

import pytest

from rebal.inspectors.fleet.timeline import causes
from tests.fleet.timeline_input import asked, asking, tables
from tests.fleet.timeline_story import M, Story, at, facts, only


def test_refusals_are_counted_once_each_and_make_a_crash_loop() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0,))])
    for when in (20, 25, 31, 40):
        story.refuse(when, "bad", ("cooperative-sticky",))
    story.join(41, "a", 1, error=79)
    story.ask(42, "JOIN_GROUP", error=23, client_id="rebal", protocols=())
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
        story.generation(22 + 40 * life, number, [M("a", (0, 1))])
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


OLD = {"software_name": None, "software_version": None, "rebalance_timeout_ms": 9_000}


def left_and_back(left: float, back: float, connection: str = "h:1-c:2-3") -> Story:
    """Member b of a client before KIP-511 leaves without a reason, and its process joins again."""
    story = Story()
    a, b = (partial(M, one, version=0, owned=None, rebalance=9_000) for one in "ab")
    both = [a((0,)), b((1,))]
    story.round(10, 1, both)
    story.rows = [asking(row, **OLD) for row in story.rows]
    story.leave(left, "b")
    story.rows[-1] = asking(story.rows[-1], connection="h:1-c:2-3")
    story.generation(10.1, 1, both)
    story.generation(left + 0.2, 2, [a((0, 1))])
    story.join(back, "b2", None, error=79, client_id="b", connection=connection, **OLD)
    again = M("b2", (1,), client="b", version=0, owned=None, rebalance=9_000)
    story.generation(back + 0.2, 3, [a((0,)), again])
    return story


@pytest.mark.parametrize("back", [21, 50])
def test_a_time_out_without_a_reason_is_told_by_the_connection(back: float) -> None:
    made = tables(left_and_back(20, back).rows)
    slow = only(made["incidents"])
    assert facts(slow, "kind", "members") == ("slow member", ["b"])
    assert at(slow["started_at"]) == 20
    row = only(made["rebalances"], generation=3)
    assert row["stopped"] == 3, "the two of a, and the one that b revokes when it polls again"


@pytest.mark.parametrize(
    ("left", "connection"),
    [(20, "h:1-c:9-9"), (12, "h:1-c:2-3")],
    ids=["another connection", "before max.poll.interval.ms"],
)
def test_a_restart_or_a_new_subscription_is_no_time_out(left: float, connection: str) -> None:
    made = tables(left_and_back(left, left + 1, connection).rows)
    assert made["incidents"] == []
    assert only(made["rebalances"], generation=3)["stopped"] == 2


def test_records_alone_do_not_tell_a_time_out_from_a_restart() -> None:
    records = [row for row in left_and_back(20, 50).rows if row["key"]]
    rows = tables(records)["rebalances"]
    assert [row["stopped"] for row in rows] == [0, 1, None]
    soon = [row for row in left_and_back(12, 50).rows if row["key"]]
    assert [row["stopped"] for row in tables(soon)["rebalances"]] == [0, 1, 2]


@pytest.mark.parametrize("api", ["HEARTBEAT", "SYNC_GROUP", "JOIN_GROUP", "OFFSET_COMMIT"])
def test_a_duplicate_instance_id_that_fenced_a_live_member_is_no_restart(api: str) -> None:
    story = Story()
    story.round(10, 1, [M("a", (0,), instance="i"), M("b", (1,))])
    story.join(40, "c", 1, instance_id="i")
    story.ask(43, api, error=82, member_id="a", instance_id="i", generation=1)
    story.ask(44, api, error=82, member_id="a", instance_id="i", generation=1)
    made = tables(story.rows)
    assert only(made["members"], member_id="a")["left_reason"] == causes.FENCED
    fenced = only(made["incidents"])
    assert facts(fenced, "kind", "members", "count") == ("duplicate instance id", ["a"], 1)
    assert at(fenced["started_at"]) == 43
    quiet = tables([row for row in story.rows if row["key"] or asked(row).error != 82])
    assert only(quiet["members"], member_id="a")["left_reason"] == causes.RESTARTED
    assert quiet["incidents"] == []


def lives(lived: float, apart: float, log: bool = False) -> list[str]:
    """The incidents of a member that comes and goes three times."""
    story, now = Story(), 10.0
    story.round(1, 1, [M("a", (0, 1))])
    story.generation(1.1, 1, [M("a", (0, 1))])
    for life in range(3):
        both = [M("a", (0,)), M(f"x{life}", (1,), client="x")]
        story.round(now, 2 * life + 2, both)
        story.generation(now + 0.1, 2 * life + 2, both)
        if log:
            story.leave(now + lived, f"x{life}")
        story.round(now + lived + 0.1, 2 * life + 3, [M("a", (0, 1))])
        story.generation(now + lived + 0.2, 2 * life + 3, [M("a", (0, 1))])
        now += lived + apart
    rows = story.rows if log else [row for row in story.rows if row["key"]]
    return [row["kind"] for row in tables(rows)["incidents"]]


def test_clean_scale_ins_are_no_crash_loop() -> None:
    assert lives(12, 20) == ["crash loop"]
    assert lives(12, 20, log=True) == [], "each was seen to leave"
    assert lives(5, 20) == [], "no session of 10 s expires within 5 s"
    assert lives(12, 700) == [], "each came back after more than ten minutes"
