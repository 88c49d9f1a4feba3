"""The tables of captured stories against what was really done (REBAL_CAPTURES names another one).

Each fact is right, or unknown (null) where the source cannot show it; none is wrong. The counts are
printed: matched / expected, and how many of the rest are unknown.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rebal.inspectors.fleet.schemas import TABLES
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


@of_folder
@pytest.mark.parametrize("seed", range(6))
def test_nulls_are_counted_and_never_stop_the_checks(folder: Path, seed: int) -> None:
    rand = random.Random(seed)
    mode = MODES[seed % len(MODES)]

    def nulled(table: str, row: Row) -> dict[str, Any]:
        may_be = [name for name in TABLES[table].names if name not in SURE]
        gone = {name for name in may_be if rand.random() < seed / 20}
        return {name: None if name in gone else value for name, value in row.items()}

    found = {name: [nulled(name, row) for row in rows] for name, rows in made(folder, mode).items()}
    for row in found["groups"]:
        row["refused_total"] = None
    tally = checked(folder, mode, found)
    said = "\n".join(tally.lines())
    unknown = len(tally.unknown["refused_total of a group without a log line"])
    assert f"0 / {unknown}, {unknown} unknown" in said
    assert unknown == len(found["groups"])


SURE = {
    "group_id", "incarnation", "generation", "first_generation", "last_generation", "failed",
    "refused", "current", "kind", "member_id", "first_at", "at", "last_at", "times", "ended_at",
}  # fmt: skip
"""Columns that are null in no row of these tables, or whose null means another kind of row."""


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
