"""The budgets of test files: tests/durations.json."""

from __future__ import annotations

import json

from tests.durations import TABLE, USUAL, above
from tests.pages import ROOT

BUDGETS: dict[str, int] = json.loads(TABLE.read_text())


def test_the_table_names_the_slow_files_of_today() -> None:
    gone = [name for name in BUDGETS if not (ROOT / name).is_file()]
    assert gone == [], "`python -m tests.durations` makes the table anew after a run of .ci/run"
    assert min(BUDGETS.values()) > USUAL


def test_a_file_far_above_its_budget_is_named() -> None:
    took = {"a.py": 71.0, "b.py": 69.0, "c.py": 400.0}
    assert above(took, {"c.py": 100}) == ["a.py (71 s of 10)"]
    assert above(took, {"c.py": 90}) == ["a.py (71 s of 10)", "c.py (400 s of 90)"]
