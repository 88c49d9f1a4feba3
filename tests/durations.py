"""The time that each test file takes: tests/durations.json, made by CI and held by CI.

With CI=true a run writes build/durations.json, and fails where a file takes far longer than its
budget there: more than four times as long and half a minute, since machines differ.
`python -m tests.durations` makes the table anew from the runs since the last `make clean`.
"""

import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[1]
TABLE: Final = _ROOT / "tests/durations.json"
"""Seconds by file, of those that take more than `USUAL`."""
_MEASURED: Final = _ROOT / "build/durations.json"
USUAL: Final = 10
"""The budget in seconds of a file that is not in the table."""
_TIMES, _SPARE = 4, 30


class Durations:
    """The seconds of each file in this run, set-up and end of its tests included."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test's part, also one that a worker of pytest-xdist reports."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep the figures, and fail the run where a file is far above its budget."""
        _MEASURED.parent.mkdir(exist_ok=True)
        measured = Counter(json.loads(_MEASURED.read_text()) if _MEASURED.exists() else {})
        # A file has live tests beside its pure ones, which run apart: the longer part counts.
        _MEASURED.write_text(json.dumps(measured | self._seconds, indent=1, sort_keys=True))
        slow = above(self._seconds, json.loads(TABLE.read_text()))
        if slow:
            print(f"\nfar above their budgets in tests/durations.json: {', '.join(slow)}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def above(seconds: dict[str, float], budgets: dict[str, int]) -> list[str]:
    """Return the files that took far longer than their budgets, with both figures."""
    return [
        f"{file} ({took:.0f} s of {budgets.get(file, USUAL)})"
        for file, took in sorted(seconds.items())
        if took > _TIMES * budgets.get(file, USUAL) + _SPARE
    ]


def main() -> None:
    """Write the table from the figures of the newest runs."""
    measured = json.loads(_MEASURED.read_text())
    table = {file: math.ceil(took) for file, took in sorted(measured.items()) if took > USUAL}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
