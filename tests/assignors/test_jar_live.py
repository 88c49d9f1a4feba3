"""Random groups beyond the recorded ones, against the assignors of the real jars in the same run.

REBAL_FUZZ sets how many groups, and ten times as many rebalances of Connect workers;
REBAL_FUZZ_SEED where to begin.
"""

import os
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from rebal.groups.assignors import Assignment, LeaderWouldFail, Spec, get
from tests.assignors import jar

CASES = int(os.environ.get("REBAL_FUZZ", "200"))
SEED = int(os.environ.get("REBAL_FUZZ_SEED", "1"))


def outcome(name: str, spec: Spec) -> Assignment | LeaderWouldFail:
    try:
        return get(name).assign(spec)
    except LeaderWouldFail as error:
        return error


@pytest.mark.live
@pytest.mark.timeout(60 + CASES)
def test_random_groups_get_the_assignments_of_kafkas_jar() -> None:
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


@pytest.mark.live
def test_a_cooperative_group_that_never_settles_moves_as_with_kafkas_jar() -> None:
    """Fifty rebalances in which no member joins, leaves or changes its subscription."""
    assignor, spec = get("cooperative-sticky"), jar.restless()
    revoked: list[int] = []
    with jar.running() as kafka:
        for generation in range(1, 51):
            result = assignor.assign(spec)
            assert result == kafka.assign("cooperative-sticky", spec), f"round {generation}"
            after = tuple(
                assignor.on_assignment(m, sorted(result[m.member_id]), None, generation)
                for m in spec.members
            )
            pairs = zip(spec.members, after, strict=True)
            revoked.append(sum(len({*old.owned}.difference(new.owned)) for old, new in pairs))
            spec = replace(spec, members=after)
    assert revoked == [0, 3] * 25


@pytest.mark.live
@pytest.mark.timeout(60 + 10 * CASES)
@pytest.mark.parametrize("version", ["4.1.1", pytest.param("3.9.1", marks=pytest.mark.full)])
def test_random_histories_of_connect_workers_get_the_assignments_of_connect(version: str) -> None:
    seen: Counter[str] = Counter()
    seed = SEED
    with jar.running_connect(version) as kafka:
        while seen["rounds"] < 10 * CASES:
            kafka.forget()
            for n, (led, ours) in enumerate(jar.history(seed)):
                assert ours == kafka.lead(led), f"seed {seed}, round {n}, {led}"
                seen["rounds"] += 1
                seen[led.protocol] += 1
                seen["delayed"] += any(one.delay_ms for one in ours.values())
                seen["revoked"] += any(one.revoked for one in ours.values())
            seed += 1
    for what in ("default", "compatible", "sessioned", "delayed", "revoked"):
        assert seen[what] > CASES / 10, seen
