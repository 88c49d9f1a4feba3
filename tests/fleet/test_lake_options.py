"""`--lake-option` of commands that read a lake: as `fleet scan` takes it, secrets never printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rebal.cli import app, fleet
from rebal.inspectors.tables import reader
from tests.fleet.synthetic import group_named

Said = pytest.CaptureFixture[str]
NAME = group_named("eager")
SECRET = "w8K-not-to-be-printed"
OPTIONS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_SECRET_ACCESS_KEY": SECRET}
WORDS = [word for pair in OPTIONS.items() for word in ("--lake-option", "=".join(pair))]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str] | None]:
    """The settings with which each lake was opened."""
    made: list[Mapping[str, str] | None] = []

    def open_tables(text: str, options: Mapping[str, str] | None = None) -> reader.Tables:
        made.append(options)
        return opening(text, options)

    opening = reader.open_tables
    for module in (fleet, reader):
        monkeypatch.setattr(module, "open_tables", open_tables)
    return made


@pytest.mark.parametrize(
    "command",
    [
        ["fleet", "report", "LAKE"],
        ["fleet", "report", "LAKE", "--group", NAME],
        ["inspect", NAME, "--evidence", "LAKE"],
        ["plan-upgrade", NAME, "--evidence", "LAKE"],
        ["simulate", NAME, "--assignor", "range", "--evidence", "LAKE"],
        ["groups", "--evidence", "LAKE"],
    ],
)
def test_settings_reach_the_store_and_are_repeated_without_secrets(
    command: list[str],
    small_scan: Path,
    opened: list[Mapping[str, str] | None],
    capsys: Said,
) -> None:
    words = [str(small_scan) if word == "LAKE" else word for word in command]
    app.run([*words, *WORDS])
    told = capsys.readouterr()
    assert opened
    assert all(options == OPTIONS for options in opened)
    assert SECRET not in told.out + told.err
    lines = told.out.splitlines()
    reading = [line for line in lines if "rebal " in line and str(small_scan) in line]
    assert reading or command[0] == "simulate"
    for line in reading:
        assert "--lake-option AWS_ENDPOINT_URL=http://127.0.0.1:9000" in line
        assert "AWS_SECRET" not in line


def test_verify_and_diff_take_them_too(
    small_scan: Path, tmp_path: Path, opened: list[Mapping[str, str] | None], capsys: Said
) -> None:
    plan = tmp_path / "group.plan.yaml"
    lake = ["--evidence", str(small_scan), *WORDS]
    assert app.run(["plan-upgrade", NAME, *lake, "--out", str(plan)]) == 0
    assert SECRET not in plan.read_text()
    assert "AWS_ENDPOINT_URL" in plan.read_text()
    before = len(opened)
    app.run(["verify", str(plan), *lake])
    app.run(["diff", str(plan), NAME, *lake])
    assert len(opened) == before + 2
    assert SECRET not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fleet", "report", "LAKE", "--lake-option", "x"], "--lake-option: expected KEY=VALUE"),
        (["groups", "--lake-option", "A=b"], "name the lake with --evidence"),
        (["inspect", NAME, "--evidence", "LAKE", "--lake-option", "=b"], "expected KEY=VALUE"),
    ],
)
def test_a_setting_that_is_none_is_a_usage_error(
    words: list[str], said: str, small_scan: Path, capsys: Said
) -> None:
    assert app.run([str(small_scan) if word == "LAKE" else word for word in words]) == 2
    assert said in capsys.readouterr().err
