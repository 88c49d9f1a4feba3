"""One rebalance protocol for a member on every screen: inspect, plan-upgrade and verify agree."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.cli.report import make_report
from rebal.groups.clients import family, proven_family
from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, RebalanceProtocol, Tri
from rebal.planner.paths import make_plan
from rebal.planner.plan import Aim, Plan
from rebal.planner.verification.members import MemberStanding
from rebal.planner.verification.verify import verify
from tests.examples import examples
from tests.planner.builder import group_of

pytestmark = pytest.mark.usefixtures("no_costs")

TARGET = "cooperative-sticky"
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
LISTS: list[list[str] | None] = [["range"], [TARGET, "range"], ["range", TARGET], [TARGET], None]
CLIENTS: list[dict[str, Any]] = [
    {"family": "java"},
    {"family": "java", "guess": True},
    {"family": None},
    {"family": None, "bytes": 3},
    {"family": "librdkafka"},
    {"family": "franz-go"},
    {"family": "franz-go", "guess": True},
]


@st.composite
def groups(draw: st.DrawFn) -> GroupSnapshot:
    """A Stable classic group with any mixture of clients and evidence, contradictions included."""
    members = []
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.sampled_from(LISTS))
        member = {
            "id": f"m{number}",
            "owned": draw(st.booleans()),
            **draw(st.sampled_from(CLIENTS)),
        }
        members.append(member | ({"list": names} if names else {}))
    elected = draw(st.sampled_from(["range", TARGET]))
    asked = draw(st.booleans())
    answers = {name: draw(st.sampled_from([True, False, None])) for name in ("range", TARGET)}
    spec = {
        "members": members,
        "elected": elected,
        "reloaded": draw(st.sampled_from([True, False, None])),
        "probe": answers if asked else None,
    }
    return merge(group_of(spec), ())


def narrowing(plan: Plan, seen: GroupSnapshot) -> dict[str, MemberStanding]:
    """The standing of each member in the step that drops the old assignor."""
    step = next((each.id for each in plan.steps if each.aim is Aim.NARROW), None)
    if step is None:
        return {}
    return {each.member_id: each for each in verify(plan, [], seen, step=step).members}


@examples(100, full=300)
@given(seen=groups())
def test_inspect_plan_and_verify_name_the_same_protocol(seen: GroupSnapshot) -> None:
    report = make_report(seen)
    plan = make_plan(seen)
    assert plan.runs is report.runs
    step = next((each for each in plan.steps if each.aim is Aim.NARROW), None)
    for member_id, standing in narrowing(plan, seen).items():
        runs = report.member_runs[member_id]
        assert standing.runs is runs
        # A member is done on both screens, and only where inspect calls it COOPERATIVE.
        assert (member_id in step.done) is (standing.done is Tri.YES)
        if standing.done is Tri.YES:
            assert runs is COOPERATIVE
        if member_id in step.to_do:
            assert standing.done is Tri.NO
        if runs is EAGER:
            assert standing.done is not Tri.YES


@examples(100, full=300)
@given(seen=groups())
def test_verify_says_why_a_cooperative_member_is_not_done(seen: GroupSnapshot) -> None:
    # Every member has a new id since the plan: none is "not restarted".
    others = tuple(replace(one, member_id=f"{one.member_id}-0") for one in seen.members)
    earlier = seen.captured_at - timedelta(hours=1)
    plan = make_plan(replace(seen, members=others, captured_at=earlier))
    members = {member.member_id: member for member in seen.members}
    for member_id, standing in narrowing(plan, seen).items():
        client = family(proven_family(members[member_id].software))
        if standing.runs is not COOPERATIVE or standing.done is Tri.YES:
            continue
        # Only a client that follows the vote, or may, runs COOPERATIVE with an eager assignor.
        assert not client.key or client.follows_vote, standing
        if standing.done is Tri.CANNOT_TELL:
            assert "runs COOPERATIVE" in standing.why, standing
