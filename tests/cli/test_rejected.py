"""A client that the coordinator rejects leads every screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from rebal.groups.snapshot.documents import dump_snapshot
from tests.planner.builder import group_of
from tests.planner.looks import look, pods

RANGE = {"members": [{"id": "a", "list": ["range"]}, {"id": "b", "list": ["range"]}]}
REJECTED = {"client": "c", "list": ["cooperative-sticky"]}
Said = pytest.CaptureFixture[str]


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    def save(spec: dict[str, Any]) -> str:
        file = tmp_path / "group.yaml"
        file.write_text(dump_snapshot(group_of(spec)))
        return str(file)

    return save


def test_inspect_names_the_rejected_client_first_and_exits_3(saved: Any, capsys: Said) -> None:
    file = saved({**RANGE, "refusals": [REJECTED]})
    assert app.run(["inspect", "--snapshot", file]) == 3
    text = capsys.readouterr().out
    first = text.splitlines()[0]
    assert first.startswith("REJECTED    RB904 c was rejected once")
    assert text.count("RB904") == 1
    assert "before step 2  RB904" not in text
    assert app.run(["inspect", "--snapshot", file, "-o", "json"]) == 3
    body = json.loads(capsys.readouterr().out)
    assert body["exit_code"] == 3
    found = body["groups"][0]["findings"][0]
    assert (found["rule"], found["urgent"]) == ("RB904", True)


def test_a_rejection_that_is_not_proven_to_repeat_is_first_and_exits_4(
    saved: Any, capsys: Said
) -> None:
    file = saved({**RANGE, "refusals": [{"client": "c", "list": []}]})
    assert app.run(["inspect", "--snapshot", file]) == 4
    assert "may be rejected again" in " ".join(capsys.readouterr().out.split("\n\n")[0].split())


def test_a_group_without_a_rejection_exits_0(saved: Any, capsys: Said) -> None:
    assert app.run(["inspect", "--snapshot", saved(RANGE)]) == 0
    assert "REJECTED" not in capsys.readouterr().out


@pytest.mark.parametrize("more", [(), ("--details",)])
def test_a_plan_names_the_rejected_client_first(
    saved: Any, capsys: Said, more: tuple[str, ...]
) -> None:
    app.run(["plan-upgrade", "--snapshot", saved({**RANGE, "refusals": [REJECTED]}), *more])
    text = capsys.readouterr().out
    assert text.startswith("REJECTED    RB904 c was rejected once")
    assert text.count("RB904 c was rejected once") == 1 + bool(more)


def test_a_plan_does_not_lead_with_a_rejection_that_is_ignored(saved: Any, capsys: Said) -> None:
    file = saved({**RANGE, "refusals": [REJECTED]})
    words = ["--ignore", "RB904", "--reason", "an old canary"]
    app.run(["plan-upgrade", "--snapshot", file, *words])
    assert "REJECTED" not in capsys.readouterr().out


def test_verify_names_the_rejected_client_first_and_exits_3(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("before.yaml").write_text(dump_snapshot(look(0, pods(1, 1, 1))))
    app.run(["plan-upgrade", "--snapshot", "before.yaml", "--out", "a.plan.yaml"])
    after = look(5, pods(1, 1), refusals=[{"client": "app-2", "list": ["sticky"], "at": 4}])
    Path("after.yaml").write_text(dump_snapshot(after))
    capsys.readouterr()
    assert app.run(["verify", "a.plan.yaml", "--snapshot", "after.yaml"]) == 3
    text = capsys.readouterr().out
    assert text.startswith("REJECTED    app-2 [sticky]: rejected")
    assert "\nDANGER" in text
    assert text.count(": rejected (") == 1
