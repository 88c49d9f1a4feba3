"""The short screen of `rebal plan-upgrade`: its length, and what it never folds."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli.output import render
from rebal.cli.render.plans.screen import plan_view
from rebal.groups.model import (
    DeclaredAssignors,
    Evidence,
    GroupSnapshot,
    KubernetesWorkload,
    Source,
)
from rebal.groups.snapshot.documents import load_snapshot
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan, Severity
from tests.planner.builder import group_of
from tests.planner.every_path import PLANS, java, pods
from tests.planner.plans import BOTH, RANGE, plan

FAMILIES = ("java", "franz-go", "sarama")


def screen(made: Plan, width: int = 80, **more: Any) -> str:
    return render(plan_view(made, **more), width=width)


@pytest.mark.parametrize("path", PLANS)
def test_four_healthy_members_take_40_lines_at_80_columns(path: str) -> None:
    made = PLANS[path]()
    text = screen(made)
    families = {setting.family for step in made.steps for setting in step.config}
    assert text.count("\n") <= 40 + max(0, len(families) - 1), text
    for part in re.split(r"\n(?=\d  )", text)[1:]:
        step = part.split("\n\n")[0]
        assert step.count("\n") + 1 <= 14, step


def steps_of(text: str) -> list[list[str]]:
    """The lines of each step, from its title to the blank line that follows."""
    parts = re.split(r"\n(?=\d  )", text)[1:]
    return [part.split("\n\n")[0].strip("\n").splitlines() for part in parts]


@cache
def bundled() -> dict[str, GroupSnapshot]:
    folder = files("rebal.cli") / "data" / "demo"
    found = sorted(one.name for one in folder.iterdir() if one.name.endswith(".rebal.yaml"))
    return {name: load_snapshot((folder / name).read_text(), "yaml") for name in found}


@pytest.mark.parametrize("goal", ["cooperative", "eager", "consumer"])
@pytest.mark.parametrize("name", bundled())
def test_a_step_of_a_bundled_group_takes_six_lines_at_80_columns(name: str, goal: str) -> None:
    """Its title, the members, the configuration, the cost, the gate and the rollback.

    A configuration of several lines takes as many.
    """
    made = make_plan(bundled()[name], goal)
    text = screen(made)
    found = steps_of(text)
    assert len(found) == len(made.steps)
    for step, lines in zip(made.steps, found, strict=True):
        if len(lines) == 1:
            assert " done (" in lines[0]
            continue
        labels = [line[3:11].strip() for line in lines[1:]]
        labels = labels[: labels.index("not yet")] if "not yet" in labels else labels
        settings = labels.count("")
        assert [label for label in labels if label] == ["to do", "with", "cost", "gate", "rollback"]
        assert len(labels) - settings == 5
        assert settings == 0 or goal == "consumer"
        config = {line for one in step.config for line in one.text.splitlines()}
        wide = [line[13:] for line in lines if len(line) > 80]
        assert set(wide) <= config, "only configuration is longer than 80 columns"
    if any(len(lines) > 1 for lines in found):
        assert len(re.findall("^how  ", text, re.MULTILINE)) == 1


def test_a_step_names_as_many_members_as_there_is_room_for() -> None:
    members = [java(f"checkout-consumer-7d9f8b6c5d-{n:05}") for n in range(4)]
    lines = steps_of(screen(plan(members)))[0]
    assert lines[1].endswith("checkout-consumer-7d9f8b6c5d-00000 and 3 more")
    assert lines[2].startswith("   with ")
    wide = screen(plan(members), wide=True)
    assert all(f"7d9f8b6c5d-{n:05}" in wide for n in range(4))


@pytest.mark.parametrize("further", [1, 2])
def test_each_further_client_family_takes_one_more_line(further: int) -> None:
    def made(families: tuple[str, ...]) -> str:
        members = [
            java(f"m-{n}", family=families[n % len(families)], version=None) for n in range(4)
        ]
        return screen(plan(members))

    one, more = made(FAMILIES[:1]), made(FAMILIES[: 1 + further])
    settings = [line for line in more.splitlines() if re.match(r"   (java|franz-go|sarama) ", line)]
    steps = one.count("   with ")
    assert len(settings) == steps * (1 + further)
    assert more.count("   with ") == 0


@pytest.mark.parametrize(
    "path",
    [
        "half-way",
        "static",
        pytest.param("range", marks=pytest.mark.full),
        pytest.param("unknown", marks=pytest.mark.full),
    ],
)
def test_two_hundred_members_take_60_lines(path: str) -> None:
    lists = {"half-way": [BOTH, RANGE], "unknown": [None]}.get(path, [RANGE])
    static = path == "static"
    members = [
        java(f"shipping-{n}", lists[n % len(lists)], instance=f"i-{n}" if static else None)
        for n in range(200)
    ]
    made = plan(members, topics={"orders": 400})
    text = screen(made)
    assert text.count("\n") <= 60, text
    assert re.search(r"and (19[4-9]|9[4-9]) more\b", text)
    later = sum(len(lines) - 6 for lines in steps_of(text))
    assert (later > 0) == (path == "half-way"), "what blocks step 2 stands with it"
    wide = screen(made, 4000, wide=True)
    assert "shipping-199" in wide or "i-199" in wide


def test_a_surge_is_named_with_its_workload() -> None:
    workload = KubernetesWorkload(kind="Deployment", name="orders", namespace="shop")
    source = Evidence(source=Source.CONFIG_FILE, detail="k.yaml", workload=workload)
    declared = DeclaredAssignors(list=("range",), max_surge="25%", evidence=source)
    snapshot = group_of({"members": pods(2)})
    members = tuple(replace(member, declared=declared) for member in snapshot.members)
    text = " ".join(screen(make_plan(replace(snapshot, members=members))).split())
    assert "Deployment orders: pause autoscaler and GitOps sync; set maxSurge 0" in text
    assert "and maxUnavailable 1 (maxSurge is 25%)" in text


def test_three_blocking_findings_are_whole_and_the_others_are_counted() -> None:
    made = plan(
        [java("a", None), java("b", RANGE), java("c", None, family="sarama", declared=["x"])],
        expect_members=9,
        elected="own",
    )
    block = next(f for f in made.findings if f.rule == "RB101")
    blocks = [replace(block, message=f"cause {n} of what stands in the way") for n in range(5)]
    made = replace(made, findings=tuple(blocks))
    text = screen(made)
    assert f"and {len(blocks) - 3} more: " in text
    assert sum(f.message[:30] in " ".join(text.split()) for f in blocks) >= 3


def test_warnings_are_one_line_each_and_questions_one_block() -> None:
    made = plan(pods(4, version="2.8.2"))
    text = screen(made)
    warned = {f.rule for f in made.findings if f.severity is Severity.WARN}
    assert warned
    for rule in warned:
        assert len(re.findall(rf"^warning +{rule} .*$", text, re.MULTILINE)) == 1
    asks = sum(f.severity is Severity.ASK for f in made.findings)
    assert re.search(rf"^Check before you start: {asks} questions, .*: --details$", text, re.M)
    assert not re.search(r"^ask ", text, re.MULTILINE)


def test_the_hint_is_a_whole_command_where_the_plan_has_a_file(tmp_path: Any) -> None:
    file = tmp_path / "a plan.yaml"
    given = Given(plan=str(file))
    text = screen(make_plan(group_of({"members": pods(4)}), given=given), 40)
    assert f": rebal show '{file}' --details\n" in text


def test_the_details_hold_what_the_short_screen_folds() -> None:
    made = PLANS["two bounces, half-way"]()
    short, whole = screen(made), " ".join(screen(made, details=True).split())
    for finding in made.findings:
        assert " ".join(finding.message.split()) in whole
    for line in (*made.not_checked, *made.steps[0].why, *made.steps[0].order):
        assert " ".join(line.split()) in whole
    assert made.steps[0].gate.shows in whole
    assert "pace takes" in whole
    assert "pace takes" not in " ".join(short.split())


def test_a_member_that_left_is_named_on_the_first_screen_before_the_general_questions() -> None:
    members: dict[str, Any] = {"members": [java("a1", RANGE)]}
    plain = screen(make_plan(group_of(members)))
    assert "ask" not in plain
    assert "8 questions" in plain
    for names, line in (
        (RANGE, "step 2: cannot tell  RB121 a2 left 4 min ago with [range]: does it belong"),
        (BOTH, "ask                  RB120 a2 left 4 min ago with [cooperative-sticky, range]"),
    ):
        gone = [{"id": "a2", "list": names, "at": -4, "left": True}]
        text = screen(make_plan(group_of({**members, "departed": gone})), width=200)
        assert line.split("  ")[-1] in text
        assert line.split("  ")[0] in text
        assert "→ Add --expect-members 2 if it belongs to the service, --departed a2 if" in text
        assert text.index("a2 left") < text.index("8 questions")
