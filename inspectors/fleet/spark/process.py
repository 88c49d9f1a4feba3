"""The process and machine that Spark needs, and sentences for what goes wrong with it.

The environment, Java, a thread to end it; why it did not start, or why a job of it failed.
"""

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rebal.groups.errors import RebalError

_LONGEST: Final = 300
_KNOWN: Final[Sequence[tuple[tuple[str, ...], str]]] = (
    (
        ("Python worker exited unexpectedly",),
        "the Python process of a task was killed or crashed, perhaps for lack of memory: scan "
        "again with fewer tasks at once (--master local[1]), or where more memory is free.",
    ),
    (
        ("while reading the port number",),
        "Spark's Python process did not start: REBAL_DEBUG=1 shows what it said.",
    ),
    (
        ("RETRIES_EXCEEDED",),
        "the server of Spark Connect no longer answers: scan again once it does.",
    ),
    (
        ("no such file; check the path",),
        "a file is not there for Spark: name paths that all executors can see.",
    ),
    (
        ("PYTHON_VERSION_MISMATCH",),
        "the executors run another Python than this one: name the right one with PYSPARK_PYTHON.",
    ),
    (
        ("No space left on device",),
        "the disk is full: make room in --out, or name another folder for Spark's own files with "
        "--spark-conf spark.local.dir=DIR.",
    ),
    (
        ("OutOfMemoryError", "Java heap space"),
        "Spark ran out of memory: give it more with --spark-conf spark.driver.memory=4g.",
    ),
)


class SparkError(RebalError):
    """Spark cannot be started, or a job of it failed; one sentence that says why."""


def failed_job(text: str) -> str:
    """Return in a sentence why a job failed; `text` is Spark's error, with Java's causes."""
    for signs, words in _KNOWN:
        if any(sign in text for sign in signs):
            return words
    lines = text.splitlines()
    for line in lines:
        # A task's own sentence.
        if line.startswith("rebal."):
            return line.split(": ", 1)[-1]
    causes = [
        line.strip().removeprefix("Caused by: ")
        for line in lines
        if line.startswith(("Caused by:", "pyarrow.", "ModuleNotFoundError", "ImportError"))
    ]
    reason = (causes or [lines[0]])[-1].rstrip(".")
    reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} …"
    return f"the Spark job failed: {reason}; REBAL_DEBUG=1 shows all that it said."


def start_error(error: Exception, log: str) -> SparkError:
    """Return why Spark did not start: `error` is the driver's, `log` what the JVM printed."""
    if "All masters are unresponsive" in log:
        return SparkError(
            "no Spark master answers: check the address in --master, and the way to its port."
        )
    said = [
        line.strip() for line in log.splitlines() if "Exception" in line or line.startswith("Error")
    ]
    java = str(getattr(error, "java_exception", "") or "").splitlines()
    reason = (java or said or str(error).splitlines())[0]
    return SparkError(
        f"Spark did not start: {reason.rstrip('.')}; REBAL_DEBUG=1 shows all that it said."
    )


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


def require_packages(what: str, names: Sequence[str], extra: str) -> None:
    """Check that what Spark needs of Python is there.

    Raises:
        SparkError: it is not; says how to get it.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            raise SparkError(
                f"{what} needs {name}: install it with pip install '{extra}'."
            ) from None


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
    found = re.search(r'"(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < OLDEST_JAVA:
        what = "does not run" if found is None else f"is Java {found[1]}"
        raise SparkError(f"Spark needs Java {OLDEST_JAVA}, and {command} {what}: {advice}")
