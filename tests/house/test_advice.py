"""Only one module tells anybody to restart, start or stop a member."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.modules import ROOMS, ROOT, files, tree

WORDS = ROOT / "planner" / "advice" / "wording.py"
# An imperative at the beginning of a clause, with whom or what it concerns.
TELLS = re.compile(
    r"(?:^|[.:;,] |\bor |\band |\bthen |\bfirst )"
    r"(?:[Rr]estart|[Ss]tart|[Ss]top|[Bb]ring back|[Rr]estore)"
    r"(?: (?:it|them|all|every|each|any|one|the|these|this|that|only|with|again|member)\b| $| \{)"
)
# What forbids something needs no admission.
FORBIDS = re.compile(r"[Rr]estart nothing|[Ss]top the old process first|will not start")
# What members do by themselves is a fact.
FACTS = re.compile(r"run EAGER (?:from then on )?and stop all")


def told(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Each text that tells somebody to restart, by its line; docstrings do not count."""
    holders = (ast.FunctionDef, ast.ClassDef, ast.Module)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            text = FACTS.sub("", FORBIDS.sub("", node.value))
            if TELLS.search(text):
                yield node.lineno, node.value


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_module_words_a_restart(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {text[:80]!r}"
        for path in files(room)
        if path != WORDS
        for line, text in told(tree(path))
    ]
    assert wrong == [], (
        "ask planner/advice/actions.py, whose words are in planner/advice/wording.py"
    )


def test_the_module_of_the_words_decides_nothing() -> None:
    assert "admitted" not in {
        node.id for node in ast.walk(tree(WORDS)) if isinstance(node, ast.Name)
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Restart it with that list.", True),
        ("do this; then start them with the old one", True),
        ("wait, then stop all of them", True),
        ("restore the old list", True),
        ("Restart nothing before that is known.", False),
        ("each restart costs a rebalance", False),
    ],
)
def test_an_instruction_to_restart_is_told_from_a_fact(text: str, found: bool) -> None:
    assert bool(list(told(ast.parse(f"x = {text!r}")))) is found
