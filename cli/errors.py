"""The command line's own errors and the exit codes of every command.

0 safe or done; 1 failed (network, authentication, bad file); 2 wrong usage; 3 a blocking finding;
4 cannot be proven yet; 130 stopped by Ctrl-C. Where several hold: 1 before 3 before 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rebal.groups.errors import RebalError

if TYPE_CHECKING:
    from rebal.planner.plan import Finding

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
BLOCKED: Final = 3
CANNOT_TELL: Final = 4
STOPPED: Final = 130


class UsageError(RebalError):
    """A command that cannot be run as it was typed; the message says what to type instead."""


class FailOn(StrEnum):
    """Values of `--fail-on`: the least severe finding that makes the exit code 3."""

    BLOCK = "block"
    WARNING = "warning"


class ReadError(RebalError):
    """A group that could not be read; the message is the reader's own."""


class FileError(RebalError):
    """A file that cannot be read or written."""


def exit_code(error: RebalError) -> int:
    """Return the exit code of `error`."""
    return USAGE if isinstance(error, UsageError) else FAILED


def worst(codes: Iterable[int]) -> int:
    """Return the one exit code of several: 1 before 3 before 4 before 0."""
    found = set(codes)
    return next((code for code in (FAILED, BLOCKED, CANNOT_TELL) if code in found), DONE)


def judged(code: int, findings: Iterable[Finding], fail_on: FailOn, exit_zero: bool) -> int:
    """Return `code` after `--fail-on` and `--exit-zero`; a failure (1) stays one."""
    if code == FAILED:
        return code
    if exit_zero:
        return DONE
    if fail_on is FailOn.WARNING and any(
        finding.severity == "warn" and finding.result == "yes" and not finding.ignored
        for finding in findings
    ):
        return worst((code, BLOCKED))
    return code
