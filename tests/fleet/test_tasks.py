"""What our work does in a Spark worker beside its own: it spares the next task what it can."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rebal.inspectors.fleet.lake.place import LakeError, Place
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.scan import check_seen
from rebal.inspectors.fleet.spark.process import failed_job
from rebal.inspectors.fleet.spark.tasks import _in_worker
from rebal.inspectors.fleet.writer import Totals

ROWS = [pa.RecordBatch.from_pydict({"id": [1, 2]})]


@pytest.fixture
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("unfrozen")
def test_what_came_from_zip_files_stays_and_new_modules_of_theirs_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shipped.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("first_shipped.py", "NUMBER = 1")
        archive.writestr("second_shipped.py", "NUMBER = 2")
    monkeypatch.syspath_prepend(str(path))
    import first_shipped  # type: ignore[import-not-found]

    assert str(path) in sys.path_importer_cache
    found: list[int] = []

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert str(path) not in sys.path_importer_cache
        import second_shipped  # type: ignore[import-not-found]

        found.append(first_shipped.NUMBER + second_shipped.NUMBER)
        yield from batches

    assert list(_in_worker(ROWS, work)) == ROWS
    assert found == [3]


@pytest.mark.usefixtures("unfrozen")
def test_garbage_is_collected_again_after_a_task_even_one_that_failed() -> None:
    seen: list[bool] = []

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen.append(gc.isenabled())
        yield from batches
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(_in_worker(ROWS, work))
    assert seen == [False]
    assert gc.isenabled()


def test_a_python_process_that_was_killed_is_not_taken_for_a_damaged_file() -> None:
    said = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times\n"
        "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
        "Caused by: java.io.EOFException\n"
    )
    told = failed_job(said)
    assert told.startswith("the Python process of a task was killed or crashed")


def test_pysparks_daemon_that_does_not_start_is_not_taken_for_a_damaged_file() -> None:
    said = (
        "Caused by: org.apache.spark.SparkException: \n"
        "ModuleNotFoundError: No module named 'rebal'\n"
        "org.apache.spark.SparkException: EOFException occurred while reading the port number "
        "from pyspark.daemon's stdout and terminated with code: 1.\n"
    )
    told = failed_job(said)
    assert told.startswith("Spark's Python process did not start")


def test_a_task_that_cannot_write_to_the_lake_says_it_itself() -> None:
    said = (
        "An exception was thrown from the Python worker. Traceback (most recent call last):\n"
        "rebal.inspectors.fleet.lake.place.LakeError: s3://lake: the store says: Access Denied.\n"
        "Caused by: org.apache.spark.SparkException: Job aborted\n"
    )
    assert failed_job(said) == "s3://lake: the store says: Access Denied."


def test_files_that_executors_wrote_to_a_disk_of_their_own_are_an_error(tmp_path: Path) -> None:
    totals = Totals(made={"records": [DataFile("records/1-a/one.parquet", 1, 9)]})
    with pytest.raises(LakeError, match="the executors wrote where this machine cannot see it"):
        check_seen(Place(str(tmp_path)), totals)
    (tmp_path / "records" / "1-a").mkdir(parents=True)
    (tmp_path / "records" / "1-a" / "one.parquet").touch()
    check_seen(Place(str(tmp_path)), totals)


FREED = """
from pathlib import Path

import numpy
import pyarrow as pa

from rebal.inspectors.fleet.spark.tasks import keep_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

keep_memory()
before = resident()
made = pa.allocate_buffer(200_000_000)
numpy.frombuffer(made, numpy.uint8)[:] = 1
held = resident() - before
del made
print(pa.default_memory_pool().backend_name, held, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told")
def test_memory_that_a_batch_gives_back_is_kept_for_the_next_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=60
    )
    pool, *sizes = done.stdout.split()
    held, kept = map(int, sizes)
    assert pool == "system"
    assert held > 190_000_000
    assert kept > 0.9 * held
