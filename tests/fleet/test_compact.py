"""`rebal fleet compact`: less is kept, every kept scan reads as before, whatever comes between."""

from __future__ import annotations

from atexit import register
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any

import pytest

from rebal.cli import app
from rebal.inspectors.fleet.lake import sweep
from rebal.inspectors.fleet.lake.place import Place, find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.lake.scans import Scans
from rebal.inspectors.fleet.lake.sweep import Compacted, Freed, compact
from rebal.inspectors.fleet.manifest import UNNAMED
from rebal.inspectors.tables.reader import open_tables
from tests.documents import checked
from tests.fleet.test_lake import KilledError, files_of, finish
from tests.fleet.test_retain import DAY, check, members, scan_at

Said = pytest.CaptureFixture[str]


@cache
def made(scans: int) -> Path:
    """A folder that `lake_of` copies; nothing else writes to it."""
    out = Path(mkdtemp(prefix="rebal-lakes-"))
    register(rmtree, out, ignore_errors=True)
    if scans > 1:
        copytree(made(scans - 1), out, dirs_exist_ok=True)
    scan_at(out, scans - 400, 3650 * DAY)
    return out


def lake_of(out: Path, scans: int) -> Path:
    """A lake that keeps all of these scans, of years ago; `records` has a file of each."""
    return Path(copytree(made(scans), out, dirs_exist_ok=True))


def compacted(out: Path, retain: float | None = 3650 * DAY, *, dry: bool = False) -> Compacted:
    return compact(find_place(str(out)), [UNNAMED], retain=retain, dry=dry)


def test_scans_that_are_not_kept_go_with_their_files_and_log(tmp_path: Path) -> None:
    lake_of(tmp_path, 13)
    cut_off = tmp_path / "groups" / "_delta_log" / f".{3:020}.json.tmp.1"
    cut_off.touch()
    planned = compacted(tmp_path, 1.0, dry=True)
    assert planned.dropped == {UNNAMED: tuple(range(1, 12))}
    assert len(members(tmp_path)) == 13
    done = compacted(tmp_path, 1.0)
    assert (done.dropped, done.lost) == (planned.dropped, ())
    assert set(planned.files) <= set(done.files)
    assert len(planned.log) > 100
    check(tmp_path, 12, 13)
    assert {path.split("-")[1] for path in members(tmp_path)} == {"00000012", "00000013"}
    for one in (*done.files, *done.log):
        assert not (tmp_path / one.path).exists()
    assert len(list((tmp_path / "groups" / "_delta_log").glob("0*"))) < 12
    assert not cut_off.exists(), "a commit that was cut off on HDFS"


def test_a_compaction_that_is_killed_between_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, remove = lake_of(tmp_path / "lake", 5), sweep.remove

    def half(place: Place, freed: Sequence[Freed]) -> None:
        remove(place, freed[: len(freed) // 2])
        raise KilledError

    monkeypatch.setattr(sweep, "remove", half)
    with pytest.raises(KilledError):
        compacted(out, 1.0)
    monkeypatch.undo()
    check(out, 4, 5)
    assert compacted(out, 1.0).files, "the rest goes with the next one"
    assert compacted(out, 1.0).files == ()
    check(out, 4, 5)


def test_a_scan_that_is_under_way_is_not_disturbed(tmp_path: Path) -> None:
    place = find_place(str(lake_of(tmp_path, 5)))
    with new_run(place, UNNAMED, full=False) as run:
        done = compacted(tmp_path, 1.0)
        assert len(done.dropped[UNNAMED]) == 3
        finish(run, 9)
    assert open_tables(str(tmp_path)).manifest.offsets == {0: 9}


def test_a_scan_that_ends_meanwhile_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    lake_of(tmp_path, 4)
    drop = Scans.drop

    def scan_meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        scan_at(tmp_path, 7)
        return drop(*given)

    monkeypatch.setattr(Scans, "drop", scan_meanwhile)
    assert app.run(["fleet", "compact", str(tmp_path), "--retain", "365d", "-o", "json"]) == 1
    body = checked(capsys.readouterr().out, "json")
    assert "ended meanwhile and came first: compact again" in body["not_done"][0]
    assert body["exit_code"] == 1
    check(tmp_path, 1, 2, 3, 4, 5)


def test_the_document_says_what_the_screen_does(tmp_path: Path, capsys: Said) -> None:
    def document(*words: str) -> Any:
        words = ("--retain", "1d", "-o", "json", *words)
        assert app.run(["fleet", "compact", str(tmp_path), *words]) == 0
        told = capsys.readouterr()
        assert told.err == ""
        return checked(told.out)

    lake_of(tmp_path, 4)
    planned, before = document("--dry-run"), files_of(tmp_path)
    sizes = {path: (tmp_path / path).stat().st_size for path in before}
    done = document()
    gone = before - files_of(tmp_path)
    assert done["clusters"] == [{"cluster": UNNAMED, "removed_scans": [1, 2]}]
    assert done["removed_files"] + done["removed_log_entries"] == len(gone) > 0
    assert done["freed_bytes"] == sum(sizes[path] for path in gone)
    assert planned["clusters"] == done["clusters"]
    assert (planned["dry_run"], done["dry_run"], done["not_done"]) == (True, False, [])


def test_the_screen_says_what_was_freed(tmp_path: Path, capsys: Said) -> None:
    lake_of(tmp_path, 4)
    assert app.run(["fleet", "compact", str(tmp_path), "--retain", "1d", "--dry-run"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "rebal: would remove scans 1 to 2 of unnamed"
    assert said[1].startswith("rebal: would free 0.0 MB: ")
    check(tmp_path, 1, 2, 3, 4)
    assert app.run(["fleet", "compact", str(tmp_path), "--retain", "1d"]) == 0
    assert capsys.readouterr().err.startswith("rebal: removed scans 1 to 2 of unnamed\n")
    check(tmp_path, 3, 4)
