"""Java's .properties syntax, as `java.util.Properties.load` reads it."""

from __future__ import annotations

import re
from typing import Final

from rebal.inspectors.kafka.errors import SettingError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"
_HEX4: Final = re.compile(r"[0-9A-Fa-f]{4}")


def parse_properties(text: str, name: str) -> dict[str, str]:
    """`text` (of the file `name`) as key → value; the last of equal keys wins.

    Comments start with `#` or `!`; a line that ends in an odd number of backslashes goes on in the
    next one; key and value part at the first unescaped `=`, `:` or blank.

    Raises:
        SettingError: a `\\u` escape without four hexadecimal digits; names the line.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        where = f"{name} line {number}"
        found[_unescape(raw_key, where)] = _unescape(raw_value, where)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    held = ""
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        part = natural.lstrip(_BLANK)
        if not first and (not part or part[0] in "#!"):
            continue
        first = first or number
        if (len(part) - len(part.rstrip("\\"))) % 2:
            held += part[:-1]
            continue
        lines.append((first, held + part))
        held, first = "", 0
    if first and held:
        lines.append((first, held))
    return lines


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:at], rest


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    made: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            made.append(text[at])
            at += 1
            continue
        code = text[at + 1 : at + 2]
        if code == "u":
            digits = text[at + 2 : at + 6]
            if not _HEX4.fullmatch(digits):
                raise SettingError(f"{where}: a \\u escape needs four hexadecimal digits.")
            made.append(chr(int(digits, 16)))
            at += 6
            continue
        made.append(_ESCAPES.get(code, code))
        at += 2
    return "".join(made)
