"""`rebal diff`: its sides, its screen, its document and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli import app, files
from rebal.groups.model import GroupSnapshot
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from tests.cli.conftest import exact, member

Make = Callable[..., GroupSnapshot]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def before(group: Make, tmp_path: Path) -> Path:
    return files.save_snapshot(group(), tmp_path / "before.yaml")


@pytest.fixture
def after(group: Make, tmp_path: Path) -> Path:
    """The same group: the second member was restarted with both assignors, the third has left."""
    first = group().members[0]
    second = replace(
        member(2, exact("cooperative-sticky", "range"), "4-11"), member_id="checkout-2-new"
    )
    return files.save_snapshot(group(members=(first, second)), tmp_path / "after.json")


@pytest.fixture
def plan(group: Make, tmp_path: Path) -> Path:
    made = tmp_path / "checkout.plan.yaml"
    made.write_text(dump_plan(make_plan(group())))
    return made


@pytest.fixture
def live(group: Make, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the live group is; the reader's questions are appended behind it."""
    asked: list[Any] = [group(assignor="roundrobin")]

    def read_groups(config: Any, names: list[str], **more: Any) -> list[Any]:
        asked.append(names)
        return [asked[0]]

    monkeypatch.setattr("rebal.inspectors.kafka.read.read_groups", read_groups)
    return asked


def test_document_has_every_change(before: Path, after: Path, capsys: Said) -> None:
    assert app.run(["diff", str(before), str(after), "-o", "json", "--exit-code"]) == 3
    body = json.loads(capsys.readouterr().out)
    assert (body["schema"], body["exit_code"], body["found"]) == ("rebal.diff/1", 3, True)
    assert [(one["name"], one["event"]) for one in body["members"]] == [
        ("checkout-3", "left"),
        ("checkout-2", "restarted"),
    ]
    assert body["members"][1]["now"] == "checkout-2-new"
    assert (body["before"]["source"], body["after"]["source"]) == ("snapshot", "snapshot")


@pytest.mark.parametrize("words", [[], ["--exit-code"]])
def test_no_difference_is_said_and_exits_0(words: list[str], before: Path, capsys: Said) -> None:
    assert app.run(["diff", str(before), str(before), *words]) == 0
    assert "no difference: 3 members unchanged" in capsys.readouterr().out


def test_plan_alone_is_compared_with_its_live_group(
    plan: Path, live: list[Any], capsys: Said
) -> None:
    assert app.run(["diff", str(plan), "-b", "k:1", "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert live[1:] == [["checkout"]]
    assert (body["before"]["source"], body["after"]["source"]) == ("plan", "live")
    assert {"what": "assignor", "subject": None, "before": "range", "after": "roundrobin"} in body[
        "group"
    ]
    # What verify calls drift: the plan's lists do not hold the elected assignor.
    assert [change["what"] for change in body["drift"]] == ["assignor"]


def test_plan_that_the_group_has_left_behind_is_called_outdated(
    plan: Path, live: list[Any], capsys: Said
) -> None:
    said = "\noutdated    the elected assignor was range when the plan was made"
    assert app.run(["diff", str(plan), "checkout", "-b", "k:1"]) == 0
    assert said in capsys.readouterr().out
    live[0] = replace(live[0], group=replace(live[0].group, assignor="range"))
    assert app.run(["diff", str(plan), "-b", "k:1"]) == 0
    assert said not in capsys.readouterr().out
