"""The tables of captured stories against what was really done (REBAL_CAPTURES names another one).

Each fact is right, or unknown (null) where the source cannot show it; none is wrong. The counts are
printed: matched / expected, and how many of the rest are unknown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.fleet.conftest import CAPTURES, OFFSETS, REQUEST_LOG, TIMEOUTS, read_tables
from tests.fleet.tally import Tally
from tests.fleet.timeline_input import Row, Tables, captured_records, captured_requests, tables
from tests.fleet.truth import Truth
from tests.fleet.truth_checks import CHECKS

GIVEN = os.environ.get("REBAL_CAPTURES")
FOLDERS = [Path(GIVEN)] if GIVEN else [CAPTURES, TIMEOUTS]
FOLDER = FOLDERS[0]
MODES = ("topic and log", "topic", "log")
of_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@cache
def rows_of(folder: Path) -> Mapping[str, list[Row]]:
    return {"topic": list(captured_records(folder)), "log": list(captured_requests(folder))}


@cache
def made(folder: Path, mode: str) -> Tables:
    return tables([row for source in mode.split(" and ") for row in rows_of(folder)[source]])


@cache
def truth_of(folder: Path) -> Truth:
    return Truth(folder)


def checked(folder: Path, mode: str, found: Tables) -> Tally:
    tally = Tally(mode, folder)
    for check in CHECKS:
        check(truth_of(folder), found, tally)
    return tally


@of_folder
@pytest.mark.parametrize("mode", MODES)
def test_tables_tell_what_was_done(
    mode: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(folder, mode)
    tally = checked(folder, mode, found)
    with capsys.disabled():
        print("\n".join(tally.lines()))
    tally.check()
    assert not found["errors"]


@pytest.mark.live
def test_so_do_the_tables_that_spark_makes(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if FOLDER == CAPTURES:
        found = request.getfixturevalue("local_tables")
    else:
        out = request.getfixturevalue("tmp_path") / "out"
        words = ["--offsets", FOLDER / OFFSETS.name, "--request-log", FOLDER / REQUEST_LOG.name]
        request.getfixturevalue("scan")(*words, "--out", out)
        found = read_tables(out)
    tally = checked(FOLDER, "topic and log, through Spark", found)
    with capsys.disabled():
        print("\n".join(tally.lines()))
    tally.check()
    assert not found["errors"]
