"""Screens in ASCII, for a terminal or a locale that has nothing else.

Symbols become their usual spelling (`->`, `...`, `>=`) before a view is laid out, so that columns
stay aligned; other characters become escapes such as `\\xe9`.
"""

from __future__ import annotations

import os
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from rich.text import Text

_SPELLINGS: Final = {
    "→": "->", "↔": "<->", "…": "...", "·": "-", "–": "-", "≥": ">=", "≤": "<=", "×": "x",
    "─": "-", "═": "=", "│": "|", "┬": "+", "├": "+", "┤": "+", "┘": "+", "└": "+", "┐": "+",
    "┌": "+", "▁": "_", "▂": "_", "▃": "-", "▄": "-", "▅": "=", "▆": "=", "▇": "#", "█": "#",
    "▒": "=", "░": ".",
}  # fmt: skip
_PROBE: Final = "".join(_SPELLINGS)


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


def spelled_view(part: Any) -> Any:
    """Return a renderable of a view (texts, tables and groups of them) with its texts in ASCII."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if isinstance(part, str):
        return spelled(part)
    if isinstance(part, Text):
        return _spelled_text(part)
    if isinstance(part, Group):
        return Group(*map(spelled_view, part.renderables))
    if isinstance(part, Padding):
        part.renderable = spelled_view(part.renderable)
    elif isinstance(part, Table):
        for column in part.columns:
            column.header = spelled_view(column.header)
            column._cells = [spelled_view(cell) for cell in column.cells]
    elif hasattr(part, "with_cells"):
        return part.with_cells(spelled_view)
    return part


def shortened(text: str) -> str:
    """Return laid-out text in ASCII; the mark of a cut takes the place of what it cut."""
    if text.endswith("…") and len(text) > len("..."):
        text = text[: -len("...")] + "..."
    return spelled(text)


def _spelled_text(text: Text) -> Text:
    from rich.text import Span

    if text.plain.isascii():
        return text
    made = text.blank_copy(spelled(text.plain))
    starts = [0, *accumulate(len(_spelling(char)) for char in text.plain)]
    made.spans = [Span(starts[span.start], starts[span.end], span.style) for span in text.spans]
    return made


def _spelling(char: str) -> str:
    if char.isascii():
        return char
    return _SPELLINGS.get(char) or char.encode("ascii", "backslashreplace").decode()
