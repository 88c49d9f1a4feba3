"""The examples of README.md: its shell lines, its printed screens and the commands in its text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text()
BROKER: Final = "kafka-1:9092"
"""The address in its examples."""
_COMMAND: Final = re.compile(r"(?:^|\| *|<\( *)rebal(?= |$)")
_PROMPT: Final = "$ "
_TIMES: Final = re.compile(
    r"just now|\d+ min ago|(?:[A-Z][a-z]{2} \d{1,2} |\d{4}-\d\d-\d\d )?\d\d:\d\dZ"
)


class Example(NamedTuple):
    """One shell line, without its comment. `item` is its number in a numbered list, else 0."""

    section: str
    item: int
    line: str

    @property
    def words(self) -> list[str]:
        """Return its words after `rebal`."""
        return shlex.split(self.line)[1:]


class Block(NamedTuple):
    """The lines of one code block, without their indentation. A fence begins with its language."""

    section: str
    item: int
    lines: tuple[str, ...]
    language: str = ""


def blocks() -> Iterator[Block]:
    """Yield the code blocks, indented and fenced, those of lists too."""
    section, item = "", 0
    block: list[str] = []
    fence: str | None = None
    for line in [*README.splitlines(), "end"]:
        if fence is not None:
            if line.strip() == "```":
                yield Block(section, item, tuple(block), fence)
                block, fence = [], None
            else:
                block.append(line)
            continue
        if block and line.strip() and not line.startswith("    "):
            while not block[-1]:
                block.pop()
            indent = min(len(each) - len(each.lstrip()) for each in block if each)
            yield Block(section, item, tuple(each[indent:] for each in block))
            block = []
        if line.strip().startswith("```"):
            fence = line.strip().removeprefix("```")
        elif line.startswith("## "):
            section, item = line.removeprefix("## "), 0
        elif number := re.match(r"(\d+)\. ", line):
            item = int(number[1])
        elif line and not line.startswith(" ") and not block:
            item = 0
        if line.startswith("    ") and (block or line.strip()):
            block.append(line)
        elif block:
            block.append("")


def examples() -> list[Example]:
    """Return the shell lines of all blocks in their order, those of prompts too."""
    found = []
    for block in blocks():
        for line in block.lines:
            typed = line.removeprefix(_PROMPT).partition("  #")[0].strip()
            prompted = line.startswith(_PROMPT) or not block.lines[0].startswith(_PROMPT)
            if prompted and _COMMAND.search(typed):
                found.append(Example(block.section, block.item, typed))
    return found


def screens() -> list[tuple[Example, tuple[str, ...]]]:
    """Return each prompted command with the lines that follow it."""
    return [
        (Example(block.section, block.item, block.lines[0].removeprefix(_PROMPT)), block.lines[1:])
        for block in blocks()
        if block.lines[0].startswith(_PROMPT)
    ]


def screen_of(command: str) -> tuple[Example, tuple[str, ...]]:
    """Return the screen of the prompted line that begins with `rebal COMMAND`."""
    ((example, shown),) = [one for one in screens() if one[0].words[:1] == [command]]
    return example, shown


def without_times(text: str) -> list[str]:
    """Return lines without what depends on the hour: times, and the padding that follows them."""
    lines = [re.sub(r"\s+", " ", _TIMES.sub("TIME", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def spans() -> list[str]:
    """Return the commands that the text itself names, each once: `rebal demo`."""
    quoted = [one.replace("\\|", "|") for one in re.findall(r"`([^`\n]+)`", README)]
    return list(dict.fromkeys(one for one in quoted if _COMMAND.search(one)))


def rows() -> Iterator[tuple[str, str]]:
    """Yield the command of each row of the table of commands, and what the row says."""
    for line in README.splitlines():
        if row := re.match(r"\| `rebal ([a-z-]+(?: [a-z]+)?)[^`]*` \| (.*) \|$", line):
            yield row[1], row[2]
