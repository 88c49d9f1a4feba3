"""`rebal fleet compact`: less is kept, every kept scan reads as before, whatever comes between."""

from __future__ import annotations

import signal
import subprocess
import sys
from atexit import register
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any

import pyarrow.parquet as pq
import pytest

from rebal.cli import app
from rebal.inspectors.fleet.increments import compact as compacting
from rebal.inspectors.fleet.increments.choice import NEWEST
from rebal.inspectors.fleet.increments.compact import Compacted, compact
from rebal.inspectors.fleet.lake.place import LakeError, find_place
from rebal.inspectors.fleet.lake.run import new_run
from rebal.inspectors.fleet.lake.table import LakeTable
from rebal.inspectors.fleet.manifest import UNNAMED, Manifest
from rebal.inspectors.fleet.writer import STORED, PartWriter
from rebal.inspectors.tables.reader import open_tables
from tests.documents import checked
from tests.fleet.test_lake import WHEN, KilledError, files_of, finish, reported
from tests.fleet.test_retain import DAY, members, rows_of, scan_at, written

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


def records(out: Path) -> int:
    entry = open_tables(str(out)).manifest.inputs["records"]
    columns = open_tables(str(out)).read("groups", ["group_id"]).schema
    table = LakeTable(find_place(str(out)), "records", columns)
    return len(table.files(UNNAMED, entry.version))


def check(out: Path, *scans: int) -> None:
    assert open_tables(str(out)).scans == scans
    for number in scans:
        assert rows_of(out, number) == written(number)


def test_small_files_are_put_together_and_every_scan_reads_as_before(tmp_path: Path) -> None:
    lake_of(tmp_path, 6)
    before = files_of(tmp_path)
    planned = compacted(tmp_path, dry=True)
    assert (files_of(tmp_path), records(tmp_path)) == (before, 6)
    done = compacted(tmp_path)
    assert (done.small, done.made, records(tmp_path)) == (6, 1, 1)
    assert (planned.small, planned.made) == (done.small, done.made)
    check(tmp_path, 1, 2, 3, 4, 5, 6)
    again = compacted(tmp_path)
    assert (again.small, again.files, again.log) == (0, (), ())
    scan_at(tmp_path, 8)
    # The compaction took the number 7, and its row is that of scan 6.
    assert open_tables(str(tmp_path)).scans == (1, 2, 3, 4, 5, 6, 8)
    assert rows_of(tmp_path, 8)["records"] == 7


def test_of_states_each_groups_newest_stays(tmp_path: Path) -> None:
    place = find_place(str(tmp_path))
    for number in range(1, 5):
        with new_run(place, UNNAMED, full=False) as run:
            writer = PartWriter(run.target)
            names = ("every", f"only {number}")
            for kind in NEWEST:
                writer.add(kind, [{"group_id": name, "unnamed": []} for name in names])
            manifest = Manifest(cluster=UNNAMED, run=number, finished_at=WHEN)
            run.finish(manifest, reported(writer))
    assert compacted(tmp_path).small == 8
    with new_run(place, UNNAMED, full=False) as run:
        for kind in NEWEST:
            (file,) = run.earlier(kind)
            rows = pq.ParquetFile(tmp_path / file.path).read(columns=["group_id", "scan_id"])
            found = sorted(tuple(row.values()) for row in rows.to_pylist())
            assert found == [("every", 4), *((f"only {number}", number) for number in range(1, 5))]


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


@pytest.mark.parametrize("commits", [0, 1, 7, len(STORED)])
def test_a_compaction_that_ends_between_two_commits_changes_nothing_to_read(
    commits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_of(tmp_path, 3)
    become, left = LakeTable.become, commits

    def until_killed(table: LakeTable, *given: Any, **more: Any) -> int | None:
        nonlocal left
        if not left:
            raise KilledError
        left -= 1
        return become(table, *given, **more)

    monkeypatch.setattr(LakeTable, "become", until_killed)
    with pytest.raises(KilledError):
        compacted(tmp_path, 1.0)
    monkeypatch.undo()
    check(tmp_path, 1, 2, 3)
    assert compacted(tmp_path, 1.0).lost == ()
    check(tmp_path, 2, 3)


KILLED = """
import sys, time
from rebal.inspectors.fleet.increments import compact as compacting
from tests.fleet.test_compact import compacted
from pathlib import Path
remove = compacting.remove
def half(place, freed):
    remove(place, list(freed)[: len(freed) // 2])
    print("half", flush=True)
    time.sleep(60)
compacting.remove = half
compacted(Path(sys.argv[1]), 1.0)
"""


def test_sigkill_between_two_removed_files(tmp_path: Path) -> None:
    out = lake_of(tmp_path / "lake", 5)
    command = [sys.executable, "-c", KILLED, str(out)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert child.stdout is not None
    assert child.stdout.readline() == b"half\n"
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    check(out, 4, 5)
    assert compacted(out, 1.0).files, "the rest goes with the next one"
    assert compacted(out, 1.0).files == ()
    check(out, 4, 5)


def test_a_compaction_beside_a_scan_of_which_either_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_place(str(lake_of(tmp_path, 4)))
    with new_run(place, UNNAMED, full=False) as run:
        assert compacted(tmp_path).small == 4
        with pytest.raises(LakeError, match="another scan of the cluster unnamed was writing"):
            finish(run, 9)
    check(tmp_path, 1, 2, 3, 4)
    scan_at(tmp_path, 6)
    carry = compacting.carry

    def scan_meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        scan_at(tmp_path, 7)
        return carry(*given)

    monkeypatch.setattr(compacting, "carry", scan_meanwhile)
    assert app.run(["fleet", "compact", str(tmp_path), "--retain", "365d"]) == 1
    last = open_tables(str(tmp_path)).manifest.run
    assert rows_of(tmp_path, last)["records"] == 6


def test_what_is_only_removed_does_not_disturb_a_scan(tmp_path: Path) -> None:
    place = find_place(str(lake_of(tmp_path, 5)))
    compacted(tmp_path)
    with new_run(place, UNNAMED, full=False) as run:
        done = compacted(tmp_path, 1.0)
        assert (done.small, len(done.dropped[UNNAMED])) == (0, 3)
        finish(run, 9)
    assert open_tables(str(tmp_path)).manifest.offsets == {0: 9}


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_document_says_what_the_screen_does(tmp_path: Path, capsys: Said, form: str) -> None:
    def document(*words: str, code: int = 0) -> Any:
        assert app.run(["fleet", "compact", str(tmp_path), "-o", form, *words]) == code
        told = capsys.readouterr()
        assert told.err == ""
        return checked(told.out, form)

    lake_of(tmp_path, 4)
    planned, before = document("--retain", "1d", "--dry-run"), files_of(tmp_path)
    sizes = {path: (tmp_path / path).stat().st_size for path in before}
    done = document("--retain", "1d")
    gone = before - files_of(tmp_path)
    assert list(done) == [
        *("schema", "lake", "dry_run", "clusters", "small_files", "made_files"),
        *("removed_files", "removed_log_entries", "freed_bytes", "not_done", "exit_code"),
    ]
    assert done["clusters"] == [{"cluster": UNNAMED, "removed_scans": [1, 2]}]
    assert (done["small_files"], done["made_files"]) == (4, 1)
    assert done["removed_files"] + done["removed_log_entries"] == len(gone) > 0
    assert done["freed_bytes"] == sum(sizes[path] for path in gone)
    same = ("clusters", "small_files", "made_files", "not_done")
    assert [planned[name] for name in same] == [done[name] for name in same]
    assert (planned["dry_run"], done["dry_run"], done["not_done"]) == (True, False, [])


def test_the_document_says_which_cluster_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    sentence = "east: a scan of the cluster east came first"
    lost = Compacted({UNNAMED: ()}, 0, 0, (), (), (sentence,))
    monkeypatch.setattr(compacting, "compact", lambda *_, **__: lost)
    lake_of(tmp_path, 1)
    assert app.run(["fleet", "compact", str(tmp_path), "-o", "json"]) == 1
    body = checked(capsys.readouterr().out, "json")
    assert (body["not_done"], body["exit_code"]) == ([sentence], 1)


def test_the_screen_says_what_was_freed(tmp_path: Path, capsys: Said) -> None:
    lake_of(tmp_path, 4)
    assert app.run(["fleet", "compact", str(tmp_path), "--retain", "1d", "--dry-run"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        "rebal: would remove scans 1 to 2 of unnamed",
        "rebal: would put 4 small files together into 1",
    ]
    assert said[2].startswith("rebal: would free 0.0 MB: ")
    check(tmp_path, 1, 2, 3, 4)
    assert app.run(["fleet", "compact", str(tmp_path), "--retain", "1d"]) == 0
    assert capsys.readouterr().err.startswith("rebal: removed scans 1 to 2 of unnamed\n")
    check(tmp_path, 3, 4)
    assert app.run(["fleet", "compact", str(tmp_path / "none")]) == 1
    assert app.run(["fleet", "compact", str(tmp_path), "--retain", "soon"]) == 2
    program = (
        "import sys; from rebal.cli import app; "
        "assert app.run(['fleet', 'compact', sys.argv[1]]) == 0; "
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
