"""simulate(): counts worked out by hand, rounds, what-ifs, every refusal's sentence, what holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.cli.output import render
from rebal.cli.render.simulation.screen import simulate_view
from rebal.groups.assignors import NAMES, Assignment, Spec, assign
from rebal.groups.assignors.server import server_assignor
from rebal.groups.assignors.spec import PartitionRule
from rebal.groups.compact import Partitions
from rebal.groups.errors import RebalError
from rebal.groups.model import (
    AssignorList,
    Broker,
    Cluster,
    GroupSnapshot,
    GroupType,
    Knowledge,
    Member,
    RebalanceProtocol,
    Software,
    Subscription,
    Topic,
)
from rebal.planner.rehearsal.spec import CannotSimulateError, Owners, start_of
from rebal.planner.rehearsal.whatif.changes import Changes, WhatIfError, leader_time
from rebal.planner.rehearsal.whatif.simulation import Simulation, Spread, simulate
from tests.assignors.jar import restless
from tests.examples import examples
from tests.groups.observed import stable_group
from tests.planner.owners import group, member, snapshots


def flat(partitions: object) -> dict[str, str]:
    return {topic: str(numbers) for topic, numbers in partitions.items()}


ASSUMED = ["order of the snapshot", "ghost", "redacted", "librdkafka", "KAFKA-16277"]
STREAMS = AssignorList(knowledge=Knowledge.EXACT, list=("stream",))
MOVES = {"orders": "4-5"}
UNEVEN = group(member("a", orders="0-5"), member("b", orders="6-7"))
OLD = group(replace(member("a"), software=Software(family="java", version="3.6.2")))


def test_cooperative_sticky_keeps_what_it_can_in_two_rounds() -> None:
    made = simulate(UNEVEN, "cooperative-sticky")
    assert (made.partitions, made.moved, made.stays, made.started, made.lost) == (8, 2, 6, 0, 0)
    assert made.balance == Spread(now_min=2, now_max=6, then_min=4, then_max=4)
    assert (made.rebalances, made.stable) == (2, True)
    assert (made.eager_stops, made.cooperative_stops) == (8, 2)
    assert made.protocol is RebalanceProtocol.COOPERATIVE
    first, second = made.rounds
    assert (first.revoked, first.assigned, first.still_owned) == (2, 0, 6)
    assert (second.revoked, second.assigned, second.still_owned) == (0, 2, 6)
    (gives,), (gets,) = first.members, second.members
    assert (gives.member_id, flat(gives.revoked), flat(gives.assigned)) == ("a-id", MOVES, {})
    assert (gets.member_id, flat(gets.revoked), flat(gets.assigned)) == ("b-id", {}, MOVES)


def test_each_topic_has_its_balance_over_its_subscribers() -> None:
    made = simulate(
        group(member("a", "orders payments", orders="0-7", payments="0-3"), member("b", "orders")),
        "range",
    )
    assert [(t.topic, t.partitions, t.balance) for t in made.topics] == [
        ("orders", 8, Spread(now_min=0, now_max=8, then_min=4, then_max=4)),
        ("payments", 4, Spread(now_min=4, now_max=4, then_min=4, then_max=4)),
    ]


@pytest.mark.parametrize(
    ("snapshot", "assignor", "said"),
    [
        (UNEVEN, "range", ["order of the snapshot"]),
        (group(member("a", "orders ghost")), "range", ["order of the snapshot", "ghost"]),
        (replace(UNEVEN, redacted=True), "range", ["order of the snapshot"]),
        (replace(UNEVEN, redacted=True), "sticky", ["order of the snapshot", "redacted"]),
        (
            group(replace(member("a"), software=Software(family="librdkafka"))),
            "range",
            ["order of the snapshot", "librdkafka"],
        ),
        (OLD, "sticky", ["order of the snapshot", "KAFKA-16277"]),
        (OLD, "range", ["order of the snapshot"]),
    ],
    ids=[
        *("any", "an unknown topic", "redacted, range", "redacted, sticky", "another client"),
        *("sticky before Java 3.7.1", "range before Java 3.7.1"),
    ],
)
def test_an_assumption_is_named_where_it_matters(
    snapshot: GroupSnapshot, assignor: str, said: list[str]
) -> None:
    made = " ".join(simulate(snapshot, assignor).assumes)
    assert [word for word in ASSUMED if word in made] == said


@pytest.mark.parametrize(
    ("snapshot", "sentence"),
    [
        (group(), "it has no members"),
        (group(member("a"), type=GroupType.SHARE), "a share group"),
        (group(member("a"), protocol_type="connect"), "--assignor eager, compatible or sessioned"),
        (group(member("a"), assignor="stream"), "a Kafka Streams program"),
        (group(replace(member("a"), assignors=STREAMS)), "a Kafka Streams program"),
        (group(member("a", orders="0-3"), member("b", orders="3")), "two owners, a-id and b-id"),
        (group(replace(member("a"), subscription=None)), "of member a-id is not in the snapshot"),
        (group(replace(member("a"), subscription=None, subscription_error="Cut.")), r"\(Cut\)"),
        (
            group(
                replace(
                    member("a"),
                    subscription=None,
                    subscribed_topics=("x",),
                    subscribed_regex="ord.*",
                )
            ),
            r"is the pattern ord\.\*, and the broker does not say",
        ),
        (group(member("a", "ghost", ghost="0-3")), "member a-id owns partitions of ghost"),
        (group(member("a", "ghost")), "describes none of the topics that its members subscribe to"),
        (group(replace(member("a"), subscription=Subscription(version=3))), "to no topic"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(snapshot: GroupSnapshot, sentence: str) -> None:
    with pytest.raises(CannotSimulateError, match=sentence) as caught:
        simulate(snapshot, "range")
    assert isinstance(caught.value, RebalError)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_kip848_group_is_simulated_with_server_side_assignors_only() -> None:
    snapshot = group(member("a"), type=GroupType.CONSUMER)
    with pytest.raises(CannotSimulateError, match="simulate checkout: it is a KIP-848 group"):
        simulate(snapshot, "sticky")
    made = simulate(snapshot, "range")
    assert (made.assignor, made.server_side) == ("range", True)
    assert flat(made.members[0].then) == {"orders": "0-7"}


def test_subscribed_topics_stand_in_for_a_subscription() -> None:
    bare = replace(member("a"), subscription=None, subscribed_topics=("orders",))
    assert flat(simulate(group(bare), "range").members[0].then) == {"orders": "0-7"}


def test_simulated_failure_of_the_leader_is_a_result_that_moves_no_partition() -> None:
    fewer = replace(UNEVEN, topics=(Topic(name="orders", partitions=6),))
    made = simulate(fewer, "cooperative-sticky")
    assert (made.failure.members, made.failure.topics) == (("b-id",), ("orders",))
    assert not made.stable
    assert (made.moved, made.lost) == (0, 0)


@pytest.mark.parametrize("assignor", NAMES)
@given(snapshot=snapshots())
def test_simulated_partition_counts_add_up(assignor: str, snapshot: GroupSnapshot) -> None:
    made = simulate(snapshot, assignor)
    owned = sum(shift.keeps + shift.gives for shift in made.members)
    assert made.eager_stops == owned == made.moved + made.stays + made.lost
    assert sum(shift.gives for shift in made.members) == made.moved + made.lost
    assert sum(shift.gets for shift in made.members) == made.moved + made.started
    assert made.partitions == owned + made.started
    assert made.stable
    if made.protocol is RebalanceProtocol.COOPERATIVE:
        assert made.rounds[-1].revoked == 0
        assert made.cooperative_stops >= made.moved + made.lost
        assert all(one.revoked for one in made.rounds[:-1])


EVEN = group(member("a", orders="0-3"), member("b", orders="4-7"))


def rounds(made: Simulation) -> list[tuple[str, int, int, int, int]]:
    return [(r.why, r.gone, r.revoked, r.assigned, r.still_owned) for r in made.rounds]


def sizes(made: Simulation) -> dict[str, int]:
    return {shift.name: shift.keeps + shift.gets for shift in made.members}


def test_two_more_members_take_two_partitions_each() -> None:
    made = simulate(EVEN, "cooperative-sticky", Changes(add_members=2))
    assert rounds(made) == [("new-1 and new-2 join", 0, 4, 0, 4), ("", 0, 0, 4, 4)]
    assert (made.moved, made.stays, made.lost, made.started) == (4, 4, 0, 0)
    assert (made.rebalances, made.cooperative_stops) == (2, 4)
    assert (made.eager_rebalances, made.eager_stops) == (1, 8)
    assert sizes(made) == {"a": 2, "b": 2, "new-1": 2, "new-2": 2}
    assert [shift.change for shift in made.members] == ["", "", "joins", "joins"]
    assert (made.balance.now_min, made.balance.then_max) == (4, 2)


def test_a_restart_is_a_leave_and_a_join() -> None:
    made = simulate(EVEN, "cooperative-sticky", Changes(restart_members=("a-id",)))
    assert rounds(made) == [("a stops", 4, 0, 4, 4), ("a is back", 0, 4, 0, 4), ("", 0, 0, 4, 4)]
    assert (made.cooperative_stops, made.eager_stops, made.eager_rebalances) == (8, 16, 2)
    assert sizes(made) == {"a": 4, "b": 4}
    assert len(made.members) == 2
    assert any("made-up member id" in one for one in made.assumes)


def test_a_static_member_that_restarts_moves_nothing() -> None:
    snapshot = group(
        replace(member("a", orders="0-3"), instance_id="pod-1"), member("b", orders="4-7")
    )
    with pytest.raises(WhatIfError, match=r"pod-1 is static: .* moves nothing: leave --restart"):
        simulate(snapshot, "cooperative-sticky", Changes(restart_members=("pod-1",)))


def test_added_partitions_and_a_new_topic_are_assigned_without_moving_others() -> None:
    made = simulate(
        EVEN, "cooperative-sticky", Changes(add_partitions={"orders": 2}, add_topics={"x": 2})
    )
    assert made.what_if == ("orders gets 2 more partitions and topic x appears",)
    assert (made.started, made.moved, made.stays, made.partitions) == (4, 0, 8, 12)
    assert sizes(made) == {"a": 6, "b": 6}
    assert {t.topic: t.partitions for t in made.topics} == {"orders": 10, "x": 2}
    assert "every member subscribes to x" in made.assumes


@pytest.mark.parametrize(
    ("topics", "then", "said"),
    [
        ((), {"a": 4, "b": 4, "new-1": 3}, "every member subscribes to x"),
        (("orders",), {"a": 5, "b": 4, "new-1": 2}, "every member that is there already subsc"),
    ],
)
def test_added_members_subscribe_to_a_new_topic_too(
    topics: tuple[str, ...], then: dict[str, int], said: str
) -> None:
    changes = Changes(add_members=1, add_member_topics=topics, add_topics={"x": 3})
    made = simulate(EVEN, "range", changes)
    assert sizes(made) == then
    assert any(one.startswith(said) for one in made.assumes)


def test_a_new_topic_goes_to_those_who_wait_for_it() -> None:
    snapshot = group(member("a", "orders x", orders="0-3"), member("b", orders="4-7"))
    made = simulate(snapshot, "range", Changes(add_topics={"x": 2}))
    assert sizes(made) == {"a": 6, "b": 4}
    assert not any("than the snapshot describes" in one for one in made.assumes)


def test_added_members_take_what_they_subscribe_to() -> None:
    changes = Changes(add_members=1, add_member_topics=("payments", "payments"))
    made = simulate(EVEN, "range", changes)
    assert sizes(made) == {"a": 4, "b": 4, "new-1": 4}
    assert made.started == 4


def test_racks_put_members_near_their_replicas() -> None:
    near = Subscription(version=3, topics=("orders",), rack_id="y")
    snapshot = group(
        replace(member("a"), rack="x"),
        replace(member("b"), subscription=near),
        topics=(Topic(name="orders", partitions=4, replicas=((0,), (1,), (0,), (1,))),),
        cluster=Cluster(brokers=(Broker(broker_id=0, rack="x"), Broker(broker_id=1, rack="y"))),
    )
    swapped = {"a": "y", "b": "x"}
    for racks, then in (({}, {"a": "0,2", "b": "1,3"}), (swapped, {"a": "1,3", "b": "0,2"})):
        made = simulate(snapshot, "range", Changes(racks=racks))
        assert {s.name: str(s.then["orders"]) for s in made.members} == then


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (Changes(remove_members=("c",)), "no member is called c; there are a, b."),
        (Changes(remove_members=("a", "b", "a-id")), "every member would be removed"),
        (Changes(remove_members=("a",), restart_members=("a-id",)), "both be removed and"),
        (Changes(add_partitions={"ghost": 1}), "--add-partitions ghost: the snapshot has no such"),
        (Changes(add_topics={"orders": 1}), "--add-topic orders: it is there already"),
        (Changes(add_members=1, add_member_topics=("ghost",)), "--topics ghost: the snapshot has"),
        (Changes(add_member_topics=("orders",)), "add --add-member N"),
        (Changes(racks={"a": "x"}), "no broker in the snapshot is on rack x: none has a rack."),
        (Changes(racks={"new": "x"}), "--rack RACK is for added members"),
    ],
)
def test_impossible_what_if_is_reported_in_one_sentence(changes: Changes, sentence: str) -> None:
    with pytest.raises(WhatIfError) as caught:
        simulate(EVEN, "range", changes)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_added_members_need_topics_if_most_members_have_none() -> None:
    nobody = replace(member("a"), subscription=Subscription(version=3))
    with pytest.raises(WhatIfError, match="name the added members' topics with --topics"):
        simulate(group(nobody, member("b")), "range", Changes(add_members=1))


def test_a_partition_that_the_real_leader_gives_to_two_members_is_named() -> None:
    topics = tuple(Topic(name=name, partitions=2) for name in ("orders", "payments"))
    stale = member("b", "payments", payments="0-2")
    snapshot = group(member("a", "orders", orders="0-1"), stale, topics=topics)
    changes = Changes(add_members=1, add_member_topics=("orders",))
    made = simulate(snapshot, "cooperative-sticky", changes)
    assert [one.rule for one in made.violations] == [PartitionRule.TWICE]


def test_a_name_that_two_members_share_is_asked_back() -> None:
    twins = group(member("a", orders="0-3"), replace(member("b"), client_id="a"))
    with pytest.raises(WhatIfError, match="a is the client id of 2 members: name one by its"):
        simulate(twins, "range", Changes(remove_members=("a",)))


def test_uniform_moves_one_partition_of_each_member_to_a_third_one_in_one_round() -> None:
    made = simulate(EVEN, "uniform", Changes(add_members=1))
    assert (made.server_side, made.protocol) == (True, RebalanceProtocol.COOPERATIVE)
    assert (made.moved, made.stops, len(made.rounds)) == (2, 2, 1)
    assert sorted(sizes(made).values()) == [2, 3, 3]
    assert any("moved to KIP-848" in one for one in made.assumes)
    assert any("no topic ids" in one for one in made.assumes)


def test_a_kip848_group_is_simulated_from_its_targets() -> None:
    snapshot = group(
        replace(member("a", orders="0-7"), target_assignment={"orders": Partitions(range(4))}),
        replace(member("b"), target_assignment={"orders": Partitions(range(4, 8))}),
        type=GroupType.CONSUMER,
        assignor="uniform",
    )
    made = simulate(snapshot, "uniform")
    assert (made.moved, made.stays) == (0, 8)
    assert not any("moved to KIP-848" in one for one in made.assumes)
    assert any("begins as if they owned it" in one for one in made.assumes)


def test_leader_computation_time_is_estimated_for_large_mixed_subscriptions_only() -> None:
    def of(partitions: int, topics: str, assignor: str) -> object:
        snapshot = group(
            member("a", "orders payments"),
            member("b", topics),
            topics=(
                Topic(name="orders", partitions=partitions),
                Topic(name="payments", partitions=4),
            ),
        )
        return leader_time(start_of(snapshot)[0], assignor, 300)

    assert of(50_000, "payments orders", "sticky") is None
    assert of(50_000, "orders", "range") is None
    assert of(1_000, "orders", "sticky") is None
    # Measured: 7.8 s and 105 s for the whole computation at these sizes.
    some, more = of(10_000, "orders", "sticky"), of(50_000, "orders", "cooperative-sticky")
    assert some.at_least < 7.8 < some.at_most
    assert not some.near_timeout
    assert more.at_least < 105 < more.at_most
    assert more.near_timeout


@st.composite
def what_ifs(draw: st.DrawFn) -> tuple[GroupSnapshot, Changes]:
    snapshot = draw(snapshots(abandoned=False))
    names = [one.client_id for one in snapshot.members]
    gone = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    stay = [name for name in names if name not in gone]
    changes = Changes(
        add_members=draw(st.integers(0, 3)) if stay else draw(st.integers(1, 3)),
        remove_members=tuple(gone),
        restart_members=tuple(draw(st.lists(st.sampled_from(stay), unique=True, max_size=2)))
        if stay
        else (),
        add_partitions={"orders": draw(st.integers(1, 4))} if draw(st.booleans()) else {},
        add_topics={"x": 3} if draw(st.booleans()) else {},
    )
    return snapshot, changes


@pytest.mark.parametrize("assignor", [*NAMES, "uniform", "consumer:range"])
@examples(60)
@given(case=what_ifs())
def test_what_if_is_deterministic_and_assigns_each_partition_to_one_member(
    assignor: str, case: tuple[GroupSnapshot, Changes]
) -> None:
    snapshot, changes = case
    made = simulate(snapshot, assignor, changes)
    assert made == simulate(snapshot, assignor, changes)
    assert made.stable
    present = [shift for shift in made.members if shift.change != "leaves"]
    given_out: dict[tuple[str, int], str] = {}
    for shift in made.members:
        assert not shift.not_subscribed
        for topic, partitions in shift.then.items():
            for partition in partitions:
                assert given_out.setdefault((topic, partition), shift.name) == shift.name
    counts = {t.name: t.partitions for t in snapshot.topics}
    counts["orders"] += changes.add_partitions.get("orders", 0)
    counts |= changes.add_topics
    subscribed = {t for m in snapshot.members if m.client_id not in changes.remove_members
                  for t in m.subscription.topics} | set(changes.add_topics)  # fmt: skip
    if changes.add_members == 0 and snapshot.members:
        assert given_out.keys() == {(t, p) for t in subscribed for p in range(counts[t])}
    owned = sum(map(len, (p for m in snapshot.members for p in m.assignment.values())))
    assert owned == made.moved + made.stays + made.lost
    assert len(given_out) == made.moved + made.stays + made.started
    assert made.stops >= made.moved + made.lost
    assert made.stops == sum(one.gone + one.revoked for one in made.rounds)
    assert {shift.name for shift in present} >= {f"new-{n + 1}" for n in range(changes.add_members)}


@examples(80)
@given(spec=what_ifs().map(lambda case: start_of(case[0], server_side=True)[0]))
def test_uniform_is_balanced_and_at_rest_once_computed(spec) -> None:
    assignor = server_assignor("uniform")
    made = assignor.assign(spec)
    settled = replace(
        spec, members=tuple(replace(m, owned=tuple(made[m.member_id])) for m in spec.members)
    )
    assert assignor.assign(settled) == made
    if len({m.topics for m in spec.members}) == 1:
        counts = sorted(map(len, made.values()))
        assert counts[-1] - counts[0] <= 1
        # Whoever has no more than the smallest share keeps it all.
        for one in spec.members:
            if len(one.owned) <= sum(counts) // len(counts):
                assert set(one.owned) <= set(made[one.member_id])


def captured(spec: Spec, owners: Assignment) -> GroupSnapshot:
    owned = Owners(enumerate(owners[member.member_id] for member in spec.members)).shares
    return stable_group(
        *(
            Member(
                member_id=member.member_id,
                client_id=member.member_id,
                instance_id=member.instance_id,
                rack=member.rack,
                subscription=Subscription(version=3, topics=member.topics),
                assignment=dict(owned.get(number, {})),
            )
            for number, member in enumerate(spec.members)
        ),
        group_id="uneven",
        assignor="cooperative-sticky",
        topics=tuple(
            Topic(name=name, partitions=count, replicas=spec.replicas[name])
            for name, count in spec.partitions.items()
        ),
        cluster=Cluster(brokers=tuple(Broker(broker_id=b, rack=r) for b, r in spec.racks.items())),
    )


# As it is after its first rebalance, in which nobody had anything to give up.
SETTLED = captured(restless(), assign("cooperative-sticky", restless()))


def test_simulation_reports_a_stable_group_whose_next_rebalance_moves_partitions() -> None:
    made = simulate(SETTLED, "cooperative-sticky")
    assert [(one.revoked, one.assigned) for one in made.rounds] == [(3, 0), (0, 3)]
    assert (made.stable, made.moved, made.stays) == (True, 0, 17)
    assert made.again == 3
    out = render(simulate_view(made, "test", "rebal"), width=120)
    assert "2 rebalances until stable" in out
    assert "restless     the next rebalance takes 3 partitions from their owners though" in out


@pytest.mark.parametrize("assignor", [*NAMES, "uniform"])
def test_group_with_equal_subscriptions_keeps_its_assignment(assignor: str) -> None:
    spec = restless()
    topics = tuple(spec.partitions)
    changes = Changes(remove_members=tuple(m.member_id for m in spec.members[1:]))
    assert simulate(SETTLED, assignor, changes).again == 0
    alike = Spec(
        members=tuple(m.__class__(member_id=m.member_id, topics=topics) for m in spec.members),
        partitions=spec.partitions,
        replicas=spec.replicas,
    )
    made = simulate(captured(alike, assign("range", alike)), assignor)
    assert made.stable
    assert made.again == 0
    assert "restless" not in render(simulate_view(made, "test", "rebal"), width=120)
