"""What Spark's JVM is started with, and in one sentence why it did not start or a job failed."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from rebal.inspectors.fleet import job
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.lake.writer import TaskReport
from rebal.inspectors.fleet.scan import check_seen
from rebal.inspectors.fleet.spark import session
from rebal.inspectors.fleet.spark.session import (
    SparkError,
    SparkSettings,
    _configuration,
    failed_job,
    start_error,
)
from tests.fleet.conftest import OFFSETS, failures
from tests.fleet.tablefiles import last_scan

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize("chosen", ["-Xss4m", "-XX:TieredStopAtLevel=4 -Dsun.net.spi=x"])
def test_a_users_own_jvm_options_stay_and_win(chosen: str) -> None:
    plain = _configuration(SparkSettings())
    users = _configuration(SparkSettings(conf=((OPTIONS, chosen),)))
    # Of two values of a flag the JVM takes the later one.
    assert users[OPTIONS] == f"{plain[OPTIONS]} {chosen}"
    assert {**users, OPTIONS: ""} == {**plain, OPTIONS: ""}


def test_the_processs_environment_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        # The last one is PySpark's own doing.
        os.environ.update(PYSPARK_PYTHON="other", SPARK_LOCAL_IP="127.0.0.1", SPARK_BUFFER_SIZE="9")
        raise SparkError("no Java")

    monkeypatch.setattr(session, "_running_context", lambda: None)
    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    for name in ("SPARK_LOCAL_IP", "SPARK_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with pytest.raises(SparkError), session.spark_session(SparkSettings()):
        raise AssertionError("it was started")
    assert dict(os.environ) == before


@pytest.mark.parametrize("there", [False, True])
def test_a_scan_whose_spark_does_not_start_leaves_nothing_in_the_lake(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SparkError("no Java")

    monkeypatch.setattr(job, "require", lambda *_, **__: None)
    monkeypatch.setattr(job, "spark_session", refuse)
    lake = tmp_path / "lake"
    if there:
        lake.mkdir()
    with pytest.raises(SparkError, match="no Java"):
        job.run_scan(job.ScanOrder(out=LakePlace(str(lake)), offsets=(str(OFFSETS),)), print)
    assert list(tmp_path.rglob("*")) == ([lake] if there else [])


@pytest.mark.live
@pytest.mark.timeout(300)
def test_spark_submit_says_which_master_runs(tmp_path: Path) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    entry = Path(__file__).parents[2] / "cli" / "entry.py"
    words = ["--master", "local[1]", "--conf", "spark.ui.enabled=false", str(entry)]
    done = subprocess.run(
        [submit, *words, "fleet", "scan", "--offsets", OFFSETS, "--out", tmp_path / "lake"],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    # spark-submit prints on stdout what its child prints on stderr.
    told = done.stdout.splitlines()
    assert "rebal: Spark ran on local[1], 1 task at a time." in told
    assert last_scan(tmp_path / "lake").read == 7362
    assert [each.name for each in tmp_path.iterdir()] == ["lake"]


def test_a_spark_master_that_does_not_answer_is_named() -> None:
    log = "ERROR StandaloneSchedulerBackend: Reason: All masters are unresponsive! Giving up.\n"
    told = start_error(RuntimeError("Cannot call methods on a stopped SparkContext"), log)
    assert str(told).startswith("no Spark master answers: check the address in --master")


@pytest.mark.parametrize(("said", "told"), failures("jobs"))
def test_why_a_job_failed_is_one_sentence(said: str, told: str) -> None:
    assert failed_job(said).startswith(told)


def test_files_that_executors_wrote_to_a_disk_of_their_own_are_an_error(tmp_path: Path) -> None:
    totals = TaskReport(made={"records": [DataFile("records/1-a/one.parquet", 1, 9)]})
    with pytest.raises(LakeError, match="the executors wrote where this machine cannot see it"):
        check_seen(LakePlace(str(tmp_path)), totals)
    (tmp_path / "records" / "1-a").mkdir(parents=True)
    (tmp_path / "records" / "1-a" / "one.parquet").touch()
    check_seen(LakePlace(str(tmp_path)), totals)
