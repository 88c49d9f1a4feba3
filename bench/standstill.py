"""Predicted standstill against what real members showed: the times that the live tests print."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

TESTS = ("tests/live/test_kip848_costs_live.py", "tests/live/test_streams_costs_live.py")
_LINE = re.compile(r"^standstill: (.+): ([\d.]+) <= ([\d.]+) <= ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Standstill:
    """One measured standstill between its predicted limits, in (partition-)seconds."""

    case: str
    low: float
    real: float
    high: float

    @property
    def holds(self) -> bool:
        return self.low <= self.real <= self.high

    def text(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return f"{self.case}: {self.real:g} s, predicted {self.low:g} to {self.high:g}: {verdict}"


def rows() -> Iterator[Standstill]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", *TESTS],
        env={**os.environ, "CI": "true", "REBAL_FULL": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the tests that measure failed: {done.stdout[-2000:]}")
    for case, *limits in _LINE.findall(done.stdout):
        yield Standstill(case, *map(float, limits))
