"""`rebal diff`: its sides, its screen, its document and its exit codes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rebal.cli import files
from rebal.groups.model import GroupSnapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from tests.cli.conftest import Live, Rebal

Make = Callable[..., GroupSnapshot]


@pytest.fixture
def before(group: Make, tmp_path: Path) -> Path:
    return files.save_snapshot(group(), tmp_path / "before.yaml")


@pytest.fixture
def plan(group: Make, tmp_path: Path) -> Path:
    made = tmp_path / "checkout.plan.yaml"
    made.write_text(dump_plan(make_plan(group())))
    return made


def test_document_has_every_change(group: Make, before: Path, tmp_path: Path, rebal: Rebal) -> None:
    after = files.save_snapshot(group(members=group().members[:2]), tmp_path / "after.json")
    body = rebal("diff", str(before), str(after), "-o", "json", "--exit-code", code=3).body
    assert (body["schema"], body["exit_code"], body["found"]) == ("rebal.diff/1", 3, True)
    assert [(one["name"], one["event"]) for one in body["members"]] == [("checkout-3", "left")]
    assert (body["before"]["source"], body["after"]["source"]) == ("snapshot", "snapshot")


@pytest.mark.parametrize("words", [[], ["--exit-code"]])
def test_no_difference_is_said_and_exits_0(words: list[str], before: Path, rebal: Rebal) -> None:
    said = rebal("diff", str(before), str(before), *words)
    assert "no difference: 3 members unchanged" in said.out


def test_plan_alone_is_compared_with_its_live_group(
    group: Make, plan: Path, live: Live, rebal: Rebal
) -> None:
    """What verify calls drift: the plan's lists do not hold the elected assignor."""
    live.show(group(assignor="roundrobin"))
    body = rebal("diff", str(plan), "-b", "k:1", "-o", "json").body
    assert [names for names, _ in live.asked] == [["checkout"]]
    assert (body["before"]["source"], body["after"]["source"]) == ("plan", "live")
    changed = {"what": "assignor", "subject": None, "before": "range", "after": "roundrobin"}
    assert changed in body["group"]
    assert [change["what"] for change in body["drift"]] == ["assignor"]
    said = "\noutdated    the elected assignor was range when the plan was made"
    assert said in rebal("diff", str(plan), "checkout", "-b", "k:1").out
    live.show(group())
    assert said not in rebal("diff", str(plan), "-b", "k:1").out
