"""What a step costs when its restarts are rehearsed with the real assignors."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot
from rebal.planner.rehearsal.costs.cost import Restarts, Speed, by_arithmetic
from rebal.planner.rehearsal.costs.rounds import by_assignors
from rebal.planner.rehearsal.costs.timeouts import in_words, of_families
from tests.planner.builder import group_of

BOTH = ["cooperative-sticky", "range"]
DONE = ("cooperative-sticky",)


def group(count: int, names: list[str], elected: str, **more: Any) -> GroupSnapshot:
    members = [{"id": f"m{n}", "list": names, **more} for n in range(count)]
    return group_of({"members": members, "elected": elected})


def restarts(snapshot: GroupSnapshot, target: tuple[str, ...], **more: Any) -> Restarts:
    ids = tuple(member.member_id for member in snapshot.members)
    fields: dict[str, Any] = {
        "members": len(ids),
        "restarting": len(ids),
        "static": sum(m.instance_id is not None for m in snapshot.members),
        "partitions": 12,
        "eager": len(ids),
        "eager_after": "range" in target,
        "snapshot": snapshot,
        "order": ids,
        "eager_ids": ids,
        "target_list": target,
        "speed": Speed(restart=30, rebalance=3, first=3),
    }
    return Restarts(**{**fields, **more})


def test_bounce_one_stops_everything_twice_for_each_member() -> None:
    made = by_assignors(restarts(group(4, ["range"], "range"), tuple(BOTH)))
    assert made.rebalances == 8
    # Each of the 8 rebalances stops all 12 partitions for 3 s.
    assert made.partitions_stopped == 8 * 12
    assert made.partition_seconds == pytest.approx(8 * 12 * 3)
    assert made.seconds == pytest.approx(4 * 30 + 8 * 3)


def test_bounce_two_stops_less_with_every_member_that_is_done() -> None:
    snapshot = group(4, BOTH, "cooperative-sticky")
    made = by_assignors(restarts(snapshot, DONE))
    first = by_assignors(restarts(snapshot, DONE, order=(snapshot.members[0].member_id,)))
    done = tuple(member.member_id for member in snapshot.members[:3])
    last = by_assignors(
        restarts(
            snapshot, DONE, order=(snapshot.members[3].member_id,),
            eager_ids=tuple(m.member_id for m in snapshot.members if m.member_id not in done),
        )
    )  # fmt: skip
    assert made.partitions_stopped < 12 * made.rebalances
    # The last one's own 3 partitions, out and back, and nothing else.
    assert last.partitions_stopped == 3 + 3
    assert last.partitions_stopped < first.partitions_stopped
    # A leave, a join, and a round more for what others must give up first.
    assert last.rebalances == 3


def test_all_at_once_stops_everything_for_one_restart() -> None:
    made = by_assignors(restarts(group(3, ["range"], "range"), tuple(BOTH)))
    one, everything = made.paces
    assert (one.name, one.batch, everything.name, everything.batch) == (
        "one by one", 1, "all at once", 3,
    )  # fmt: skip
    assert everything.rebalances == 1
    assert everything.seconds == pytest.approx(30 + 3 + 3)
    assert everything.partition_seconds == pytest.approx((30 + 3 + 3) * 12)


def test_a_batch_stands_between() -> None:
    speed = Speed(restart=30, rebalance=3, first=3, batch=2)
    made = by_assignors(restarts(group(4, ["range"], "range"), tuple(BOTH), speed=speed))
    assert [pace.batch for pace in made.paces] == [1, 2, 4]
    seconds = [pace.seconds for pace in made.paces]
    assert seconds == sorted(seconds, reverse=True)
    assert made.paces[1].rebalances == 4


def test_static_members_wait_without_a_rebalance_until_the_vote_changes() -> None:
    members = [{"id": f"m{n}", "list": BOTH, "instance": f"i{n}"} for n in range(3)]
    snapshot = group_of({"members": members, "elected": "cooperative-sticky"})
    made = by_assignors(restarts(snapshot, DONE))
    assert (made.rebalances, made.partitions_moved) == (0, 0)
    assert made.partition_seconds == pytest.approx(30 * 12)
    members = [{"id": f"m{n}", "list": ["range"], "instance": f"i{n}"} for n in range(3)]
    changed = by_assignors(restarts(group_of({"members": members}), tuple(BOTH)))
    assert changed.rebalances == 1


def test_the_worst_is_told_beside_what_is_expected() -> None:
    snapshot = group(4, ["range"], "range", timeouts=[10_000, 60_000])
    made = by_assignors(restarts(snapshot, tuple(BOTH)))
    assert made.seconds == pytest.approx(4 * 30 + 8 * 3)
    # A session is shorter than a restart here, so it only keeps what the member owned standing.
    assert made.worst_seconds == pytest.approx(4 * 30 + 8 * 60)
    assert made.worst_partition_seconds == pytest.approx(8 * 12 * 60 + 12 * 10)
    assert "session timeout 10 s, rebalance timeout up to 60 s (request log)" in made.text
    assert made.paces[1].worst_seconds == pytest.approx(30 + 3 + 60)


def test_unknown_timeouts_are_called_defaults() -> None:
    made = by_assignors(restarts(group(2, ["range"], "range"), tuple(BOTH)))
    assert "session timeout 45 s, rebalance timeout up to 300 s (by default of Java's" in made.text
    assert made.worst_seconds == pytest.approx(2 * 45 + 4 * 300)
    old = by_assignors(restarts(group(2, ["range"], "range", version="2.8.2"), tuple(BOTH)))
    assert "session timeout 10 s" in old.text
    members = [{"id": "a", "list": ["range"], "timeouts": [6000, 9000]}, {"id": "b"}]
    file = [{"id": "c", "list": ["range"], "timeouts": [6000, None]}]
    part = by_assignors(restarts(group_of({"members": file}), tuple(BOTH)))
    assert "session timeout 6 s (request log), rebalance timeout up to 300 s (by def" in part.text
    half = by_assignors(restarts(group_of({"members": members}), tuple(BOTH)))
    assert "6 to 45 s, rebalance timeout up to 300 s (request log; of 1 not known" in half.text


@pytest.mark.parametrize(
    ("family", "version", "session", "rebalance", "whose"),
    [
        ("java", "3.0.0", 45, 300, "Java's clients"),
        ("java", "2.8.2", 10, 300, "Java's clients"),
        ("streams", "4.1.1", 45, 300, "Kafka Streams"),
        ("connect", "4.1.1", 10, 60, "Connect's workers"),
        ("librdkafka", "2.16.1-rdkafka-2.16.0", 45, 300, "librdkafka"),
        ("librdkafka", "1.6.2", 10, 300, "librdkafka"),
        ("kafka-python", "3.0.12", 45, 300, "kafka-python"),
        ("kafka-python", "2.3.1", 10, 300, "kafka-python"),
        ("franz-go", "v1.22.2", 45, 60, "franz-go"),
        ("kafkajs", "2.2.4", 30, 60, "kafkajs"),
        ("aiokafka", "0.14.0", 10, 10, "aiokafka"),
        ("sarama", "1.61.1", 10, 60, "sarama"),
        ("segmentio", "0.4.51", 30, 30, "segmentio"),
        (None, None, 45, 300, "Java's clients"),
    ],
)
def test_unset_timeouts_are_those_of_the_members_own_client(
    family: str | None, version: str | None, session: int, rebalance: int, whose: str
) -> None:
    members = group(2, ["range"], "range", family=family, version=version).members
    assert in_words(members) == (
        f"session timeout {session} s, rebalance timeout up to {rebalance} s "
        f"(by default of {whose}: nothing shows the members' own)"
    )


def test_unset_timeouts_of_two_clients_and_of_an_assumed_one() -> None:
    members = [{"id": "a", "family": "sarama"}, {"id": "b"}, {"id": "c", "timeouts": [6000, 9000]}]
    snapshot = group_of({"members": members})
    assert "6 to 45 s" in in_words(snapshot.members)
    assert "of 2 not known, and a default of Java's clients and sarama" in in_words(
        snapshot.members
    )
    bare = group_of({"members": [{"id": "a", "family": None}]})
    ours = of_families(bare, {"a-0f0f": "sarama"})
    assert "session timeout 10 s, rebalance timeout up to 60 s" in in_words(ours.members)


def test_a_static_member_whose_session_ends_first_leaves_and_joins() -> None:
    def static(session: int) -> GroupSnapshot:
        members = [
            {"id": f"m{n}", "list": BOTH, "instance": f"i{n}", "timeouts": [session, 300_000]}
            for n in range(3)
        ]
        return group_of({"members": members, "elected": "cooperative-sticky"})

    quiet = by_assignors(restarts(static(45_000), DONE))
    assert quiet.rebalances == 0
    assert quiet.worst_seconds == pytest.approx(3 * 45)
    late = by_assignors(restarts(static(6000), DONE, static=0))
    assert late.rebalances >= 2 * 3
    assert late.seconds == pytest.approx(3 * 30 + late.rebalances * 3)


def test_what_cannot_be_rehearsed_is_estimated() -> None:
    unknown = restarts(group(2, ["acme"], "acme"), ("cooperative-sticky", "acme"))
    assert by_assignors(unknown) == by_arithmetic(unknown)
    huge = restarts(group(2, ["range"], "range"), tuple(BOTH), partitions=1_000_000)
    assert by_assignors(huge) == by_arithmetic(huge)


def test_an_estimate_has_its_paces_too() -> None:
    unknown = restarts(group(4, ["acme"], "acme"), ("cooperative-sticky", "acme"), eager_after=True)
    made = by_assignors(replace(unknown, speed=Speed(restart=30, rebalance=3, first=3, batch=2)))
    one, two, everybody = made.paces
    # Two rebalances a batch, and each stops all 12 partitions for 3 s.
    assert (one.rebalances, two.rebalances, everybody.rebalances) == (8, 4, 1)
    assert [pace.seconds for pace in made.paces] == [4 * 30 + 8 * 3, 2 * 30 + 4 * 3, 30 + 3 + 3]
    assert (one.partition_seconds, two.partition_seconds) == (8 * 12 * 3, 4 * 12 * 3)
    assert everybody.partition_seconds == 12 * (30 + 3 + 3)
    assert one.worst_seconds == 4 * 45 + 8 * 300


def test_kafka_streams_counts_until_its_session_ends() -> None:
    more = {"family": "streams", "version": "4.1.1", "timeouts": [45_000, 300_000]}
    snapshot = group_of({
        "members": [{"id": f"m{n}", "list": ["stream"], **more} for n in range(3)],
        "elected": "stream",
    })  # fmt: skip
    made = by_assignors(restarts(snapshot, ("stream",), eager=0, eager_after=False, eager_ids=()))
    # The rebalance in which it comes back, and a follow-up; what it owned waits for 45 s.
    assert made.rebalances == 3 * 2
    assert made.seconds == 3 * 45 + 6 * 3
    assert made.partition_seconds == 12 * 45 + 12 * 3
    eager = by_assignors(restarts(snapshot, ("stream",), eager_after=True))
    # The others have given up all they own and wait too, from the join on.
    assert eager.rebalances == 3
    assert eager.partition_seconds == 3 * (4 * 45 + 8 * 15) + 3 * 12 * 3
    assert "a member that is closed does not leave" in eager.text
    slow = restarts(snapshot, ("stream",), eager_after=True, speed=Speed(restart=60))
    assert by_assignors(slow).rebalances == 6, "its session has ended before it comes back"
