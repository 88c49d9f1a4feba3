"""KIP-848 in the engine: epochs, reconciliation, static members, callbacks, conversions."""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rebal.groups.assignors import get
from rebal.groups.model import CoordinatorKind
from rebal.planner.rehearsal.engine.agenda import Chance
from rebal.planner.rehearsal.engine.consumer_group import Seat, Server
from rebal.planner.rehearsal.engine.group import SimulatedGroup
from rebal.planner.rehearsal.engine.member import Process
from rebal.planner.rehearsal.engine.memory import Beat, Brokers
from rebal.planner.rehearsal.engine.world import World
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent
from tests.planner.builder import group_of
from tests.planner.rehearsal.scenes import (
    BOTH,
    DONE,
    RANGE,
    Member,
    Named,
    Table,
    event,
    play,
    restart,
    scene,
    starts,
    told,
    with_processes,
)

ALL = ("m0", "m1", "m2")
UP = {"protocol": "consumer"}
LATE = Process(name="late", protocol="consumer", topics=("orders",))
SHUT = Brokers(migration="disabled", classic_joins=False)
JOIN = starts(LATE)


def kip848(count: int = 3, **more: Any) -> Scene:
    """A Stable KIP-848 group, each member with its share."""
    return scene(*[DONE] * count, elected="range", protocol="consumer", **more)


def down(*members: str, to: tuple[str, ...] = DONE) -> ScriptEvent:
    return ScriptEvent(do=Deed.RESTART, members=members, assignors=to, protocol="classic")


def epochs(run: Rehearsal) -> list[int]:
    return [one.generation for one in run.rebalances]


def balanced(run: Rehearsal) -> bool:
    return run.at_rest and run.state == "Stable" and {m.owned for m in run.members} == {4}


@pytest.mark.parametrize(
    "before", [[], [event("coordinator", seconds=2.0)]], ids=["", "coordinator moves"]
)
def test_a_restart_is_two_epochs_and_only_its_partitions_move(before: list[ScriptEvent]) -> None:
    run = play(kip848(), *before, restart("m1"))
    assert epochs(run) == [8, 9]
    assert [(one.moved, one.stopped) for one in run.rebalances] == [(4, 4), (4, 4)]
    assert balanced(run)
    assert run.measures.twice == 0


def test_a_member_gets_nothing_before_its_owner_has_revoked() -> None:
    run = play(kip848(on_revoked=12.0), restart("m1"))
    join = run.rebalances[1]
    assert join.ended is not None
    # The revoked partitions are acknowledged after 12 s; the member asks every 5 s.
    assert join.ended - join.began > 12
    assert run.measures.twice == 0
    assert balanced(run)


def test_a_member_that_revokes_too_slowly_is_removed_and_loses_its_partitions() -> None:
    where = with_processes(kip848(2, rebalance=30.0), "m0", on_revoked=90.0)
    run = play(where, JOIN)
    assert told(run, "removed") == [("m0", "it did not revoke in time")]
    assert [note.who for note in run.notes if note.what == "past its poll timeout"] == ["m0"]
    # Its listener runs for 90 s: until it has returned the member owns what it kept.
    assert run.measures.twice == run.measures.twice_past > 100
    assert balanced(run)


def test_static_kip848_member_restarts_without_a_new_epoch() -> None:
    run = play(kip848(static=True), restart("m1"))
    assert run.rebalances == ()
    assert balanced(run)
    assert run.measures.unowned == pytest.approx(4 * 30, rel=0.05)


def test_static_kip848_member_that_stays_down_is_removed_when_its_session_ends() -> None:
    run = play(kip848(static=True), event("stop", "m1"))
    assert told(run, "removed") == [("m1", "its session timed out")]
    assert epochs(run) == [8]
    assert 35 < run.rebalances[0].began <= 45


def test_a_killed_static_member_cannot_come_back_before_its_session_ends() -> None:
    run = play(
        kip848(static=True),
        event("kill", "m1", at=1.0),
        event("restart", "m1", at=2.0, seconds=10.0),
    )
    assert told(run, "rejected") == [("m1", "UNRELEASED_INSTANCE_ID")]
    assert [member.owned for member in run.members] == [6, 0, 6]


def test_a_member_past_its_poll_timeout_leaves_and_joins_again_at_its_next_poll() -> None:
    run = play(kip848(rebalance=60.0), event("busy", "m0", seconds=90.0, at=10.0))
    assert told(run, "past its poll timeout") == [("m0", "")]
    assert told(run, "lost") == [("m0", "4")]
    assert run.measures.twice == run.measures.twice_past > 50
    assert epochs(run) == [8, 9]
    assert balanced(run)


def test_a_frozen_member_is_fenced_and_joins_again() -> None:
    run = play(kip848(), event("freeze", "m0", seconds=80.0, at=10.0))
    assert told(run, "removed") == [("m0", "its session timed out")]
    assert told(run, "fenced") == [("m0", "UNKNOWN_MEMBER_ID")]
    assert run.measures.twice == run.measures.twice_past > 0
    assert balanced(run)


def test_new_partitions_give_the_group_an_epoch_at_the_next_heartbeat() -> None:
    run = play(kip848(), event("partitions", topic="orders", count=15, seconds=60.0, at=1.0))
    assert [one.why for one in run.rebalances] == ["topics changed"]
    assert [member.owned for member in run.members] == [5, 5, 5]
    assert run.measures.longest < 11


def test_new_partitions_of_a_topic_without_subscribers_cause_no_rebalance() -> None:
    # ConsumerCoordinator.rejoinNeededOrPending compares the subscribed topics' metadata alone, and
    # GroupMetadataManager.onNewMetadataImage looks up the groups that subscribe to a topic.
    more = event("partitions", topic="other", count=5, seconds=1.0, at=1)
    for where in (scene(DONE, DONE), kip848(2)):
        assert play(replace(where, topics={"orders": 12, "other": 3}), more).rebalances == ()


def test_members_of_one_bucket_are_served_in_the_order_of_the_coordinator_s_table() -> None:
    # TargetAssignmentBuilder fills a HashMap from ConsumerGroup.members, a TimelineHashMap. These
    # ids are at one place of the HashMap; captured on 4.4.0: who came last was served first.
    early, late = "onl9-2-53dcdafe-da1b-4f28-96d6-6c17f048bbc2", "sJXQwI8aTimOWfAupXldYQ"
    ids = {"m0": early, "m1": late}
    random = Random(0)

    class Ids(Chance):
        def kip848_member_id(self, client_id: str, now: float) -> str:
            return ids[client_id]

    world = World({"orders": 0}, Brokers(), random, chance=Ids(random))
    for name in ids:
        world.start(Process(name=name, client_id=name, topics=("orders",), protocol="consumer"))
        assert world.settle(60.0)
    world.add_partitions("orders", 2)
    assert world.settle(60.0)
    given = world.group.now.partitions()
    assert given == {late: (("orders", 0),), early: (("orders", 1),)}


def test_partitions_of_a_deleted_topic_have_no_owner_and_count_as_no_downtime() -> None:
    run = play(kip848(), event("delete-topic", topic="orders", at=3.0), restart("m1"))
    assert run.rebalances[0].why == "topics changed"
    assert [member.owned for member in run.members] == [0, 0, 0]
    assert run.measures.unowned == 0


def test_another_subscription_gives_the_group_an_epoch() -> None:
    where = kip848()
    run = play(where, event("subscribe", "m0", "m1", topics=("orders", "extra"), at=1.0))
    assert [one.why for one in run.rebalances] == ["a subscription changed"] * 2
    assert balanced(run)


FULL = kip848(brokers=Brokers(consumer_max_size=3))
KEEPS = Brokers(consumer_max_size=3, static_restarts_when_full=True)
REJECTED = "m1 INCONSISTENT_GROUP_PROTOCOL"
ADMISSION = {
    "the group is full": (FULL, [JOIN], "late GROUP_MAX_SIZE_REACHED"),
    "classic groups are not converted": (
        scene(DONE, DONE, brokers=Brokers(migration="disabled")),
        [JOIN],
        "late GROUP_ID_NOT_FOUND",
    ),
    "a Scala coordinator knows no KIP-848": (
        scene(DONE, DONE, brokers=Brokers(kind=CoordinatorKind.SCALA)),
        [JOIN],
        "late UNSUPPORTED_VERSION",
    ),
    "classic members have no assignor in common": (
        kip848(),
        [down("m0"), down("m1", to=RANGE)],
        REJECTED,
    ),
    "brokers reject classic joins, at the next epoch": (
        with_processes(kip848(brokers=SHUT), "m1", "m2", protocol="classic"),
        [restart("m0")],
        f"{REJECTED} m2 INCONSISTENT_GROUP_PROTOCOL",
    ),
    "a static member's place in a full group is not kept": (
        kip848(static=True, brokers=FULL.brokers),
        [restart("m0")],
        "m0 GROUP_MAX_SIZE_REACHED",
    ),
    "it is kept": (kip848(static=True, brokers=KEEPS), [restart("m0")], ""),
}


@pytest.mark.parametrize("case", ADMISSION)
def test_only_a_member_that_the_coordinator_cannot_admit_is_rejected(case: str) -> None:
    where, events, rejected = ADMISSION[case]
    rejections = [word for pair in told(play(where, *events), "rejected") for word in pair]
    assert " ".join(rejections) == rejected


def test_an_empty_group_begins_at_epoch_1_where_the_brokers_have_an_assignment_interval() -> None:
    """KAFKA-20268: the first member's epoch is 2, and it is one rebalance all the same."""
    stop = event("stop", *ALL)
    begin = [starts(replace(LATE, name=n), at=60) for n in "ab"]
    for first, seen in ((0, [1, 2]), (1, [2, 3])):
        run = play(scene(DONE, DONE, DONE, brokers=Brokers(first_epoch=first)), stop, *begin)
        assert epochs(run)[-2:] == seen


def test_a_member_that_joins_within_the_assignment_interval_waits_for_its_end() -> None:
    """KIP-1263: one target an interval; its members learn of it at a heartbeat after its end."""
    begin = [starts(replace(LATE, name=name), at=at) for name, at in (("a", 1.0), ("b", 1.3))]
    ends = {}
    for interval in (0.0, 1.0, 30.0):
        run = play(kip848(1, brokers=Brokers(assignment_interval=interval)), *begin)
        assert balanced(run)
        assert epochs(run) == [8, 9]
        ends[interval] = run.rebalances[-1].ended or 0.0
    # The default is over before the owner's next heartbeat, which has to give partitions up.
    assert ends[1.0] == ends[0.0] < 10
    assert 30 < ends[30.0] < 31 + 10


def test_eager_classic_members_of_a_kip848_group_revoke_all_partitions_at_an_epoch() -> None:
    run = play(scene(RANGE, RANGE, RANGE), restart("m0", **UP))
    # 6 partitions each before the join; both stop all of them, and have back what stays.
    assert run.rebalances[1].stopped == 12
    assert run.measures.twice == 0
    assert balanced(run)


def test_a_group_that_may_not_go_back_stays_kip_848_with_classic_members() -> None:
    run = play(kip848(brokers=Brokers(migration="upgrade")), *(down(name, to=BOTH) for name in ALL))
    assert run.assignor == "uniform"
    assert [member.protocol for member in run.members] == ["EAGER"] * 3
    assert balanced(run)


def test_static_members_change_protocol_without_a_rebalance_both_ways() -> None:
    run = play(
        scene(DONE, DONE, static=True),
        *(restart(name, **UP) for name in ALL[:2]),
        *(down(name) for name in ALL[:2]),
    )
    assert run.rebalances == ()
    assert (run.state, run.assignor) == ("Stable", "cooperative-sticky")
    assert [member.owned for member in run.members] == [6, 6]


@pytest.mark.parametrize(("came", "leader"), [("m0 m1 m2", "m2"), ("m2 m1 m0", "m0")])
def test_leader_after_a_conversion_to_classic_is_the_first_of_the_timeline_map(
    came: str, leader: str
) -> None:
    clients = {name: Member(name) for name in (*came.split(), "last")}
    table = Table()
    group = SimulatedGroup(
        table.agenda, Brokers(), table, Named(Random(0)), server=cast(Server, SimpleNamespace())
    )
    seats = [Seat(clients[name].request(), clients[name], ()) for name in came.split()]
    group.seat([*seats, Seat(Beat("last", 0, topics=("orders",)), clients["last"], ())], "", None)
    group.beat(Beat("last", -1), clients["last"])
    # TimelineHashMap of 4.1.1: m0 and m2 share a slot, which is taken from its end; then m1.
    assert (group.kip848, group.now.leader) == (False, leader)


def test_group_remote_assignor_of_most_members_becomes_the_server_side_assignor() -> None:
    run = play(
        kip848(brokers=Brokers(consumer_assignor="range")),
        restart("m0", remote_assignor="uniform"),
        restart("m1", remote_assignor="uniform"),
        restart("m2", remote_assignor="range"),
    )
    assert run.rebalances[0].assignor == "range"
    assert run.assignor == "uniform"


def test_group_whose_assignments_carry_user_data_is_not_converted() -> None:
    """KAFKA-18134: the coordinator rejects the first member with group.protocol=consumer."""
    where = with_processes(scene(RANGE, RANGE), assignors=("shelf", "range"))
    custom = {"shelf": get("range")}
    where = replace(where, assignor="shelf", user_data=("shelf",))
    run = rehearse(where, Script(events=(JOIN,)), assignors=custom)
    assert told(run, "rejected") == [("late", "GROUP_ID_NOT_FOUND")]
    plain = rehearse(replace(where, user_data=()), Script(events=(JOIN,)), assignors=custom)
    assert told(plain, "rejected") == []
    # Restarted with one of Kafka's own assignors, both members have assignments without it.
    moved = [restart(name, to=RANGE) for name in ("m0", "m1")]
    run = rehearse(where, Script(events=(*moved, JOIN)), assignors=custom)
    assert (told(run, "rejected"), run.at_rest) == ([], True)
    # A group that was stopped has no assignment left.
    stop = event("stop", "m0", "m1")
    run = rehearse(where, Script(events=(stop, JOIN)), assignors=custom)
    assert told(run, "rejected") == []
    assert [member.owned for member in run.members] == [0, 0, 12]


def test_rehearsed_group_keeps_the_assignor_whose_captured_assignment_has_user_data() -> None:
    for member, named in (({"assigned_data": "x"}, ("range",)), ({}, ())):
        made, _ = scene_of(group_of({"members": [{"id": "m", **member}]}))
        assert made.user_data == named


def failing(callback: str, **more: float) -> Scene:
    """Two members; the listener of m1 throws in this callback."""
    return with_processes(kip848(2), "m1", fails_in=(callback,), **more)


@pytest.mark.parametrize("callback", ["revoked", "assigned"])
def test_member_whose_callback_throws_in_a_reconciliation_leaves_at_once(callback: str) -> None:
    run = play(failing(callback), starts(LATE, at=10.0))
    assert told(run, "callback failed") == [("m1", callback)]
    # close() calls onPartitionsRevoked again; a throw there does not keep back the heartbeat.
    assert told(run, "removed") == []
    assert {member.name: member.owned for member in run.members} == {"m0": 6, "m1": 0, "late": 6}
    # The join of `late`, and the leave of m1.
    assert epochs(run) == [8, 9]
    assert run.measures.longest < 15


def test_member_whose_lost_callback_throws_joins_again_and_leaves() -> None:
    late = event("busy", "m1", seconds=100.0, at=10.0)
    run = play(failing("lost", rebalance=30.0), late)
    assert told(run, "callback failed") == [("m1", "lost")]
    # It left past its poll timeout, joined in its next poll, and left when it was closed.
    assert epochs(run) == [8, 9, 10]
    assert [member.owned for member in run.members] == [12, 0]
    assert told(run, "removed") == []
