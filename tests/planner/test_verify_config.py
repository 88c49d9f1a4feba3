"""The configuration beside an advised restart or start is its own, or there is none."""

from __future__ import annotations

import os
from typing import Any

import pytest

from rebal.groups.model import GroupSnapshot
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import group_of
from tests.planner.looks import app, look, pods
from tests.planner.plans import BOTH, DONE
from tests.planner.rule_cases import RULES, cases_of

pytestmark = pytest.mark.usefixtures("no_costs")

GOALS = ("cooperative", "eager", "consumer", "range")


def check(standing: Standing) -> bool:
    """Return whether there is a configuration, and assert that the advice takes it."""
    if not standing.config:
        return False
    advice = standing.advice
    (step,) = (one for one in standing.steps if one.id == advice.step)
    assert advice.recommended
    assert advice.action in ("restart", "cut-over", "start")
    assert advice.assignors or advice.change or advice.action != "start", "its current list"
    assert set(advice.members) <= set(step.to_do)
    for setting in standing.config:
        for name in advice.assignors if setting.format == "librdkafka properties" else ():
            assert name in setting.text
    return True


@pytest.mark.parametrize("rule", RULES)
def test_configuration_is_printed_for_the_advised_action_alone(rule: str) -> None:
    groups = [case["group"] for case in cases_of(rule)]
    every = os.environ.get("REBAL_FULL") == "1"
    for number, group in enumerate(groups):
        snapshot = group_of(group)
        for goal in GOALS if every else [GOALS[number % len(GOALS)]]:
            try:
                plan = make_plan(snapshot, goal)
            except NotPlannedError:
                continue
            for one in (snapshot, group_of(groups[0])):
                check(verify(plan, (), one))


def rejected(names: list[str], *, lists: list[str], **more: Any) -> GroupSnapshot:
    """A group without app-0, which was rejected with `names`; the other holds `lists`."""
    refusal = {"client": "app-0", "list": names, "at": 4}
    return look(5, [app(1, list=lists)], refusals=[refusal], **more)


@pytest.mark.parametrize("goal", ["cooperative", "consumer"])
@pytest.mark.parametrize("names", [DONE, ["sticky"]])
def test_a_rejected_client_is_not_given_the_list_that_was_rejected(
    goal: str, names: list[str]
) -> None:
    plan = make_plan(look(0, pods(1, 1, list=["range"])), goal, expect_members=2)
    standing = verify(plan, (), rejected(names, lists=["range"]))
    assert check(standing) is (goal == "cooperative")
    assert "consumer" not in standing.advice.assignors
    assert not any("consumer" in one.assignors for one in standing.withheld)
    assert standing.advice.assignors != tuple(names)


def test_the_configuration_is_the_steps_own() -> None:
    plan = make_plan(look(0, pods(1, 1, list=["range"])), expect_members=2)
    first = verify(plan, (), look(1, pods(1, 1, list=["range"])))
    assert check(first)
    assert first.config == plan.steps[0].config
    second = verify(plan, (), look(2, pods(2, 2, list=BOTH), elected="cooperative-sticky"))
    assert check(second)
    assert second.config == plan.steps[1].config
