"""A table for thousands of rows where there is room for all columns: `FittingTable`'s layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from rebal.cli.render.common import GAP, Column

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class WideTable:
    """Rows of one line each, whatever the width; nothing is left out or folded."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> None:
        self._columns = columns
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The header, then line by line."""
        head = [column.header for column in self._columns]
        sizes = [[cell_len(str(cell)) for cell in row] for row in (head, *self._rows)]
        widths = [max(column) for column in zip(*sizes, strict=True)]
        bold = Style(bold=True)
        for row, lengths in zip((head, *self._rows), sizes, strict=True):
            for column, cell, length, width in zip(
                self._columns, row, lengths, widths, strict=True
            ):
                blank = " " * (width - length)
                if column.right:
                    yield Segment(blank)
                if isinstance(cell, Text):
                    yield from (s for s in cell.render(console) if s.text)
                else:
                    yield Segment(cell, bold if row is head else None)
                yield Segment(" " * GAP if column.right else blank + " " * GAP)
            yield Segment.line()
