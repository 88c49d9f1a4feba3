"""What a step costs when its restarts are rehearsed: with the real assignors, and of workers."""

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.clients import worker_list
from rebal.groups.compact import Partitions
from rebal.groups.model import AssignorList, GroupSnapshot, Knowledge, Software, WorkerState
from rebal.planner.paths import make_plan
from rebal.planner.plan import Cost, StepKind
from rebal.planner.rehearsal.costs import steps
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_assignors, by_workers
from rebal.planner.timeouts import Speed, in_words, with_families
from tests.examples import examples
from tests.planner.builder import group_of
from tests.planner.plans import BOTH
from tests.planner.worker_groups import IDS, WORK, workers

SPEED = Speed(restart=30, rebalance=3, first=3, reconcile=5)
MIXED = tuple(BOTH)
DONE = ("cooperative-sticky",)


def group(count: int, elected: str = "range", **more: Any) -> GroupSnapshot:
    """Members alike; `type` is the group's."""
    kind = more.pop("type", "classic")
    members = [{"id": f"m{n}", **more} for n in range(count)]
    return group_of({"members": members, "elected": elected, "type": kind})


def on(assignor: str, count: int, **more: Any) -> GroupSnapshot:
    """Members whose lists hold nothing else."""
    return group(count, assignor, list=[assignor], **more)


def restarts(snapshot: GroupSnapshot, target: tuple[str, ...], **more: Any) -> Roll:
    ids = tuple(member.member_id for member in snapshot.members)
    usual = Roll(
        snapshot=snapshot, order=ids, eager=ids, target=target,
        eager_after="range" in target, speed=SPEED,
    )  # fmt: skip
    return replace(usual, **more)


def test_bounce_one_stops_everything_twice_for_each_member() -> None:
    made = by_assignors(restarts(on("range", 4), MIXED))
    assert made.rebalances == 8
    assert made.partitions_stopped == 8 * 12
    # A rebalance lasts until the last member has sent its heartbeat and polled, and each stops when
    # it has sent its own; that of the leave is over before the member is back.
    assert 4 * 30 < made.seconds < 4 * (30 + 3.5)
    assert 0 < made.partition_seconds < 8 * 12 * 3
    assert 1 < made.longest_seconds < 3.6


def test_threads_of_one_process_restart_together() -> None:
    def rebalances(*hosts: str) -> int | None:
        members = [
            {"id": f"m{n}", "client": f"consumer-checkout-{n + 1}", "host": f"/{host}",
             "list": ["range"]}
            for n, host in enumerate(hosts)
        ]  # fmt: skip
        return by_assignors(restarts(group_of({"members": members}), MIXED)).rebalances

    assert rebalances("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4") == 8
    assert rebalances("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2") == 4


def test_cost_shows_the_worst_case_from_timeouts_beside_the_expected_case() -> None:
    snapshot = on("range", 4, timeouts=[10_000, 60_000])
    made = by_assignors(restarts(snapshot, MIXED))
    # A session, the rebalance without the member, and the one with it, as late as members may join.
    assert made.worst_seconds == pytest.approx(4 * (10 + 2 * 60), rel=0.03)
    assert made.worst_partition_seconds == pytest.approx(8 * 12 * 60 + 12 * 10, rel=0.07)
    assert "session timeout 10 s, rebalance timeout up to 60 s (request log)" in made.text
    # The last one comes after the first rebalance.
    assert made.paces[1].worst_seconds == pytest.approx(30 + 6 + 60, abs=3.5)


@pytest.mark.parametrize(
    ("family", "version", "session", "rebalance", "whose"),
    [
        ("java", "3.0.0", 45, 300, "Java's clients"),
        ("java", "2.8.2", 10, 300, "Java's clients"),
        ("streams", "4.1.1", 45, 300, "Kafka Streams"),
        ("connect", "4.1.1", 10, 60, "Connect's workers"),
        ("librdkafka", "2.16.1-rdkafka-2.16.0", 45, 300, "librdkafka"),
        ("franz-go", "v1.22.2", 45, 60, "franz-go"),
        (None, None, 45, 300, "Java's clients"),
    ],
)
def test_unset_timeouts_are_those_of_the_members_own_client(
    family: str | None, version: str | None, session: int, rebalance: int, whose: str
) -> None:
    members = on("range", 2, family=family, version=version).members
    assert in_words(members) == (
        f"session timeout {session} s, rebalance timeout up to {rebalance} s "
        f"(by default of {whose}: nothing shows the members' own)"
    )


def test_unset_timeouts_of_several_clients_are_a_range_and_an_assumed_family_has_its_own() -> None:
    members = [{"id": "a", "family": "sarama"}, {"id": "b"}, {"id": "c", "timeouts": [6000, 9000]}]
    text = in_words(group_of({"members": members}).members)
    assert "6 to 45 s" in text
    assert "of 2 not known, and a default of Java's clients and sarama" in text
    bare = group_of({"members": [{"id": "a", "family": None}]})
    ours = with_families(bare, {"a-0f0f": "sarama"})
    assert "session timeout 10 s, rebalance timeout up to 60 s" in in_words(ours.members)
    part = in_words(group_of({"members": [{"id": "c", "timeouts": [6000, None]}]}).members)
    assert "session timeout 6 s (request log), rebalance timeout up to 300 s (by def" in part


def test_the_last_bounce_of_static_members_begins_with_what_the_first_one_elects() -> None:
    members = [{"id": f"m{n}", "list": ["range"], "instance": f"i{n}"} for n in range(3)]
    first, last = (
        by_assignors(restarts(group_of({"members": members}), target, eager_after=target == MIXED))
        for target in (MIXED, DONE)
    )
    assert (first.rebalances, last.rebalances) == (1, 0)


def test_members_that_have_an_eager_target_already_stop_at_the_restarts_of_the_others() -> None:
    lists = [["sticky"], *([["sticky", "range"]] * 3)]
    members = [{"id": f"m{n}", "list": one} for n, one in enumerate(lists)]
    made = make_plan(group_of({"members": members, "elected": "sticky"}), "sticky")
    cost = made.steps[-1].cost
    assert cost is not None
    assert cost.rebalances == 6
    assert within(cost.longest_seconds, 3, 4)


def test_a_static_member_whose_session_ends_first_leaves_and_joins() -> None:
    def static(session: int) -> GroupSnapshot:
        members = [
            {"id": f"m{n}", "list": BOTH, "instance": f"i{n}", "timeouts": [session, 300_000]}
            for n in range(3)
        ]
        return group_of({"members": members, "elected": "cooperative-sticky"})

    quiet = by_assignors(restarts(static(45_000), DONE))
    assert (quiet.rebalances, quiet.partitions_moved) == (0, 0)
    assert quiet.partition_seconds == pytest.approx(30 * 12)
    # Back just before the session ends, of which up to a heartbeat interval had passed.
    assert quiet.worst_seconds == pytest.approx(3 * (45 - 3))
    late = by_assignors(restarts(static(6000), DONE))
    assert late.rebalances >= 2 * 3
    assert 3 * 30 < late.seconds < 3 * 30 + late.rebalances * 3.6


def test_an_unknown_assignor_is_rehearsed_with_a_stand_in_that_is_named() -> None:
    unknown = restarts(on("acme", 4), ("cooperative-sticky", "acme"), eager_after=True)
    made = by_assignors(replace(unknown, speed=replace(SPEED, batch=2)))
    assert "range stands in for acme, which is not modelled" in made.text
    one, two, all_at_once = made.paces
    assert (one.rebalances, two.rebalances, all_at_once.rebalances) == (8, 4, 1)
    plain = by_assignors(restarts(on("range", 4), MIXED))
    assert "stands in" not in plain.text
    assert (one.seconds, one.partition_seconds) == (plain.seconds, plain.partition_seconds)


@pytest.mark.parametrize(
    ("family", "old", "new"), [("java", "2.3.1", "2.4.1"), ("sarama", "1.45.0", "1.61.0")]
)
def test_cost_assumes_that_a_client_too_old_for_the_new_list_is_upgraded_with_it(
    family: str, old: str, new: str
) -> None:
    groups = (on("range", 4, family=family, version=version) for version in (old, new))
    was, now = (by_assignors(restarts(each, MIXED)) for each in groups)
    assert (was.rebalances, was.seconds) == (now.rebalances, now.seconds)
    assert was.rebalances == 8


def test_a_topic_that_was_not_described_has_the_partitions_that_are_owned() -> None:
    blind = replace(on("range", 4, bytes=None), topics=())
    made = by_assignors(restarts(blind, MIXED))
    assert made.partitions_stopped == 8 * 12


def sized(count: int, partitions: int, elected: str) -> GroupSnapshot:
    """Members of a classic group, or of a KIP-848 one that has `uniform`."""
    online = elected == "uniform"
    own = {"protocol_type": "consumer"} if online else {"list": [elected]}
    made = group_of({
        "members": [{"id": f"m{n:04d}", "version": "4.1.1", **own} for n in range(count)],
        "elected": elected, "topics": {"orders": partitions},
        "type": "consumer" if online else "classic",
    })  # fmt: skip
    ends = [partitions * n // count for n in range(count + 1)]
    shares = [Partitions(range(*each)) for each in pairwise(ends)]
    return replace(
        made,
        members=tuple(
            replace(member, assignment={"orders": share})
            for member, share in zip(made.members, shares, strict=True)
        ),
    )


GOALS = (
    ("range", "cooperative"), ("cooperative-sticky", "eager"),
    ("range", "consumer"), ("uniform", "cooperative-sticky"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("elected", "goal", "count", "batch"),
    [("range", "cooperative", 50, 5), ("uniform", "cooperative-sticky", 70, 5)]
    + [
        pytest.param(*goal, 100, batch, marks=pytest.mark.full)
        for goal in GOALS
        for batch in (5, 2)
    ],
)
def test_cost_sampled_from_one_restart_of_each_kind_is_close_to_that_of_all(
    elected: str, goal: str, count: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, speed = sized(count, 5 * count, elected), Speed(batch=batch)
    sampled = [step.cost for step in make_plan(snapshot, goal, speed=speed).steps if step.cost]
    monkeypatch.setattr(steps, "_ENOUGH", 10**9)
    whole = [step.cost for step in make_plan(snapshot, goal, speed=speed).steps if step.cost]
    assert len(sampled) == len(whole) > 0
    chance = 0.5 if "consumer" in goal or elected == "uniform" else 0.1
    for cost, exact in zip(sampled, whole, strict=True):
        assert re.search(rf"rehearsed \d+ of {count} restarts, each kind among them", cost.text)
        assert "about right" not in exact.text
        assert (cost.about, exact.about) == (True, False)
        assert cost.rebalances == pytest.approx(exact.rebalances, rel=0.02)
        assert cost.seconds == pytest.approx(exact.seconds, rel=0.05)
        for some, all_ in zip(cost.paces, exact.paces, strict=True):
            near = pytest.approx(all_.partition_seconds, rel=chance)
            assert some.partition_seconds == near
            near = pytest.approx(all_.worst_partition_seconds, rel=chance)
            assert some.worst_partition_seconds == near
            assert some.longest_seconds == pytest.approx(all_.longest_seconds, rel=0.3)


def test_partitions_of_a_closed_streams_member_wait_until_its_session_ends() -> None:
    more = {"family": "streams", "version": "4.1.1", "timeouts": [45_000, 300_000]}
    snapshot = on("stream", 3, **more)
    made = by_assignors(restarts(snapshot, ("stream",), eager_after=False, eager=()))
    # One rebalance each, in which it comes back: what it owned waits until its session ends, which
    # began with its last heartbeat.
    assert made.rebalances == 3
    assert 3 * 42 < made.seconds <= 3 * 45 + 1
    assert 12 * 42 < (made.partition_seconds or 0) <= 12 * 45 + 12
    assert "cooperative-sticky stands in for stream" in made.text
    eager = by_assignors(restarts(snapshot, ("stream",), eager_after=True))
    # The others have given up all they own and wait too, from the join on.
    assert eager.rebalances == 3
    assert 3 * (4 * 42 + 8 * 9) < (eager.partition_seconds or 0) <= 3 * (4 * 45 + 8 * 15)
    assert "a member that is closed does not leave" in eager.text
    slow = restarts(snapshot, ("stream",), eager_after=True, speed=Speed(restart=60))
    assert by_assignors(slow).rebalances == 6, "its session has ended before it comes back"


STOP_ALL = "each rebalance stops all"
OLD_STOP = "members that are not restarted yet stop all"
EAGER_STOP = "members that run EAGER stop all"
LESS = "at each rebalance only what moves stops"


@pytest.mark.parametrize(
    ("version", "runs", "target", "stops"),
    [
        ("2.3.1", {}, "cooperative", [STOP_ALL, OLD_STOP]),
        ("3.9.1", {"ran": "EAGER"}, "cooperative", [OLD_STOP]),
        ("3.9.1", {"owned": True}, "eager", [EAGER_STOP, STOP_ALL]),
        ("4.1.1", {}, "eager", [LESS, EAGER_STOP, STOP_ALL]),
    ],
)
def test_cost_of_a_kafka_streams_step_depends_on_the_protocol_its_instances_run(
    version: str, runs: dict[str, Any], target: str, stops: list[str]
) -> None:
    snapshot = on("stream", 3, family="streams", version=version, **runs)
    costs = [step.cost for step in make_plan(snapshot, target).steps]
    assert all(cost and cost.text.startswith(x) for cost, x in zip(costs, stops, strict=True))


# The others notice a rebalance at their next heartbeats, which are up to so many seconds away.
NOTICED = 3.1


def cost(snapshot: GroupSnapshot, *ids: str, to: str = "", batch: int = 1) -> Cost:
    offers = worker_list(to) or ()
    return by_workers(
        Roll(
            eager_after=offers == ("default",),
            snapshot=snapshot,
            order=ids,
            target=offers,
            speed=replace(SPEED, batch=batch),
        )
    )


def within(value: float | None, least: float, most: float) -> bool:
    return value is not None and least <= value <= most


def test_restart_of_an_eager_connect_worker_stops_all_tasks_twice() -> None:
    made = cost(workers("default"), IDS[1])
    assert (made.rebalances, made.unit) == (2, "task")
    assert made.partitions_stopped == 2 * 15
    # A worker stops everything when it joins; its own five are given out by the first rebalance.
    assert within(made.partition_seconds, 1, 2 * 15 * NOTICED)
    assert within(made.longest_seconds, 0.1, NOTICED)
    assert within(made.seconds, 30, 30 + NOTICED)
    # At worst it is missed for a session (10 s), and two rebalances take a minute each.
    assert within(made.worst_seconds, 10 + 60 + 60 - NOTICED, 10 + 60 + 60)
    assert within(made.worst_partition_seconds, 15 * 60, 5 * 10 + 2 * 15 * 60)


@pytest.mark.parametrize("elected", ["compatible", "sessioned"])
def test_lost_connect_tasks_wait_for_the_scheduled_rebalance_delay(elected: str) -> None:
    made = cost(workers(elected), IDS[1])
    # It leaves, is back at 30 s, and gets its five when 300 s from the first rebalance are over.
    assert (made.rebalances, made.partitions_moved) == (3, 0)
    assert within(made.seconds, 300, 300 + 2 * NOTICED)
    assert made.partition_seconds == pytest.approx(5 * made.seconds, abs=1)
    assert made.longest_seconds == pytest.approx(made.seconds, abs=0.1)
    assert "300 s by default: nothing shows the workers' own" in made.text
    shorter = cost(workers(elected, held_back_ms=60_000), IDS[1])
    assert within(shorter.seconds, 60, 60 + 2 * NOTICED)
    assert shorter.partition_seconds == pytest.approx(5 * shorter.seconds, abs=1)
    assert "is over (60 s)" in shorter.text


def test_without_a_delay_a_restarted_workers_tasks_move_at_once() -> None:
    made = cost(workers("sessioned", held_back_ms=0), IDS[1])
    assert (made.rebalances, made.partitions_moved) == (3, 10)
    assert within(made.partition_seconds, 5, 2 * 5 * NOTICED)


def test_connect_downgrade_to_eager_stops_all_workers_or_tasks_would_run_twice() -> None:
    (step,) = make_plan(workers("sessioned"), "eager").steps
    assert (step.cost.rebalances, step.cost.unit) == (1, "task")
    # Half-way, one by one: what is eager already stops everything at each restart anyway.
    offers = AssignorList(knowledge=Knowledge.EXACT, list=("sessioned", "compatible", "default"))
    eager_now = workers("default")
    members = (replace(eager_now.members[0], assignors=offers), *eager_now.members[1:])
    (step,) = make_plan(replace(eager_now, members=members), "eager").steps
    assert step.kind is StepKind.ROLLING


def test_connect_cost_text_names_held_back_tasks_and_the_fault_it_does_not_count() -> None:
    group = workers("sessioned")
    first = group.members[0]
    waiting = replace(first, worker=replace(first.worker, held_back_ms=9_000))
    text = cost(replace(group, members=(waiting, *group.members[1:])), IDS[1]).text
    assert "held back right now, and not counted" in text
    old = replace(first, software=Software(family="connect", version="3.3.2"))
    text = cost(replace(group, members=(old, *group.members[1:])), IDS[1]).text
    assert "1 of the workers are older than 3.4" in text
    assert "KAFKA-12495" not in cost(group, IDS[1]).text


@examples(40, full=200)
@given(
    st.sampled_from(["default", "compatible", "sessioned"]),
    st.sampled_from(["", "eager", "sessioned"]),
    st.sampled_from([0, 2_000, 40_000, 300_000]),
    st.permutations(IDS),
    st.integers(0, 3),
)
def test_connect_cost_never_exceeds_all_tasks_stopped_for_the_whole_roll_out(
    elected: str, to: str, held_back_ms: int, order: list[str], batch: int
) -> None:
    made = cost(workers(elected, held_back_ms), *order, to=to, batch=batch)
    assert made.paces[0].name == "one by one"
    assert made.paces[-1].rebalances == 1, "all at once"
    for pace in made.paces:
        # Both are rounded to a tenth.
        assert 0 < pace.partition_seconds <= len(WORK) * (pace.seconds + 0.05) + 0.05
        assert pace.worst_seconds >= pace.seconds
        assert pace.worst_partition_seconds <= len(WORK) * (pace.worst_seconds + 0.05) + 0.05


def test_connect_cost_shows_no_downtime_if_the_running_tasks_are_not_known() -> None:
    group = workers("default")
    members = tuple(replace(m, worker=WorkerState(url="")) for m in group.members)
    made = cost(replace(group, members=members), *IDS)
    assert (made.rebalances, made.partition_seconds, made.paces) == (6, None, ())
    assert "what the workers run is not known" in made.text
    assert cost(group).text == "nothing is restarted"


def test_connect_plan_contains_the_cost_of_restarting_every_worker() -> None:
    made = make_plan(workers("default"), "cooperative")
    assert made.steps[0].cost == cost(workers("default"), *IDS, to="sessioned")
    assert made.steps[0].cost.rebalances == 7
