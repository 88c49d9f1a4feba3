"""The README stays true: its screen, its commands and its example are run."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
REBAL = str(Path(sys.executable).with_name("rebal"))
TIMES = re.compile(r"just now|\d+ min ago|(?:[A-Z][a-z]{2} \d{1,2} |\d{4}-\d\d-\d\d )?\d\d:\d\dZ")


def indented_blocks() -> Iterator[list[str]]:
    """The indented code blocks, those of lists too, without their indentation."""
    for block in re.findall(r"(?:^(?: {4}.*)?\n)+", README, re.MULTILINE):
        if lines := block.strip("\n").splitlines():
            indent = 7 if lines[0].startswith(" " * 7) else 4
            yield [line[indent:] for line in lines]


def typed_commands() -> list[str]:
    return sorted(
        {
            line.removeprefix("$ ").split("#")[0].strip()
            for lines in indented_blocks()
            for line in lines
            if line.removeprefix("$ ").startswith("rebal ")
        }
    )


def without_times(text: str) -> list[str]:
    """Lines without what depends on the hour: times, and the padding that follows them."""
    lines = [re.sub(r"\s+", " ", TIMES.sub("TIME", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def test_the_screen_is_what_rebal_prints() -> None:
    (shown,) = [lines for lines in indented_blocks() if lines[0].startswith("$ rebal inspect")]
    words = shown[0].removeprefix("$ rebal ").split()
    done = subprocess.run(
        [REBAL, *words], cwd=ROOT / "cli" / "data" / "demo", capture_output=True, text=True,
        check=False, env=os.environ | {"COLUMNS": "130"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert without_times("\n".join(shown[1:])) == without_times(done.stdout)


@pytest.mark.parametrize("typed", typed_commands())
def test_every_command_and_option_named_exists(typed: str) -> None:
    _, command, *words = typed.split()
    command_words = [command, words.pop(0)] if command == "fleet" else [command]
    helped = subprocess.run(
        [REBAL, *command_words, "--help"], capture_output=True, text=True, check=False
    )
    assert helped.returncode == 0, helped.stderr
    options = {word.split("=")[0] for word in words if word.startswith("-")}
    assert {option for option in options if option not in helped.stdout} == set()


def test_options_named_in_the_tables_exist() -> None:
    helped = "".join(
        subprocess.run(
            [REBAL, *name.split(), "--help"], capture_output=True, text=True, check=True
        ).stdout
        for name in re.findall(r"^\| `rebal ([a-z-]+(?: [a-z]+)?)", README, re.MULTILINE)
    )
    named = set(re.findall(r"`(--[a-z-]+)", README))
    assert named
    assert {option for option in named if option not in helped} == set()


def test_the_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})


def test_the_two_commands_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test"} <= targets
    assert {target for target in targets if f"\n{target}:" not in makefile} == set()
