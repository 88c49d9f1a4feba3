"""The life of a group, story by story: what a coordinator writes and logs, what the tables say.

Why it rebalanced, who left it why, what stopped meanwhile, and what is an incident; groups of
KIP-848: conversions, epochs, heartbeats.
"""

from functools import partial

import pytest

from rebal.inspectors.fleet.timeline.rebalances import FENCED, RESTARTED
from tests.fleet.timeline_input import (
    M,
    Row,
    Story,
    asked,
    asking,
    at,
    facts,
    numbers,
    only,
    tables,
)


def test_a_restarted_static_member_is_shown_with_its_own_client_id_and_host() -> None:
    story = Story()
    old, new = M("s-1", (0,), instance="s"), M("s-2", (0,), instance="s")
    old.client = new.client = "old"  # so the coordinator writes it
    story.round(2, 1, [old], assignor="range")
    story.generation(50, 1, [new], stamp=2)
    story.join(50.1, "s-2", 1, instance_id="s", leader="s-2", client_id="new", host="10.0.0.9")
    made = tables(story.rows)
    old_row, new_row = (
        only(made["members"], member_id="s-1"),
        only(made["members"], member_id="s-2"),
    )
    assert facts(old_row, "client_id", "host") == ("old", "/h")
    assert facts(new_row, "client_id", "host", "current") == ("new", "/10.0.0.9", True)


def test_a_deleted_and_recreated_group_gets_a_second_incarnation() -> None:
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
    old, new = only(made["members"], member_id="a"), only(made["members"], member_id="b")
    assert (at(old["left_at"]), old["left_reason"]) == (30, "group deleted")
    assert new["incarnation"] == 2


def test_a_group_recreated_soon_after_its_end_has_its_own_joins_and_protocol_type() -> None:
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


def test_the_first_generation_after_compaction_claims_no_cause_joins_or_moves() -> None:
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
def test_share_and_streams_groups_are_named_by_their_type(kind: int, name: str) -> None:
    story = Story()
    story.put(1, kind, b"\0\0\0\0\0\x01\0")
    made = tables(story.rows)
    assert facts(only(made["groups"]), "type", "state", "generation", "members") == (
        name, None, None, None,
    )  # fmt: skip
    assert made["errors"] == []
    story.put(2, kind, None)
    assert facts(only(tables(story.rows)["groups"]), "type", "state") == (name, "Dead")


def test_a_streams_program_that_left_the_classic_protocol_is_not_a_deleted_group() -> None:
    story = Story()
    story.generation(0, 1, [M("a", (0,))], "stream")
    story.generation(1, 2, [])
    story.tombstone(2)
    story.put(2, 17, b"\0\0\0\0\0\x01\0")
    now = facts(only(tables(story.rows)["groups"]), "type", "state", "members", "deleted_at")
    assert now == ("streams", None, None, None)


def test_an_unreadable_record_is_reported_and_later_records_are_processed() -> None:
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


def test_a_session_expiry_is_reported_only_if_the_request_log_covers_both_generations() -> None:
    def story(log_from: int) -> Story:
        made = Story()
        for number, members in ((1, [M("a", (0,)), M("b", (1,))]), (2, [M("a", (0, 1))])):
            if number >= log_from:
                made.round(number * 50, number, members)
            made.generation(number * 50 + 0.05, number, members)
        return made

    seen = tables(story(1).rows)
    assert seen["rebalances"][1]["cause"] == "session expired"
    assert only(seen["incidents"])["kind"] == "session expired"
    assert only(seen["members"], member_id="b")["left_reason"] == "session expired"
    late = tables(story(2).rows)
    assert late["rebalances"][1]["cause"] == "member left"
    assert late["incidents"] == []
    assert only(late["members"], member_id="b")["left_reason"] is None


def test_a_member_that_misses_the_rebalance_timeout_is_not_reported_as_session_expired() -> None:
    story = Story()
    quick = [M("a", (0,), rebalance=5_000), M("b", (1,), rebalance=5_000)]
    story.round(10, 1, quick)
    story.round(60, 2, [M("a", (0,)), M("c", (1,))], took=5)
    made = tables(story.rows)
    assert made["rebalances"][1]["cause"] == "member joined"
    assert only(made["members"], member_id="b")["left_reason"] == "did not rejoin in time"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("need to revoke partitions and re-join", "cooperative follow-up"),
        ("cached metadata has changed from (version1) at the beginning", "topics changed"),
        ("rebalance failed due to UnknownMemberIdException", "last rebalance failed"),
        ("rebalance enforced by user", "member rejoined"),
        ("group is already rebalancing", None),
    ],
)
def test_a_kip_800_join_reason_is_the_cause_of_a_rebalance(reason: str, cause: str | None) -> None:
    story = Story()
    members = [M("a", (0,)), M("b", (1,))]
    story.round(10, 1, members)
    story.join(60, "b", 2, reason=reason, total_ms=900)
    story.join(60, "a", 2, reason="group is already rebalancing", total_ms=100)
    story.generation(60.1, 2, members)
    assert tables(story.rows)["rebalances"][1]["cause"] == cause


def test_rebalance_causes_are_derived_from_group_metadata_records() -> None:
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
        "first member joined",
        "member joined",
        "cooperative follow-up",
        "topics changed",
        "subscription changed",
        "members joined and left",
    ]
    assert [row["moved"] for row in rows[:4]] == [0, 0, 1, 0], "withheld by a, then given to b"
    assert [row["stopped"] for row in rows[1:4]] == [1, 0, 0]


@pytest.mark.parametrize(("after", "stopped"), [(1, 1), (300, 2)], ids=["at once", "later"])
def test_a_rebalance_right_after_a_static_restart_stops_no_partition_of_that_member(
    after: float, stopped: int
) -> None:
    """A later rejoin is no part of the restart: the program changed its topics itself."""
    topic, log = Story(), Story()
    before = [M("o", (1,)), M("s-1", (0,), instance="s")]
    now = [M("o", (0, 1)), M("s-2", topics=("u",), instance="s")]
    topic.generation(10, 1, before)
    log.round(10, 1, before)
    topic.generation(50, 1, [before[0], M("s-2", (0,), instance="s")], stamp=10)
    log.join(50, "s-2", 1, instance_id="s", leader="o")
    topic.generation(50 + after, 2, now)
    log.round(50 + after, 2, now)
    for rows in (topic.rows, log.rows, [*topic.rows, *log.rows]):
        assert tables(rows)["rebalances"][-1]["stopped"] == stopped


def test_a_probe_by_rebal_is_not_counted_as_a_rejected_join() -> None:
    story = Story()
    story.round(10, 1, [M("a", (0,))])
    story.refuse(20, "bad", ("cooperative-sticky",))
    story.ask(42, "JOIN_GROUP", error=23, client_id="rebal", protocols=())
    made = tables(story.rows)
    assert only(made["assignor_lists"], refused=True)["client_id"] == "bad"
    assert only(made["groups"])["refused_total"] == 1


def test_a_member_that_owns_no_partition_in_many_generations_is_an_incident() -> None:
    story = Story()
    for number in range(1, 5):
        story.generation(number * 60, number, [M("a", (0, 1)), M("idle"), M(f"c{number}", (2,))])
    incident = only(tables(story.rows)["incidents"])
    assert facts(incident, "kind", "members", "count") == ("owns nothing", ["idle"], 4)
    assert incident["ended_at"] is None, "it still owns nothing"


OLD = {"software_name": None, "software_version": None, "rebalance_timeout_ms": 9_000}


@pytest.mark.parametrize(
    ("left", "rejoined", "connection", "stopped"),
    [
        pytest.param(20, 21, "h:1-c:2-3", 3, id="back at once"),
        pytest.param(20, 50, "h:1-c:2-3", 3, id="back later"),
        pytest.param(20, 21, "h:1-c:9-9", 2, id="another connection: a restart"),
        pytest.param(12, 13, "h:1-c:2-3", 2, id="before max.poll.interval.ms: a subscription"),
    ],
)
def test_a_poll_timeout_without_a_leave_reason_is_recognized_by_the_same_connection(
    left: float, rejoined: float, connection: str, stopped: int
) -> None:
    """Member b, a client older than KIP-511, leaves without a reason and joins again.

    If it timed out, three partitions stop: two of a, and one that b still owns.
    """
    story = Story()
    a, b = (partial(M, one, version=0, owned=None, rebalance=9_000) for one in "ab")
    both = [a((0,)), b((1,))]
    story.round(10, 1, both)
    story.rows = [asking(row, **OLD) for row in story.rows]
    story.leave(left, "b")
    story.rows[-1] = asking(story.rows[-1], connection="h:1-c:2-3")
    story.generation(10.1, 1, both)
    story.generation(left + 0.2, 2, [a((0, 1))])
    story.join(rejoined, "b2", None, error=79, client_id="b", connection=connection, **OLD)
    again = M("b2", (1,), client="b", version=0, owned=None, rebalance=9_000)
    story.generation(rejoined + 0.2, 3, [a((0,)), again])
    made = tables(story.rows)
    assert only(made["rebalances"], generation=3)["stopped"] == stopped
    found = [(row["kind"], row["members"], at(row["started_at"])) for row in made["incidents"]]
    assert found == ([("slow member", ["b"], 20)] if stopped == 3 else [])


@pytest.mark.parametrize("api", ["HEARTBEAT", "SYNC_GROUP", "JOIN_GROUP", "OFFSET_COMMIT"])
def test_a_duplicate_instance_id_that_fenced_a_live_member_is_no_restart(api: str) -> None:
    story = Story()
    story.round(10, 1, [M("a", (0,), instance="i"), M("b", (1,))])
    story.join(40, "c", 1, instance_id="i")
    story.ask(43, api, error=82, member_id="a", instance_id="i", generation=1)
    story.ask(44, api, error=82, member_id="a", instance_id="i", generation=1)
    made = tables(story.rows)
    assert only(made["members"], member_id="a")["left_reason"] == FENCED
    fenced = only(made["incidents"])
    assert facts(fenced, "kind", "members", "count") == ("duplicate instance id", ["a"], 1)
    assert at(fenced["started_at"]) == 43
    quiet = tables([row for row in story.rows if row["key"] or asked(row).error != 82])
    assert only(quiet["members"], member_id="a")["left_reason"] == RESTARTED
    assert quiet["incidents"] == []


def lives(lived: float, apart: float, log: bool = False) -> list[Row]:
    """The incidents of a member that comes and goes three times."""
    story, now = Story(), 10.0
    story.round(1, 1, [M("a", (0, 1))], assignor="range")
    for life in range(3):
        both = [M("a", (0,)), M(f"x{life}", (1,), client="x")]
        story.round(now, 2 * life + 2, both, assignor="range")
        if log:
            story.leave(now + lived, f"x{life}")
        story.round(now + lived + 0.1, 2 * life + 3, [M("a", (0, 1))], assignor="range")
        now += lived + apart
    rows = story.rows if log else [row for row in story.rows if row["key"]]
    return tables(rows)["incidents"]


def test_a_client_that_crashes_repeatedly_is_a_crash_loop_and_a_scale_in_is_not() -> None:
    (loop,) = lives(12, 20)
    assert facts(loop, "kind", "count", "members") == ("crash loop", 3, ["x0", "x1", "x2"])
    assert lives(12, 20, log=True) == [], "each was seen to leave"
    assert lives(5, 20) == [], "no session of 10 s expires within 5 s"
    assert lives(12, 700) == [], "each came back after more than ten minutes"


def test_a_kip_848_group_deleted_and_recreated_as_classic_is_not_a_conversion() -> None:
    topic, log = Story(), Story()
    topic.reach(1, 1, {"n": (0,)}, [M("n")])
    log.beat(1.1, "n", 0, 1)
    topic.gone(4, "n")
    topic.epoch(4, 2)
    log.beat(4.1, "n", -1, -1)
    topic.unmake(6)
    topic.generation(9, 0, [], protocol_type="")
    topic.generation(9.2, 1, [M("c", (0,))])
    log.round(9.2, 1, [M("c", (0,))], took=0.1)
    for rows in ([*topic.rows, *log.rows], topic.rows, log.rows):
        made = tables(rows)
        kinds = [row["kind"] for row in made["incidents"]]
        assert kinds == (["recreated"] if rows is log.rows else ["deleted", "recreated"])
        group = only(made["groups"])
        assert facts(group, "type", "incarnation", "generation", "members") == ("classic", 2, 1, 1)
        known = {row["member_id"]: row["incarnation"] for row in made["members"]}
        assert known == {"n": 1, "c": 2}


def test_rebalances_before_a_group_ended_are_reported_from_the_request_log_alone() -> None:
    log = Story()
    log.round(1, 1, [M("a", (0,))])
    for epoch in (2, 3):
        log.beat(10 * epoch, "n", 0 if epoch == 2 else 2, epoch)
    log.round(60, 1, [M("b", (0,))])
    found = [facts(row, "incarnation", "generation") for row in tables(log.rows)["rebalances"]]
    assert found == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_a_kip_848_epoch_ends_when_each_member_owns_its_target_assignment() -> None:
    story = Story()
    story.member(1, M("n"))
    story.epoch(1, 1)
    story.target(1, "n", (0, 1, 2))
    story.target_epoch(1, 1)
    for when, has, state in ((1, (0,), 0), (2, (0, 1, 2), 2)):
        story.current(when, "n", 1, has, state)
        moving = only(tables(story.rows)["groups"])
        assert facts(moving, "type", "state", "generation", "assignment_epoch") == (
            "consumer", "Reconciling", 1, 1,
        )  # fmt: skip
    story.current(4, "n", 1, (2, 0, 1))
    story.unmake(9, "n")
    made = tables(story.rows)
    first = made["rebalances"][0]
    assert (at(first["ended_at"]), first["latency_ms"]) == (4, 3000)
    assert numbers(made["members"][0]) == [0, 1, 2]
    assert facts(only(made["groups"]), "state", "members") == ("Dead", 0)


def test_a_new_static_member_is_not_reported_with_the_assignor_list_of_its_predecessor() -> None:
    story = Story()
    story.member(1, M("s-1", instance="s"), ("cooperative-sticky", "range"))
    story.reach(1, 1, {"s-1": ()})
    for when, before, after, names in ((20, "s-1", "s-2", ("range",)), (40, "s-2", "s-3", None)):
        story.gone(when, before)
        copied = ("cooperative-sticky", "range") if names else ("range",)
        story.member(when, M(after, instance="s"), copied)
        story.current(when, after, 0, ())
        story.member(when, M(after, instance="s"), names)
        story.current(when, after, 1, ())
    made = tables(story.rows)
    listed = {(row["member_id"], *row["assignors"]) for row in made["assignor_lists"]}
    assert listed == {("s-1", "cooperative-sticky", "range"), ("s-2", "range")}
    assert {row["member_id"]: row["assignors"] for row in made["members"]} == {
        "s-1": ["cooperative-sticky", "range"], "s-2": ["range"], "s-3": None,
    }  # fmt: skip


def test_a_kip_848_member_is_read_from_compacted_records() -> None:
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


def test_the_member_whose_leave_converts_a_kip_848_group_to_classic_is_reported_as_left() -> None:
    story = Story()
    story.member(1, M("c"), ("range",))
    story.reach(1, 4, {"n": (0, 1), "c": (2, 3)}, [M("n")])
    story.unmake(40, "n", "c")
    story.generation(40, 4, [M("c", (2, 3))])
    story.generation(41, 5, [M("c", (0, 1, 2, 3))])
    made = tables(story.rows)
    assert [row["generation"] for row in made["rebalances"]] == [4, 5]
    last = made["rebalances"][-1]
    assert facts(last, "cause", "left", "moved", "stopped") == ("member left", ["n"], 2, 2)
    listed = only(made["assignor_lists"])
    assert facts(listed, "assignors", "evidence") == (["range"], "offsets topic")
    speak = {facts(m, "member_id", "protocol_type") for m in made["members"]}
    assert speak == {("c", "classic"), ("n", "consumer")}
    kinds = [facts(row, "kind", "members") for row in made["incidents"]]
    assert kinds == [("converted to classic", ["c", "n"])]
    assert facts(only(made["groups"]), "type", "state", "incarnation", "deleted_at") == (
        "classic", "Stable", 1, None,
    )  # fmt: skip


def test_a_group_converted_back_to_classic_is_shown_as_classic_despite_late_heartbeats() -> None:
    topic, log = Story(), Story()
    modern, classic = M("n", (0, 1)), M("c", (0, 1))
    topic.reach(1, 1, {"n": (0, 1)}, [modern])
    log.beat(1.1, "n", 0, 1)
    topic.unmake(40, "n")
    topic.generation(40, 2, [classic])
    log.beat(40.1, "n", -1, -1)
    topic.generation(41, 3, [classic])
    log.round(41, 3, [classic])
    for rows in ([*topic.rows, *log.rows], log.rows, topic.rows):
        made = tables(rows)
        group = only(made["groups"])
        assert facts(group, "type", "state", "members") == ("classic", "Stable", 1)
        now = [row["member_id"] for row in made["members"] if row["current"]]
        assert now == ["c"]
        to_consumer = [r for r in made["incidents"] if r["kind"] == "converted to consumer"]
        assert to_consumer == []


def test_a_static_kip_848_member_keeps_its_assignment_until_it_rejoins_or_expires() -> None:
    topic, log = Story(), Story()
    first, other = M("s-1", (0,), instance="s"), M("o", (1,), instance="o")
    topic.reach(1, 1, {one.id: one.has for one in (first, other)}, [first, other])
    for member in (first, other):
        log.beat(1, member.id, 0, 1, instance_id=member.instance)
    # one comes back in time, with another id and without an epoch of its own
    topic.current(20, "s-1", -2, (0,))
    log.beat(20, "s-1", -2, -2, instance_id="s")
    topic.gone(22, "s-1")
    topic.member(22, M("s-2", (0,), instance="s"))
    topic.target(22, "s-2", (0,))
    topic.current(22, "s-2", 1, (0,))
    log.beat(22.1, "s-2", 0, 1, instance_id="s")
    # the other one does not
    topic.current(30, "o", -2, (1,))
    log.beat(30, "o", -2, -2, instance_id="o")
    topic.gone(75, "o")
    topic.reach(75, 2, {"s-2": (0, 1)}, done=76)
    log.beat(76, "s-2", 1, 2, instance_id="s")
    for rows in ([*topic.rows, *log.rows], log.rows, topic.rows):
        made = tables(rows)
        assert [row["generation"] for row in made["rebalances"]] == [1, 2]
        restarted, expired = (
            [row for row in made["members"] if row["member_id"] == name][-1]
            for name in ("s-1", "o")
        )
        rejoined = 22.1 if rows is log.rows else 22
        assert (at(restarted["left_at"]), restarted["left_reason"]) == (rejoined, RESTARTED)
        assert restarted["last_generation"] == 1
        if rows is log.rows:
            assert facts(expired, "left_at", "left_reason") == (None, None)
            continue
        assert at(expired["left_at"]) == 76
        assert expired["left_reason"] == (None if rows is topic.rows else "session expired")
        last = made["rebalances"][-1]
        assert facts(last, "joined", "left", "moved") == ([], ["o"], 1)
        assert last["cause"] == ("member left" if rows is topic.rows else "session expired")


def test_a_static_kip_848_member_that_returns_after_its_session_is_a_new_member() -> None:
    log = Story()
    log.beat(1, "s-1", 0, 1, instance_id="s")
    log.beat(20, "s-1", -2, -2, instance_id="s")
    log.beat(90, "s-2", 0, 3, instance_id="s")
    made = tables(log.rows)
    old, new = only(made["members"], member_id="s-1"), only(made["members"], member_id="s-2")
    assert facts(old, "left_at", "left_reason", "current") == (None, None, False)
    assert facts(new, "first_generation", "current") == (3, True)
