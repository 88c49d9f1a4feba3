"""The tables of captured stories against what was really done (REBAL_CAPTURES names another one).

Each fact is right, or unknown (null) where the source cannot show it; none is wrong.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fleet.conftest import CAPTURES, OFFSETS, REQUEST_LOG, TIMEOUTS, read_tables
from tests.fleet.timeline_input import Tables, captured_records, captured_requests, tables
from tests.fleet.truth import Truth
from tests.fleet.truth_checks import CHECKS, Tally

GIVEN = os.environ.get("REBAL_CAPTURES")
FOLDERS = [Path(GIVEN)] if GIVEN else [CAPTURES, TIMEOUTS]
FOLDER = FOLDERS[0]


def check(folder: Path, mode: str, found: Tables) -> None:
    truth, tally = Truth(folder), Tally(mode, folder)
    for one in CHECKS:
        one(truth, found, tally)
    tally.check()
    assert not found["errors"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("mode", ["topic and log", "topic", "log"])
def test_tables_tell_what_was_done(mode: str, folder: Path) -> None:
    records = captured_records(folder) if "topic" in mode else ()
    requests = captured_requests(folder) if "log" in mode else ()
    check(folder, mode, tables([*records, *requests]))


@pytest.mark.live
def test_so_do_the_tables_that_spark_makes(request: pytest.FixtureRequest) -> None:
    if FOLDER == CAPTURES:
        found = request.getfixturevalue("local_tables")
    else:
        words = ["--offsets", FOLDER / OFFSETS.name, "--request-log", FOLDER / REQUEST_LOG.name]
        found = read_tables(request.getfixturevalue("new_scan")(*words))
    check(FOLDER, "topic and log, through Spark", found)
