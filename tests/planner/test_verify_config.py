"""The configuration beside an advised restart or start is its own, or there is none."""

from __future__ import annotations

import os

import pytest

from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import group_of
from tests.planner.rule_cases import RULES, cases_of

pytestmark = pytest.mark.usefixtures("no_costs")

GOALS = ("cooperative", "eager", "consumer", "range")


def check(standing: Standing) -> None:
    """Assert that the advice takes the configuration, if there is one."""
    if not standing.config:
        return
    advice = standing.advice
    (step,) = (one for one in standing.steps if one.id == advice.step)
    assert advice.recommended
    assert advice.action in ("restart", "cut-over", "start")
    assert advice.assignors or advice.change or advice.action != "start", "its current list"
    assert set(advice.members) <= set(step.to_do)
    for setting in standing.config:
        for name in advice.assignors if setting.format == "librdkafka properties" else ():
            assert name in setting.text


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
