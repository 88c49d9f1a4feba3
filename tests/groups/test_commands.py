"""Printed commands through bash and back: every word arrives as it is, from one visible line."""

import copy
import os
import pickle
import shutil
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rebal.cli.lazy import _repeat
from rebal.groups.commands import Command, option, options, rebal

BASH = shutil.which("bash")
# An argument holds every character but NUL; bytes that are no UTF-8 come as surrogates.
WORDS = st.text(
    st.one_of(
        st.sampled_from(list("-$`'\"\\ !*?[]{}();&|<>~#=%\n\t\r\x1b\u202e\u00a0\ufeffé漢\udcff")),
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)),
    ),
    max_size=12,
)
HOSTILE = [
    "my group", "o'neill", '"', "$HOME", "`id`", "$(id)", "-g", "--", "", "a\nb", "\x1b[31m",
    "\u202e", "a\\nb", "it's\n-1", "~root", "{a,b}", "*", "!!", "é漢", "\udcff",
]  # fmt: skip


def bash(*lines: str) -> list[bytes]:
    """What each line's command gets as its words, when bash runs it with printf for rebal."""
    assert BASH
    script = 'rebal() { printf "%s\\0" "$@"; }\n' + "\n".join(lines)
    done = subprocess.run([BASH, "-c", script.encode("utf-8", "surrogateescape")],
                          capture_output=True, check=True)  # fmt: skip
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


def seen(words: list[str]) -> list[bytes]:
    return [word.encode("utf-8", "surrogateescape") for word in words]


@given(st.lists(WORDS, min_size=1, max_size=6))
@example(HOSTILE)
def test_bash_reads_every_word_back(words: list[str]) -> None:
    assert bash(Command("rebal", *words)) == seen(words)


@given(st.lists(WORDS, max_size=4))
@example(HOSTILE)
def test_a_command_is_one_line_without_invisible_characters(words: list[str]) -> None:
    assert Command("rebal", *words).isprintable()


@given(WORDS, st.sampled_from(["--client-log", "-b", "--to"]))
@example("-x", "-b")
@example("-", "--client-log")
def test_an_option_s_value_is_never_taken_for_an_option(value: str, name: str) -> None:
    words = option(name, value)
    joined = "".join(words).removeprefix(name).removeprefix("=" if len(words) == 1 else "")
    assert joined == value
    if value.startswith("-") and value != "-":
        assert len(words) == 1


@pytest.mark.parametrize("group", HOSTILE)
def test_a_group_is_an_argument_whatever_its_name(group: str) -> None:
    words = options("--client-log", ["a.log", "-b.log"])
    read = bash(rebal("inspect", [group], words))
    typed = list(_repeat([os.fsdecode(word) for word in read], {"--client-log": False}))
    own = ["--client-log", "a.log", "--client-log=-b.log"]
    dashed = group.startswith("-")
    assert typed == (["inspect", *own, "--", group] if dashed else ["inspect", group, *own])


def test_a_command_stays_the_same_line_in_copies() -> None:
    line = Command("rebal", "inspect", "my group")
    for made in (copy.deepcopy(line), pickle.loads(pickle.dumps(line)), Command.read(str(line))):
        assert isinstance(made, Command)
        assert made == "rebal inspect 'my group'"
