"""Members that left before the plan: what is asked about them, and what waits for the answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Accepted, Plan
from rebal.planner.verification.verify import Standing
from tests.planner.builder import AT, group_of
from tests.planner.looks import Story, app, id_of, look, pods
from tests.planner.plans import BOTH, DONE, RANGE, rules

KEPT = Given(plan="plan.yaml")


def left(name: str = "a2", names: list[str] | None = None, at: int = -1, **more: Any) -> Any:
    return {"id": name, "list": RANGE if names is None else names, "at": at, "left": True, **more}


def before(*gone: Any, lists: list[str] | None = None, **more: Any) -> GroupSnapshot:
    members = pods(1, 1, list=lists or RANGE)
    return group_of({"members": members, "departed": list(gone), "reloaded": False, **more})


def planned(*gone: Any, **more: Any) -> Plan:
    return make_plan(before(*gone), given=KEPT, **more)


def widened(minutes: int, *gone: Any, **more: Any) -> GroupSnapshot:
    """The two members after the first bounce."""
    members = pods(2, 2, list=BOTH)
    return look(minutes, members, departed=list(gone), elected="cooperative-sticky", **more)


def asks(standing: Standing) -> bool:
    """It asks about the departed member and opens no step."""
    asked = "RB121" in rules(standing)
    if asked:
        assert standing.exit_code == 4
        assert standing.advice.action == "evidence"
        assert "first RB121: Add --expect-members 3 if it belongs" in standing.next
    return asked


def test_a_step_waits_for_the_answer_about_a_member_that_left_before_the_plan() -> None:
    plan = planned(left())
    assert (plan.verdict, plan.exit_code, plan.accepted.members) == ("ready", 0, None)
    (finding,) = (f for f in plan.findings if f.rule == "RB121")
    assert finding.before_step == 2
    # The log of the leave has been rotated away: the plan still knows.
    for gone in ([left()], []):
        story = Story(plan)
        told = story(widened(5, *gone))
        assert (told.step, told.gate) == (1, "yes")
        assert asks(told)
        (said,) = (f for f in told.findings if f.rule == "RB121")
        assert said.message.endswith("Its return is rejected once step 2 has begun.")
        assert [one.line for one in said.commands] == [
            "rebal verify plan.yaml --expect-members 3",
            "rebal verify plan.yaml --departed a2",
        ]


def test_the_answer_is_kept_and_opens_the_step() -> None:
    gone = Story(planned(left()))
    told = gone(widened(5), accepted=Accepted(departed=("a2",)))
    assert (told.exit_code, told.advice.action, told.advice.step) == (0, "restart", 2)
    assert told.departed == ("a2",)
    assert "a2 left for good" in told.accepted
    assert gone.entries[-1].departed == ("a2",)
    # Nobody says it again.
    assert gone(widened(6, left())).exit_code == 0
    there = Story(planned(left()))
    told = there(widened(5), expect_members=3)
    assert (told.exit_code, told.counted, told.expected) == (4, True, 3)
    assert told.why[0].startswith("1 of 3 expected members is not in the group")
    told = there(widened(6))
    assert (told.exit_code, told.counted, told.expected) == (4, True, 3)
    assert not asks(told)
    back = look(7, [*pods(2, 2, list=BOTH), {"id": "a2", "list": BOTH}], elected=DONE[0])
    assert there(back).exit_code == 0


def test_the_answer_may_come_with_the_plan() -> None:
    for more in ({"departed": ["a2"]}, {"expect_members": 2}):
        plan = planned(left(), **more)
        assert "RB121" not in rules(plan)
        told = Story(plan)(widened(5, left()))
        assert (told.exit_code, told.advice.step) == (0, 2)
    assert planned(left(), departed=["a2"]).accepted.departed == ("a2",)
    assert planned(left(), departed=["a2"]).assumptions == ("a2 left for good",)
    assert planned(left(), expect_members=2).accepted.members == 2


def test_a_member_of_a_shared_client_id_is_back_when_there_are_more_of_them() -> None:
    plan = planned(left(client="app-0"))
    assert asks(Story(plan)(widened(5)))
    members = [*pods(2, 2, list=BOTH), {"id": "x", "client": "app-0", "list": BOTH}]
    assert not asks(Story(plan)(look(5, members, elected="cooperative-sticky")))


def test_members_that_the_plan_or_a_look_counted_are_not_asked_about() -> None:
    """A roll-out with a new client id for each pod leaves all old ones behind."""
    plan = planned()
    old = [{"id": id_of(n).removesuffix("-0f0f"), "list": RANGE, "at": 2} for n in (0, 1)]
    members = [{"id": "new-1", "list": BOTH}, {"id": "new-2", "list": BOTH}]
    story = Story(plan)
    told = story(look(5, members, departed=old, elected="cooperative-sticky"))
    assert (told.exit_code, told.advice.step) == (0, 2)
    again = [{"id": "new-3", "list": BOTH}, {"id": "new-4", "list": BOTH}]
    gone = [*old, *({"id": f"new-{n}", "list": BOTH, "at": 6} for n in (1, 2))]
    assert not asks(story(look(9, again, departed=gone, elected="cooperative-sticky")))


def test_a_stranger_that_came_and_went_since_the_plan_is_asked_about() -> None:
    assert asks(Story(planned())(widened(5, left(at=3))))


def test_a_rejected_instance_id_that_was_renamed_is_a_ghost_until_it_is_named() -> None:
    statics = [{**app(n), "instance": f"i-{n}", "list": BOTH} for n in (0, 1, 9)]
    refused = {"client": "app-2", "instance": "i-2", "list": ["sticky"], "at": -3}
    snapshot = group_of({"members": statics, "refusals": [refused], "elected": DONE[0]})
    plan = make_plan(snapshot, given=KEPT)
    assert plan.expected_members == 4
    (finding,) = (f for f in plan.findings if f.rule == "RB904")
    assert finding.fix.endswith(" If i-2 left for good, or was renamed: --departed i-2.")
    seen = look(9, statics, refusals=[refused], elected=DONE[0])
    told = Story(plan)(seen)
    assert (told.expected, [one.kind for one in told.dangers]) == (4, ["rejected"])
    assert told.dangers[0].fix.endswith(" If i-2 left for good, or was renamed: --departed i-2.")
    story = Story(plan)
    for more in ({"accepted": Accepted(departed=("i-2",))}, {}):
        told = story(seen, **more)
        assert (told.expected, told.dangers, told.outsiders) == (3, (), ())
    renewed = make_plan(snapshot, given=KEPT, departed=["i-2"])
    assert "RB904" not in rules(renewed)
    assert renewed.expected_members is None


def test_a_rejection_after_the_word_is_reported() -> None:
    statics = [{**app(n), "instance": f"i-{n}", "list": BOTH} for n in (0, 1)]
    refused = {"client": "app-2", "instance": "i-2", "list": RANGE, "at": 6}
    plan = make_plan(group_of({"members": statics, "elected": DONE[0]}), departed=["i-2"])
    told = Story(plan)(look(6, statics, refusals=[refused], elected=DONE[0]))
    assert [one.kind for one in told.dangers] == ["rejected"]


def test_a_client_that_is_back_against_the_word_is_named() -> None:
    plan = planned(left(), departed=["a2"])
    members = [*pods(2, 2, list=BOTH), {"id": "a2", "list": BOTH}]
    told = Story(plan)(look(5, members, elected="cooperative-sticky"))
    assert "a2 was said to have left for good (--departed) and is in the group" in told.notes


def test_the_word_of_the_journal_counts_for_the_moment_at_which_it_was_given() -> None:
    plan = replace(planned(left()), made_at=AT + timedelta(minutes=1))
    story = Story(plan)
    story(widened(5), accepted=Accepted(departed=("a2",)))
    story(widened(7), accepted=Accepted(departed=("a2",)))
    assert asks(story(widened(9, left(at=6)), accepted=Accepted(departed=("a2",))))
