"""`rebal explain` as it is typed."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.planner.rules import rules
from tests.documents import checked

DEMO = Path(str(files("rebal.cli") / "data" / "demo"))
Said = pytest.CaptureFixture[str]


def test_a_rule_is_explained_by_its_own_doc_and_all_are_listed(capsys: Said) -> None:
    for rule_id, rule in rules().items():
        assert app.run(["explain", rule_id.lower()]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"{rule_id}  {rule.severity.value}  ")
        assert rule.doc in text
        assert rule.reference in text
    assert app.run(["explain"]) == 0
    text = capsys.readouterr().out
    assert all(f"{one.id}  " in text and one.title in text for one in rules().values())
    assert app.run(["explain", "-o", "json"]) == 0
    assert [one["rule"] for one in checked(capsys.readouterr().out)["rules"]] == list(rules())


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
