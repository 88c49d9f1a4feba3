"""Screens in ASCII, where the terminal's encoding or locale has nothing else."""

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
from rebal.cli.render.text import Column, FittingTable

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
