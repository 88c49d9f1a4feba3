"""The timeline of KIP-848 groups: conversions, epochs, heartbeats."""

from __future__ import annotations

from rebal.inspectors.fleet.timeline.rebalances import RESTARTED
from tests.fleet.timeline_input import tables
from tests.fleet.timeline_story import M, Story, at, facts, numbers, only


def test_a_kip_848_group_deleted_and_made_again_as_a_classic_one_is_no_conversion() -> None:
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
        told = [row["kind"] for row in made["incidents"]]
        assert told == (["recreated"] if rows is log.rows else ["deleted", "recreated"])
        group = only(made["groups"])
        assert facts(group, "type", "incarnation", "generation", "members") == ("classic", 2, 1, 1)
        known = {row["member_id"]: row["incarnation"] for row in made["members"]}
        assert known == {"n": 1, "c": 2}


def test_rebalances_before_a_group_ended_are_told_though_only_the_log_shows_them() -> None:
    log = Story()
    log.round(1, 1, [M("a", (0,))])
    for epoch in (2, 3):
        log.beat(10 * epoch, "n", 0 if epoch == 2 else 2, epoch)
    log.round(60, 1, [M("b", (0,))])
    told = [facts(row, "incarnation", "generation") for row in tables(log.rows)["rebalances"]]
    assert told == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_an_epoch_is_done_when_each_member_has_its_target_in_any_order() -> None:
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


def test_who_takes_a_static_members_place_never_had_its_list() -> None:
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


def test_the_last_member_to_leave_kip_848_is_not_lost_between_two_records_of_one_number() -> None:
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


def test_a_group_that_went_back_to_classic_is_classic_whatever_its_old_heartbeats_say() -> None:
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


def test_a_static_kip_848_member_keeps_its_place_while_it_is_away() -> None:
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
        away, gone = (
            [row for row in made["members"] if row["member_id"] == name][-1]
            for name in ("s-1", "o")
        )
        back = 22.1 if rows is log.rows else 22
        assert (at(away["left_at"]), away["left_reason"]) == (
            back,
            RESTARTED,
        )
        assert away["last_generation"] == 1
        if rows is log.rows:
            assert facts(gone, "left_at", "left_reason") == (None, None)
            continue
        assert at(gone["left_at"]) == 76
        assert gone["left_reason"] == (None if rows is topic.rows else "session expired")
        last = made["rebalances"][-1]
        assert facts(last, "joined", "left", "moved") == ([], ["o"], 1)
        assert last["cause"] == ("member left" if rows is topic.rows else "session expired")


def test_a_static_kip_848_member_that_comes_back_too_late_joins() -> None:
    log = Story()
    log.beat(1, "s-1", 0, 1, instance_id="s")
    log.beat(20, "s-1", -2, -2, instance_id="s")
    log.beat(90, "s-2", 0, 3, instance_id="s")
    made = tables(log.rows)
    away, back = only(made["members"], member_id="s-1"), only(made["members"], member_id="s-2")
    assert facts(away, "left_at", "left_reason", "current") == (None, None, False)
    assert facts(back, "first_generation", "current") == (3, True)
