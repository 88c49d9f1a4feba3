"""What our work does in a Spark worker beside its own: it spares the next task what it can."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rebal.inspectors.fleet.lake.place import LakeError, Place
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.scan import check_seen
from rebal.inspectors.fleet.spark.process import failed_job
from rebal.inspectors.fleet.writer import Totals

ROWS = [pa.RecordBatch.from_pydict({"id": [1, 2]})]


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
