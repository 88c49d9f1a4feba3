"""Two things are worded in one place: restarts, and commands that a reader would paste."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.modules import ROOMS, ROOT, files, rule_pages, texts, tree

WORDS = ROOT / "planner" / "advice" / "wording.py"
MAKERS = {ROOT / "groups" / "commands.py", ROOT / "planner" / "commands.py"}
"""The modules that make commands of words."""
# An imperative at the beginning of a clause, with whom or what it concerns.
TELLS = re.compile(
    r"(?:^|[.:;,] |\x00|\bor |\band |\bthen |\bfirst )"
    r"(?:[Rr]estart|[Ss]tart|[Ss]top|[Bb]ring back|[Rr]estore)"
    r"(?: (?:it|them|all|every|each|any|one|the|these|this|that|only|with|again|member)\b| $| \x00)"
)
# What forbids something needs no admission.
FORBIDS = re.compile(r"[Rr]estart nothing|[Ss]top the old process first|will not start")
# What members do by themselves is a fact.
FACTS = re.compile(r"run EAGER (?:from then on )?and stop all")
# What follows shows an argument: an option, a name in capitals, a quoted word, a value.
BEGINS = re.compile(
    r"\brebal (?:inspect|groups|diff|doctor|plan-upgrade|verify|simulate|rehearse|explain|show"
    r"|schema|demo|completion|fleet [a-z]+) +(?:--?[a-z]|[A-Z]{2}|['\"$<./]|\x00)"
    r"|\bkafka-[a-z-]+\.sh +(?:--?[a-z]|[a-z]+ -|\x00)"
    r"|\bkubectl (?:-|[a-z]+ (?:[a-z]+ )?(?:\x00|[a-z]+/))"
)
# A usage that names what is not known: no group, plan or broker was given.
UNKNOWN = re.compile(r"rebal inspect GROUP --save|rebal fleet scan --out\b")


def told(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text that tells somebody to restart, start or stop a member."""
    for line, text in texts(module):
        if TELLS.search(FACTS.sub("", FORBIDS.sub("", text))):
            yield line, text


def begun(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text that begins a command; a rule's page is one."""
    for line, text in (*texts(module), *rule_pages(module)):
        if BEGINS.search(UNKNOWN.sub("", text)):
            yield line, text


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize(
    ("found", "but", "do"),
    [
        (told, {WORDS}, "ask planner/advice/actions.py, whose words are in wording.py beside it"),
        (begun, MAKERS, "make it with planner/commands.py (Given) or groups/commands.py (Command)"),
    ],
    ids=["restarts", "commands"],
)
def test_no_other_module_words_it(
    room: str, found: Callable[[ast.Module], Iterator[tuple[int, str]]], but: set[Path], do: str
) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {text[:90]!r}"
        for path in files(room)
        if path not in but
        for line, text in found(tree(path))
    ]
    assert wrong == [], do


def test_the_module_of_the_words_decides_nothing() -> None:
    assert "admitted" not in {
        node.id for node in ast.walk(tree(WORDS)) if isinstance(node, ast.Name)
    }


@pytest.mark.parametrize(
    ("text", "tells", "begins"),
    [
        ("'Restart it with that list.'", True, False),
        ("f'wait, then stop {name}'", True, False),
        ("'Restart nothing before that is known.'", False, False),
        ("'each restart costs a rebalance'", False, False),
        ("f'rebal verify {plan} says when'", False, True),
        ("'kafka-configs.sh --alter'", False, True),
        ("'kubectl rollout undo deployment/x'", False, True),
        ("'with kafka-configs.sh, by an administrator'", False, False),
    ],
)
def test_an_instruction_and_a_command_are_told_from_a_mention(
    text: str, tells: bool, begins: bool
) -> None:
    module = ast.parse(f"x = {text}")
    assert (any(told(module)), any(begun(module))) == (tells, begins)
