"""The tables of a captured story against what was really done (REBAL_CAPTURES names another one).

Each fact is right, or unknown (null) where the source cannot show it; none is wrong. The counts are
printed: matched / expected, and how many of the rest are unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.conftest import CAPTURES, OFFSETS, REQUEST_LOG, read_tables
from tests.fleet.tally import Tally
from tests.fleet.timeline_input import Tables, captured_records, captured_requests, tables
from tests.fleet.truth import Truth
from tests.fleet.truth_checks import CHECKS

FOLDER = Path(os.environ.get("REBAL_CAPTURES") or CAPTURES)
MODES = ("topic and log", "topic", "log")


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(FOLDER)


@pytest.fixture(scope="module")
def made() -> Callable[[str], Tables]:
    records, requests = list(captured_records(FOLDER)), list(captured_requests(FOLDER))
    known: dict[str, Tables] = {}

    def of(mode: str) -> Tables:
        if mode not in known:
            rows = records if "topic" in mode else []
            known[mode] = tables([*rows, *(requests if "log" in mode else [])])
        return known[mode]

    return of


@pytest.mark.parametrize("mode", MODES)
def test_tables_tell_what_was_done(
    mode: str,
    truth: Truth,
    made: Callable[[str], Tables],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, tally = made(mode), Tally(mode, FOLDER)
    for check in CHECKS:
        check(truth, found, tally)
    with capsys.disabled():
        print("\n".join(tally.lines()))
    tally.check()
    assert not found["errors"]


@pytest.mark.live
def test_so_do_the_tables_that_spark_makes(
    truth: Truth, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if FOLDER == CAPTURES:
        found = request.getfixturevalue("local_tables")
    else:
        out = request.getfixturevalue("tmp_path") / "out"
        words = ["--offsets", FOLDER / OFFSETS.name, "--request-log", FOLDER / REQUEST_LOG.name]
        request.getfixturevalue("scan")(*words, "--out", out)
        found = read_tables(out)
    tally = Tally("topic and log, through Spark", FOLDER)
    for check in CHECKS:
        check(truth, found, tally)
    with capsys.disabled():
        print("\n".join(tally.lines()))
    tally.check()
    assert not found["errors"]
