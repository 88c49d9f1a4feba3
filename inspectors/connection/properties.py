"""Java's .properties syntax, as `java.util.Properties.load` reads it."""

import re
from collections.abc import Iterator
from typing import Final

from rebal.inspectors.errors import SettingError

_BLANK: Final = " \t\f"
_COMMENT: Final = ("#", "!")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, name: str) -> dict[str, str]:
    """Return the settings in `text`, the content of the file `name`; the last of equal keys wins.

    Raises:
        SettingError: a `\\u` escape without four hexadecimal digits; names the line.
    """
    found: dict[str, str] = {}
    for number, line in logical_lines(text):
        if line.startswith(_COMMENT):
            continue
        if re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", line):
            raise SettingError(f"{name} line {number}: a \\u escape needs four hexadecimal digits.")
        key, value = key_and_value(line)
        found[key] = value
    return found


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line with the number of its first natural line; skip blank lines.

    A line that ends in an odd number of backslashes continues in the next one. Comments, which
    start with `#` or `!`, are lines of their own.
    """
    held, first = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        part = natural.lstrip(_BLANK)
        if not first and (not part or part.startswith(_COMMENT)):
            if part:
                yield number, part
            continue
        first = first or number
        if (len(part) - len(part.rstrip("\\"))) % 2:
            held += part[:-1]
            continue
        if held + part:
            yield first, held + part
        held, first = "", 0
    if held:
        yield first, held


def key_and_value(line: str) -> tuple[str, str]:
    """Return the key and the value of a logical line, unescaped.

    The first unescaped `=`, `:` or blank separates them.
    """
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANK)
    value = rest[1:].lstrip(_BLANK) if rest[:1] in ("=", ":") else rest
    return _unescape(line[:at]), _unescape(value)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
