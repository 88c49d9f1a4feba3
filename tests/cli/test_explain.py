"""`rebal explain` as it is typed."""

from __future__ import annotations

import json

import pytest

from rebal.cli import app
from rebal.planner.rules import rules

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


def test_an_unknown_rule_is_a_usage_error(capsys: Said) -> None:
    assert app.run(["explain", "RB000"]) == 2
    assert "no rule RB000" in capsys.readouterr().err
