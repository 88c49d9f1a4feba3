"""`rebal plan-upgrade --all` and `--match`, and what speaks of one plan's pace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rebal.cli import planning
from rebal.groups.model import GroupSnapshot, GroupState, Member
from rebal.inspectors.kafka.listing import GroupFailure
from rebal.planner.paths import make_plan
from rebal.planner.rehearsal.costs import rehearsed
from tests.cli.conftest import Live, Rebal
from tests.planner.builder import group_of
from tests.planner.test_cost import sized

Make = Callable[..., GroupSnapshot]


@pytest.fixture
def cluster(group: Make, librdkafka: tuple[Member, ...], live: Live) -> Live:
    """Four groups and one that cannot be read."""
    live.show(
        group(group_id="a-ready"),
        group(group_id="b-moving", state=GroupState.PREPARING_REBALANCE),
        group(group_id="c-blocked", members=librdkafka),
        group(group_id="d-blocked", members=librdkafka),
        GroupFailure(
            group_id="e-hidden", kind="not allowed", message="e-hidden: not allowed to read it."
        ),
    )
    return live


def test_all_is_a_line_a_group_worst_first(cluster: Live, rebal: Rebal) -> None:
    told = rebal("plan-upgrade", "--all", "-b", "kafka-1:9092", code=1)
    lines = told.out.splitlines()
    assert lines[0] == "4 groups: 2 blocked, 1 unproven, 1 ready"
    rows = [line.split()[:2] for line in lines[3:7]]
    assert rows == [
        ["blocked", "c-blocked"],
        ["blocked", "d-blocked"],
        ["unproven", "b-moving"],
        ["ready", "a-ready"],
    ]
    assert "full cut-over" in lines[3]
    assert lines[-1].strip() == "rebal plan-upgrade c-blocked -b kafka-1:9092"
    assert told.err == "rebal: e-hidden: not allowed to read it.\n"
    assert cluster.selected == [([], {"match": None, "all_groups": True})]


@pytest.mark.usefixtures("cluster")
def test_all_in_one_sarif_document(rebal: Rebal) -> None:
    words = ["plan-upgrade", "--all", "-b", "kafka-1:9092", "-o", "sarif"]
    (run,) = rebal(*words, code=1).body["runs"]
    where = {each["locations"][0]["logicalLocations"][0]["name"] for each in run["results"]}
    assert where == {"a-ready", "b-moving", "c-blocked", "d-blocked"}
    *plans, failed = run["invocations"]
    assert [each["exitCode"] for each in plans] == [3, 3, 4, 0]
    assert not failed["executionSuccessful"]


def test_match_plans_only_for_the_groups_that_match(cluster: Live, rebal: Rebal) -> None:
    words = ["plan-upgrade", "--match", "a-.*", "-b", "kafka-1:9092", "-o", "json"]
    body = rebal(*words).body
    assert body["schema"] == "rebal.plans/1"
    (plan,) = body["plans"]
    assert (plan["group_id"], plan["verdict"], plan["path"]) == ("a-ready", "ready", "two_bounces")
    assert body["failures"] == []
    assert body["exit_code"] == 0
    assert cluster.selected == [([], {"match": "a-.*", "all_groups": False})]


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
