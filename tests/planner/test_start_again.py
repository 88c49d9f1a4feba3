"""A group without members in the middle of a roll-out: the way back, and the start of a step."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, GroupState, Tri
from rebal.planner.plan import Plan
from rebal.planner.verification.verify import verify
from tests.planner.builder import AT
from tests.planner.every_path import PLANS
from tests.planner.looks import Story, back_from, look, pods
from tests.planner.plans import plan

RDKAFKA = {"family": "librdkafka", "version": "2.6.0"}
RANGE = ["range", "roundrobin"]
AIMS = {
    "connect": "connect-eager",
    "connect down": "connect-incremental",
    "streams": "streams-cooperative",
    "cut-over": "narrow",
}


def empty(made: Plan) -> GroupSnapshot:
    """The group of the plan after every member was stopped."""
    group = replace(made.baseline.group, state=GroupState.EMPTY, assignor=None)
    at = AT + timedelta(minutes=2)
    return replace(
        made.baseline, group=group, members=(), captured_at=at, lag=(), probe=None, refusals=()
    )


@pytest.mark.parametrize("name", PLANS)
def test_every_group_without_members_can_start_with_what_it_ran(name: str) -> None:
    made = PLANS[name]()
    back = back_from(made, empty(made))
    step = back.step(back.next_step)
    assert (back.exit_code, back.verdict) == (0, "ready")
    assert (back.advice.action, back.advice.verdict) == ("start", Tri.YES)
    assert "CURRENT list" not in back.advice.text
    assert back.expected_members == len(made.baseline.members)
    if name != "two bounces, second":
        assert not step.target_list or made.baseline.group.assignor in step.target_list
    assert step.config
    assert step.aim == AIMS.get(name, step.aim)
    # The plan that was kept gives the same start, from the group as it is.
    again = verify(back, [], empty(made))
    assert (again.advice.action, again.advice.recommended) == ("start", True)
    assert again.advice.assignors == step.target_list
    assert again.exit_code == 4


def test_the_cut_over_is_undone_with_the_list_that_every_member_ran() -> None:
    made = plan(pods(1, 1, 1, list=RANGE, **RDKAFKA), expect_members=3)
    assert made.path == "cut_over"
    back = back_from(made, empty(made))
    assert [step.target_list for step in back.steps] == [("range", "roundrobin")]
    assert {each.family for each in back.steps[0].config} == {"librdkafka"}
    tell = Story(back)
    started = look(3, pods(2, 2, list=RANGE, **RDKAFKA))
    assert "1 of 3 expected members is not in the group" in tell(started).why[0]
    end = tell(look(4, pods(2, 2, 2, list=RANGE, **RDKAFKA)))
    assert (end.finished, end.exit_code) == (True, 0)
    wrong = tell(look(5, pods(3, 3, 3, list=["cooperative-sticky"], **RDKAFKA)))
    assert not wrong.finished


def test_lists_that_differ_or_are_mixed_give_way_to_the_old_assignor() -> None:
    both = ["cooperative-sticky", "range"]
    made = plan(pods(1, 1, list=both), elected="cooperative-sticky", reloaded=False)
    assert back_from(made, empty(made)).steps[0].target_list == ("range",)
    differ = plan([*pods(1, list=RANGE), {"id": "b", "list": ["range"]}])
    assert back_from(differ, empty(differ)).steps[0].target_list == ("range",)


def test_the_way_back_ends_with_the_list_that_every_member_ran() -> None:
    wide, done = ["range", "cooperative-sticky"], ["cooperative-sticky"]
    made = plan(pods(1, 1, list=wide))
    back = back_from(made, look(2, pods(2, 2, list=done), elected=done[0]))
    assert [step.target_list for step in back.steps] == [tuple(wide)]
    assert verify(back, [], look(3, pods(3, 3, list=wide))).finished
    assert back_from(made, look(2, pods(1, 1, list=wide))).verdict == "done"
    unknown = plan(pods(1, 1))
    forgot = look(2, pods(2, 2, list=[*done, "range"]), elected=done[0], reloaded=True)
    assert [step.target_list for step in back_from(unknown, forgot).steps] == [(), ("range",)]


def test_streams_starts_with_the_step_or_with_the_old_version() -> None:
    instances = pods(1, 1, list=["stream"], family="streams", version="2.3.1")
    made = plan(instances, elected="stream", expect_members=2)
    forward = verify(made, [], empty(made))
    said = "start app-0, app-1 with the version and configuration of step 1, if they are down"
    assert forward.next == said
    back = back_from(made, empty(made))
    assert (back.path, back.target, back.steps[0].aim) == ("streams_start", "stream", "streams-old")
    assert "the old version and its configuration" in back.steps[0].config[0].text


def test_a_plan_that_saw_no_member_knows_no_way_back() -> None:
    made = plan([], state="Empty", elected=None)
    back = back_from(made, empty(made))
    assert (back.path, back.exit_code) == ("none", 4)
