"""Any group that does what its plan calls ready is never refused, and arrives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.model import CoordinatorKind
from rebal.groups.vote import candidates, elect
from rebal.planner.paths import make_plan
from tests.examples import examples
from tests.planner.builder import group_of

pytestmark = pytest.mark.usefixtures("no_costs")

NAMES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
FAMILIES = ["java", "franz-go"]


@st.composite
def groups(draw: st.DrawFn, names: list[str] = NAMES) -> list[dict[str, Any]]:
    """Members with true lists that have a candidate, each known exactly or only by bounds."""
    common = draw(st.sampled_from(names))
    members = []
    for number in range(draw(st.integers(1, 5))):
        others = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
        names_ = draw(st.permutations(sorted({common, *others})))
        members.append(
            {
                "id": f"m{number}",
                "true": list(names_),
                "exact": draw(st.booleans()),
                "family": draw(st.sampled_from(FAMILIES)),
            }
        )
    return members


def vote(members: list[dict[str, Any]]) -> str:
    elected = elect([m["true"] for m in members], CoordinatorKind.JAVA).assignor
    assert elected is not None
    return elected


def seen(
    members: list[dict[str, Any]],
    elected: str,
    probed: bool = False,
    memory: list[list[str]] | None = None,
    reloaded: bool | None = False,
) -> dict[str, Any]:
    """The group's shorthand, as the evidence shows it; `memory` is what the coordinator holds."""
    shown = []
    for m in members:
        known = {"list": m["true"]} if m["exact"] else {"at_least": [elected]}
        shown.append({"id": m["id"], "family": m["family"], **known})
    able = candidates(memory or [m["true"] for m in members])
    return {
        "elected": elected,
        "members": shown,
        "reloaded": reloaded,
        "probe": {name: name in able for name in NAMES} if probed else None,
    }


@examples(300)
@given(data=st.data(), goal=st.sampled_from(["cooperative", "eager"]), shows=st.booleans())
def test_whoever_follows_a_ready_plan_is_never_refused(
    data: st.DataObject, goal: str, shows: bool
) -> None:
    members = data.draw(groups())
    probed = data.draw(st.booleans())
    for _ in range(4 * len(members) + 1):
        elected = vote(members)
        memory = [m["true"] for m in members]
        reloaded = data.draw(st.sampled_from([False, True, None]))
        if reloaded or (reloaded is None and data.draw(st.booleans())):
            memory = [[elected] for _ in members]
        plan = make_plan(group_of(seen(members, elected, probed, memory, reloaded)), goal)
        if plan.exit_code != 0 or plan.next_step is None:
            break
        step = next(s for s in plan.steps if s.id == plan.next_step)
        left = sorted({*step.to_do, *step.unknown})
        assert left, "a step that is next has somebody to restart"
        chosen = data.draw(st.sampled_from(left)).removesuffix("-0f0f")
        # A new process may join before the others have joined again: only memory counts then.
        others = [held for m, held in zip(members, memory, strict=True) if m["id"] != chosen]
        current = next(m["true"] for m in members if m["id"] == chosen)
        # A step without a list is a restart with the current one.
        brings = list(step.target_list) or current
        assert candidates([*others, brings]), (plan.summary, members, memory)
        for m in members:
            if m["id"] == chosen:
                m.update(true=brings, exact=m["exact"] or bool(step.target_list))
            # With the request log on, a restart shows every member's list.
            m["exact"] = m["exact"] or shows
        assert candidates([m["true"] for m in members]), (plan.summary, members)
    if plan.verdict.value == "done":
        lists = [m["true"] for m in members]
        assert all(("cooperative-sticky" in names) is (goal == "cooperative") for names in lists)
        if goal == "cooperative":
            assert all(names == ["cooperative-sticky"] for names in lists)
    elif shows and all(m["exact"] for m in members) and reloaded is False:
        assert plan.exit_code == 0, (plan.summary, plan.findings)


@examples(150)
@given(members=groups(), goal=st.sampled_from(["cooperative", "eager"]))
def test_with_every_list_known_the_plan_leads_to_the_end(
    members: list[dict[str, Any]], goal: str
) -> None:
    for m in members:
        m["exact"] = True
    for _ in range(2 * len(members) + 1):
        plan = make_plan(group_of(seen(members, vote(members))), goal)
        if plan.next_step is None:
            break
        assert plan.exit_code == 0, (plan.summary, plan.findings)
        step = next(s for s in plan.steps if s.id == plan.next_step)
        chosen = (*step.to_do, *step.unknown)[0].removesuffix("-0f0f")
        next(m for m in members if m["id"] == chosen)["true"] = list(step.target_list)
        assert candidates([m["true"] for m in members])
    assert plan.verdict.value == "done"
