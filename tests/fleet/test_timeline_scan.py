"""Wrong clocks through the whole pipeline: captured file, Spark, tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rebal.cli.app import run
from rebal.inspectors.tables.history import read_history
from rebal.inspectors.tables.reader import open_tables
from tests.fleet.conftest import Tables, read_tables
from tests.fleet.timeline_input import write_records
from tests.fleet.timeline_story import SECOND, M, Story

YEARS = 76 * 365 * 24 * 3600


def written(path: Path, wrong: dict[int, float]) -> Path:
    """A file of a quiet group's records; `wrong` are seconds by which records' clocks were off."""
    story = Story()
    for number in range(1, 41):
        others = [M(f"b{number}", (1,))] if number % 2 else []
        story.generation(number * 30, number, [M("a", (0,)), *others])
    moved = [
        {**row, "at": row["at"] + round(wrong.get(row["offset"], 0) * SECOND)} for row in story.rows
    ]
    return write_records(path, moved)


@pytest.fixture(scope="module")
def usual(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables of records whose clock is right."""
    folder = tmp_path_factory.mktemp("usual")
    words = ["--offsets", written(folder / "sane.jsonl", {}), "--out", folder / "lake"]
    assert run(["fleet", "scan", *map(str, words)]) == 0
    return read_tables(folder / "lake")


@pytest.mark.parametrize(
    "wrong",
    [dict.fromkeys(range(15, 24), -60.0), {39: YEARS}, {20: YEARS, 3: -YEARS / 2}],
    ids=["set back by 60 s", "the last one from 2100", "years off"],
)
def test_a_wrong_clock_changes_no_table_but_its_own_times(
    scan: Callable[..., str], tmp_path: Path, usual: Tables, wrong: dict[int, float]
) -> None:
    scan("--offsets", written(tmp_path / "wrong.jsonl", wrong), "--out", tmp_path / "lake")
    made = read_tables(tmp_path / "lake")
    assert made["errors"] == []
    assert made["incidents"] == []
    names = ("generation", "failed", "joined", "left", "members", "partitions", "moved", "stopped")
    facts = [[[row[name] for name in names] for row in one["rebalances"]] for one in (made, usual)]
    assert facts[0] == facts[1]
    (before,), (seen,) = usual["groups"], read_history(open_tables(str(tmp_path / "lake"))).values()
    rate = before["rebalance_total"] / (
        (before["last_seen"] - before["first_seen"]) / timedelta(hours=1)
    )
    assert seen.metrics["rebalance-rate-per-hour"] == pytest.approx(rate, rel=0.05)
    assert (seen.metrics["last-rebalance-seconds-ago"] or 0) >= 0
