"""simulate(): counts that can be worked out by hand, rounds, and every refusal's sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from rebal.groups.errors import RebalError
from rebal.groups.model import (
    AssignorList,
    GroupSnapshot,
    GroupType,
    Knowledge,
    RebalanceProtocol,
    Software,
    Subscription,
    Topic,
)
from rebal.planner.rehearsal.spec import CannotSimulateError
from rebal.planner.rehearsal.whatif.simulation import MemberShift, Simulation, Spread, simulate
from tests.planner.owners import group, member, snapshots

EAGER_ONLY = ["range", "roundrobin", "sticky"]
ALL = [*EAGER_ONLY, "cooperative-sticky"]


def by_name(simulation: Simulation) -> dict[str, MemberShift]:
    return {shift.name: shift for shift in simulation.members}


def flat(partitions: object) -> dict[str, str]:
    return {topic: str(numbers) for topic, numbers in partitions.items()}


ASSUMED = ["order of the snapshot", "ghost", "redacted", "librdkafka"]
STREAMS = AssignorList(knowledge=Knowledge.EXACT, list=("stream",))
MOVES = {"orders": "4-5"}
UNEVEN = group(member("a", orders="0-5"), member("b", orders="6-7"))


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
    ],
    ids=["any", "an unknown topic", "redacted, range", "redacted, sticky", "another client"],
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
            group(replace(member("a"), subscription=None, subscribed_regex="ord.*")),
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


def test_a_kip848_group_asks_no_client_for_an_assignment() -> None:
    snapshot = group(member("a"), type=GroupType.CONSUMER)
    with pytest.raises(CannotSimulateError, match="simulate checkout: it is a KIP-848 group"):
        simulate(snapshot, "sticky")
    made = simulate(snapshot, "range")
    assert (made.assignor, made.server_side) == ("range", True)
    assert flat(by_name(made)["a"].then) == {"orders": "0-7"}


def test_subscribed_topics_stand_in_for_a_subscription() -> None:
    bare = replace(member("a"), subscription=None, subscribed_topics=("orders",))
    assert flat(simulate(group(bare), "range").members[0].then) == {"orders": "0-7"}


def test_a_leader_that_fails_is_a_result_with_nobody_moved() -> None:
    fewer = replace(UNEVEN, topics=(Topic(name="orders", partitions=6),))
    made = simulate(fewer, "cooperative-sticky")
    assert (made.failure.members, made.failure.topics) == (("b-id",), ("orders",))
    assert not made.stable
    assert (made.moved, made.lost) == (0, 0)


@pytest.mark.parametrize("assignor", ALL)
@given(snapshot=snapshots())
def test_the_counts_add_up(assignor: str, snapshot: GroupSnapshot) -> None:
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
