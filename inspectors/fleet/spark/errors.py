"""Sentences for a Spark that does not start, and for a job of it that fails."""

from __future__ import annotations

from collections.abc import Sequence
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
