"""Every step of every way: can verify say that its gate holds, and does it wait for the truth?"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.planner.paths import make_plan
from rebal.planner.plan import Aim, Plan
from rebal.planner.verification.verify import AnsweredError, NothingToConfirmError, verify
from tests.planner.looks import Story, done, look, pods
from tests.planner.plans import BOTH, COOP, DONE, RANGE

KIP848 = {
    "type": "consumer",
    "elected": "uniform",
    "cluster": {
        "features": {"group.version": 1},
        "settings": {"group.consumer.migration.policy": "bidirectional"},
    },
}
WHY = "looked at both logs"


def java(number: int, start: int, names: list[str], **more: Any) -> dict[str, Any]:
    return {"id": f"j-{number}.{start}", "client": f"j-{number}", "list": names, **more}


def rd(start: int, names: list[str] | None, **more: Any) -> dict[str, Any]:
    known = {"family": "librdkafka", "version": "2.6.0"} if names else {"family": None}
    listed = {"list": names} if names else {}
    return {"id": f"rd-0.{start}", "client": "rd-0", **known, **listed, **more}


# --- mixed families ---------------------------------------------------------------------------


@pytest.fixture
def mixed() -> Plan:
    """Two Java members and one of librdkafka, all on range."""
    plan = make_plan(look(0, [java(0, 1, RANGE), java(1, 1, RANGE), rd(1, RANGE)]))
    assert (plan.path, plan.steps[0].left_out) == ("mixed_families", ("librdkafka",))
    return plan


def test_the_members_that_stop_begin_their_step_when_they_stop(mixed: Plan) -> None:
    tell = Story(mixed)
    javas = [java(0, 2, BOTH), java(1, 2, BOTH)]
    assert tell(look(1, [*javas, rd(1, RANGE)])).exit_code == 0
    away = tell(look(2, javas))
    assert (away.step, away.exit_code) == (2, 4)
    assert [one.name for one in away.outsiders] == ["rd-0"]
    back = tell(look(3, [*javas, rd(2, DONE)], **COOP))
    assert (back.step, back.exit_code) == (2, 0)
    assert back.next.startswith("begin step 3")
    last = tell(look(4, [java(0, 3, DONE), java(1, 2, BOTH), rd(2, DONE)], **COOP))
    assert (last.step, last.exit_code) == (3, 4)
    assert done(last) == {"j-0": "yes", "j-1": "no", "rd-0": "yes"}
    assert tell(look(5, [java(0, 3, DONE), java(1, 3, DONE), rd(2, None)], **COOP)).finished
    # It starts with the last list, so its old id says nothing of the last step.
    unseen = [*javas, rd(2, None)]
    tell.entries = tell.entries[:2]
    assert tell(look(3, unseen, **COOP)).step == 2
    assert done(tell(look(4, unseen, **COOP), step=3))["rd-0"] == "cannot tell"


def test_a_member_whose_client_nobody_proved_is_not_left_out(mixed: Plan) -> None:
    javas = [java(0, 2, BOTH), java(1, 2, BOTH)]
    guess = {"id": "rd-0.2", "client": "rd-0", "family": "librdkafka", "guess": True}
    standing = verify(mixed, [], look(1, [*javas, guess]))
    assert (standing.step, standing.exit_code) == (1, 4)
    assert standing.why == ("not known: rd-0",)
    said = make_plan(mixed.baseline, families={"rd-0": "librdkafka"})
    assert verify(said, [], look(1, [*javas, guess])).exit_code == 0


def test_a_client_that_no_step_stops_is_a_danger(mixed: Plan) -> None:
    other = {"id": "py.1", "client": "py", "list": RANGE, "family": "kafka-python"}
    members = [java(0, 2, BOTH), java(1, 1, RANGE), rd(1, RANGE), other]
    standing = verify(mixed, [], look(1, members))
    assert standing.exit_code == 3
    assert [f.rule for f in standing.findings if f.severity == "block"] == ["RB104"]


# --- the other ways ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "goal", "group", "short_of"),
    [
        ([java(n, 1, DONE) for n in range(2)], "cooperative", COOP, "start j-1 with [cooperative-"),
        ([java(n, 1, RANGE) for n in range(2)], "range", {}, "start j-1 with [range], if it is"),
        (
            [{"id": f"k-{n}", "protocol_type": "consumer"} for n in range(2)],
            "consumer",
            KIP848,
            "wait: 1 of 2 expected members is not in the group",
        ),
    ],
    ids=["cooperative", "range", "consumer"],
)
def test_a_plan_with_nothing_left_to_do_holds_as_long_as_that_is_so(
    members: list[dict[str, Any]], goal: str, group: dict[str, Any], short_of: str
) -> None:
    plan = make_plan(look(0, members, **group), goal, expect_members=2)
    assert (plan.verdict, plan.steps) == ("done", ())
    standing = verify(plan, [], look(1, members, **group))
    assert (standing.exit_code, standing.finished, standing.step) == (0, True, None)
    short = verify(plan, [], look(1, members[:1], **group))
    assert (short.exit_code, short.finished) == (4, False)
    assert short.next.startswith(short_of)
    assert short.next.endswith("if the service has no more members: --expect-members 1")
    old = [java(n, 2, ["roundrobin"], protocol_type="classic") for n in range(2)]
    changed = verify(plan, [], look(2, old, elected="roundrobin"))
    assert changed.exit_code == 4
    assert changed.next.startswith("make a new plan: ")
    assert changed.advice.command.startswith("rebal plan-upgrade checkout")


# --- what a person takes upon themselves ------------------------------------------------------


@pytest.fixture
def hand() -> Plan:
    """Two Streams instances, and two steps to versions that nothing on the wire shows."""
    plan = make_plan(look(0, bare(1, 1), elected="stream"), "eager", expect_members=2)
    gate = replace(
        plan.steps[0].gate, aim=Aim.STREAMS_NEW, by_hand="its log names upgrade.from=2.3"
    )
    return replace(plan, steps=tuple(replace(s, gate=gate, unknown=()) for s in plan.steps))


def bare(*starts: int) -> list[dict[str, Any]]:
    return pods(*starts, family=None)


def test_a_word_holds_for_the_ids_that_were_looked_at(hand: Plan) -> None:
    tell = Story(hand)
    with pytest.raises(AnsweredError, match="app-1: not restarted"):
        tell.confirm(look(1, bare(2, 1), elected="stream"), 1, WHY)
    open_ = tell(look(2, bare(2, 2), elected="stream"))
    assert open_.exit_code == 4
    assert open_.why == ("no evidence shows it for app-0, app-1: its log names upgrade.from=2.3",)
    with pytest.raises(NothingToConfirmError, match="is in step 1"):
        tell.confirm(look(2.5, bare(2, 2), elected="stream"), 2, WHY)
    tell.confirm(look(3, bare(2, 2), elected="stream"), 1, WHY)
    holds = tell(look(4, bare(2, 2), elected="stream"))
    assert (holds.step, holds.exit_code) == (1, 0)
    # No list is confirmed in this step.
    said = f"confirmed by the operator, Nov 20 09:03Z: {WHY}"
    assert [one.why for one in holds.members] == [said, said]
    with pytest.raises(AnsweredError, match="its gate holds"):
        tell.confirm(look(4.5, bare(2, 2), elected="stream"), 1, WHY)
    # Somebody who comes later was not looked at. The first step's gate held, so it is the second.
    later = tell(look(5, bare(2, 3), elected="stream"))
    assert (later.step, later.exit_code) == (2, 4)
    assert verify(hand, tell.entries, look(6, bare(2, 3), elected="stream"), step=1).why == (
        "no evidence shows it for app-1: its log names upgrade.from=2.3",
    )


def test_a_plan_that_was_done_is_judged_by_what_it_was_asked_for() -> None:
    sticky, mixed = ["sticky"], ["range", "sticky"]
    two = [java(0, 0, mixed), java(1, 0, sticky)]
    by_kind = make_plan(look(0, two, elected="sticky"), "eager")
    assert verify(by_kind, [], look(1, two, elected="sticky")).finished
    alike = [java(0, 0, sticky), java(1, 0, sticky)]
    by_name = make_plan(look(0, alike, elected="sticky"), "sticky")
    later = look(1, [alike[0], java(1, 1, mixed)], elected="sticky")
    assert not verify(by_name, [], later).finished
