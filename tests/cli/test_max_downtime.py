"""`rebal plan-upgrade --max-downtime`: how long a plan may stop one partition."""

from __future__ import annotations

import pytest

from rebal.cli import planning
from rebal.planner.paths import make_plan
from rebal.planner.rehearsal.costs import rehearsed
from tests.cli.conftest import Rebal
from tests.planner.builder import group_of
from tests.planner.test_cost import sized


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--max-downtime", "10s"], 0, ""),
        (["--max-downtime", "1s"], 3, "--max-downtime 1 s: step 1 stops a partition for about 3 s"),
        (["--max-downtime", "10s", "--batch", "all"], 3, "step 2 stops a partition for about 36 s"),
        (["--max-downtime", "1s", "--exit-zero"], 0, "step 1 stops a partition"),
    ],
)
def test_max_downtime_blocks_a_plan_that_stops_a_partition_for_longer(
    words: list[str], code: int, says: str, *, saved: str, rebal: Rebal
) -> None:
    told = rebal("plan-upgrade", "--snapshot", saved, *words, "-o", "json", code=code)
    assert told.body["exit_code"] == code
    assert says in told.err
    assert ("downtime" in told.err) is bool(says)


@pytest.mark.parametrize(
    ("members", "to", "limit", "batch", "code", "says"),
    [
        (3, "consumer", 10, 1, 0, ""),
        (3, "consumer", 10, 0, 3, "step 1 stops a partition for about 30 s"),
        (3, "consumer", 1, 1, 3, "step 1 stops a partition for about"),
        (-3, "range", 10, 1, 0, ""),
        (-3, "range", 30, 0, 3, "step 1 stops a partition for about 36 s"),
        (0, "consumer", 10, 1, 4, "the downtime of step 1 is not predicted"),
    ],
)
def test_max_downtime_judges_moves_to_kip_848_and_back(
    members: int, to: str, limit: float, *, batch: int, code: int, says: str
) -> None:
    """A negative number of members is that of a KIP-848 group."""
    kind = {"type": "consumer", "elected": "uniform"} if members < 0 else {}
    kind |= {} if members else {"state": "Empty"}
    own = {"protocol_type": "consumer"} if members < 0 else {"list": ["range"]}
    shown = [{"id": f"m{n}", "version": "4.1.1", **own} for n in range(abs(members))]
    plan = make_plan(group_of({"members": shown, **kind}), to)
    found, said = planning.too_long(plan, limit, batch, 0)
    assert found == code
    assert len(said) == bool(says)
    assert all(says in line for line in said)


def test_max_downtime_allows_for_restarts_that_were_not_rehearsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = sized(70, 350, "uniform")
    plan = make_plan(snapshot, "cooperative-sticky")
    cost = plan.steps[0].cost
    assert cost is not None
    assert cost.longest_seconds is not None
    code, said = planning.too_long(plan, cost.longest_seconds * 1.49, 1, 0)
    assert code == 3
    assert "half as much again counts: restarts were left out" in said[0]
    assert planning.too_long(plan, cost.longest_seconds * 1.51, 1, 0) == (0, [])
    monkeypatch.setattr(rehearsed, "_ENOUGH", 10**9)
    whole = make_plan(snapshot, "cooperative-sticky").steps[0].cost
    assert whole is not None
    assert whole.longest_seconds is not None
    assert whole.longest_seconds < cost.longest_seconds * 1.5
