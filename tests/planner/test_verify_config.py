"""The configuration beside an advised restart is that restart's own, or there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rebal.groups.model import GroupSnapshot
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.verification.verify import Standing, verify
from tests.planner.builder import group_of
from tests.planner.looks import app, look, pods

pytestmark = pytest.mark.usefixtures("no_costs")

CASES = sorted((Path(__file__).parents[1] / "data" / "rules").glob("RB*.yaml"))
GOALS = ("cooperative", "eager", "consumer", "range")
MIXED = ["cooperative-sticky", "range"]
TARGET = ["cooperative-sticky"]


def check(standing: Standing) -> bool:
    """Return whether there is a configuration, and assert that the advice takes it."""
    if not standing.config:
        return False
    advice = standing.advice
    (step,) = (one for one in standing.steps if one.id == advice.step)
    assert advice.recommended
    assert advice.action in ("restart", "cut-over")
    assert set(advice.members) <= set(step.to_do)
    for setting in standing.config:
        for name in advice.assignors if setting.format == "librdkafka properties" else ():
            assert name in setting.text
    return True


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_configuration_is_printed_for_the_advised_restart_alone(path: Path) -> None:
    cases = yaml.safe_load(path.read_text(encoding="utf-8"))
    groups = [
        case["group"] for listed in cases.values() if isinstance(listed, list) for case in listed
    ]
    for group in groups:
        snapshot = group_of(group)
        for goal in GOALS:
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
@pytest.mark.parametrize("names", [TARGET, ["sticky"]])
def test_a_rejected_client_is_not_given_the_list_that_was_rejected(
    goal: str, names: list[str]
) -> None:
    plan = make_plan(look(0, pods(1, 1, list=["range"])), goal, expect_members=2)
    standing = verify(plan, (), rejected(names, lists=["range"]))
    assert not check(standing)
    assert "consumer" not in standing.advice.assignors
    assert not any("consumer" in one.assignors for one in standing.withheld)
    assert standing.advice.assignors != tuple(names)


def test_the_configuration_is_the_steps_own() -> None:
    plan = make_plan(look(0, pods(1, 1, list=["range"])), expect_members=2)
    first = verify(plan, (), look(1, pods(1, 1, list=["range"])))
    assert check(first)
    assert first.config == plan.steps[0].config
    second = verify(plan, (), look(2, pods(2, 2, list=MIXED), elected="cooperative-sticky"))
    assert check(second)
    assert second.config == plan.steps[1].config
