"""Predicted standstill against what real members showed: the times that the live tests measure."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = ("tests/live/test_kip848_costs_live.py", "tests/live/test_streams_costs_live.py")


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
        between = f"predicted {self.low:.1f} to {self.high:.1f}"
        return f"{self.case}: {self.real:.1f} s, {between}: {verdict}"


def rows() -> Iterator[Standstill]:
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "standstill.jsonl"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *TESTS],
            env={**os.environ, "CI": "true", "REBAL_FULL": "1", "REBAL_STANDSTILL": str(noted)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"the tests that measure failed: {done.stdout[-2000:]}")
        for line in noted.read_text().splitlines():
            yield Standstill(*json.loads(line))
