"""Statements of each package: none has more than tests/house/budget.yaml allows."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.house.modules import ROOMS, ROOT, files, tree

BUDGET: dict[str, int] = yaml.safe_load(Path(__file__).with_name("budget.yaml").read_text())
# How far below its budget a package may fall before the budget is lowered.
SLACK = 20


def statements() -> Counter[str]:
    """Return the statements of each package, docstrings included; a room's own files are its."""
    found: Counter[str] = Counter()
    for path in (path for room in ROOMS for path in files(room)):
        folders = path.relative_to(ROOT).parts[:-1]
        count = sum(isinstance(node, ast.stmt) for node in ast.walk(tree(path)))
        found["/".join(folders[:2])] += count
    return found


FOUND = statements()


def test_each_package_has_a_budget() -> None:
    assert {name for name, count in FOUND.items() if count} == BUDGET.keys()


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_keeps_its_budget(package: str) -> None:
    count, most = FOUND[package], BUDGET[package]
    assert count <= most, "say less, or raise the budget and write the reason beside it"
    assert count >= most - SLACK, f"lower the budget to {count}"
