"""The job on a real server of Spark Connect, and what is said where there is none."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebal.groups.errors import RebalError
from rebal.inspectors.fleet.spark.session import require_server
from tests.fleet.conftest import OFFSETS, REQUEST_LOG, read_tables, run_rebal, script
from tests.fleet.synthetic import last_scan
from tests.fleet.test_session import refused
from tests.kafka import jars
from tests.kafka.broker import ChildProcess, free_ports, wait_for

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_JVM = ("-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# What spark-submit opens to Arrow in each JVM.
_OPEN = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
)


# A notebook that has a session of its own, and scans twice in it.
_NOTEBOOK = """
import sys
from pyspark.sql import SparkSession
from rebal.inspectors.fleet.job import ScanOrder, run_scan
from rebal.inspectors.fleet.lake.place import find_place

url, lake, records, log = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
seen = []
for _ in range(2):
    order = ScanOrder(out=find_place(lake), offsets=(records,), request_logs=(log,))
    run_scan(order, print, lambda done, of: seen.append((done, of)))
assert seen and all(0 <= done <= of for done, of in seen), seen
assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"
assert spark.range(3).count() == 3
spark.stop()
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """This Python with its third-party packages, and without rebal."""
    packages = sysconfig.get_paths()["purelib"]
    words = f'PYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"'
    path = script(tmp_path / "bare-python", words)
    for module, there in (("pyarrow", True), ("rebal.groups", False)):
        done = subprocess.run([path, "-c", f"import {module}"], capture_output=True, check=False)
        assert (done.returncode == 0) is there, done.stderr
    return path


@pytest.fixture
def server(tmp_path: Path, bare_python: Path) -> Iterator[str]:
    """The URL of a server whose tasks' Python knows no rebal."""
    import pyspark

    java = jars.tool("java")
    assert java is not None
    (port,) = free_ports(1)
    conf = {
        "spark.master": "local[2]",
        "spark.app.name": "connect",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        # By default a stage that is over within two seconds reports nothing.
        "spark.connect.progress.reportInterval": "100ms",
        "spark.pyspark.python": str(bare_python),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(tmp_path / "local"),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    home = Path(pyspark.__file__).parent
    given = [f"-D{key}={value}" for key, value in conf.items()]
    # What clients send to the server is put below its working directory.
    within = ["sh", "-c", f'cd {tmp_path} && exec "$0" "$@"']
    command = [*within, java, *_JVM, *_OPEN, *given, "-cp", str(home / "jars" / "*"), _SERVER]
    env = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": str(bare_python),
    }
    child = ChildProcess("connect", command, tmp_path / "connect.log", env=env)
    try:
        wait_for(
            "the server",
            lambda: "Spark Connect server started" in child.log(),
            timeout=180,
            involved=lambda: [child],
        )
        yield f"sc://127.0.0.1:{port}"
    finally:
        child.terminate()


# A client needs no Java.
_NO_JAVA = {"JAVA_HOME": "/nowhere"}


@pytest.mark.live
@pytest.mark.timeout(400)
def test_a_scan_on_spark_connect_writes_the_same_tables_as_on_local_spark(
    server: str, tmp_path: Path, local_tables: dict[str, list[object]]
) -> None:
    out = tmp_path / "lake"
    source = ("--offsets", OFFSETS, "--request-log", REQUEST_LOG, "--out", out)
    done = run_rebal("fleet", "scan", "--master", server, *source, **_NO_JAVA)
    assert done.returncode == 0, done.stderr
    assert "Spark ran on Spark Connect at 127.0.0.1, 2 tasks at a time." in done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("rebal: ")] == []
    assert read_tables(out) == local_tables
    assert last_scan(out).read == 7362
    again = tmp_path / "again"
    words = [server, str(again), str(OFFSETS), str(REQUEST_LOG)]
    used = subprocess.run([sys.executable, "-c", _NOTEBOOK, *words], timeout=170, check=False)
    assert used.returncode == 0
    assert read_tables(again) == local_tables


def test_a_scan_sends_no_password_to_a_spark_connect_server_without_tls(tmp_path: Path) -> None:
    words = ("--master", "sc://spark-1:15002", "--lake-option", "AWS_SECRET_ACCESS_KEY=hunter2")
    output = refused(tmp_path, *words, code=2, **_NO_JAVA)
    assert "would travel there in plain text: end the URL with /;use_ssl=true" in output
    assert "hunter2" not in output


NOBODY = "no server of Spark Connect answers at "
PLAIN = "would travel there in plain text"


@pytest.mark.parametrize(
    ("url", "secrets", "message"),
    [
        ("sc://", False, "name a host and a port, as in sc://spark-1:15002"),
        ("sc://spark-1:port", False, "name a host and a port"),
        ("sc://192.0.2.7/;user_id=me", True, PLAIN),
        ("sc://127.0.0.1:9", True, NOBODY),
        ("sc://nowhere.invalid:9", False, NOBODY),
        ("sc://nowhere.invalid:9/;use_ssl=true", True, NOBODY),
        ("sc://nowhere.invalid:9/;use_ssl=false", True, NOBODY),
        ("sc://nowhere.invalid:9/;token=hunter2", True, NOBODY),
    ],
)
def test_secrets_go_to_spark_connect_only_over_tls_loopback_or_explicit_plain_text(
    url: str, secrets: bool, message: str
) -> None:
    with pytest.raises(RebalError, match=message) as caught:
        require_server(url, secrets=secrets)
    assert "hunter2" not in str(caught.value)


def test_missing_spark_connect_client_names_the_pip_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(RebalError, match=r"pip install 'pyspark\[connect\]'"):
        require_server("sc://h", secrets=False)
