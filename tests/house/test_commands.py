"""Commands are made of words by `Command`: no other text begins one that a reader would paste."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.modules import ROOMS, ROOT, files, tree

MAKERS = {ROOT / "groups" / "commands.py", ROOT / "planner" / "commands.py"}
"""The modules that make commands of words."""
FILLED = "\x00"
# What follows shows an argument: an option, a name in capitals, a quoted word, a value.
BEGINS = re.compile(
    r"\brebal (?:inspect|groups|diff|doctor|plan-upgrade|verify|simulate|rehearse|explain|show"
    r"|schema|demo|completion|fleet [a-z]+) +(?:--?[a-z]|[A-Z]{2}|['\"$<./]|\x00)"
    r"|\bkafka-[a-z-]+\.sh +(?:--?[a-z]|[a-z]+ -|\x00)"
    r"|\bkubectl (?:-|[a-z]+ (?:[a-z]+ )?(?:\x00|[a-z]+/))"
)
# A usage that names what is not known: no group, plan or broker was given.
UNKNOWN = re.compile(r"rebal inspect GROUP --save|rebal fleet scan --out\b")


def text_of(node: ast.expr) -> str | None:
    """Return the text of a literal, with a mark for each value that is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or FILLED for part in node.values)
    return None


def printed(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the literals that can be printed: all but docstrings, and the docstrings of rules."""
    silent = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            rule = isinstance(node, ast.FunctionDef) and any(
                isinstance(each, ast.Call) and getattr(each.func, "id", "") == "rule"
                for each in node.decorator_list
            )
            if isinstance(first, ast.Expr) and not rule:
                silent.add(first.value)
        if isinstance(node, ast.JoinedStr):
            silent |= set(node.values)
    for node in ast.walk(module):
        if isinstance(node, ast.expr) and node not in silent:
            text = text_of(node)
            if text is not None:
                yield node.lineno, text


def begun(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each printed literal that begins a command."""
    for line, text in printed(module):
        if BEGINS.search(UNKNOWN.sub("", text)):
            yield line, text


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_module_begins_a_command(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {text[:90]!r}"
        for path in files(room)
        if path not in MAKERS
        for line, text in begun(tree(path))
    ]
    assert wrong == [], "make it with planner/commands.py (Given) or groups/commands.py (Command)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("'see rebal inspect GROUP'", True),
        ("f'rebal verify {plan} says when'", True),
        ("'rebal plan-upgrade --to cooperative'", True),
        ("'kafka-configs.sh --alter'", True),
        ("f'{x}: rebal fleet report {folder}'", True),
        ("'kubectl rollout undo deployment/x'", True),
        ("'rebal inspect shows the type'", False),
        ("'with kafka-configs.sh, by an administrator'", False),
    ],
)
def test_a_command_is_told_from_a_mention(text: str, found: bool) -> None:
    assert bool(list(begun(ast.parse(f"x = {text}")))) is found
