"""A client that the coordinator rejects leads every screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from rebal.cli.files import save_snapshot
from tests.planner.builder import group_of

RANGE = {"members": [{"id": "a", "list": ["range"]}, {"id": "b", "list": ["range"]}]}
REJECTED = {"client": "c", "list": ["cooperative-sticky"]}
Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("command", "refusals", "code", "times"),
    [
        (["inspect"], [REJECTED], 3, 1),
        (["inspect"], [{"client": "c", "list": []}], 4, 1),
        (["inspect"], [], 0, 0),
        (["plan-upgrade"], [REJECTED], 0, 1),
        (["plan-upgrade", "--details"], [REJECTED], 0, 2),
        (["plan-upgrade", "--ignore", "RB904", "--reason", "an old canary"], [REJECTED], 0, 0),
    ],
)
def test_a_rejected_client_leads_the_screen(
    command: list[str], refusals: list[Any], code: int, times: int, *, tmp_path: Path, capsys: Said
) -> None:
    """A rejection that is not proven to repeat exits with 4."""
    file = str(save_snapshot(group_of({**RANGE, "refusals": refusals}), tmp_path))
    assert app.run([*command, "--snapshot", file]) == code
    text = capsys.readouterr().out
    assert text.startswith("REJECTED    RB904 c was rejected once") is bool(times)
    assert text.count("RB904 c was rejected once") == times
    if command == ["inspect"]:
        assert app.run([*command, "--snapshot", file, "-o", "json"]) == code
        body = json.loads(capsys.readouterr().out)
        urgent = [one["rule"] for one in body["groups"][0]["findings"] if one["urgent"]]
        assert (body["exit_code"], urgent) == (code, ["RB904"] * times)
