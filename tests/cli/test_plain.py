"""Screens in ASCII, where nothing else is known, and lines that are wider than any terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from rebal.cli import output
from rebal.cli.plain import is_ascii_only, spelled, spelled_line
from rebal.cli.render.text import Column, FittingTable, WideTable

DEMO = Path(__file__).parents[2] / "cli" / "data" / "demo"
REBAL = Path(sys.executable).with_name("rebal")


def run(*words: str, **environment: str) -> bytes:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG"))}
    done = subprocess.run(
        [REBAL, *words],
        cwd=DEMO,
        env={**kept, "COLUMNS": "80", **environment},
        capture_output=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("plan-upgrade", "--snapshot", "checkout.rebal.yaml", "--details"),
        ("plan-upgrade", "--snapshot", "ml-features.rebal.yaml", "-o", "markdown"),
        ("rehearse", "--snapshot", "shipping.rebal.yaml", "--script", "crash"),
        ("explain", "RB102"),
        ("plan-upgrade", "--help"),
        ("inspect", "--snapshot", "absent…rebal.yaml"),
    ],
)
def test_a_c_locale_gets_pure_ascii(words: tuple[str, ...]) -> None:
    made = run(*words, LC_ALL="C")
    assert made.isascii(), [line for line in made.splitlines() if not line.isascii()]
    assert b"Traceback" not in made


def test_a_utf_8_locale_gets_the_symbols() -> None:
    made = run("plan-upgrade", "--snapshot", "checkout.rebal.yaml", LC_ALL="C.UTF-8").decode()
    assert "EAGER (range) → COOPERATIVE" in made
    assert "->" not in made


@pytest.mark.parametrize(
    ("encoding", "locale", "answer"),
    [
        ("utf-8", "C.UTF-8", False), ("utf-8", "en_US.UTF-8", False), ("utf-8", "", False),
        ("utf-8", "C", True), ("utf-8", "POSIX", True), ("ascii", "C.UTF-8", True),
        ("latin-1", "C.UTF-8", True), ("cp437", "C.UTF-8", True),
    ],
)  # fmt: skip
def test_the_encoding_or_the_locale_decides(
    encoding: str, locale: str, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", locale)
    assert is_ascii_only(TextIOWrapper(BytesIO(), encoding=encoding)) is answer


@given(st.text())
def test_every_text_has_an_ascii_spelling(text: str) -> None:
    assert spelled(text).isascii()
    assert spelled_line(text).isascii()


def test_columns_stay_aligned() -> None:
    rows = [("a …1", "x → y", "1"), ("bb …22", "z", "2")]
    table = FittingTable([Column("NAME"), Column("WHAT"), Column("N", right=True)], rows)
    lines = output.render([table], width=80, plain=True).splitlines()
    assert lines == ["NAME    WHAT   N", "a ...1  x -> y 1", "bb ...22 z     2"]


def test_a_cut_text_stays_within_the_width() -> None:
    line = Text("a long line of words that is cut", no_wrap=True, overflow="ellipsis")
    assert output.render([line], width=20, plain=True) == "a long line of wo...\n"


def test_a_long_line_is_neither_folded_nor_obeyed() -> None:
    view = [Text("head"), output.Lines(["x" * 9000, "\x1b[31mred"]), Text("tail")]
    assert output.render(view, width=60) == "head\n" + "x" * 9000 + "\n\\x1b[31mred\ntail\n"


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
    wide = output.render([WideTable(columns, rows)], width=4000, colour=colour)
    plain = output.render([FittingTable(columns, rows)], width=4000, colour=colour)
    assert _seen(wide) == _seen(plain)
    assert ("\x1b[33m▒" in wide) == colour


def _seen(text: str) -> list[str]:
    """The lines without blanks at their end, as colours may stand before or after these."""
    return [Text.from_ansi(line).plain.rstrip() for line in text.splitlines()]
