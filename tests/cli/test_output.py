"""Nothing that comes from a cluster is obeyed by a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rebal.cli import output
from rebal.groups.model import GroupSnapshot, Member
from tests.cli.conftest import HOSTILE

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def obeyed(text: str) -> set[str]:
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}


@given(st.text())
def test_escaped_text_is_visible_and_keeps_what_was_visible(text: str) -> None:
    made = output.escape(text)
    assert not obeyed(made)
    assert "\n" not in made
    if text.isascii() and text.isprintable():
        assert made == text


@given(ANY_TEXT, ANY_TEXT, st.sampled_from(["json", "yaml"]))
def test_documents_hold_no_control_and_read_back_as_they_were(a: str, b: str, form: str) -> None:
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
def test_a_view_that_forgot_to_escape_still_shows_text(text: str) -> None:
    assert not obeyed(output.render([text], width=40))


def test_markup_emoji_codes_and_escapes_show_as_text(
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
def test_a_terminal_gets_colour_unless_it_says_no(env: dict[str, str], said: bytes) -> None:
    main, child = pty.openpty()
    base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM", "FORCE_COLOR")}
    subprocess.run(
        [sys.executable, "-c", SHOW], stdout=child, check=True, env={**base, "TERM": "xterm", **env}
    )
    os.close(child)
    shown = os.read(main, 100)
    os.close(main)
    assert shown == said


def test_a_pipe_gets_no_colour_and_whole_lines() -> None:
    code = "from rebal.cli import output; output.page(['x' * 300])"
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**env, "FORCE_COLOR": "1"},
    )
    assert done.stdout == b"x" * 300 + b"\n"


def test_a_terminal_without_unicode_gets_escapes_not_a_crash() -> None:
    code = "from rebal.cli import output; output.write('≥ 3.4\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.stdout == b"\\u2265 3.4\n"


def test_a_message_on_stderr_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("two\nlines \x1b[1m")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "rebal: two lines \\x1b[1m\n")
