"""Random groups beyond the oracle, against the assignors of the real jar in the same run.

REBAL_FUZZ sets how many, REBAL_FUZZ_SEED where to begin.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from rebal.groups.assignors import Assignment, LeaderWouldFail, Spec, SpecMember, get

CASES = int(os.environ.get("REBAL_FUZZ", "200"))
SEED = int(os.environ.get("REBAL_FUZZ_SEED", "1"))


def outcome(name: str, spec: Spec) -> Assignment | LeaderWouldFail:
    try:
        return get(name).assign(spec)
    except LeaderWouldFail as error:
        return error


@pytest.mark.live
@pytest.mark.timeout(60 + CASES)
def test_random_groups_get_what_the_jar_gives() -> None:
    from tests.assignors import jar

    seen: Counter[str] = Counter()
    seed = SEED
    with jar.running() as kafka:
        while seen.total() < CASES:
            for round_, (name, spec) in enumerate(jar.random_rounds(random.Random(seed))):
                ours = outcome(name, spec)
                where = f"seed {seed}, round {round_}, {name}"
                if not isinstance(ours, LeaderWouldFail):
                    seen[name] += 1
                    assert ours == kafka.assign(name, spec), where
                else:
                    seen["fails"] += 1
                    if not ours.never_ends:
                        assert str(kafka.assign(name, spec)) in str(ours), where
            seed += 1
    assert min(seen[name] for name in ("range", "roundrobin", "sticky", "cooperative-sticky")) > 10


def restless() -> Spec:
    """A group, nothing owned yet, in which every other rebalance takes something away again."""
    counts = {"orders": 5, "payments": 3, "clicks": 2, "audit.v1": 2, "t-é": 5}
    people = (
        ("é", "audit.v1 clicks t-é", "j0", "a"),
        ("ab", "clicks orders", "i1", "b"),
        ("10", "t-é clicks audit.v1", "j2", None),
        ("2", "payments t-é", "i3", ""),
        ("00", "audit.v1 orders clicks t-é", None, "b"),
        ("1", "payments", "j5", "a"),
    )
    return Spec(
        members=tuple(
            SpecMember(member_id=name, topics=tuple(topics.split()), instance_id=static, rack=rack)
            for name, topics, static, rack in people
        ),
        partitions=counts,
        replicas={name: [[p % 3, (p + 1) % 3] for p in range(n)] for name, n in counts.items()},
        racks={0: "a", 1: "b", 2: None},
    )


@pytest.mark.live
def test_a_restless_group_is_followed_round_by_round() -> None:
    """Fifty rebalances in which nobody joins, leaves or changes anything."""
    from tests.assignors import jar

    assignor, spec = get("cooperative-sticky"), restless()
    taken: list[int] = []
    with jar.running() as kafka:
        for generation in range(1, 51):
            result = assignor.assign(spec)
            assert result == kafka.assign("cooperative-sticky", spec), f"round {generation}"
            after = tuple(
                assignor.on_assignment(m, sorted(result[m.member_id]), None, generation)
                for m in spec.members
            )
            pairs = zip(spec.members, after, strict=True)
            taken.append(sum(len({*old.owned}.difference(new.owned)) for old, new in pairs))
            spec = replace(spec, members=after)
    assert taken == [0, 3] * 25


@pytest.mark.live
@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_claims_of_vanished_partitions_among_many_moves(name: str) -> None:
    """Few members own all, of topics that have fewer partitions now; then the others start."""
    from tests.assignors import jar

    random_ = random.Random(name)
    topics = [f"topic-{n:02}" for n in range(30)]
    counts = {topic: random_.randint(20, 60) for topic in topics}
    people = [
        SpecMember(member_id=f"m-{n:02}", topics=tuple(random_.sample(topics, 15)))
        for n in range(40)
    ]
    assignor = get(name)
    before = assignor.assign(Spec(members=tuple(people[:5]), partitions=counts))
    people[:5] = [
        assignor.on_assignment(m, sorted(before[m.member_id]), None, 1) for m in people[:5]
    ]
    for topic in random_.sample(topics, 3):
        counts[topic] -= 2
    assert any(p >= counts[topic] for member in people for topic, p in member.owned)
    spec = Spec(
        members=tuple(people),
        partitions=counts,
        replicas={topic: [[]] * count for topic, count in counts.items()},
    )
    with jar.running() as kafka:
        assert assignor.assign(spec) == kafka.assign(name, spec)
