"""What Spark's JVM is started with."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from rebal.inspectors.fleet import session
from rebal.inspectors.fleet.engine import SparkError
from rebal.inspectors.fleet.session import SparkSettings, _configuration, _why_not_started
from rebal.inspectors.fleet.tasks import in_tasks
from tests.fleet.conftest import OFFSETS
from tests.fleet.tablefiles import last_scan

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize("chosen", ["-Xss4m", "-XX:TieredStopAtLevel=4 -Dsun.net.spi=x"])
def test_a_users_own_jvm_options_stay_and_win(chosen: str) -> None:
    plain = _configuration(SparkSettings(), kafka=False)
    users = _configuration(SparkSettings(conf=((OPTIONS, chosen),)), kafka=False)
    # Of two values of a flag the JVM takes the later one.
    assert users[OPTIONS] == f"{plain[OPTIONS]} {chosen}"
    assert {**users, OPTIONS: ""} == {**plain, OPTIONS: ""}


def test_the_processs_environment_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        os.environ.update(PYSPARK_PYTHON="other", SPARK_LOCAL_IP="127.0.0.1")
        raise SparkError("no Java")

    monkeypatch.setattr(session, "_running_context", lambda: None)
    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with pytest.raises(SparkError), session.spark_session(SparkSettings(), kafka=False):
        raise AssertionError("it was started")
    assert os.environ["PYSPARK_PYTHON"] == "mine"
    assert "SPARK_LOCAL_IP" not in os.environ


def test_packages_of_a_user_are_fetched_beside_sparks_kafka_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    name, delta = "spark.jars.packages", "io.delta:delta-spark_2.13:4.0.0"
    settings = SparkSettings(conf=((name, delta),))
    assert _configuration(settings, kafka=False)[name] == delta
    source = _configuration(SparkSettings(), kafka=True)[name]
    assert _configuration(settings, kafka=True)[name] == f"{source},{delta}"


@pytest.mark.parametrize("chosen", ["", "-Xss4m"])
def test_executors_may_get_tokens_from_one_address(chosen: str) -> None:
    options = "spark.executor.extraJavaOptions"
    settings = SparkSettings(conf=((options, chosen),), tokens='http://i/token?a="b"')
    made = _configuration(settings, kafka=False)[options]
    name = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
    assert shlex.split(made) == [*chosen.split(), f'-D{name}=http://i/token?a="b"']


def test_the_master_of_sparks_own_defaults_is_taken_unless_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert SparkSettings().url == "local[*]"
    (tmp_path / "conf").mkdir()
    defaults = "# by the platform team\nspark.master   yarn\nspark.ui.enabled=false\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
    assert SparkSettings().url == "yarn"
    assert SparkSettings(conf=(("spark.master", "local[3]"),)).url == "local[3]"
    assert SparkSettings(master="local[2]").url == "local[2]"


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
    assert "rebal: Spark ran on local[1], 1 core of this machine." in told
    assert last_scan(tmp_path / "lake").read == 7362
    assert [each.name for each in tmp_path.iterdir()] == ["lake"]


@pytest.mark.live
@pytest.mark.timeout(300)
def test_workers_import_the_installed_pyspark_and_no_pandas(spark: SparkSession) -> None:
    def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import worker

        yield from (
            pa.RecordBatch.from_pydict(
                {"file": [worker.__file__], "pandas": ["pandas" in sys.modules]}
            )
            for _ in batches
        )

    rows = in_tasks(spark.range(1), where, "file string, pandas boolean").collect()
    assert [(Path(file), pandas) for file, pandas in rows] == [
        (Path(pyspark.__file__).parent / "worker.py", False)
    ]


def test_a_spark_master_that_does_not_answer_is_named() -> None:
    log = "ERROR StandaloneSchedulerBackend: Reason: All masters are unresponsive! Giving up.\n"
    told = _why_not_started(RuntimeError("Cannot call methods on a stopped SparkContext"), log)
    assert told.startswith("no Spark master answers: check the address in --master")
