"""Nothing from a cluster is obeyed by a terminal; pipes, ASCII alone, and lines wider than any."""

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.text import Text

from rebal.cli import app, output
from rebal.cli.files import save_snapshot
from rebal.cli.output import is_ascii_only, spelled, spelled_line
from rebal.cli.render.text import Column, FittingTable, WideTable, to_paste
from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, Member, Topic
from tests.cli.conftest import HOSTILE

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def obeyed(text: str) -> set[str]:
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}


@given(st.text())
def test_escape_shows_control_characters_and_keeps_printable_ascii(text: str) -> None:
    """`obeyed` returns the control characters of a text."""
    made = output.escape(text)
    assert not obeyed(made)
    assert "\n" not in made
    if text.isascii() and text.isprintable():
        assert made == text


@given(ANY_TEXT, ANY_TEXT, st.sampled_from(["json", "yaml"]))
def test_documents_hold_no_control_character_and_read_back_equal(a: str, b: str, form: str) -> None:
    made = output.envelope("test", {"groups": [{"client_id": a, "topics": {b: a}}]}, 4, form)
    assert not obeyed(made) - {c for c in made if c not in _MARKS}
    read = json.loads(made) if form == "json" else yaml.safe_load(made)
    assert read == {
        "schema": "rebal.test/1",
        "groups": [{"client_id": a, "topics": {b: a}}],
        "exit_code": 4,
    }


# What terminals act on: C0, DEL, C1, and the marks that turn or hide text.
_MARKS = {
    chr(n)
    for n in (
        *range(0x20), *range(0x7F, 0xA0), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
        *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
    )
}  # fmt: skip


@given(ANY_TEXT)
def test_rendering_escapes_control_characters_that_a_view_did_not_escape(text: str) -> None:
    assert not obeyed(output.render([text], width=40))


def test_rich_markup_emoji_codes_and_escape_sequences_are_shown_as_text(
    group: Callable[..., GroupSnapshot],
) -> None:
    text = "[red]boss[/red] :boom: \\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202eevil|`x`"
    assert output.render([output.escape(HOSTILE)], width=200) == f"{text}\n"
    made = output.shown(group(members=(Member(member_id=HOSTILE, client_id=HOSTILE),)))
    assert made.members[0].member_id == text
    assert output.shown(group()) == group()


SHOW = (
    "from rich.text import Text; from rebal.cli import output;"
    "output.page([Text('hot', style='red')])"
)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, b"\x1b[31mhot\x1b[0m\r\n"),
        ({"NO_COLOR": "1"}, b"hot\r\n"),
        ({"TERM": "dumb"}, b"hot\r\n"),
    ],
)
def test_a_terminal_gets_colour_unless_it_is_disabled(env: dict[str, str], said: bytes) -> None:
    main, child = pty.openpty()
    base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM", "FORCE_COLOR")}
    subprocess.run(
        [sys.executable, "-c", SHOW], stdout=child, check=True, env={**base, "TERM": "xterm", **env}
    )
    os.close(child)
    shown = os.read(main, 100)
    os.close(main)
    assert shown == said


def piped(code: str, **environment: str) -> bytes:
    """What a process prints into a pipe."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    words = [sys.executable, "-c", f"from rebal.cli import output; {code}"]
    done = subprocess.run(words, capture_output=True, check=True, env={**kept, **environment})
    return done.stdout


def test_a_pipe_gets_no_colour_and_whole_lines() -> None:
    assert piped("output.page(['x' * 300])", FORCE_COLOR="1") == b"x" * 300 + b"\n"


def test_a_terminal_without_unicode_gets_escapes_not_a_crash() -> None:
    shown = piped(r"output.write('\u2265 3.4\n')", PYTHONIOENCODING="ascii")
    assert shown == b"\\u2265 3.4\n"


def test_a_message_on_stderr_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("two\nlines \x1b[1m")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "rebal: two lines \\x1b[1m\n")


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
def test_output_is_ascii_only_if_the_encoding_is_not_utf_8_or_the_locale_is_c_or_posix(
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


def test_table_columns_stay_aligned_when_symbols_are_spelled_in_ascii() -> None:
    rows = [("a …1", "x → y", "1"), ("bb …22", "z", "2")]
    table = FittingTable([Column("NAME"), Column("WHAT"), Column("N", right=True)], rows)
    lines = output.render([table], width=80, plain=True).splitlines()
    assert lines == ["NAME    WHAT   N", "a ...1  x -> y 1", "bb ...22 z     2"]


def test_a_truncated_line_with_an_ascii_ellipsis_stays_within_the_width() -> None:
    line = Text("a long line of words that is cut", no_wrap=True, overflow="ellipsis")
    assert output.render([line], width=20, plain=True) == "a long line of wo...\n"


def test_a_line_to_paste_is_not_wrapped_and_its_control_characters_are_escaped() -> None:
    view = [Text("head"), to_paste("x" * 9000 + "\n\x1b[31mred", 0), Text("tail")]
    assert output.render(view, width=60) == "head\n" + "x" * 9000 + "\n\\x1b[31mred\ntail\n"


@pytest.mark.parametrize("colour", [False, True])
def test_a_wide_table_looks_like_a_fitting_table_if_all_columns_fit(*, colour: bool) -> None:
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


WORDS = (
    ["inspect"],
    ["plan-upgrade"],
    ["verify"],
    ["simulate", "--assignor", "cooperative-sticky"],
    ["simulate", "--assignor", "sticky", "--assignor", "uniform", "--remove-member", "FIRST"],
    ["rehearse", "--script", "rolling", "--details"],
)
FORMS = ([], ["--wide"], ["-o", "json"], ["-o", "yaml"])
COMMANDS = [[*words, *form] for words in WORDS for form in FORMS]


COMMANDS += [["plan-upgrade", "-o", "markdown"], ["plan-upgrade", "--details"]]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_hostile_client_id_reaches_no_output_as_control_characters(
    *,
    command: list[str],
    static: bool,
    group: Callable[..., GroupSnapshot],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    members = tuple(
        replace(
            member,
            client_id=f"{HOSTILE}{n}",
            member_id=f"{HOSTILE}{n}-{n}",
            host=HOSTILE,
            instance_id=f"{HOSTILE}{n}" if static else None,
            assignment={f"orders{HOSTILE}": Partitions([n])},
            subscription=replace(member.subscription, topics=(f"orders{HOSTILE}",)),
        )
        for n, member in enumerate(group().members)
    )
    snapshot = group(
        members=members, topics=(Topic(name=f"orders{HOSTILE}", partitions=3),), lag=(),
        group_id=f"g\n{HOSTILE}", notes=(HOSTILE,),
    )  # fmt: skip
    path, plan = str(save_snapshot(snapshot, tmp_path / "s.yaml")), str(tmp_path / "p.yaml")
    if command[0] == "verify":
        app.run(["plan-upgrade", "--snapshot", path, "--out", plan])
    words = [f"{HOSTILE}0" if word == "FIRST" else word for word in command]
    words[1:1] = [plan] if command[0] == "verify" else []
    assert app.run([*words, "--snapshot", path]) in (0, 3, 4)
    out, err = capsys.readouterr()
    hidden = {c for c in out + err if c != "\n" and unicodedata.category(c) in ("Cc", "Cf")}
    assert not hidden
    if "markdown" in command:
        outside = re.sub(r"(`+)[^`].*?\1", "", re.sub(r"(?ms)^```.*?^```$", "", out))
        assert not re.search(r"(?<!\\)\[red\]", outside)
        assert "boss" in out
    else:
        assert "[red]boss[/red] :boom:" in out
