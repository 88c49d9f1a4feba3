"""Retention, and `rebal fleet compact`: scans of some time stay readable as they were written.

Others lose row and files; every kept scan reads as before, whatever comes between.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rebal.cli import app
from rebal.inspectors.fleet.lake import run as lake_run
from rebal.inspectors.fleet.lake import table as lake_table
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace, find_place
from rebal.inspectors.fleet.lake.run import Compacted, Freed, compact, new_run
from rebal.inspectors.fleet.lake.scans import Scans
from rebal.inspectors.fleet.lake.table import LakeTable
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest
from rebal.inspectors.tables.reader import TablesError, open_tables
from tests.documents import checked
from tests.fleet.test_lake import WHEN, KilledError, files_of, finish, of, seen

DAY = 86_400.0
Said = pytest.CaptureFixture[str]


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
def thirteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that keeps thirteen scans of a year ago; `records` has a file of each."""
    out = tmp_path_factory.mktemp("thirteen") / "lake"
    for number in range(1, 14):
        scan_at(out, number - 400, 3650 * DAY)
    return out


@pytest.fixture
def lake(thirteen: Path, tmp_path: Path) -> Path:
    return Path(copytree(thirteen, tmp_path / "lake"))


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
    scan_at(lake, -386)
    assert sum(read) == 13
    scan_at(lake, -380, 10 * DAY)
    assert sum(read) == 13 + 14
    assert max(held) <= 4
    check(lake, *range(10, 16))


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
    assert open_tables(str(lake)).scans == tuple(range(3, 14))
    scan_at(lake, 12)
    for number in open_tables(str(lake)).scans:
        assert seen(lake, scan=number)["groups"] == [f"g{number}"]


def compacted(lake: Path, *, dry: bool = False) -> Compacted:
    return compact(find_place(str(lake)), [UNNAMED], retain=1.0, dry=dry)


def test_scans_that_are_not_kept_go_with_their_files_and_log(lake: Path) -> None:
    cut_off = lake / "groups" / "_delta_log" / f".{3:020}.json.tmp.1"
    cut_off.touch()
    planned = compacted(lake, dry=True)
    assert planned.dropped == {UNNAMED: tuple(range(1, 12))}
    assert len(members(lake)) == 13
    done = compacted(lake)
    assert (done.dropped, done.lost) == (planned.dropped, ())
    assert set(planned.files) <= set(done.files)
    assert len(planned.log) > 100
    check(lake, 12, 13)
    assert {path.split("-")[1] for path in members(lake)} == {"00000012", "00000013"}
    for one in (*done.files, *done.log):
        assert not (lake / one.path).exists()
    assert len(list((lake / "groups" / "_delta_log").glob("0*"))) < 12
    assert not cut_off.exists(), "a commit that was cut off on HDFS"


def test_a_compaction_that_is_killed_between_two_files(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = lake_run.remove

    def half(place: LakePlace, freed: Sequence[Freed]) -> None:
        remove(place, freed[: len(freed) // 2])
        raise KilledError

    monkeypatch.setattr(lake_run, "remove", half)
    with pytest.raises(KilledError):
        compacted(lake)
    monkeypatch.undo()
    check(lake, 12, 13)
    assert compacted(lake).files, "the rest goes with the next one"
    assert compacted(lake).files == ()
    check(lake, 12, 13)


@pytest.mark.parametrize("ends", ["after the compaction", "within it"])
def test_a_scan_that_is_under_way_is_not_disturbed(
    lake: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    run, find = new_run(find_place(str(lake)), UNNAMED, full=False), lake_run.find_files

    def end_first(*given: Any, **more: Any) -> Any:
        finish(run, 9)
        return find(*given, **more)

    if ends == "within it":
        monkeypatch.setattr(lake_run, "find_files", end_first)
    assert len(compacted(lake).dropped[UNNAMED]) == 11
    monkeypatch.undo()
    if ends == "after the compaction":
        finish(run, 9)
    assert open_tables(str(lake)).manifest.offsets == {0: 9}
    assert seen(lake).keys() == seen(lake, scan=13).keys()


def test_a_scan_that_ends_meanwhile_comes_first(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    drop = Scans.drop

    def scan_meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        scan_at(lake, 7)
        return drop(*given)

    monkeypatch.setattr(Scans, "drop", scan_meanwhile)
    assert app.run(["fleet", "compact", str(lake), "--retain", "365d", "-o", "json"]) == 1
    body = checked(capsys.readouterr().out, "json")
    assert "ended meanwhile and came first: compact again" in body["not_done"][0]
    assert body["exit_code"] == 1
    check(lake, *range(1, 15))


def test_screen_and_document_say_what_was_freed(lake: Path, capsys: Said) -> None:
    def told(*words: str) -> tuple[str, str]:
        assert app.run(["fleet", "compact", str(lake), "--retain", "1d", *words]) == 0
        return capsys.readouterr()

    sizes = {path: path.stat().st_size for path in lake.rglob("*") if path.is_file()}
    said = told("--dry-run").err.splitlines()
    assert said[0] == "rebal: would remove scans 1 to 11 of unnamed"
    assert re.match(r"rebal: would free 0\.\d MB: ", said[1])
    planned = checked(told("--dry-run", "-o", "json").out)
    assert not sizes.keys() - set(lake.rglob("*"))
    done = checked(told("-o", "json").out)
    gone = sizes.keys() - set(lake.rglob("*"))
    assert done["clusters"] == [{"cluster": UNNAMED, "removed_scans": [*range(1, 12)]}]
    assert done["removed_files"] + done["removed_log_entries"] == len(gone) > 0
    assert done["freed_bytes"] == sum(sizes[path] for path in gone)
    assert planned["clusters"] == done["clusters"]
    assert (planned["dry_run"], done["dry_run"], done["not_done"]) == (True, False, [])
