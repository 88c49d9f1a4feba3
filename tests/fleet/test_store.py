"""The folder of the tables: an unfinished run is never reachable, whatever ended it. No Spark."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.manifest import Manifest, read_manifest
from rebal.inspectors.fleet.parts import PartWriter
from rebal.inspectors.fleet.schemas import TABLES
from rebal.inspectors.fleet.store import Run, StoreError, counted, new_run

WHEN = datetime(2026, 11, 21, tzinfo=UTC)


def fill(run: Run, offset: int, *, lost: bool = False) -> Manifest:
    writer = PartWriter(str(run.tasks))
    writer.add("errors", [{"what": "x", "offset": offset}])
    (reports,) = writer.report()
    files = [
        (r["name"], r["file"], r["amount"]) for r in reports.to_pylist() if r["what"] == "rows"
    ]
    if lost:
        (run.tasks / files[0][1]).unlink()
    tables = run.take(files)
    return Manifest(run=run.number, finished_at=WHEN, offsets={0: offset}, tables=tables)


def one_run(out: Path, offset: int, *, full: bool = False) -> None:
    with new_run(out, full=full) as run:
        run.finish(fill(run, offset))


def test_a_finished_run_is_current_and_the_only_one(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    for offset in (5, 6):
        one_run(out, offset)
    manifest = read_manifest(out)
    assert (manifest.run, manifest.offsets) == (2, {0: 6})
    assert manifest.tables["errors"].rows == 1
    assert set(manifest.tables) == set(TABLES)
    assert [path.name for path in (out / "runs").iterdir()] == ["2"]
    assert os.readlink(out / "current") == "runs/2"
    assert not list((out / "current").glob("_tasks"))


def test_an_error_on_the_way_leaves_the_earlier_run(tmp_path: Path) -> None:
    one_run(tmp_path, 5)

    def fails() -> None:
        with new_run(tmp_path, full=False) as run:
            assert run.previous is not None
            assert run.previous.offsets == {0: 5}
            fill(run, 6)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert read_manifest(tmp_path).offsets == {0: 5}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["1"]


def test_a_file_that_is_not_here_ends_the_run(tmp_path: Path) -> None:
    with new_run(tmp_path, full=False) as run, pytest.raises(StoreError, match="share with --out"):
        fill(run, 1, lost=True)
    with pytest.raises(DocumentError, match="no finished scan is there"):
        read_manifest(tmp_path)


def test_what_no_task_reported_is_not_in_the_tables(tmp_path: Path) -> None:
    with new_run(tmp_path, full=False) as run:
        failed = PartWriter(str(run.tasks))
        failed.add("errors", [{"what": "of a task that was tried again"}])
        list(failed.report())
        run.finish(fill(run, 1))
    files = sorted((tmp_path / "current").rglob("*.parquet"))
    assert [str(path.relative_to(tmp_path / "current")) for path in files] == [
        "errors/part-00000.parquet"
    ]


def test_two_scans_into_one_folder(tmp_path: Path) -> None:
    with new_run(tmp_path, full=False), pytest.raises(StoreError, match="another scan is writing"):
        one_run(tmp_path, 1)
    one_run(tmp_path, 2)
    assert read_manifest(tmp_path).offsets == {0: 2}


KILLED = """
import sys, time
from pathlib import Path
from tests.fleet.test_store import fill
from rebal.inspectors.fleet.store import new_run
with new_run(Path(sys.argv[1]), full=False) as run:
    fill(run, 9)
    print("ready", flush=True)
    time.sleep(60)
"""


def test_sigkill_leaves_the_earlier_run_and_no_lock(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one_run(out, 5)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    assert read_manifest(out).offsets == {0: 5}
    assert (out / "runs" / "2.partial").is_dir()
    one_run(out, 6)
    assert read_manifest(out).offsets == {0: 6}
    assert [path.name for path in (out / "runs").iterdir()] == ["3"]


def test_a_whole_run_that_was_not_switched_to_is_removed(tmp_path: Path) -> None:
    one_run(tmp_path, 5)
    shutil.copytree(tmp_path / "runs" / "1", tmp_path / "runs" / "2")
    one_run(tmp_path, 6)
    assert read_manifest(tmp_path).run == 3
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["3"]


def test_full_starts_from_nothing(tmp_path: Path) -> None:
    one_run(tmp_path, 5)
    with new_run(tmp_path, full=True) as run:
        assert run.previous is None
        run.finish(fill(run, 6))
    assert read_manifest(tmp_path).offsets == {0: 6}


def test_raw_inputs_go_from_run_to_run(tmp_path: Path) -> None:
    with new_run(tmp_path, full=False) as run:
        writer = PartWriter(str(run.tasks))
        writer.add("records", [{"offset": 1}])
        (reports,) = writer.report()
        run.take_inputs([(r["name"], r["file"], r["amount"]) for r in reports.to_pylist()])
        run.finish(fill(run, 1))
    with new_run(tmp_path, full=False) as run:
        run.keep_inputs("records")
        run.keep_inputs("requests")
        run.finish(fill(run, 2))
    assert len(list((tmp_path / "current" / "_inputs" / "records").glob("*.parquet"))) == 1


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StoreError, match="holds other files"):
        one_run(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(StoreError, match="is a file"):
        one_run(tmp_path / "out", 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema": "rebal.fleet/2", "run": 1}', "its schema is rebal.fleet/2"),
        ('{"schema": "rebal.fleet-scan/2"}', "not a manifest"),
        ("[", "not a manifest"),
    ],
)
def test_a_manifest_that_cannot_be_read(tmp_path: Path, text: str, says: str) -> None:
    one_run(tmp_path, 1)
    (tmp_path / "current" / "manifest.json").write_text(text)
    with pytest.raises(DocumentError, match=says):
        one_run(tmp_path, 2)
    one_run(tmp_path, 3, full=True)
    assert read_manifest(tmp_path).offsets == {0: 3}


def test_counts_add_up_by_name() -> None:
    assert counted({"b": 1, "a": 2}, {"b": 3, "c": 0}) == {"a": 2, "b": 4}
    assert list(counted(None, {"z": 1, "y": 1})) == ["y", "z"]
