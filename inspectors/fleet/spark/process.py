"""The process and machine that Spark needs: the environment, Java, a thread to end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rebal.inspectors.fleet.spark.errors import SparkError

OLDEST_JAVA: Final = 17
_STOP_SECONDS: Final = 20


@contextmanager
def environment(**wanted: str) -> Iterator[None]:
    """Set variables while the block runs; then give the process back its own environment.

    What PySpark sets of its own accord in the block goes too.
    """
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def end(*calls: Callable[[], object]) -> None:
    """Make calls that end Spark, whichever fails, from a thread that is left behind after a while.

    This thread's connection may be in the middle of an answer, or lead nowhere.
    """

    def work() -> None:
        for call in calls:
            with contextlib.suppress(Exception):
                call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_STOP_SECONDS)


def is_loopback(host: str) -> bool:
    """Return whether a host of a URL is this machine itself."""
    return host in ("localhost", "::1") or host.startswith("127.")


def require_java() -> None:
    """Check that Java is there and new enough.

    Raises:
        SparkError: it is not; says how to get it.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install a JDK {OLDEST_JAVA} or newer, or set JAVA_HOME to one."
    try:
        said = subprocess.run(
            [command or "java", "-version"], capture_output=True, text=True, check=False
        ).stderr
    except OSError:
        raise SparkError(
            f"Spark needs Java, and {command or 'java'} was not found: {advice}"
        ) from None
    quoted = said.split('"')
    major = quoted[1].removeprefix("1.").split(".")[0].split("-")[0] if len(quoted) > 1 else ""
    if not major.isdigit():
        raise SparkError(f"Spark needs Java, and {command} does not run: {advice}")
    if int(major) < OLDEST_JAVA:
        raise SparkError(f"Spark needs Java {OLDEST_JAVA}, and {command} is Java {major}: {advice}")
