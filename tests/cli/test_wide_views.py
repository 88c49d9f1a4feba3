"""Lines and tables of a simulation that are wider than any terminal."""

from __future__ import annotations

import pytest
from rich.text import Text

from rebal.cli.output import Lines, render
from rebal.cli.render.text import Column, FittingTable, WideTable


def test_a_long_line_is_neither_folded_nor_obeyed() -> None:
    view = [Text("head"), Lines(["x" * 9000, "\x1b[31mred"]), Text("tail")]
    assert render(view, width=60) == "head\n" + "x" * 9000 + "\n\\x1b[31mred\ntail\n"


@pytest.mark.parametrize("colour", [False, True])
def test_a_table_with_room_for_all_looks_like_any_other(*, colour: bool) -> None:
    columns = [
        Column("NAME"),
        Column("N", right=True),
        Column("LONG HEAD", right=True),
        Column("x"),
    ]
    bar = Text.assemble("██", ("▒", "yellow"))
    rows = [["pod-1", "1", "5", bar], ["日本", "1,000", "", Text("")], ["", "22", "3", "end"]]
    wide = render([WideTable(columns, rows)], width=4000, colour=colour)
    plain = render([FittingTable(columns, rows)], width=4000, colour=colour)
    assert _seen(wide) == _seen(plain)
    assert ("\x1b[33m▒" in wide) == colour


def _seen(text: str) -> list[str]:
    """The lines without blanks at their end, as colours may stand before or after these."""
    return [Text.from_ansi(line).plain.rstrip() for line in text.splitlines()]
