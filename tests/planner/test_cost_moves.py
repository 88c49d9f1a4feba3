"""What it costs to move a group to KIP-848 and back, or to stop it and start it again."""

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.groups.model import Cluster, GroupSnapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs import steps
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import (
    empty_after,
    move_online,
    stop_and_start,
    stop_some,
    wait_for_empty_text,
)
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import default_server_side, scene_of
from rebal.planner.rehearsal.scripts import Deed, Script, ScriptEvent
from rebal.planner.rehearsal.scripts import restarts as restarted
from rebal.planner.timeouts import Speed
from tests.examples import examples
from tests.planner.builder import group_of
from tests.planner.test_cost import SPEED, group, restarts, sized

DONE = "cooperative-sticky"
# Seconds from a heartbeat until the member has polled, at most.
POLL = 0.6


def kip848(count: int, **more: Any) -> GroupSnapshot:
    return group(count, "uniform", type="consumer", protocol_type="consumer", **more)


def up(snapshot: GroupSnapshot, server_side: str = "range", **more: Any) -> Cost:
    return move_online(
        restarts(snapshot, (), **{"protocol": "consumer", "server_side": server_side, **more})
    )


def down(snapshot: GroupSnapshot, classic: str, **more: Any) -> Cost:
    usual = {"protocol": "classic", "server_side": "uniform", "eager": ()}
    return move_online(restarts(snapshot, (classic,), **usual, **more))


def test_move_to_kip848_stops_all_partitions_at_the_first_leave_and_the_first_join() -> None:
    made = up(group(2))
    # The first leave is a rebalance of the classic group, at which all 12 stand still for up to
    # 3 s; then three new targets, at each of which 6 partitions move and stand still for up to 5 s.
    assert (made.rebalances, made.partitions_moved) == (4, 4 * 6)
    most = 12 * (3 + POLL) + 3 * 6 * (5 + POLL)
    assert 0.3 * most < made.partition_seconds < most
    # Those of a stop are over before the member is back.
    assert 2 * 30 < made.seconds < 2 * (30 + 5 + 2 * POLL)
    assert 2 < made.longest_seconds < 5 + POLL
    # At the first target the other member still runs EAGER: it gives up all it owns.
    assert made.partitions_stopped == 12 + 12 + 6 + 6
    assert "the first leave is a rebalance of the classic group" in made.text
    assert "members that run EAGER rejoin at each" in made.text
    assert "EAGER" not in up(group(2, "cooperative-sticky"), "uniform", eager=()).text
    assert "up to 5 s (group.consumer.heartbeat.interval.ms, by default)" in made.text


def test_move_from_kip848_costs_a_classic_rebalance_after_the_last_leave() -> None:
    made = down(kip848(3), "cooperative-sticky")
    # Five targets; then the last leave and the last join, which takes a follow-up rebalance.
    assert (made.rebalances, made.partitions_moved) == (5 - 1 + 1 + 2, 6 * 4)
    assert "what follows the last leave is a rebalance of the classic group" in made.text
    one, all_at_once = made.paces
    assert all_at_once.rebalances == 1
    # The coordinator of a classic group waits for more members first.
    assert all_at_once.seconds == pytest.approx(30 + 3 + 3, abs=0.1)
    eager = down(kip848(3), "range")
    assert eager.rebalances == 4 + 2
    assert eager.partitions_stopped > made.partitions_stopped
    assert one.rebalances == made.rebalances


def played(
    snapshot: GroupSnapshot, *, up: bool, classic: str = DONE, together: bool = False, seed: int = 0
) -> Rehearsal:
    """Rehearse a move to or from uniform: each restart is a phase, or all come after one stop."""
    scene, _ = scene_of(snapshot, speed=SPEED)
    names = [(one.process.name,) for one in scene.running]
    batches = [names] if together else [[name] for name in names]
    stop = ScriptEvent(do=Deed.STOP, members=tuple(chain(*names)), phase="stop")
    events = [
        event
        for number, some in enumerate(batches)
        for event in restarted(
            f"batch {number}", () if up else (classic,), some, batch=0,
            protocol="consumer" if up else "classic", remote_assignor="uniform" if up else "",
        )
    ]  # fmt: skip
    story = Script(events=(stop, *events) if together else tuple(events))
    return rehearse(scene, story, seed=seed)


# tests/live/test_kip848_costs_live.py holds these figures of `move_online` to real members: equal
# rebalances, and equal changes of owner where no member id decides them.
@pytest.mark.parametrize("seed", range(5))
# The last leave down makes it a classic group, in which a join has a follow-up rebalance.
@pytest.mark.parametrize(("there", "last"), [(True, 2), (False, 3)], ids=["up", "down"])
def test_moves_to_and_from_uniform_cost_what_live_members_report(
    there: bool, last: int, seed: int
) -> None:
    own = {"version": "4.1.1", **({"list": [DONE]} if there else {"protocol_type": "consumer"})}
    members = [{"id": "m0", "instance": "a-0", **own}, {"id": "m1", **own}, {"id": "m2", **own}]
    kind = "classic" if there else "consumer"
    snapshot = group_of({"members": members, "elected": DONE if there else "uniform", "type": kind})
    run = played(snapshot, up=there, seed=seed)
    cost = up(snapshot, "uniform", eager=()) if there else down(snapshot, DONE)
    phases = [(phase.measures.rebalances, phase.measures.moved) for phase in run.phases]
    assert phases == [(0, 0), (2, 8), (last, 8)]
    assert (run.measures.rebalances, run.measures.moved) == (cost.rebalances, cost.partitions_moved)
    assert run.measures.twice == run.measures.rejected == 0
    protocol = "CONSUMER" if there else "COOPERATIVE"
    assert {(one.protocol, one.owned) for one in run.members} == {(protocol, 4)}
    assert run.assignor == ("uniform" if there else DONE)
    # What the static member owns stands still while it restarts, and nothing else does.
    assert run.phases[0].measures.unowned == pytest.approx(4 * 30, rel=0.1)
    assert 0.3 * cost.partition_seconds < run.measures.unowned < cost.partition_seconds + 16


@pytest.mark.parametrize(("there", "rebalances"), [(False, 1), (True, 3)], ids=["down", "up"])
def test_start_of_all_at_once_is_one_classic_generation_or_one_kip848_epoch_per_member(
    there: bool, rebalances: int
) -> None:
    snapshot = group(3, list=["range"], version="4.1.1") if there else kip848(3)
    run = played(snapshot, up=there, classic="range", together=True)
    # The Empty group is replaced by one of the other type: its first generation, or epochs.
    assert run.phases[-1].measures.rebalances == rebalances == run.rebalances[-1].generation
    assert [member.owned for member in run.members] == [4, 4, 4]
    # Nobody owns anything from the stop until the first are given their partitions.
    least = 30 if there else 30 + 3
    assert least <= run.measures.longest <= least + 12


def test_static_members_move_to_kip848_and_back_without_a_rebalance_within_their_session() -> None:
    members = [{"id": f"m{n}", "instance": f"i{n}"} for n in range(3)]
    made = up(group_of({"members": members}))
    assert (made.rebalances, made.partitions_moved) == (0, 0)
    assert 90 <= made.seconds < 90 + 3 * POLL
    assert made.partition_seconds == pytest.approx(12 * (30 + POLL / 2), rel=0.01)
    assert "3 static: their partitions wait for them" in made.text
    there = [{**m, "protocol_type": "consumer"} for m in members]
    back = group_of({"members": there, "type": "consumer", "elected": "uniform"})
    assert down(back, "range").rebalances == 0
    late = up(group_of({"members": [{**m, "timeouts": [9000, 60_000]} for m in members]}))
    assert late.rebalances == 6, "a session of 9 s ends before a restart of 30 s"


def test_move_to_kip848_restarts_only_members_that_still_use_the_classic_protocol() -> None:
    members = [{"id": "a", "protocol_type": "consumer"}, {"id": "b", "protocol_type": "classic"}]
    half = group_of({"members": members, "type": "consumer", "elected": "range"})
    made = up(half, order=("b-0f0f",), eager=("b-0f0f",))
    assert (made.rebalances, made.partitions_moved) == (2, 12)
    assert 0.3 * (2 * 6 * 5) < made.partition_seconds < 2 * 6 * (5 + POLL)
    assert made.paces[0].name == "one by one"
    assert "rebalance of the classic group" not in made.text


def test_worst_case_of_a_move_adds_session_timeouts_and_the_slowest_rebalance_timeout() -> None:
    made = up(group(2, timeouts=[45_000, 60_000]))
    # Each is gone without leaving for 45 s, with its 6 partitions. The classic group waits 60 s for
    # the other one, then each join for what must be revoked: of an EAGER member that is everything.
    # The second leave waits for nobody.
    assert made.worst_seconds == pytest.approx(2 * 45 + 3 * 60, abs=4 * 5)
    assert made.worst_partition_seconds == pytest.approx(
        2 * 6 * 45 + 12 * 60 + 12 * 60 + 6 * 60, rel=0.05
    )
    brokers = Cluster(settings={"group.consumer.session.timeout.ms": "90000"})
    back = down(replace(kip848(2), cluster=brokers), "range")
    assert "session timeout 90 s (describe)" in back.text


def test_broker_settings_give_heartbeat_interval_initial_delay_and_server_side_assignor() -> None:
    cluster = Cluster(
        settings={
            "group.consumer.heartbeat.interval.ms": "2000",
            "group.initial.rebalance.delay.ms": "500",
            "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        }
    )
    speed = SPEED.at(cluster)
    assert (speed.reconcile, speed.first) == (2.0, 0.5)
    assert default_server_side(replace(group(1), cluster=cluster)) == "range"
    assert default_server_side(group(1)) == "uniform"


def test_members_already_back_on_the_classic_protocol_are_rehearsed_with_the_target_list() -> None:
    members = [{"id": "a", "protocol_type": "consumer"}, {"id": "b", "protocol_type": "classic"}]
    half = group_of({"members": members, "type": "consumer", "elected": "uniform"})
    made = down(half, "cooperative-sticky", order=("a-0f0f",))
    assert "stands in" not in made.text, "uniform is no member's list"
    # The leave converts the group; the join takes a follow-up rebalance.
    assert (made.rebalances, made.partitions_moved) == (1 + 2, 12)


def test_cost_of_an_online_move_ignores_the_current_migration_policy() -> None:
    settings = {"group.consumer.migration.policy": "disabled", "group.consumer.max.size": "1"}
    members = [{"id": "a", "instance": "i"}, {"id": "b"}]
    closed = group_of({"members": members, "cluster": {"settings": settings}})
    open_ = group_of({"members": members})
    assert up(closed).paces == up(open_).paces
    assert up(closed).rebalances == 2


def test_online_move_without_members_to_restart_costs_nothing() -> None:
    made = up(group(2), order=())
    assert (made.rebalances, made.paces) == (0, ())


def test_a_cut_over_stops_all_and_the_pace_is_that_of_the_start() -> None:
    snapshot = group(3, family="librdkafka", version="2.6.0")
    speed = replace(SPEED, batch=2)
    made = stop_and_start(snapshot, "cooperative-sticky", speed=speed)
    one, two, three = made.paces
    assert [pace.name for pace in made.paces] == ["one by one", "2 at a time", "all at once"]
    assert (made.seconds, made.partition_seconds) == pytest.approx((36, 36 * 12), rel=0.01)
    assert three.rebalances == 1
    # The first has everything after the restart and the coordinator's 3 s; each further one comes
    # 30 s later and needs two rebalances: what others must give up reaches it in the second.
    assert one.rebalances == 1 + 2 * 2
    assert 33 + 2 * 30 < one.seconds < 33 + 2 * (30 + 2 * 3.6)
    assert one.partition_seconds > 33 * 12
    assert 33 + 30 < two.seconds < 36 + 30 + 2 * 3.6
    assert "all stop together at any pace" in made.text
    assert "3 s, group.initial.rebalance.delay.ms, by default" in made.text
    assert "by default of librdkafka" in made.text


def test_a_stop_waits_for_the_sessions_of_those_that_do_not_leave() -> None:
    dynamic = group(2, timeouts=[60_000, 120_000])
    made = stop_and_start(dynamic, "range", speed=SPEED)
    assert made.seconds == pytest.approx(30 + 3 + 3, abs=0.1)
    # Killed, they count for 60 s; then the start, the coordinator's 3 s, and the slowest, 120 s.
    assert made.worst_seconds == pytest.approx(60 + 30 + 3 + 120, abs=4.5)
    assert wait_for_empty_text(dynamic.members) == "see the group Empty"
    static = group_of({"members": [{"id": "a", "instance": "i", "timeouts": [60_000, 120_000]}]})
    over = stop_and_start(static, "uniform", kip848=True, speed=SPEED)
    # Its session began with its last heartbeat, up to 3 s before it stopped.
    assert 60 - 3 + 30 < over.seconds < 60 + 30 + 2 * POLL
    assert over.worst_seconds == pytest.approx(over.seconds, abs=3)
    said = "the sessions of those that do not leave at a stop (60 s) and the restart (30 s)"
    assert said in over.text
    assert "60 s later" in wait_for_empty_text(static.members)
    assert empty_after(group(1, family="streams").members) == 45, "Streams never leaves"
    assert empty_after(group(1).members) == 0


def test_an_assumed_client_family_brings_its_own_timeouts() -> None:
    unknown = group_of({"members": [{"id": "a", "family": None}, {"id": "b", "family": None}]})
    made = make_plan(unknown, families={"*": "sarama"})
    costs = [step.cost for step in made.steps if step.cost is not None]
    assert costs
    for cost in costs:
        expected = "session timeout 10 s, rebalance timeout up to 60 s (by default of sarama"
        assert expected in cost.text
    question = next(finding for finding in made.findings if finding.rule == "RB603")
    assert "session timeout 10 s" in question.message


def some(count: int, stopped: int, *, eager: bool, assignor: str = "cooperative-sticky") -> Cost:
    snapshot = group(count)
    ids = tuple(member.member_id for member in snapshot.members)
    others = ids[: count - stopped]
    return stop_some(
        Roll(
            snapshot=snapshot, order=ids[count - stopped :], eager=others if eager else (),
            target=(assignor,), speed=SPEED,
        )
    )  # fmt: skip


def test_only_some_stop_and_the_others_take_over_what_they_owned() -> None:
    made = some(4, 2, eager=True)
    one, both = made.paces
    # They leave in one rebalance and come back in one; at both the EAGER others stop all they own.
    assert (both.rebalances, made.partitions_stopped) == (2, 2 * 12)
    assert 30 < both.seconds < 30 + 3.6
    assert 0 < both.partition_seconds < 2 * 3.6 * 12
    assert (made.rebalances, made.seconds) == (both.rebalances, both.seconds)
    assert one.seconds > both.seconds
    assert one.rebalances > both.rebalances
    assert "stop together at any pace" in made.text
    calm = some(4, 2, eager=False)
    # Only the 6 of those that left, and the 6 that go to those that came back.
    assert (calm.partitions_moved, calm.partitions_stopped) == (12, 6 + 6)
    assert calm.partition_seconds <= 2 * 6 * 3.6
    rough = some(4, 2, eager=True, assignor="acme")
    assert "range stands in for acme" in rough.text
    there = stop_and_start(group(2), "acme", kip848=True, speed=SPEED)
    assert "uniform stands in for acme" in there.text


def test_of_a_large_group_some_of_the_starts_are_rehearsed() -> None:
    speed = replace(SPEED, batch=60)
    made = stop_and_start(sized(120, 7200, "range"), "cooperative-sticky", speed=speed)
    one, some_, all_at_once = made.paces
    assert [one.name, some_.name, all_at_once.name] == ["one by one", "60 at a time", "all at once"]
    assert made.seconds == pytest.approx(36, abs=0.1)
    assert one.rebalances == pytest.approx(1 + 2 * 119, rel=0.01)
    assert one.seconds > some_.seconds > all_at_once.seconds


def test_one_member_stands_for_several_where_too_many_join_a_kip_848_group_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = sized(60, 600, "range")
    whole = stop_and_start(snapshot, "uniform", kip848=True, speed=SPEED)
    monkeypatch.setattr(steps, "_MOST", 10_000)
    fewer = stop_and_start(snapshot, "uniform", kip848=True, speed=SPEED)
    assert "about right: rehearsed one member for 4" in fewer.text
    assert "about right" not in whole.text
    assert fewer.rebalances == whole.rebalances == 60
    assert fewer.partition_seconds == pytest.approx(whole.partition_seconds, rel=0.05)
    assert fewer.seconds == pytest.approx(whole.seconds, rel=0.05)
    back = stop_and_start(sized(60, 600, "uniform"), "range", speed=SPEED)
    assert "rehearsed" not in back.text, "all join one generation"


@given(st.data())
@examples(50, full=300)
def test_worst_case_cost_is_never_below_the_expected_cost(data: st.DataObject) -> None:
    count, partitions = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 12))
    members = [
        {
            "id": f"m{n}",
            "family": data.draw(st.sampled_from(["java", "sarama", "streams", None])),
            "instance": data.draw(st.sampled_from([None, f"i{n}"])),
            "timeouts": data.draw(st.sampled_from([[1000, 3000], [45_000, 300_000]])),
        }
        for n in range(count)
    ]
    owners = data.draw(st.lists(st.integers(0, count), min_size=partitions, max_size=partitions))
    snapshot = group_of({"members": members, "topics": {"orders": partitions}})
    snapshot = replace(
        snapshot,
        members=tuple(
            replace(m, assignment={"orders": Partitions(p for p, o in enumerate(owners) if o == n)})
            for n, m in enumerate(snapshot.members)
        ),
    )
    ids = [member.member_id for member in snapshot.members]
    order = tuple(data.draw(st.permutations(ids))[: data.draw(st.integers(0, count))])
    speed = Speed(
        restart=data.draw(st.sampled_from([0, 30])), batch=data.draw(st.integers(0, count))
    )
    name = st.sampled_from(["range", "cooperative-sticky", "acme"])
    server_side = st.sampled_from(["uniform", "range", "acme"])
    roll = Roll(snapshot=snapshot, order=order, speed=speed, target=(data.draw(name),))
    up = data.draw(st.booleans())
    move = replace(
        roll, protocol="consumer" if up else "classic", target=() if up else roll.target,
        server_side=data.draw(server_side), eager=tuple(ids[::2]),
        eager_after=data.draw(st.booleans()),
    )  # fmt: skip
    costs = [
        move_online(move),
        stop_and_start(snapshot, data.draw(name), speed=speed),
        stop_and_start(snapshot, data.draw(server_side), kip848=True, speed=speed),
    ]
    if 0 < len(order) < count:
        costs.append(stop_some(roll))
    for pace in (pace for cost in costs for pace in cost.paces):
        # Both are rounded to tenths.
        assert 0 <= pace.seconds <= pace.worst_seconds + 0.1
        assert 0 <= pace.partition_seconds <= pace.worst_partition_seconds + 0.1
