"""The command lines of docs/fleet-on-spark.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from rebal.cli import app

DOC: Final = (Path(__file__).parents[2] / "docs" / "fleet-on-spark.md").read_text()
LINES: Final = re.findall(r"^ {4,}((?:rebal|spark-submit) .*)$", DOC, re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_each_command_line_of_the_document_is_parsed_by_the_real_command(line: str) -> None:
    words = shlex.split(line)
    words = words[words.index("fleet") :]
    command: Any = app.build()
    for word in words[:2]:
        command = command.commands[word]
    command.load().make_context(words[1], words[2:])


def test_the_document_has_command_lines() -> None:
    assert len(LINES) == 8
