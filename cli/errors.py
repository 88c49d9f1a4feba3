"""The command line's own errors, and the exit codes that do not depend on a group.

    0    done
    1    failed: network, authentication, bad file
    2    wrong usage
    130  stopped by Ctrl-C

The codes that judge a group or a plan, 3 and 4, are derived in planner/verdict.py.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final, Literal

from rebal.groups.errors import RebalError

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
STOPPED: Final = 130
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
FailOn = Literal["block", "warning"]
"""Values of `--fail-on`: the least severe finding that makes the exit code 3.

Ignored findings, and warnings that are not verified, never count.
"""


class UsageError(RebalError):
    """A command that cannot be run as it was typed; the message says what to type instead."""


class ReadError(RebalError):
    """A group that could not be read; the message is the reader's own."""


class FileError(RebalError):
    """A file that cannot be read or written, or a stdout that is closed or on a full disk."""


def check_text(args: Sequence[str], env: Mapping[str, str]) -> None:
    """Check that the arguments and rebal's own variables are text, which no other place does.

    Raises:
        UsageError: bytes that are not UTF-8; Python reads each as a lone surrogate.
    """
    named = [(f"argument {number}", word) for number, word in enumerate(args, 1)]
    for name, word in (*named, *(each for each in env.items() if each[0].startswith("REBAL_"))):
        if _SURROGATE.search(word):
            raise UsageError(f"{name} is not UTF-8 text: write it, or rename the file, in UTF-8.")


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return ` Did you mean X?` with the names nearest to `word`; empty if none is near."""
    names = {name.lower(): name for name in known}
    begun = [name for name in sorted(names) if name.startswith(word.lower())]
    near = begun[:3] or get_close_matches(word.lower(), names, n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(names[each] for each in near)}?" if near else ""


@contextmanager
def as_usage(kind: type[RebalError]) -> Iterator[None]:
    """Report an error of this kind as one of the words that were typed."""
    try:
        yield
    except kind as error:
        raise UsageError(str(error)) from None


def refuse(cases: Mapping[str, object]) -> None:
    """Check that options fit each other: `cases` are answers, each with what makes it true.

    Raises:
        UsageError: the first answer that is true.
    """
    for answer, wrong in cases.items():
        if wrong:
            raise UsageError(answer)


def check_known(word: str, known: Collection[str], message: str) -> None:
    """Check that `word` is one of the `known` names.

    Raises:
        UsageError: it is not; the `message`, and the names nearest to it.
    """
    if word not in known:
        raise UsageError(f"{message}{did_you_mean(word, known)}")


def check_family(word: str, known: Collection[str], message: str) -> None:
    """Check that `word` is one of the `known` families.

    Raises:
        UsageError: it is not; the `message`, and the family that a package of this name belongs to,
            else the names nearest to it.
    """
    from rebal.groups.clients import families, family_of

    if word not in known:
        name = word.lower()
        titled = (key for key, one in families().items() if one.title.endswith(f"/{name}"))
        key = family_of(name) or family_of(f"{name}-") or next(titled, word)
        raise UsageError(f"{message}{did_you_mean(key if key in known else word, known)}")
