"""What members do by KIP-429, KIP-568 and the clients' source, story by story."""

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.assignors import Spec, SpecMember
from rebal.planner.rehearsal.engine.leaders import kafka_go_range
from rebal.planner.rehearsal.engine.member import Process, retries_after
from rebal.planner.rehearsal.rehearse import rehearse, rehearse_often
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent
from tests.planner.rehearsal.scenes import (
    BOTH,
    DONE,
    RANGE,
    Counting,
    assignors,
    event,
    play,
    restart,
    scene,
    starts,
    told,
    with_processes,
)

BUSY = event("busy", "m0", seconds=20, at=9)
"""Whoever joins at 10 s begins a rebalance that waits for m0 until 29 s."""


def late(*assignors: str, at: float = 10.0, seconds: float = 0.0, **more: Any) -> ScriptEvent:
    process = Process(name="late", assignors=assignors, **{"topics": ("orders",), **more})
    return starts(process, at=at, seconds=seconds)


@pytest.mark.parametrize(
    ("list_", "callback", "removed", "longest"),
    [
        # Its partitions were given up before the exception: close() has none left to revoke.
        pytest.param(RANGE, "revoked", [], 10, id="eager, revoked"),
        pytest.param(RANGE, "assigned", [], 10, id="eager, assigned"),
        # close() calls the listener again, which throws before the LeaveGroup.
        pytest.param(
            DONE, "revoked", [("m1", "its session timed out")], 60, id="cooperative, revoked"
        ),
    ],
)
def test_member_whose_callback_throws_ends_and_leaves_unless_close_throws_too(
    list_: tuple[str, ...], callback: str, removed: list[tuple[str, str]], longest: float
) -> None:
    where = with_processes(scene(list_, list_), "m1", fails_in=(callback,))
    run = play(where, late(*list_))
    assert told(run, "callback failed") == [("m1", callback)]
    assert told(run, "removed") == removed
    assert [member.owned for member in run.members] == [6, 0, 6]
    assert longest - 20 < run.measures.longest < longest


@pytest.mark.parametrize(
    ("family", "version", "names", "protocol", "why"),
    [
        ("java", "2.8.2", RANGE, "consumer", "this version of Java consumer has no group.protocol"),
        ("kafkajs", None, RANGE, "consumer", "this version of kafkajs has no group.protocol"),
        ("librdkafka", "2.6.0", ("sticky",), "classic", "no assignor sticky"),
        ("librdkafka", "2.12.0", ("sticky",), "consumer", ""),
        ("segmentio", None, ("sticky", "range"), "classic", ""),
    ],
)
def test_client_does_not_start_with_what_it_lacks(
    family: str, version: str | None, names: tuple[str, ...], protocol: str, why: str
) -> None:
    run = play(scene(RANGE, RANGE), late(*names, family=family, version=version, protocol=protocol))
    assert [why in said for _, said in told(run, "did not start")] == [True] * bool(why)


def test_stopped_member_leaves_when_its_listener_is_done() -> None:
    stop = event("stop", "m1", at=100)
    run = play(scene(RANGE, RANGE, on_revoked=20.0), stop)
    assert run.rebalances[0].began == pytest.approx(120.0)


def test_new_partitions_are_consumed_when_the_assigned_callback_has_returned() -> None:
    quick = play(scene(RANGE, RANGE), late("range"))
    slow = play(scene(RANGE, RANGE, on_assigned=8.0), late("range", on_assigned=8.0))
    assert slow.measures.longest == pytest.approx(quick.measures.longest + 8, abs=0.1)
    assert [member.owned for member in slow.members] == [4, 4, 4]


def test_member_in_its_assigned_callback_joins_the_next_rebalance_when_that_has_returned() -> None:
    callback = play(scene(RANGE, RANGE), late("range", on_assigned=20.0), restart("m1", at=15.0))
    joined = next(each for each in callback.rebalances if each.began > 12)
    assert joined.ended - joined.began > 10


def test_assigned_callback_past_the_poll_timeout_has_the_member_leave() -> None:
    late_one = late("range", on_assigned=70.0, rebalance=60.0)
    run = play(scene(RANGE, RANGE, rebalance=60.0), late_one)
    assert told(run, "past its poll timeout")[0][0] == "late"
    assert run.rebalances[1].why == "a member did not poll in time"


@pytest.mark.parametrize(
    ("list_", "busy", "who", "at", "error"),
    [
        (DONE, 20, "m1", 20, "RebalanceInProgressException"),
        (RANGE, 90, "m0", 80, "CommitFailedException"),
    ],
    ids=["during a rebalance", "past its poll timeout"],
)
def test_commit_of_a_member_that_is_not_in_the_generation_fails(
    list_: tuple[str, ...], busy: float, who: str, at: float, error: str
) -> None:
    run = play(
        scene(list_, list_, rebalance=60.0),
        event("busy", "m0", seconds=busy, at=9),
        late(*list_),
        event("commit", who, at=at),
    )
    assert told(run, "commit failed") == [(who, error)]


def test_commit_succeeds_while_the_group_prepares_a_rebalance() -> None:
    commit = event("commit", "m0", at=20)
    run = play(scene(RANGE, RANGE), BUSY, late("range"), commit)
    assert [note.who for note in run.notes if note.what == "committed"] == ["m0"]


@pytest.mark.parametrize(
    ("list_", "version", "rebalances"),
    [(RANGE, "2.8.2", 0), (RANGE, "4.1.1", 1), (DONE, "2.8.2", 1)],
)
def test_enforce_rebalance_of_a_follower_needs_metadata_that_changed(
    list_: tuple[str, ...], version: str, rebalances: int
) -> None:
    # The generation is in the subscription from 3.4 on, and in cooperative-sticky's user data.
    where = scene(list_, list_, version=version)
    run = play(where, event("enforce-rebalance", "m1", at=5))
    assert len(run.rebalances) == rebalances
    assert [member.owned for member in run.members] == [6, 6]


def test_enforce_rebalance_during_a_rebalance_does_nothing() -> None:
    enforce = event("enforce-rebalance", "m1", at=20)
    run = play(scene(RANGE, RANGE), BUSY, late("range"), enforce)
    assert len(run.rebalances) == 1


def test_cooperative_member_revokes_at_once_the_partitions_it_unsubscribes_from() -> None:
    where = replace(scene(DONE, DONE), topics={"orders": 12, "audit": 2})
    change = event("subscribe", "m0", topics=("audit",), at=10)
    run = play(where, change)
    assert [member.owned for member in run.members] == [2, 12]
    assert run.measures.twice == 0


def test_subscription_that_changes_during_a_join_is_sent_in_the_next() -> None:
    change = event("subscribe", "m1", topics=("audit",), at=20)
    where = replace(scene(RANGE, RANGE), topics={"orders": 12, "audit": 2})
    run = play(where, BUSY, late("range"), change)
    assert [member.owned for member in run.members] == [6, 2, 6]


def test_process_that_is_stopped_before_it_joins_never_joins() -> None:
    slow, stop = late("range", seconds=60.0), event("stop", "late", at=30)
    run = play(scene(RANGE, RANGE), slow, stop, event("wait", seconds=100))
    assert run.rebalances == ()
    assert told(run, "started") == []


def custom(*lists: tuple[str, ...]) -> Scene:
    """A group that elected `counting`: m0 leads."""
    where = scene(*(RANGE for _ in lists))
    for number, list_ in enumerate(lists):
        where = with_processes(where, f"m{number}", assignors=list_)
    return replace(where, assignor="counting")


def test_cooperative_leader_fails_on_an_assignment_that_hands_over_what_is_owned() -> None:
    where = custom(("counting",), ("counting",))
    script = Script(events=(late("counting"),))
    run = rehearse(where, script, assignors={"counting": Counting("EAGER", "COOPERATIVE")})
    assert told(run, "failed as leader")[0][0] == "m0"
    assert run.members[0].state == "stopped"


def test_eager_leader_does_not_validate_and_partitions_are_owned_twice() -> None:
    # m0 leads with an EAGER list: nobody checks the custom class. m1 is busy with what it keeps.
    where = custom(("counting", "range"), ("counting",))
    busy = [event("busy", "m0", seconds=21, at=9), event("busy", "m1", seconds=20, at=20)]
    script = Script(events=(busy[0], late("counting"), busy[1]))
    run = rehearse(where, script, assignors={"counting": Counting("EAGER", "COOPERATIVE")})
    assert told(run, "failed as leader") == []
    assert run.measures.twice > 10
    # cooperative-sticky hands over nothing that is owned.
    right = play(scene(DONE, DONE), busy[0], late("cooperative-sticky"), busy[1])
    assert right.measures.twice == 0
    assert [member.owned for member in right.members] == [4, 4, 4]


def test_streams_group_votes_and_rejects_but_its_tasks_are_not_modelled() -> None:
    where = with_processes(scene(RANGE, RANGE, family="streams"), assignors=("stream",))
    where = replace(where, assignor="stream")
    run = play(where, late("range"), restart("m0"))
    assert told(run, "rejected") == [("late", "INCONSISTENT_GROUP_PROTOCOL")]
    # Streams does not leave when it closes: its session ends after the new member has joined.
    assert [one.members for one in run.rebalances][-1] == 2
    assert run.measures.unowned == run.measures.moved == 0
    assert run.assumes == (
        "the tasks that Kafka Streams assigns are not modelled: the rehearsal shows rebalances "
        "and rejections, but no downtime",
    )


def test_static_member_past_its_poll_timeout_stays_until_its_session_ends() -> None:
    busy = event("busy", "m0", seconds=200, at=9)
    run = play(scene(RANGE, RANGE, static=True, rebalance=60.0), busy)
    assert told(run, "removed") == [("m0", "its session timed out")]
    assert run.measures.twice == run.measures.twice_past > 0


@pytest.mark.parametrize("deed", [Deed.STOP, Deed.KILL])
def test_static_member_renews_its_session_by_a_commit_when_closed_not_killed(deed: Deed) -> None:
    # Its last heartbeat was up to 3 s ago; a process that is killed commits nothing.
    runs = [
        play(scene(RANGE, RANGE, static=True), event(deed, "m1", at=100), seed=seed)
        for seed in range(4)
    ]
    ends = [note.at - 100 for run in runs for note in run.notes if note.what == "removed"]
    assert len(ends) == 4
    if deed is Deed.STOP:
        assert ends == pytest.approx([45.0] * 4)
    else:
        assert max(ends) < 45.0


def test_leader_that_misses_the_join_barrier_is_replaced() -> None:
    busy = event("busy", "m0", seconds=90, at=9)
    run = play(scene(BOTH, BOTH, rebalance=60.0), busy, late("range"))
    assert told(run, "rejected") == []
    assert [one.assignor for one in run.rebalances][:1] == ["range"]
    assert sorted(member.owned for member in run.members) == [4, 4, 4]


def test_range_of_kafka_go_gives_the_odd_partition_to_the_last_member_unlike_java() -> None:
    # RangeGroupBalancer.AssignGroups of kafka-go: Java gives the first member the odd partition.
    members = tuple(SpecMember(member_id=id_, topics=("orders",)) for id_ in ("b", "a"))
    spec = Spec(members=members, partitions={"orders": 5, "other": 3})
    given = kafka_go_range(spec)
    assert [number for _, number in given["a"]] == [0, 1]
    assert [number for _, number in given["b"]] == [2, 3, 4]
    run = play(scene(RANGE, RANGE, partitions=5, family="segmentio"), restart("m0"))
    assert sorted(member.owned for member in run.members) == [2, 3]


def test_franz_go_waits_twice_as_long_after_each_rejection() -> None:
    # kgo.RetryBackoffFn, and captured: 0.29, 0.53, 0.82, 2.23, 4.62, 5.0, 5.0 s.
    process = Process(name="go", family="franz-go")
    waits = [retries_after(process, rejected) for rejected in range(1, 8)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_java_leader_rejoins_when_no_member_subscribes_to_a_topic_any_more() -> None:
    # ConsumerCoordinator: the metadata that it assigned by has the topic, the next one has not
    # ("cached metadata has changed", captured within metadata.max.age.ms).
    where = replace(scene(RANGE, RANGE), topics={"orders": 12, "other": 3})
    guest, stop = late("range", topics=("orders", "other")), event("stop", "late", at=60)
    run = play(where, guest, stop, event("wait", seconds=400))
    whys = [one.why for one in run.rebalances]
    assert whys == ["a member joined", "a member left", "the leader joined again"]
    assert run.rebalances[-1].began - run.rebalances[-2].began < 310


def test_kafka_python_leader_assigns_another_members_topic_after_reading_its_metadata() -> None:
    where = scene(RANGE, RANGE, family="kafka-python")
    where = replace(where, topics={"orders": 12, "other": 3})
    run = play(where, late("range", family="kafka-python", topics=("other",)))
    assert [one.why for one in run.rebalances] == ["a member joined", "the leader joined again"]
    assert [member.owned for member in run.members] == [6, 6, 3]


def test_kafkajs_leader_assigns_only_its_own_topics_and_to_every_member() -> None:
    # ConsumerGroup.sync of kafkajs: assigner.assign({ members, topics: topicsSubscribed }).
    list_ = ("RoundRobinAssigner",)
    where = with_processes(scene(RANGE, RANGE, family="kafkajs"), assignors=list_)
    where = replace(where, assignor=list_[0], topics={"orders": 12, "other": 3})
    run = play(where, late(*list_, family="kafkajs", topics=("other",)))
    assert [member.owned for member in run.members] == [4, 4, 4]
    assert run.assumes == ()


def test_static_member_that_returns_with_other_topics_gets_them_only_since_java_3_4() -> None:
    # ConsumerCoordinator.onJoinComplete: "received assignment does not match the current
    # subscription". The coordinator gave it the assignment of before.
    # Before 3.4 its subscription has no generation, so the coordinator sees no change in the join
    # of a follower and gives it the same again: captured, 600 joins a second without an end.
    for version, rebalances, owned in (("4.1.1", 1, [12, 4]), ("2.8.2", 0, [6, 0])):
        where = scene(RANGE, RANGE, static=True, version=version)
        where = replace(where, topics={"orders": 12, "other": 4})
        process = replace(where.running[1].process, topics=("other",))
        run = play(where, event("stop", "m1", at=1), starts(process, at=5))
        assert len(run.rebalances) == rebalances
        assert [member.owned for member in run.members] == owned


@pytest.mark.parametrize(("version", "to"), [("2.8.2", ()), ("4.1.1", ()), ("4.1.1", BOTH)])
def test_static_leader_that_is_back_in_time_assigns_nothing(
    version: str, to: tuple[str, ...]
) -> None:
    where = scene(RANGE, RANGE, static=True, version=version)
    run = play(where, restart("m0", to=to, seconds=20.0), event("wait", seconds=100))
    assert run.rebalances == ()
    assert run.measures.unowned == pytest.approx(6 * 20, rel=0.01)
    assert [member.owned for member in run.members] == [6, 6]


def test_partitions_that_come_while_a_static_leader_is_down_stay_unassigned() -> None:
    # KIP-814: the leader that skips the assignment takes the new metadata for that of the last one.
    where = scene(RANGE, RANGE, static=True)
    more = event("partitions", topic="orders", count=14, at=10)
    run = play(where, restart("m0", seconds=20.0, at=0), more, event("wait", seconds=300))
    assert run.rebalances == ()
    assert sum(member.owned for member in run.members) == 12
    seen = play(where, replace(more, at=60, seconds=60.0), event("wait", seconds=300))
    assert [member.owned for member in seen.members] == [7, 7]
    assert seen.measures.longest > 59


def test_old_member_that_comes_back_turns_franz_go_eager_and_partitions_are_owned_twice() -> None:
    # kgo revokes what it lost only where the new generation is cooperative (prerevoke).
    where = scene(BOTH, BOTH, RANGE, elected="range", family="franz-go")
    frozen = event("freeze", "m2", seconds=80, at=10)
    run = play(where, frozen, event("wait", seconds=30))
    assert run.rebalances[0].assignor == "cooperative-sticky"
    assert run.assignor == "range"
    assert run.measures.twice > run.measures.twice_past
    java = play(scene(BOTH, BOTH, RANGE, elected="range"), frozen)
    assert java.measures.twice == java.measures.twice_past
    # Since 1.21.6 a member that turns EAGER revokes all that it owns (protocolDowngraded).
    newer = scene(BOTH, BOTH, RANGE, elected="range", family="franz-go", version="1.21.6")
    run = play(newer, frozen, event("wait", seconds=30))
    assert (run.assignor, run.measures.twice) == ("range", run.measures.twice_past)


def test_librdkafka_tries_again_after_a_rejection_until_it_is_admitted() -> None:
    run = play(
        scene(RANGE, RANGE, family="librdkafka"),
        restart("m0", to=DONE),
        event("stop", "m1"),
        event("wait", seconds=10),
    )
    assert told(run, "rejected") == [("m0", "INCONSISTENT_GROUP_PROTOCOL")]
    assert run.assignor == "cooperative-sticky"
    assert run.members[0].owned == 12


def test_static_restart_that_changes_the_elected_assignor_causes_a_rebalance() -> None:
    run = play(
        scene(BOTH, RANGE, elected="range", static=True), restart("m1", to=BOTH, seconds=5.0)
    )
    assert assignors(run) == ["cooperative-sticky"]


def test_enforce_rebalance_waits_for_the_next_poll_and_revokes_nothing_before() -> None:
    run = play(scene(RANGE, RANGE, poll=20.0), event("enforce-rebalance", "m0", at=5))
    leads = run.rebalances[0]
    assert leads.began > 5
    assert leads.why == "the leader joined again"


def test_script_event_with_after_does_not_wait_for_the_group_to_be_stable() -> None:
    run = play(scene(RANGE, RANGE, RANGE), restart("m0", at=10.0), restart("m1", after=5.0))
    stopped = [note.at for note in run.notes if note.what == "stopped"]
    assert stopped == [10.0, 15.0]


def test_runs_with_a_danger_are_counted() -> None:
    script = Script(events=(restart("m1", to=DONE),))
    wrong = rehearse_often(scene(RANGE, RANGE), script, runs=3)
    fine = rehearse_often(scene(DONE, DONE), script, runs=3)
    assert (wrong.endangered, fine.endangered) == (3, 0)
    assert wrong.restless == fine.restless == 0


def test_a_process_that_freezes_while_it_joins_reads_the_answer_when_it_runs_again() -> None:
    run = play(
        scene(RANGE, RANGE, RANGE),
        restart("m0", seconds=10.0),
        event("freeze", "m1", seconds=100, at=2.5),
    )
    assert run.at_rest
    assert run.measures.seconds > 102
    assert [member.owned for member in run.members] == [4, 4, 4]
