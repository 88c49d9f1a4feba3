"""The command line's own errors, and the exit codes that do not depend on a group.

    0    done
    1    failed: network, authentication, bad file
    2    wrong usage
    130  stopped by Ctrl-C

The codes that judge a group or a plan, 3 and 4, are derived in planner/verdict.py.

A secret may stand in what was typed, which sentences, printed commands and kept files repeat. A
value of `-X`, `--lake-option`, `--spark-conf` or a variable REBAL_X_… is repeated only where the
setting's name and the value's form are both known to be harmless. Sentences name the setting.
"""

import os
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


_LOGIN: Final = re.compile(r"[^\s/@,=()'\":]{1,250}:[^\s/@,]{0,4000}(?=@)")
_SETTINGS: Final = ("-X", "--lake-option", "--spark-conf")
_EXTRA: Final = re.compile(r"(extra argument\S*) \(.*\)", re.DOTALL)
_TYPED: Final = re.compile(r"(?<=\0)(?:-X|--(?:lake-option|spark-conf)[\0=])\0?([^\0]+)")
_PAIR: Final = re.compile(r"(?<==)[^\s)]+")
_HIDDEN: Final = "[not repeated]"
_SHORTEST: Final = 4
# The last word of the names of settings that hold no secret.
_NAMES: Final = re.compile(
    r"(servers|list|protocol|mechanisms?|algorithm|location|type|method|urlencode|url|region"
    r"|endpoint|http|rename|request)\Z",
    re.IGNORECASE,
)
_ADDRESS: Final = r"(?:https?://[\w.-]+(?::\d{1,5})?/?|[\w.-]+:\d{1,5})"
_FORMS: Final = re.compile(
    "|true|false|https|none|oidc|(sasl_)?(plaintext|ssl)|plain|scram-sha-(256|512)|oauthbearer"
    rf"|pem|pkcs12|jks|[a-z]{{2}}(-[a-z]+)+-\d|{_ADDRESS}(,{_ADDRESS})*",
    re.IGNORECASE,
)


def is_harmless(pair: str) -> bool:
    """Return whether KEY=VALUE may be printed: its name and its value's form hold no secret.

    Harmless values are Kafka's own words, switches, addresses, regions, files that exist, and none.
    """
    key, equals, value = pair.partition("=")
    if not equals or not _NAMES.search(key.strip()):
        return False
    return _FORMS.fullmatch(value.strip()) is not None or os.path.isfile(
        os.path.expanduser(value.strip().removeprefix("file://"))
    )


def without_values(message: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """Return an error's message without the typed values that may be secret.

    rebal's own sentences repeat none; those of Kafka's clients, Spark and delta-rs may.
    """
    hidden = sorted(_values(args, env), key=len, reverse=True)
    if hidden:
        pattern = "|".join(map(re.escape, hidden))
        message = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", _HIDDEN, message)
    return _LOGIN.sub("[login]", message)


def without_typed(message: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """Return typer's message, which repeats what was typed, without what may be a secret.

    Beside a setting, a word too many may be its value (`-X sasl.password= VALUE`).
    """
    if any(word.startswith(_SETTINGS) for word in args):
        message = _EXTRA.sub(r"\1", message)
    return _PAIR.sub(_HIDDEN, without_values(message, args, env))


def _values(args: Sequence[str], env: Mapping[str, str]) -> Iterator[str]:
    named = [f"{name}={value}" for name, value in env.items() if name.startswith("REBAL_X_")]
    for pair in (*_TYPED.findall("\0".join(("", *args))), *named):
        if not is_harmless(pair):
            key, _, value = pair.partition("=")
            hidden = value.strip("= ") or key
            if len(hidden) >= _SHORTEST:
                yield hidden
