"""Child processes under the test's control: logged, bounded in every wait, ended by process id."""

import atexit
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_TAIL = 40


class HarnessTimeoutError(AssertionError):
    """Something the test waited for did not come in time; the text ends with the logs' tails."""


class ChildProcess:
    """A process with its own log file; its standard input stays open and ends with this one's.

    `stdout` is a pipe when `events` is true (JSON lines for `members`), else it joins the log.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        *,
        events: bool = False,
        env: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = log
        with log.open("ab") as sink:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if events else sink,
                stderr=sink,
                env=env,
                start_new_session=True,
            )
        RUNNING[self.popen.pid] = self

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def log(self) -> str:
        """All that the process has written to its log so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def tail(self, lines: int = _TAIL) -> str:
        """The last lines of the log under a heading, for error messages."""
        state = "running" if self.alive else f"ended with {self.popen.returncode}"
        text = "\n".join(self.log().splitlines()[-lines:])
        return f"--- {self.name} (pid {self.pid}, {state}) {self.log_path}\n{text}"

    def say(self, line: str) -> None:
        """Write one line to the standard input; a process that has just ended hears nothing."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write((line + "\n").encode())
            self.popen.stdin.flush()

    def terminate(self, timeout: float = 20) -> None:
        """SIGTERM, then SIGKILL when it has not ended within `timeout` seconds."""
        if self.alive:
            self.popen.terminate()
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self._reap()

    def kill(self) -> None:
        """SIGKILL: no clean close, nothing is said to anybody."""
        self.popen.kill()
        self._reap()

    def wait(self, timeout: float) -> None:
        """Wait for the process to end by itself; SIGKILL and an error when it does not."""
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired as late:
            self.kill()
            text = f"{self.name} did not end within {timeout:g} s\n{self.tail()}"
            raise HarnessTimeoutError(text) from late
        self._reap()

    def _reap(self) -> None:
        self.popen.wait(10)
        if self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
        RUNNING.pop(self.pid, None)


RUNNING: dict[int, ChildProcess] = {}


@atexit.register
def _kill_all() -> None:
    for child in list(RUNNING.values()):
        child.kill()


def freeze(pid: int) -> None:
    """Stop a process with SIGSTOP and wait until it stands still: a busy machine takes a while."""
    os.kill(pid, signal.SIGSTOP)
    status = Path(f"/proc/{pid}/status")
    wait_for(
        f"process {pid} to stand still",
        lambda: "State:\tT" in status.read_text(),
        timeout=10,
        every=0.01,
    )


def wait_for(
    what: str,
    ready: Callable[[], object],
    *,
    timeout: float,
    involved: Callable[[], list[ChildProcess]] = list,
    every: float = 0.05,
) -> None:
    """Poll `ready` until it is true; after twice `timeout` seconds raise with the logs' tails.

    A machine that is at other work holds a broker up for seconds.
    """
    deadline = time.monotonic() + 2 * timeout
    while not ready():
        if time.monotonic() > deadline:
            tails = "\n".join(child.tail() for child in involved())
            raise HarnessTimeoutError(f"waited {2 * timeout:g} s for {what}\n{tails}")
        time.sleep(every)
