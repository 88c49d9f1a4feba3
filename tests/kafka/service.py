"""What `rebal` says of a broker's groups in JSON, and settings as its plans write them."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

from rebal.cli import app
from tests.documents import checked
from tests.kafka.administration import Administration


def answer(
    broker: Administration, capsys: pytest.CaptureFixture[str], command: str, *words: str
) -> dict[str, Any]:
    """What a command says of this broker's groups in JSON, whose exit code is the command's."""
    code = app.run([command, *words, "-b", broker.bootstrap, "-o", "json"])
    told = capsys.readouterr()
    assert told.out, told.err
    assert "fault of rebal" not in told.err
    body: dict[str, Any] = checked(told.out)
    assert body["exit_code"] == code
    return body


def inspect(broker: Administration, group: str, *options: str) -> dict[str, Any]:
    """The one group in `rebal inspect`'s JSON."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = app.run(["inspect", group, "-o", "json", "-b", broker.bootstrap, *options])
    assert code in (0, 3, 4), err.getvalue()
    answer = json.loads(out.getvalue())
    assert answer["schema"] == "rebal.inspect/1"
    (only,) = answer["groups"]
    return only


def named(body: dict[str, Any], word: str) -> set[str]:
    """The members of whom a verify says `word` (yes, no, cannot tell)."""
    return {member["name"] for member in body["members"] if member["done"] == word}


def properties_of(text: str) -> dict[str, str]:
    """The settings of a properties text, which may have comments."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)
