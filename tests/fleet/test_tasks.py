"""Why a job of Spark failed, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.inspectors.fleet.lake.place import LakeError, Place
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.scan import check_seen
from rebal.inspectors.fleet.spark.process import failed_job
from rebal.inspectors.fleet.writer import Totals


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times\n"
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (x)\n"
            "Caused by: java.io.EOFException\n",
            "the Python process of a task was killed or crashed",
        ),
        (
            "ModuleNotFoundError: No module named 'rebal'\n"
            "org.apache.spark.SparkException: EOFException occurred while reading the port number "
            "from pyspark.daemon's stdout and terminated with code: 1.\n",
            "Spark's Python process did not start",
        ),
        (
            "An exception was thrown from the Python worker. Traceback (most recent call last):\n"
            "rebal.inspectors.fleet.lake.place.LakeError: s3://lake: the store says: Denied.\n"
            "Caused by: org.apache.spark.SparkException: Job aborted\n",
            "s3://lake: the store says: Denied.",
        ),
    ],
    ids=["killed", "not started", "a task's own sentence"],
)
def test_why_a_job_failed_is_one_sentence(said: str, told: str) -> None:
    assert failed_job(said).startswith(told)


def test_files_that_executors_wrote_to_a_disk_of_their_own_are_an_error(tmp_path: Path) -> None:
    totals = Totals(made={"records": [DataFile("records/1-a/one.parquet", 1, 9)]})
    with pytest.raises(LakeError, match="the executors wrote where this machine cannot see it"):
        check_seen(Place(str(tmp_path)), totals)
    (tmp_path / "records" / "1-a").mkdir(parents=True)
    (tmp_path / "records" / "1-a" / "one.parquet").touch()
    check_seen(Place(str(tmp_path)), totals)
