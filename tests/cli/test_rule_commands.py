"""What the rules print: `rebal explain`, and commands that the real command line parses."""

import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from rebal.planner.commands import READ_MORE, Given
from rebal.planner.rules import rules
from tests.cli.conftest import Rebal
from tests.planner.builder import context_of
from tests.planner.rule_cases import cases_of

DEMO = Path(str(files("rebal.cli") / "data" / "demo"))
TYPED = Given(connection=("-b", "h:1"), evidence=("--probe",), plan="p.yaml", brokers="h:1")
FILLED_IN = re.compile(r"CLIENT_ID|FAMILY|\b[A-Z_]{3,}=|=[A-Z_]{3,}\b(?<!=DEBUG)|HOST:PORT")


@pytest.mark.parametrize("rule", sorted(rules()))
def test_the_commands_of_a_rule_have_no_placeholder_and_are_parsed(rule: str) -> None:
    groups = [case["group"] for case in cases_of(rule, "fires", "cannot_tell")]
    for finding in (
        each for group in groups for each in rules()[rule].check(context_of(group, given=TYPED))
    ):
        for text in (finding.fix, *(one.line for one in finding.commands)):
            assert FILLED_IN.search(text) is None, text
        for one in finding.commands:
            program, name, *words = shlex.split(one.line)
            if program == "rebal":
                command: Any = app.build().commands[name]
                command.load().make_context(name, words)


def test_a_client_that_is_not_proven_gets_a_command_for_each_client_it_may_be() -> None:
    members = [
        {"id": "a", "family": None, "left": "java >= 3.4 or franz-go"},
        {"id": "b b", "guess": True, "bytes": None},
        {"id": "c", "family": None, "bytes": None},
    ]
    context = context_of({"planning": True, "members": members}, given=TYPED)
    unknown, guessed = rules()["RB906"].check(context)
    assert "sarama, segmentio can stand in it too)" in unknown.fix
    assert "if c runs java" in {each.use for each in unknown.commands}
    (one,) = [each for each in guessed.commands if each.use != READ_MORE]
    assert one.use == "if b b runs java"
    assert shlex.split(one.line)[-2:] == ["--assume-family", "b b=java"]

    (named,) = rules()["RB907"].check(context)
    lines = {one.use: one.line for one in named.commands}
    assert list(lines) == ["if a, b b run java", "if a runs franz-go"]
    assert lines["if a runs franz-go"].endswith(" --assume-family a=franz-go")


def test_a_rule_is_explained_by_its_own_doc_and_all_are_listed(rebal: Rebal) -> None:
    for rule_id, rule in rules().items():
        text = rebal("explain", rule_id.lower()).out
        assert text.startswith(f"{rule_id}  {rule.severity.value}  ")
        assert rule.doc in text
        assert rule.reference in text
    text = rebal("explain").out
    assert all(f"{one.id}  " in text and one.title in text for one in rules().values())
    assert [one["rule"] for one in rebal("explain", "-o", "json").body["rules"]] == list(rules())


@pytest.mark.parametrize("prefix", ["org.apache.kafka.clients.consumer.", ""])
def test_a_class_is_accepted_where_an_assignor_is(prefix: str, rebal: Rebal) -> None:
    snapshot = ["--snapshot", str(DEMO / "shipping.rebal.yaml"), "-o", "json"]
    for words, name in (
        (["simulate", "--assignor"], "range"),
        (["plan-upgrade", "--to"], "cooperative-sticky"),
    ):
        class_name = "".join(part.capitalize() for part in name.split("-")) + "Assignor"
        assert rebal(*words, f"{prefix}{class_name}", *snapshot) == rebal(*words, name, *snapshot)
