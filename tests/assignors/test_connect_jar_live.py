"""Random histories of Connect worker groups, against the assignors of the real jars.

REBAL_FUZZ sets how many rebalances, REBAL_FUZZ_SEED where to begin.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

CASES = 10 * int(os.environ.get("REBAL_FUZZ", "200"))
SEED = int(os.environ.get("REBAL_FUZZ_SEED", "1"))


@pytest.mark.live
@pytest.mark.timeout(60 + CASES)
@pytest.mark.parametrize("version", ["4.1.1", pytest.param("3.9.1", marks=pytest.mark.full)])
def test_random_histories_get_what_connect_gives(version: str) -> None:
    from tests.assignors import connect_jar

    seen: Counter[str] = Counter()
    seed = SEED
    with connect_jar.running(version) as kafka:
        while seen["rounds"] < CASES:
            kafka.forget()
            for n, (led, ours) in enumerate(connect_jar.history(seed)):
                assert ours == kafka.lead(led), f"seed {seed}, round {n}, {led}"
                seen["rounds"] += 1
                seen[led.protocol] += 1
                seen["delayed"] += any(one.delay_ms for one in ours.values())
                seen["revoked"] += any(one.revoked for one in ours.values())
            seed += 1
    print(seen)
    for what in ("default", "compatible", "sessioned", "delayed", "revoked"):
        assert seen[what] > CASES / 100, seen
