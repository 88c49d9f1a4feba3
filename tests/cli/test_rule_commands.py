"""What the rules print to be run: complete commands, which the real command line parses."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from rebal.cli import app
from rebal.planner.commands import READ_MORE, Given
from rebal.planner.rules import rules
from tests.planner.builder import context_of
from tests.planner.rule_cases import cases_of

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
