"""The tables of captured stories against what was really done (REBAL_CAPTURES names another one).

Each fact is right, or unknown (null) where the source cannot show it; none is wrong. What else the
tables say is in tests/data/timelines: REBAL_SCREENS=renew writes it again.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.conftest import CAPTURES, TIMEOUTS, check_kept
from tests.fleet.timeline_input import Tables, captured_records, captured_requests, tables
from tests.fleet.truth import Truth
from tests.fleet.truth_checks import CHECKS, Tally

GIVEN = os.environ.get("REBAL_CAPTURES")
FOLDERS = [Path(GIVEN)] if GIVEN else [CAPTURES, TIMEOUTS]
KEPT = Path(__file__).parents[1] / "data" / "timelines"
_REST_OF_ID = re.compile(r"(?<=-[0-9a-f]{4})[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f-]{22}")


def check(folder: Path, mode: str, found: Tables) -> None:
    truth, tally = Truth(folder), Tally(mode, folder)
    for one in CHECKS:
        one(truth, found, tally)
    tally.check()
    assert not found["errors"]


def told(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"[{', '.join(map(told, value))}]"
    if isinstance(value, dict):
        return " ".join(map(told, value.values()))
    return str(value).removeprefix("2026-").removesuffix("+00:00")


def lines_of(found: Tables, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each row of these tables: its columns that are not null."""
    for name in names:
        for row in found[name]:
            said = (f"{column} {told(value)}" for column, value in row.items() if value is not None)
            yield _REST_OF_ID.sub("", f"{name}: {', '.join(said)}")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("mode", ["topic and log", "topic", "log"])
def test_tables_tell_what_was_done(mode: str, folder: Path) -> None:
    records = captured_records(folder) if "topic" in mode else ()
    requests = captured_requests(folder) if "log" in mode else ()
    found = tables([*records, *requests])
    check(folder, mode, found)
    if GIVEN:
        return
    file = KEPT / f"{folder.name}_{mode.replace(' ', '_')}.txt"
    made = list(lines_of(found, found if mode == "topic and log" else ("rebalances", "incidents")))
    check_kept(file, "\n".join(made) + "\n")


@pytest.mark.live
def test_so_do_the_tables_that_spark_makes(local_tables: Tables) -> None:
    check(CAPTURES, "topic and log, through Spark", local_tables)
