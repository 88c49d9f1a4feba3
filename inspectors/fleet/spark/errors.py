"""Sentences for a Spark that does not start, and for a job of it that fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rebal.groups.errors import RebalError

NEWEST: Final = "4.2.0"
"""The newest PySpark whose Kafka source has been fetched and tried; the extra `fleet` brings it."""
_LONGEST: Final = 300
_NOT_THERE: Final = re.compile(
    r"(?:unresolved dependency|download failed): "
    r"(org\.apache\.spark)#([\w.-]+kafka[\w.-]+);([\d.]+)"
)
_KNOWN: Final[Sequence[tuple[tuple[str, ...], str]]] = (
    (
        ("kafka.common.errors.SaslAuthenticationException",),
        "Spark's Kafka client could not log in: check user, password and mechanism.",
    ),
    (
        ("kafka.common.errors.SslAuthenticationException", "SSLHandshakeException"),
        "Spark's Kafka client does not trust the broker: check ssl.ca.location.",
    ),
    (
        ("kafka.common.errors.TimeoutException", "Cannot fetch record for offset"),
        "Spark's Kafka client had no answer from the brokers: check --timeout.",
    ),
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
        ("Failed to find data source: kafka", "ClassNotFoundException: kafka"),
        "this Spark has no Kafka source: give its jars with --spark-jars, or leave that option "
        "out so that they are fetched; a server of Spark Connect needs them when it is started.",
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
    missing = _NOT_THERE.search(log)
    if missing is not None and "Server access error" not in log and missing[3] != NEWEST:
        return SparkError(
            f"the Kafka source of Spark {missing[3]} cannot be had: Maven Central has no "
            f"{':'.join(missing.groups())}: install the newest PySpark of which it can, "
            f"pip install 'pyspark=={NEWEST}', or give the jars with --spark-jars."
        )
    if "unresolved dependency" in log or "download failed" in log:
        return SparkError(
            "the jars of Spark's Kafka source could not be fetched: check the way to Maven "
            "Central, name a mirror with --spark-conf spark.jars.ivySettings=FILE, or give the "
            "jars with --spark-jars."
        )
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
