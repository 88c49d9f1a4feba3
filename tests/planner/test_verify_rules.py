"""What came after the plan was made: the rules on the live group, and what the user accepts."""

from __future__ import annotations

import os
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.bounds import apply_assumptions
from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupState, Tri
from rebal.planner.commands import Given
from rebal.planner.paths import NotPlannedError, make_plan
from rebal.planner.plan import Accepted, Finding, Plan, Severity
from rebal.planner.verdict import code_as_it_runs, judged
from rebal.planner.verification.verify import Standing, entry_of, verify
from tests.planner.builder import group_of
from tests.planner.looks import app, bare, look, pods
from tests.planner.plans import BOTH, COOP, DEFAULT, DONE, RANGE, rules
from tests.planner.rule_cases import RULES, cases_of

WHY = "tried on staging"


def apps(start: int, names: list[str] | None = None) -> list[dict[str, Any]]:
    return pods(start, start, start, **({"list": names} if names else {}))


@pytest.fixture
def plan() -> Plan:
    return make_plan(look(0, apps(1, RANGE)), expect_members=3)


NEW = {
    "librdkafka joined": ({"family": "librdkafka", "version": "2.6.0"}, "RB104", "replan"),
    "librdkafka joined, and its file has the step's list": (
        {"family": "librdkafka", "version": "2.6.0", "declared": BOTH}, "RB104", "stop"
    ),
    "kafkajs joined": ({"family": "kafkajs", "list": ["RoundRobinAssigner", "range"]}, "RB105",
                       "stop"),
    "the next start drops range": ({"declared": DONE, "version": "2.8.2"}, "RB103", "stop"),
    "the next start has nothing common": ({"declared": ["sticky"]}, "RB101", "stop"),
    "a static member's deployment surges": (
        {"instance": "i-2", "declared": BOTH, "surge": "25%"}, "RB604", "stop"
    ),
    "a custom client nobody knows": (
        {"family": None, "left": "java >= 2.4, kafka-python"}, "RB906", "evidence"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_what_came_after_the_plan_is_found_and_decides(plan: Plan, name: str) -> None:
    changes, rule, action = NEW[name]
    result = Tri.CANNOT_TELL if action == "evidence" else Tri.YES
    members = [app(0, 2, list=BOTH), app(1, 1, list=RANGE), app(2, 2, list=RANGE) | changes]
    standing = verify(plan, [], look(1, members))
    finding, *_ = (f for f in standing.findings if f.rule == rule)
    assert (finding.severity, finding.result) == ("block", result)
    assert standing.exit_code == (3 if result is Tri.YES else 4)
    assert standing.advice.action == action
    heard = verify(plan, [], look(1, members), accepted=Accepted(ignore={rule: WHY}))
    assert heard.exit_code == 4
    finding, *_ = (f for f in heard.findings if f.rule == rule)
    assert finding.ignored == WHY
    recorded = make_plan(plan.baseline, expect_members=3, ignore={rule: WHY})
    assert verify(recorded, [], look(1, members)).exit_code == 4


def test_missing_is_not_yet_and_too_many_is_a_warning(plan: Plan) -> None:
    missing = verify(plan, [], look(1, apps(2, BOTH)[:2], **COOP))
    assert (missing.exit_code, rules(missing)) == (4, set())
    assert missing.why[0].startswith("1 of 3 expected members is not in the group")
    more = verify(plan, [], look(1, [*apps(2, BOTH), app(3, 1, list=BOTH)], **COOP))
    assert (more.exit_code, rules(more)) == (0, {"RB607"})
    # A word does not open the gate below the expected count: it takes another count.
    ignored = Accepted(ignore={"RB606": "gone for good"})
    assert verify(plan, [], look(1, apps(2, BOTH)[:2], **COOP), accepted=ignored).exit_code == 4
    assert verify(plan, [], look(1, apps(2, BOTH)[:2], **COOP), expect_members=2).exit_code == 0


def test_a_coordinator_that_forgets_in_the_middle_is_a_danger() -> None:
    plan = make_plan(look(0, apps(1, DEFAULT)), expect_members=3)
    assert plan.path == "one_bounce"
    # Two are not restarted, all hold both lists, and a load leaves range alone of them.
    half = [app(0, 2, list=DEFAULT), app(1, 1, list=DEFAULT), app(2, 1, list=DEFAULT)]
    forgot = verify(plan, [], look(1, half, reloaded=True))
    assert (forgot.exit_code, "RB113" in rules(forgot)) == (3, True)
    unsure = verify(plan, [], look(1, half, reloaded=None))
    assert (unsure.exit_code, "RB113" in rules(unsure)) == (4, True)
    accepted = Accepted(ignore={"RB113": "the probe was asked by hand"})
    assert verify(plan, [], look(1, half, reloaded=True), accepted=accepted).exit_code == 4
    assert "RB113" not in rules(verify(plan, [], look(1, half)))


def test_a_way_back_that_is_declared_counts_even_when_all_is_done(plan: Plan) -> None:
    assert verify(plan, [], look(1, apps(2, DONE), **COOP), step=2).finished
    back = look(1, [*apps(2, DONE)[:2], app(2, 2, list=DONE, declared=RANGE)], **COOP)
    standing = verify(plan, [], back, step=2)
    assert (standing.exit_code, rules(standing)) == (3, {"RB108", "RB903"})
    assert not standing.finished


def test_lists_that_nobody_knows_can_be_accepted_by_name(plan: Plan) -> None:
    snapshot = look(1, apps(2))
    assert verify(plan, [], snapshot).exit_code == 4
    standing = verify(plan, [], snapshot, accepted=Accepted(ignore={"RB901": WHY}))
    assert (standing.gate, standing.exit_code) == (Tri.YES, 0)
    assert standing.accepted == (f"not known: app-0, app-1, app-2 (RB901 is ignored: {WHY})",)
    assert WHY in entry_of(plan, standing, snapshot).accepted[0]
    # It goes no further than that: what evidence speaks against stays so.
    lacking = look(1, [app(0, 2, list=RANGE), app(1, 2), app(2, 2)])
    heard = verify(plan, [], lacking, accepted=Accepted(ignore={"RB901": WHY}))
    assert (heard.gate, heard.exit_code) == (Tri.NO, 4)


def test_a_list_that_was_assumed_counts_for_its_id_and_is_no_proof_for_later(plan: Plan) -> None:
    texts = [f"client-id=app-{n}:cooperative-sticky,range" for n in range(3)]
    made, said = apply_assumptions(look(1, apps(2)), texts)
    standing = verify(plan, [], made)
    assert (standing.gate, standing.exit_code, len(said)) == (Tri.YES, 0, 3)
    assert all(member.vouched for member in standing.members)
    entry = entry_of(plan, standing, made)
    assert not any(member.made or member.assignors for member in entry.members)
    assert verify(plan, [entry], look(2, apps(2))).exit_code == 4
    # In a plan's baseline it stands at its member id, for as long as that is there.
    known, said = apply_assumptions(look(0, apps(1), **COOP), texts)
    planned = make_plan(known, expect_members=3, assumed=said)
    assert planned.next_step == 2
    assert verify(planned, [], look(1, apps(1), **COOP), step=1).exit_code == 0
    assert verify(planned, [], look(1, apps(2), **COOP), step=2).exit_code == 4


def test_what_was_proven_of_an_id_comes_back_with_it(plan: Plan) -> None:
    first = look(1, apps(2, BOTH), **COOP)
    entry = entry_of(plan, verify(plan, [], first), first)
    # Nothing but the journal knows the lists now: the forgotten one is named all the same.
    back = look(3, [app(0, 2), app(1, 2), app(2, 3, list=RANGE)], elected="range")
    standing = verify(plan, [entry], back, step=2)
    assert standing.exit_code == 3
    assert [f.members for f in standing.findings if f.rule == "RB102"] == [("app-2.3-0f0f",)]


def test_a_look_before_the_plan_is_no_answer(plan: Plan) -> None:
    before = verify(plan, [], look(-5, apps(2, BOTH), **COOP))
    assert (before.gate, before.exit_code) == (Tri.CANNOT_TELL, 4)
    assert "older than the plan" in before.why[0]


def test_looks_of_a_later_time_are_left_out_and_said(plan: Plan) -> None:
    later = look(9, apps(2, BOTH), **COOP)
    standing = verify(plan, [entry_of(plan, verify(plan, [], later), later)], look(5, apps(2)))
    assert standing.exit_code == 4
    assert any("left out: 1 (" in note for note in standing.notes)


def test_an_unknown_client_that_holds_the_target_is_no_question() -> None:
    """The first bounce asks nothing of it, so plan and verify both begin the second one."""
    members = [bare(n) for n in range(3)]
    more = {**COOP, "probe": {"cooperative-sticky": True, "range": True}}
    made = make_plan(merge(look(0, members, **more), ()), expect_members=3)
    standing = verify(made, [], merge(look(1, members, **more), ()))
    assert "RB906" not in {one.rule for one in (*made.findings, *standing.findings)}
    assert (made.next_step, made.exit_code, standing.exit_code) == (2, 0, 0)
    assert made.advice.members == standing.advice.members
    assert made.advice.assignors == standing.advice.assignors == ("cooperative-sticky",)
    assert made.advice.verdict is standing.advice.verdict is Tri.YES


@pytest.mark.parametrize(
    ("members", "more", "first", "code"),
    [
        (pods(1, 1, family="librdkafka", guess=True), {}, "first RB104: restart nothing before", 4),
        (
            pods(1, family="kafkajs", guess=True, list=["RoundRobinAssigner"]),
            {"elected": "RoundRobinAssigner"},
            "first RB105: restart nothing before the client is known",
            4,
        ),
        ([], {"state": "Empty", "elected": None}, "first RB905: Start the members", 4),
        (pods(1), {"state": "PreparingRebalance"}, "first RB905: Wait until it is Stable", 4),
        (pods(1), {"type": "share"}, "first RB905: ", 3),
    ],
    ids=["librdkafka", "kafkajs", "Empty", "unstable", "share"],
)
def test_a_plan_without_steps_says_what_decides_instead_of_the_same_plan_again(
    members: list[dict[str, Any]], more: dict[str, Any], first: str, code: int
) -> None:
    plan = make_plan(look(0, members, **more), given=Given(plan="p.yaml"))
    assert (plan.path, plan.steps) == ("none", ())
    told = verify(plan, [], look(5, members, **more))
    assert told.next.startswith(first)
    assert (told.exit_code, told.advice.action == "replan") == (code, False)
    assert "--out p.yaml --new-attempt" in told.advice.command
    # Once that is settled, a new plan has a step.
    known = make_plan(look(0, pods(1, 1, list=["range"])), given=Given(plan="p.yaml"))
    told = verify(replace(plan, baseline=known.baseline), [], look(5, pods(1, 1, list=["range"])))
    assert told.advice.action == "replan"
    assert told.next == "make a new plan: this one has no step left"


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


@pytest.mark.usefixtures("no_costs")
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


def finding(severity: Severity, **more: Any) -> Finding:
    return Finding(rule="RB106", severity=severity, message="m", **more)


def test_fail_on_warning_counts_warnings_and_exit_zero_counts_no_finding() -> None:
    warns = [finding(Severity.WARN)]
    perhaps = [finding(Severity.WARN, result=Tri.CANNOT_TELL)]
    ignored = [finding(Severity.WARN, ignored="known")]
    assert judged(0, warns, "block", False) == 0
    assert judged(0, warns, "warning", False) == 3
    assert judged(4, warns, "warning", False) == 3
    assert judged(0, perhaps, "warning", False) == 0
    assert judged(0, ignored, "warning", False) == 0
    assert judged(3, warns, "warning", True) == 0
    assert judged(1, warns, "warning", True) == 1


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (finding(Severity.BLOCK), 3),
        (finding(Severity.BLOCK, result=Tri.CANNOT_TELL), 0),
        (finding(Severity.BLOCK, before_step=1), 0),
        (finding(Severity.BLOCK, ignored="known"), 0),
        (finding(Severity.WARN), 0),
    ],
)
def test_only_a_proven_block_before_any_step_blocks_the_group_as_it_runs(
    found: Finding, code: int
) -> None:
    assert code_as_it_runs([found], GroupState.STABLE) == code


def test_a_dead_group_is_unproven_unless_a_finding_blocks_it() -> None:
    assert code_as_it_runs([], GroupState.DEAD) == 4
    assert code_as_it_runs([finding(Severity.BLOCK)], GroupState.DEAD) == 3
