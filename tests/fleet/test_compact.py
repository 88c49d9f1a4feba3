"""`rebal fleet compact`: less is kept, every kept scan reads as before, whatever comes between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from rebal.cli import app
from rebal.inspectors.fleet.lake import sweep
from rebal.inspectors.fleet.lake.place import LakePlace, find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.lake.scans import Scans
from rebal.inspectors.fleet.lake.sweep import Compacted, Freed, compact
from rebal.inspectors.fleet.manifest import UNNAMED
from rebal.inspectors.tables.reader import open_tables
from tests.documents import checked
from tests.fleet.test_lake import KilledError, finish, seen
from tests.fleet.test_retain import DAY, check, members, scan_at

Said = pytest.CaptureFixture[str]


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
    remove = sweep.remove

    def half(place: LakePlace, freed: Sequence[Freed]) -> None:
        remove(place, freed[: len(freed) // 2])
        raise KilledError

    monkeypatch.setattr(sweep, "remove", half)
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
    run, find = new_run(find_place(str(lake)), UNNAMED, full=False), sweep.find_files

    def end_first(*given: Any, **more: Any) -> Any:
        finish(run, 9)
        return find(*given, **more)

    if ends == "within it":
        monkeypatch.setattr(sweep, "find_files", end_first)
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
