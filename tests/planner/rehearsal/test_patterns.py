"""Subscriptions by pattern: new topics reach members by their own metadata, or by the brokers."""

from __future__ import annotations

from msgspec.structs import replace

from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.script import Deed, Event, Script
from tests.planner.builder import group_of
from tests.planner.rehearsal.scenes import DONE, RANGE, play, restart, scene, told, with_processes
from tests.planner.rehearsal.test_kip848 import kip848
from tests.planner.rehearsal.test_scripts import read

ORDERS = "orders.*"


def new(topic: str = "orders-eu", noticed: float = 60.0, count: int = 6, at: float = 10.0) -> Event:
    return Event(do=Deed.CREATE_TOPIC, topic=topic, count=count, seconds=noticed, at=at)


def deleted(topic: str = "orders-eu", noticed: float = 60.0) -> Event:
    return Event(do=Deed.DELETE_TOPIC, topic=topic, seconds=noticed)


def test_classic_members_each_join_again_for_a_topic_that_their_pattern_matches() -> None:
    run = play(scene(RANGE, RANGE, pattern=ORDERS), new())
    assert [member.owned for member in run.members] == [9, 9]
    # Both read metadata in their own time: two rebalances, unless one join has both.
    assert 1 <= len(run.rebalances) <= 2
    assert 10 < run.rebalances[0].began <= 70
    assert run.measures.twice == 0


def test_topic_that_no_pattern_matches_changes_nothing() -> None:
    for where in (scene(RANGE, RANGE, pattern=ORDERS), kip848(2, pattern=ORDERS)):
        assert play(where, new("payments")).rebalances == ()


def test_topic_that_nobody_subscribes_to_changes_nothing() -> None:
    # ConsumerCoordinator.rejoinNeededOrPending compares the subscribed topics' metadata alone, and
    # GroupMetadataManager.onNewMetadataImage looks up the groups that subscribe to a topic.
    more = Event(do=Deed.PARTITIONS, topic="other", count=5, seconds=1.0, at=1)
    for where in (scene(DONE, DONE), kip848(2)):
        assert play(replace(where, topics={"orders": 12, "other": 3}), more).rebalances == ()


def test_members_that_subscribe_by_names_get_no_new_topic() -> None:
    run = play(with_processes(scene(RANGE, RANGE, pattern=ORDERS), "m1", pattern=""), new())
    assert [member.owned for member in run.members] == [12, 6]
    assert play(scene(DONE, DONE), new()).rebalances == ()


def test_deleted_topic_leaves_the_subscription_of_a_pattern() -> None:
    run = play(scene(RANGE, RANGE, pattern=ORDERS), new(), deleted())
    assert [member.owned for member in run.members] == [6, 6]
    assert run.at_rest


def test_brokers_resolve_a_pattern_at_the_next_heartbeat() -> None:
    run = play(kip848(2, pattern=ORDERS), new())
    assert [one.why for one in run.rebalances] == ["the topics of a pattern changed"]
    assert run.rebalances[0].began - 10 <= 5.1
    assert [member.owned for member in run.members] == [9, 9]


def test_brokers_resolve_patterns_once_in_ten_seconds() -> None:
    run = play(kip848(2, pattern=ORDERS), new(), new("orders-us", at=16.0), new("orders-au", at=17))
    first, second = run.rebalances
    assert second.began - first.began >= 10
    assert [member.owned for member in run.members] == [15, 15]


def test_restarted_member_matches_its_pattern_anew() -> None:
    run = play(scene(RANGE, pattern=ORDERS), new(noticed=3000.0), restart("m0", at=20.0))
    assert [member.owned for member in run.members] == [18]


def test_application_that_subscribes_by_a_pattern_gets_what_it_matches() -> None:
    for where in (scene(RANGE, RANGE), kip848(2)):
        subscribe = Event(do=Deed.SUBSCRIBE, members=("m0", "m1"), pattern=ORDERS)
        run = play(where, new(), subscribe, restart("m0"))
        assert [member.owned for member in run.members] == [9, 9], run.rebalances
        assert told(run, "rejected") == []


def test_script_creates_topics_and_subscribes_by_pattern() -> None:
    made = read(
        "  - subscribe: all\n    pattern: orders.*\n"
        "  - create-topic: {orders-eu: 6, orders-us: 2}\n    noticed: 10s\n"
        "  - delete-topic: orders-us\n"
    )
    assert [event.do for event in made] == [
        Deed.SUBSCRIBE,
        Deed.CREATE_TOPIC,
        Deed.CREATE_TOPIC,
        Deed.DELETE_TOPIC,
    ]
    run = rehearse(scene(RANGE, RANGE, RANGE, RANGE), Script(events=tuple(made)))
    assert (run.at_rest, sum(member.owned for member in run.members)) == (True, 18)
    assert [note.detail for note in run.notes if note.what == "topic created"] == [
        "orders-eu: 6",
        "orders-us: 2",
    ]


def test_group_from_evidence_has_the_pattern_that_the_brokers_show() -> None:
    member = {"id": "m", "regex": ORDERS, "protocol_type": "consumer"}
    spec = {"type": "consumer", "elected": "uniform", "topics": {"orders": 4}}
    for regex, pattern in ((ORDERS, ORDERS), (r"\pN+", "")):
        seen, _ = scene_of(group_of({**spec, "members": [{**member, "regex": regex}]}))
        assert seen.running[0].process.pattern == pattern
