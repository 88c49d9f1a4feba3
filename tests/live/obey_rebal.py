"""`Rebal`: rebal's commands in one child process that stays, so that each look is quick.

A process of its own, because librdkafka may abort it (confluentinc/librdkafka#4605): then that look
has failed, as an operator's would, and the next one begins in a new process.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

_PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from rebal.cli import app
answers = sys.stdout
for line in sys.stdin:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in "oe")
    with redirect_stdout(out), redirect_stderr(err):
        code = app.run(json.loads(line))
    told = [each.buffer.getvalue().decode() for each in (out, err)]
    print(json.dumps([code, *told]), file=answers, flush=True)
"""


class Rebal:
    """Runs commands one after the other; `aborted` counts the processes that died of one."""

    def __init__(self) -> None:
        self.aborted = 0
        self._child: subprocess.Popen[str] | None = None

    def run(self, words: list[str]) -> tuple[int | None, str, str]:
        """The exit code (None: the process died), what it printed, and what it said of errors."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(words) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        if not line:
            self.aborted += 1
            code = child.wait(10)
            self._child = None
            return None, "", f"the process ended with {code}"
        code, out, err = json.loads(line)
        return code, out, err

    def end(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.communicate(timeout=10)
