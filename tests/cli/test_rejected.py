"""A client that the coordinator rejects leads every screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rebal.cli.files import save_snapshot
from tests.cli.conftest import Rebal
from tests.planner.builder import group_of

RANGE = {"members": [{"id": "a", "list": ["range"]}, {"id": "b", "list": ["range"]}]}
REJECTED = {"client": "c", "list": ["cooperative-sticky"]}


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
    command: list[str], refusals: list[Any], code: int, times: int, *, tmp_path: Path, rebal: Rebal
) -> None:
    """A rejection that is not proven to repeat exits with 4."""
    file = str(save_snapshot(group_of({**RANGE, "refusals": refusals}), tmp_path))
    text = rebal(*command, "--snapshot", file, code=code).out
    assert text.startswith("REJECTED    RB904 c was rejected once") is bool(times)
    assert text.count("RB904 c was rejected once") == times
    if command == ["inspect"]:
        body = rebal(*command, "--snapshot", file, "-o", "json", code=code).body
        urgent = [one["rule"] for one in body["groups"][0]["findings"] if one["urgent"]]
        assert (body["exit_code"], urgent) == (code, ["RB904"] * times)
