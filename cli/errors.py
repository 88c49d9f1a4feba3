"""The command line's own errors, and the exit codes that do not depend on a group.

    0    done
    1    failed: network, authentication, bad file
    2    wrong usage
    130  stopped by Ctrl-C

The codes that judge a group or a plan, 3 and 4, are derived in planner/verdict.py.

Messages, printed commands and kept files repeat what the user typed, which may hold a secret. A
value of `-X`, `--lake-option`, `--spark-conf` or a variable REBAL_X_… is repeated only if the
setting's name and the value's form are both known to be harmless. Otherwise only the setting's name
is repeated.
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
    """Check that the arguments and the variables REBAL_… are valid UTF-8.

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
    """Turn an error of class `kind` in the `with` block into a UsageError with the same message."""
    try:
        yield
    except kind as error:
        raise UsageError(str(error)) from None


def refuse(cases: Mapping[str, object]) -> None:
    """Raise the first error that applies; `cases` is error message → a true value if it applies.

    Raises:
        UsageError: one of the messages applies.
    """
    for answer, wrong in cases.items():
        if wrong:
            raise UsageError(answer)


def check_known(word: str, known: Collection[str], message: str) -> None:
    """Check that `word` is one of the `known` names.

    Raises:
        UsageError: `word` is not known; the text is `message` and the nearest known names.
    """
    if word not in known:
        raise UsageError(f"{message}{did_you_mean(word, known)}")


def check_family(word: str, known: Collection[str], message: str) -> None:
    """Check that `word` is one of the `known` client families.

    Raises:
        UsageError: `word` is not known; the text is `message` and a suggestion: the family that has
            a package named `word`, else the nearest known names.
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

    Harmless values are Kafka's own words, true and false, addresses, cloud regions, paths of files
    that exist, and the empty value.
    """
    key, equals, value = pair.partition("=")
    if not equals or not _NAMES.search(key.strip()):
        return False
    return _FORMS.fullmatch(value.strip()) is not None or os.path.isfile(
        os.path.expanduser(value.strip().removeprefix("file://"))
    )


def without_values(message: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """Return an error's message without the typed values that may be secret.

    rebal's own messages repeat no such value; messages of Kafka's clients, Spark and delta-rs may.
    """
    hidden = sorted(_values(args, env), key=len, reverse=True)
    if hidden:
        pattern = "|".join(map(re.escape, hidden))
        message = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", _HIDDEN, message)
    return _LOGIN.sub("[login]", message)


def without_typed(message: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """Return typer's usage message without the typed values that may be secret.

    If a setting was typed, an extra argument is hidden too, because it may be the setting's value:
    `-X sasl.password= VALUE`.
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
