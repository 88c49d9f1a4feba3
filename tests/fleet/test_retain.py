"""Retention: scans of some time stay readable as they were written, others lose row and files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rebal.inspectors.fleet.lake import run as lake_run
from rebal.inspectors.fleet.lake import table as lake_table
from rebal.inspectors.fleet.lake.place import LakeError, find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.lake.scans import Scans
from rebal.inspectors.fleet.lake.table import LakeTable
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest
from rebal.inspectors.tables.reader import TablesError, open_tables
from tests.fleet.test_lake import WHEN, files_of, finish, of, seen

DAY = 86_400.0


def scan_at(out: Path, day: float, retain: float | None = None) -> Manifest:
    run = new_run(find_place(str(out)), UNNAMED, full=False, retain=retain)
    return finish(run, run.number, WHEN + timedelta(days=day))


def check(out: Path, *scans: int) -> None:
    """These scans can be read, each as it was written."""
    assert open_tables(str(out)).scans == scans
    for number in scans:
        assert seen(out, scan=number) == of(number, records=number)


def members(out: Path) -> list[str]:
    return [one for one in files_of(out) if one.startswith("members/") and "_delta_log" not in one]


@pytest.fixture(scope="module")
def ten_scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that keeps ten scans; small row groups."""
    out = tmp_path_factory.mktemp("ten") / "lake"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_table, "_FEW", 4)
        for number in range(1, 11):
            scan_at(out, number, 100 * DAY if number == 1 else None)
    return out


@pytest.fixture
def lake(ten_scans: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ten_scans, tmp_path / "lake"))


def test_scans_are_bounded_by_those_that_are_kept_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One a day: the first is named with --retain 3d, the others go on with it."""
    monkeypatch.setattr(lake_run, "CHECKPOINT", 5)
    monkeypatch.setattr(lake_table, "CHECKPOINT", 5)
    counts = []
    for number in range(1, 11):
        scan_at(tmp_path, number, 3 * DAY if number == 1 else None)
        log = list((tmp_path / "groups" / "_delta_log").glob("0*"))
        counts.append((len(members(tmp_path)), len(log)))
    assert max(members for members, _ in counts) <= 8
    assert max(log for _, log in counts) <= 13
    assert counts[-1][0] <= 5, "the tenth scan removes files"
    assert counts[-1][1] <= 8, "and log entries"
    check(tmp_path, 7, 8, 9, 10)
    left = {path.split("/")[1].split("-")[1] for path in members(tmp_path)}
    tables = open_tables(str(tmp_path))
    assert left == {f"{number:08d}" for number in tables.scans}
    for number in (6, 11):
        says = rf"scan {number} was removed or never finished; scans 7 to 10 can be read\."
        with pytest.raises(TablesError, match=says):
            tables.of_scan(number)


def test_a_scan_reads_the_rows_of_others_once_and_few_documents_at_a_time(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    held: list[int] = []

    class Watched(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, rows: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
            for found in super().iter_batches(rows, columns=columns):
                (held if "document" in columns else read).append(len(found))
                yield found

    monkeypatch.setattr(lake_table, "_FEW", 4)
    monkeypatch.setattr(lake_table.pq, "ParquetFile", Watched)
    scan_at(lake, 11)
    assert sum(read) == 10
    scan_at(lake, 108)
    assert sum(read) == 10 + 11
    assert max(held) <= 4
    check(lake, 8, 9, 10, 11, 12)


def test_rows_that_are_dropped_beside_a_scan_do_not_come_back(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan that commits its row at the same moment is in, or is told that it is not."""
    place = find_place(str(lake))
    become = LakeTable.become

    def beside(table: LakeTable, *given: Any, **more: Any) -> int | None:
        if more:
            monkeypatch.undo()
            found = Scans(place).of(UNNAMED)
            assert Scans(place).drop(found, [1, 2], "00000000-00000001-x")
        return become(table, *given, **more)

    monkeypatch.setattr(LakeTable, "become", beside)
    with pytest.raises(LakeError, match="came first"):
        scan_at(lake, 11)
    assert open_tables(str(lake)).scans == tuple(range(3, 11))
    scan_at(lake, 12)
    for number in open_tables(str(lake)).scans:
        assert seen(lake, scan=number)["groups"] == [f"g{number}"]
