"""Screens in ASCII, for a terminal or a locale that has nothing else.

Symbols become their usual spelling (`->`, `...`, `>=`), other characters escapes such as `\\xe9`.
"""

from __future__ import annotations

import os
import re
from typing import Final, TextIO

_SPELLINGS: Final = {
    "→": "->", "↔": "<->", "…": "...", "·": "-", "–": "-", "≥": ">=", "≤": "<=", "×": "x",
    "─": "-", "═": "=", "│": "|", "┬": "+", "├": "+", "┤": "+", "┘": "+", "└": "+", "┐": "+",
    "┌": "+", "▁": "_", "▂": "_", "▃": "-", "▄": "-", "▅": "=", "▆": "=", "▇": "#", "█": "#",
    "▒": "=", "░": ".",
}  # fmt: skip
_PROBE: Final = "".join(_SPELLINGS)
_COLUMNS: Final = re.compile("( *)([^ ]+(?: [^ ]+)*)")


def is_ascii_only(stream: TextIO) -> bool:
    """Return whether `stream` can show only ASCII: by its encoding, or by a locale C or POSIX.

    Python writes UTF-8 where the locale is C (PEP 540), so the encoding alone does not tell.
    """
    try:
        _PROBE.encode(stream.encoding or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return True
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, named), "") in ("C", "POSIX")


def spelled(text: str) -> str:
    """Return `text` in ASCII."""
    return text if text.isascii() else "".join(map(_spelling, text))


def spelled_line(line: str) -> str:
    """Return a laid-out line in ASCII; blanks between its columns make room for longer spellings.

    The mark of a cut takes the place of what it cut.
    """
    if line.endswith("…"):
        line = line[: -len("...")] + "..."
    made, longer = "", 0
    for blanks, words in _COLUMNS.findall(line):
        spared = min(longer, max(0, len(blanks) - 1))
        made += blanks[spared:] + spelled(words)
        longer += len(spelled(words)) - len(words) - spared
    return made


def _spelling(char: str) -> str:
    if char.isascii():
        return char
    return _SPELLINGS.get(char) or char.encode("ascii", "backslashreplace").decode()
