"""Typed settings in sentences, printed commands and kept files: a secret may stand in any of them.

A value of `-X`, `--lake-option`, `--spark-conf` or a variable REBAL_X_… is repeated only where the
setting's name and the value's form are both known to be harmless. Sentences name the setting.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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
    """Return whether KEY=VALUE may be repeated: its name and its value's form hold no secret.

    Harmless values are Kafka's own words, switches, addresses, regions, files that exist, and none.
    """
    key, equals, value = pair.partition("=")
    if not equals or not _NAMES.search(key.strip()):
        return False
    file = os.path.expanduser(value.strip().removeprefix("file://"))
    return _FORMS.fullmatch(value.strip()) is not None or os.path.isfile(file)


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
