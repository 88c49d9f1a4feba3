"""Sizes: statements of each package, lines of each module, seconds of each test file.

Their budgets are tests/house/budget.yaml and tests/durations.json.
"""

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.durations import TABLE, USUAL, above
from tests.house.modules import ROOMS, ROOT, files, tree

BUDGET: dict[str, int] = yaml.safe_load(Path(__file__).with_name("budget.yaml").read_text())
# How far below its budget a package may fall before the budget is lowered.
SLACK = 20
RULE = re.compile(r"rb\d+\.py")


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


@pytest.mark.parametrize("folder", [*ROOMS, "tests", "bench", "examples"])
def test_a_module_has_40_to_600_lines(folder: str) -> None:
    lines = {path: len(path.read_text().splitlines()) for path in files(folder)}
    assert lines, f"{folder}/ has no modules"
    assert [path for path, count in lines.items() if count > 600] == []
    short = [path for path, count in lines.items() if count < 40 and folder in ROOMS]
    whole = [one for one in short if one.name != "__init__.py" and not RULE.fullmatch(one.name)]
    assert whole == [], "merge it with the module that has the same idea"


def test_the_table_names_the_slow_files_of_today() -> None:
    seconds: dict[str, int] = json.loads(TABLE.read_text())
    gone = [name for name in seconds if not (ROOT / name).is_file()]
    assert gone == [], "`python -m tests.durations` makes the table anew after a run of .ci/run"
    assert min(seconds.values()) > USUAL


def test_a_file_far_above_its_seconds_is_named() -> None:
    took = {"a.py": 71.0, "b.py": 69.0, "c.py": 400.0}
    assert above(took, {"c.py": 100}) == ["a.py (71 s of 10)"]
    assert above(took, {"c.py": 90}) == ["a.py (71 s of 10)", "c.py (400 s of 90)"]
