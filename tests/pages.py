"""The examples of README.md and docs: shell lines, printed screens and the commands in the text."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

# The parser that rich brings.
from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
PAGES: Final = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
}
"""The path of each page → its text."""
BROKER: Final = "kafka-1:9092"
"""The address in the examples."""
_COMMAND: Final = re.compile(r"(?:^|\| *|<\( *)rebal(?= |$)|^spark-submit .*/entry\.py(?= )")
_PROMPT: Final = "$ "
_TIMES: Final = re.compile(
    r"just now|\d+ min ago|(?:[A-Z][a-z]{2} \d{1,2} |\d{4}-\d\d-\d\d )?\d\d:\d\dZ"
)


class Example(NamedTuple):
    """One shell line, without its comment. `item` is its number in a numbered list, else 0."""

    page: str
    section: str
    item: int
    line: str

    @property
    def words(self) -> list[str]:
        """Return the words after `rebal`, without a pipe that feeds it."""
        *_, typed = self.line.split("| ")
        command = _COMMAND.match(typed)
        assert command is not None, self
        return shlex.split(typed[command.end() :])


class Block(NamedTuple):
    """The lines of one code block, without their indentation."""

    page: str
    section: str
    item: int
    lines: tuple[str, ...]


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page, indented and fenced, those of lists too."""
    section, item = "", 0
    tokens = MarkdownIt().parse(PAGES[page])
    for token, following in pairwise(tokens):
        if token.tag == "h2" and token.nesting == 1:
            section, item = following.content, 0
        elif token.type == "list_item_open":
            item = int(token.info or 0)
        elif token.type == "ordered_list_close":
            item = 0
        elif token.type in ("fence", "code_block"):
            yield Block(page, section, item, tuple(token.content.rstrip("\n").splitlines()))


def examples(page: str) -> list[Example]:
    """Return the shell lines of a page's blocks in their order, those of prompts too."""
    found = []
    for block in blocks(page):
        for line in block.lines:
            typed = line.removeprefix(_PROMPT).partition("  #")[0].strip()
            prompted = line.startswith(_PROMPT) or not block.lines[0].startswith(_PROMPT)
            if prompted and _COMMAND.search(typed):
                found.append(Example(page, block.section, block.item, typed))
    return found


def every_example() -> list[Example]:
    """Return the shell lines of all pages."""
    return [example for page in PAGES for example in examples(page)]


def screen_of(page: str) -> tuple[Example, tuple[str, ...]]:
    """Return the one prompted command of a page, with the lines that follow it."""
    (block,) = [one for one in blocks(page) if one.lines[0].startswith(_PROMPT)]
    typed = block.lines[0].removeprefix(_PROMPT)
    return Example(page, block.section, block.item, typed), block.lines[1:]


def without_times(text: str) -> list[str]:
    """Return lines without what depends on the hour: times, and the padding that follows them."""
    lines = [re.sub(r"\s+", " ", _TIMES.sub("TIME", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def code(page: str) -> list[str]:
    """Return what the text of a page marks as code."""
    return [one.replace("\\|", "|") for one in re.findall(r"`([^`\n]+)`", PAGES[page])]


def spans() -> list[str]:
    """Return the commands that the text of all pages names, each once: `rebal demo`."""
    quoted = [one for page in PAGES for one in code(page)]
    return list(dict.fromkeys(one for one in quoted if _COMMAND.search(one)))


def rows() -> Iterator[tuple[str, str]]:
    """Yield the command of each row of the README's table of commands, and what the row says."""
    for line in PAGES["README.md"].splitlines():
        if row := re.match(r"\| `rebal ([a-z-]+(?: [a-z]+)?)[^`]*` \| (.*) \|$", line):
            yield row[1], row[2]
