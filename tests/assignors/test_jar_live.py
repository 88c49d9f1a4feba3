"""Random groups beyond the oracle, against the assignors of the real jar in the same run.

REBAL_FUZZ sets how many, REBAL_FUZZ_SEED where to begin.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from rebal.groups.assignors import Assignment, LeaderWouldFail, Spec, get

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
