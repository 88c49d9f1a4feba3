"""A group that does what its plan says is never rejected, and arrives: random lists, all known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.coordinator import candidates, elect
from rebal.groups.model import CoordinatorKind
from rebal.planner.paths import make_plan
from tests.examples import examples
from tests.planner.builder import group_of

pytestmark = pytest.mark.usefixtures("no_costs")

TARGET = "cooperative-sticky"
NAMES = ["range", "roundrobin", "sticky", TARGET]


@st.composite
def groups(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Members with lists that have an assignor in common."""
    common = draw(st.sampled_from(NAMES))
    members = []
    for number in range(draw(st.integers(1, 5))):
        others = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        names = draw(st.permutations(sorted({common, *others})))
        family = draw(st.sampled_from(["java", "franz-go"]))
        members.append({"id": f"m{number}", "list": list(names), "family": family})
    return members


@examples(60, full=400)
@given(members=groups(), goal=st.sampled_from(["cooperative", "eager"]))
def test_with_every_list_known_the_plan_leads_to_the_end_and_nobody_is_rejected(
    members: list[dict[str, Any]], goal: str
) -> None:
    lists = [member["list"] for member in members]
    for _ in range(2 * len(members) + 1):
        elected = elect(lists, CoordinatorKind.JAVA).assignor
        plan = make_plan(
            group_of({"members": members, "elected": elected, "reloaded": False}), goal
        )
        step = plan.step(plan.next_step)
        if step is None:
            break
        assert plan.exit_code == 0, (plan.summary, plan.findings)
        chosen = (*step.to_do, *step.unknown)[0].removesuffix("-0f0f")
        next(each for each in members if each["id"] == chosen)["list"][:] = step.target_list
        assert candidates(lists), (plan.summary, members)
    assert plan.verdict == "done"
    if goal == "cooperative":
        assert lists == [[TARGET]] * len(lists)
    assert goal == "cooperative" or not any(TARGET in names for names in lists)
