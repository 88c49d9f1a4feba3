"""`rebal explain` as it is typed."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.planner.rules import rules

DEMO = Path(str(files("rebal.cli") / "data" / "demo"))
Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("rule_id", sorted(rules()))
def test_a_rule_is_explained_by_its_own_doc(capsys: Said, rule_id: str) -> None:
    assert app.run(["explain", rule_id.lower()]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{rule_id}  {rules()[rule_id].severity.value}  ")
    assert rules()[rule_id].doc in text
    assert rules()[rule_id].reference in text


def test_without_a_rule_all_are_listed(capsys: Said) -> None:
    assert app.run(["explain"]) == 0
    text = capsys.readouterr().out
    assert all(f"{one.id}  " in text and one.title in text for one in rules().values())


def test_json_lists_every_rule(capsys: Said) -> None:
    assert app.run(["explain", "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["schema"] == "rebal.rules/1"
    assert [one["rule"] for one in body["rules"]] == list(rules())


@pytest.mark.parametrize("prefix", ["org.apache.kafka.clients.consumer.", ""])
def test_a_class_is_accepted_where_an_assignor_is(prefix: str, capsys: Said) -> None:
    snapshot = ["--snapshot", str(DEMO / "shipping.rebal.yaml"), "-o", "json"]
    for words, name in (
        (["simulate", "--assignor"], "range"),
        (["plan-upgrade", "--to"], "cooperative-sticky"),
    ):
        class_name = "".join(part.capitalize() for part in name.split("-")) + "Assignor"
        assert app.run([*words, name, *snapshot]) == 0
        by_name = capsys.readouterr().out
        assert app.run([*words, f"{prefix}{class_name}", *snapshot]) == 0
        assert capsys.readouterr().out == by_name
