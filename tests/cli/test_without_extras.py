"""The main job needs no package of the extra `fleet`."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = ("jinja2", "numpy", "pandas", "pyarrow", "pyspark", "deltalake")
PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))
from rebal.cli import app
sys.exit(app.run(["demo"]))
"""


def test_the_demo_runs_without_the_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "fault of rebal" not in done.stderr
    assert "next:       restart checkout-3" in done.stdout
