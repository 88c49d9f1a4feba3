"""The command line's own errors, and the exit codes that do not depend on a group.

    0    done
    1    failed: network, authentication, bad file
    2    wrong usage
    130  stopped by Ctrl-C

The codes that judge a group or a plan, 3 and 4, are derived in planner/verdict.py.
"""

from __future__ import annotations

from typing import Final, Literal

from rebal.groups.errors import RebalError

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
STOPPED: Final = 130
FailOn = Literal["block", "warning"]
"""Values of `--fail-on`: the least severe finding that makes the exit code 3.

Ignored findings, and warnings that are not verified, never count.
"""


class UsageError(RebalError):
    """A command that cannot be run as it was typed; the message says what to type instead."""


class ReadError(RebalError):
    """A group that could not be read; the message is the reader's own."""


class OutputError(RebalError):
    """A stdout that cannot be written: closed, or on a full disk."""


class FileError(RebalError):
    """A file that cannot be read or written."""


def exit_code(error: RebalError) -> int:
    """Return the exit code of `error`."""
    return USAGE if isinstance(error, UsageError) else FAILED
