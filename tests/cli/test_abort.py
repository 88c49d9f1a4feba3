"""`rebal verify --abort`: the way back from exactly this moment, and `--until` as it is typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.goals import goal_back
from rebal.planner.paths import make_plan
from rebal.planner.plan import Aim, Plan, dump_plan, load_plan
from tests.planner.looks import look, pods

Said = pytest.CaptureFixture[str]
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]
BEFORE = look(0, pods(1, 1, list=["range"]))
LOOKS = {
    "untouched": BEFORE,
    "half": look(1, [pods(2, 1, list=MIXED)[0], pods(2, 1, list=["range"])[1]]),
    "ready": look(2, pods(2, 2, list=MIXED), elected="cooperative-sticky"),
    "narrowed": look(
        3, [pods(3, 2, list=FINAL)[0], pods(3, 2, list=MIXED)[1]], elected="cooperative-sticky"
    ),
    "finished": look(4, pods(3, 3, list=FINAL), elected="cooperative-sticky"),
}


@pytest.fixture
def folder(here: Path) -> Path:
    """A plan of two bounces, and the group at five moments of its roll-out."""
    Path("a.plan.yaml").write_text(dump_plan(make_plan(BEFORE)))
    for name, seen in LOOKS.items():
        Path(f"{name}.yaml").write_text(dump_snapshot(seen))
    return here


def back(capsys: Said, name: str, *more: str) -> tuple[int, Plan]:
    words = ["verify", "a.plan.yaml", "--snapshot", f"{name}.yaml", "--abort"]
    code = app.run([*words, *more, "-o", "yaml"])
    return code, load_plan(capsys.readouterr().out, "yaml")


@pytest.mark.parametrize("name", LOOKS)
def test_the_way_back_is_the_plan_to_what_ran_before(folder: Path, capsys: Said, name: str) -> None:
    code, found = back(capsys, name)
    assert found == make_plan(LOOKS[name], "range", expect_members=2, given=found.given)
    assert (found.target, found.exit_code) == ("range", code)
    assert not any(folder.glob("*.jsonl")), "asking for the way back is no look of the roll-out"


def test_the_plan_is_kept_and_its_commands_name_it(folder: Path, capsys: Said) -> None:
    words = ["verify", "a.plan.yaml", "--snapshot", "narrowed.yaml", "--abort", "--out", "b.yaml"]
    code = app.run([*words, "--journal", "a.jsonl"])
    said = capsys.readouterr()
    kept = load_plan(Path("b.yaml").read_text(), "yaml")
    assert kept.exit_code == code
    gates = [step.gate.command for step in kept.steps]
    assert all("verify b.yaml" in each and "a.jsonl" not in each for each in gates)
    assert "a.plan.yaml" not in said.out
    assert "the way back from COOPERATIVE to EAGER" in said.err
    Path("b.yaml.journal.jsonl").write_text("")
    assert app.run(words) == 2, "its roll-out is under way"


def test_the_goal_is_what_the_group_ran_when_the_plan_was_made() -> None:
    other = look(0, pods(1, 1, list=["range"]), elected="roundrobin")
    assert goal_back(make_plan(other)) == "roundrobin"
    ran = look(0, pods(1, 1, list=FINAL), elected="cooperative-sticky")
    assert goal_back(make_plan(ran, "eager")) == "cooperative-sticky"
    for version, before in (("2.3.1", "eager"), ("4.1.1", "cooperative")):
        instances = pods(1, 1, list=["stream"], family="streams", version=version)
        made = make_plan(look(0, instances, elected="stream"), "cooperative")
        assert goal_back(made) == before, "the assignor of Kafka Streams is no goal"
    empty = look(0, [], elected=None, state="Empty")
    assert goal_back(make_plan(empty)) == "eager"


def test_back_from_a_plan_that_began_at_the_second_bounce_is_not_forward() -> None:
    """Mixed lists had elected the target already, and every member ran EAGER."""
    mixed = look(0, pods(1, 1, list=["cooperative-sticky", "sticky"]), elected=FINAL[0])
    made = make_plan(mixed)
    assert (made.next_step, goal_back(made)) == (2, "sticky")
    unknown = look(0, pods(1, 1, declared=MIXED), elected=FINAL[0])
    assert goal_back(make_plan(unknown)) == "range"
    assert goal_back(make_plan(mixed, "range")) == "sticky"


def test_a_risk_taken_on_the_way_is_not_taken_on_the_way_back(folder: Path, capsys: Said) -> None:
    """The coordinator may hold [cooperative-sticky] alone: it would reject [range] (RB113)."""
    ignore = {"RB113": "restarts were timed", "RB115": "no joins"}
    Path("a.plan.yaml").write_text(dump_plan(make_plan(BEFORE, ignore=ignore)))
    loaded = look(2, pods(2, 2, list=MIXED), elected="cooperative-sticky", reloaded=True)
    Path("ready.yaml").write_text(dump_snapshot(loaded))
    _, found = back(capsys, "ready")
    assert found.accepted.ignore == {"RB115": "no joins"}
    first = found.step(found.next_step)
    assert first is not None
    assert first.aim is Aim.REFRESH
    _, again = back(capsys, "ready", "--ignore", "RB113", "--reason", "timed again")
    assert again.accepted.ignore == {"RB115": "no joins", "RB113": "timed again"}


def test_the_printed_command_plans_the_same_way_back(folder: Path, capsys: Said) -> None:
    """No list shows sticky any longer, so `--to eager` would lead to range."""
    before = look(0, pods(1, 1, list=["sticky"]), elected="sticky")
    Path("a.plan.yaml").write_text(dump_plan(make_plan(before)))
    _, found = back(capsys, "finished")
    assert found.target == "sticky"
    words = shlex.split(found.advice.command)[1:]
    assert words[:3] == ["verify", "a.plan.yaml", "--abort"]
    assert app.run([*words, "-o", "yaml"]) == found.exit_code
    assert load_plan(capsys.readouterr().out, "yaml").target == "sticky"
    assert make_plan(LOOKS["finished"], "eager").target == "range"
