"""Spark's session and cluster, a scan that is stopped or cannot begin, and what a scan prints."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyspark
import pytest

from rebal.cli.app import run
from rebal.cli.commands.fleet_scan_cmd import _progress
from rebal.inspectors.fleet import job
from rebal.inspectors.fleet.job import ScanOrder
from rebal.inspectors.fleet.lake.place import LakeError, LakePlace
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.lake.writer import TaskReport
from rebal.inspectors.fleet.manifest import SCHEMA, Manifest, TableEntry
from rebal.inspectors.fleet.scan import check_seen
from rebal.inspectors.fleet.spark import session
from rebal.inspectors.fleet.spark.session import (
    SparkError,
    SparkSettings,
    _configuration,
    failed_job,
    start_error,
)
from rebal.inspectors.fleet.spark.tasks import build_zip
from tests.documents import checked
from tests.fleet.conftest import (
    OFFSETS,
    REBAL,
    REQUEST_LOG,
    failures,
    lines_in,
    read_tables,
    run_rebal,
    script,
    without_sources,
)
from tests.fleet.synthetic import AT, last_scan
from tests.kafka import jars
from tests.kafka.broker import ChildProcess, free_ports, wait_for

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize("chosen", ["-Xss4m", "-XX:TieredStopAtLevel=4 -Dsun.net.spi=x"])
def test_jvm_options_of_the_user_override_those_of_rebal(chosen: str) -> None:
    plain = _configuration(SparkSettings())
    users = _configuration(SparkSettings(conf=((OPTIONS, chosen),)))
    # Of two values of a flag the JVM takes the later one.
    assert users[OPTIONS] == f"{plain[OPTIONS]} {chosen}"
    assert {**users, OPTIONS: ""} == {**plain, OPTIONS: ""}


def test_a_failed_spark_start_restores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_scan_under_spark_submit_runs_on_its_master_and_names_it(tmp_path: Path) -> None:
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
    printed = done.stdout.splitlines()
    assert "rebal: Spark ran on local[1], 1 task at a time." in printed
    assert last_scan(tmp_path / "lake").read == 7362
    assert [each.name for each in tmp_path.iterdir()] == ["lake"]


def test_a_spark_master_that_does_not_answer_is_reported_with_the_master_option() -> None:
    log = "ERROR StandaloneSchedulerBackend: Reason: All masters are unresponsive! Giving up.\n"
    error = start_error(RuntimeError("Cannot call methods on a stopped SparkContext"), log)
    assert str(error).startswith("no Spark master answers: check the address in --master")


@pytest.mark.parametrize(("message", "sentence"), failures("jobs"))
def test_the_reason_of_a_failed_spark_job_becomes_one_sentence(message: str, sentence: str) -> None:
    assert failed_job(message).startswith(sentence)


def test_files_on_the_local_disk_of_an_executor_are_reported_as_an_error(tmp_path: Path) -> None:
    totals = TaskReport(made={"records": [DataFile("records/1-a/one.parquet", 1, 9)]})
    with pytest.raises(LakeError, match="the executors wrote where this machine cannot see it"):
        check_seen(LakePlace(str(tmp_path)), totals)
    (tmp_path / "records" / "1-a").mkdir(parents=True)
    (tmp_path / "records" / "1-a" / "one.parquet").touch()
    check_seen(LakePlace(str(tmp_path)), totals)


_MASTER = "127.0.0.1"


_SCALA = {"SPARK_SCALA_VERSION": "2.13"}


_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def cluster_of(
    folder: Path, within: Sequence[str] = (), hosts: Sequence[str] = (_MASTER, _MASTER)
) -> Iterator[str]:
    """The URL of a master with a worker of one core on each host, started by `within`."""
    import pyspark

    java, home = jars.tool("java"), Path(pyspark.__file__).parent
    assert java is not None
    run = [java, *_JVM, "-cp", str(home / "jars" / "*")]
    (port,) = free_ports(1)
    url = f"spark://{_MASTER}:{port}"

    def daemon(name: str, host: str, command: Sequence[str], *words: str) -> ChildProcess:
        env = os.environ | {"SPARK_LOCAL_IP": host, "SPARK_HOME": str(home)} | _SCALA
        command = [*command, "--host", host, "--webui-port", "0", *words]
        return ChildProcess(name, command, folder / f"{name}.log", env=env)

    master = [*run, "org.apache.spark.deploy.master.Master"]
    started = [daemon("master", _MASTER, master, "--port", str(port))]
    try:
        worker = [*within, *run, "org.apache.spark.deploy.worker.Worker"]
        for number, host in enumerate(hosts, 1):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            started.append(daemon(f"worker{number}", host, worker, *work, url))
        # Three JVMs start at once, on a machine that may have other work.
        wait_for(
            "the workers",
            lambda: started[0].log().count("Registering worker") == len(hosts),
            timeout=180,
            involved=lambda: started,
        )
        yield url
    finally:
        for child in reversed(started):
            child.terminate()


def test_the_zip_shipped_to_spark_tasks_contains_all_modules_they_need(tmp_path: Path) -> None:
    made = build_zip(tmp_path)
    names = set(zipfile.ZipFile(made).namelist())
    assert {"rebal/", "rebal/groups/", "rebal/inspectors/fleet/"} <= names
    assert not [name for name in names if "__pycache__" in name]
    root = Path(__file__).parents[2]
    for room in ("groups", "inspectors"):
        for path in (root / room).rglob("*"):
            if path.suffix in (".py", ".yaml", ".typed") and "__pycache__" not in path.parts:
                assert f"rebal/{path.relative_to(root)}" in names


_QUICK = ("--master", "local[2]", "--spark-conf", "spark.driver.memory=512m")


def stat_of(pid: int) -> list[str]:
    """A process's state, its parent and more (proc(5)); nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def descendants(pid: int) -> set[int]:
    """The processes that `pid` has started, and theirs."""
    running = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    parents = {one: int(said[1]) for one in running if (said := stat_of(one))}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    return stat_of(pid)[:1] not in ([], ["Z"])


@pytest.mark.live
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists() and os.environ.get("CI", "").lower() != "true",
    reason="reads /proc",
)
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_scan_leaves_the_tables_unchanged_and_no_process(
    kind: signal.Signals, scanned: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(scanned, tmp_path / "out", symlinks=True))
    before = read_tables(out)
    child = subprocess.Popen(
        [REBAL, "fleet", "scan", "--offsets", str(OFFSETS), "--out", str(out), "--full", *_QUICK],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    assert child.stderr.readline().startswith("rebal: reading consumer_offsets")
    started = descendants(child.pid)
    assert started, "no JVM runs"
    child.send_signal(kind)
    rest = child.stderr.read()
    child.stderr.close()
    assert child.wait(30) == (130 if kind is signal.SIGINT else -signal.SIGKILL), rest
    if kind is signal.SIGINT:
        assert rest == "rebal: stopped.\n"
    deadline = time.monotonic() + 30
    while any(map(alive, started)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in started if alive(pid)]
    assert read_tables(out) == before


@pytest.mark.live
@pytest.mark.timeout(300)
def test_repeated_and_killed_scans_give_the_tables_of_one(scanned: Path, tmp_path: Path) -> None:
    """A scan killed in the middle neither loses nor duplicates a record."""
    lines = sorted(lines_in(OFFSETS), key=lambda line: json.loads(line)["timestamp"])
    log = lines_in(REQUEST_LOG)
    records, requests = tmp_path / "in" / OFFSETS.name, tmp_path / "in" / REQUEST_LOG.name
    records.parent.mkdir()
    out = tmp_path / "lake"

    def grown_to(part: float) -> None:
        for path, of in ((records, lines), (requests, log)):
            fresh = path.with_name(f".{path.name}")
            fresh.write_bytes(gzip.compress(b"".join(of[: int(len(of) * part)])))
            fresh.replace(path)

    grown_to(0.3)
    words = ["--offsets", str(records), "--request-log", str(requests), "--out", str(out), *_QUICK]
    child = subprocess.Popen(
        [REBAL, "fleet", "scan", "--every", "1s", *words], stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    finished = 0
    for line in child.stderr:
        finished += " are in " in line
        if " are in " in line:
            grown_to(0.6 if finished == 1 else 1.0)
        if finished == 3 and "in order" in line:
            break
    child.kill()
    child.wait(30)
    child.stderr.close()
    assert finished == 3
    assert last_scan(out).run >= 3
    done = run_rebal("fleet", "scan", *words)
    assert done.returncode == 0, done.stderr
    assert last_scan(out).read == last_scan(scanned).read == len(lines)
    assert without_sources(read_tables(out)) == without_sources(read_tables(scanned))


def refused(tmp_path: Path, *words: str, code: int = 1, **env: str) -> str:
    """The one sentence of a scan that cannot begin, and makes no lake."""
    source = ("--offsets", OFFSETS, "--out", tmp_path / "out")
    done = run_rebal("fleet", "scan", *source, *words, **env)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("java", "message"),
    [
        (None, "was not found: install a JDK 17"),
        ('openjdk version "1.8.0_412"', "is Java 8: install a JDK 17"),
        ("no JVM here", "does not run"),
    ],
)
def test_a_missing_or_old_java_is_reported(tmp_path: Path, java: str | None, message: str) -> None:
    if java is not None:
        (tmp_path / "bin").mkdir()
        script(tmp_path / "bin" / "java", f"echo '{java}' >&2")
    assert message in refused(tmp_path, JAVA_HOME=str(tmp_path))


def test_a_scan_without_pyspark_names_the_pip_extra(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('not installed')\n")
    assert "pip install 'rebal[fleet]'" in refused(tmp_path, PYTHONPATH=str(tmp_path))


MADE = Manifest(
    cluster="mK8",
    run=3,
    finished_at=AT,
    observed_until=AT,
    sources=("a.jsonl", "b.log"),
    read=12,
    records={"OFFSET_COMMIT": 7, "GROUP_METADATA": 4, "UNREADABLE": 1},
    skipped={"control records": 2},
    requests={"lines": 900, "parsed": 30, "cut_off": 1},
    offsets={0: 41, 17: 5},
    breaks={17: (2,)},
    tables={"groups": TableEntry(rows=2), "errors": TableEntry(rows=1)},
)


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[ScanOrder]:
    """What the command asks for; the scan itself is left out."""
    taken: list[ScanOrder] = []

    def scan(order: ScanOrder, *_: Callable[..., None] | None) -> Manifest:
        taken.append(order)
        return MADE

    monkeypatch.setattr(job, "run_scan", scan)
    return taken


def test_a_scan_prints_its_summary_on_stderr(
    orders: list[ScanOrder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert run(["fleet", "scan", "--offsets", "a.jsonl", "--out", out]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "rebal: 12 records of __consumer_offsets: 7 offset commits, 4 of classic groups, "
        "1 unreadable, 2 control records.",
        "rebal: 900 lines of request logs, 30 about groups, 1 cut off.",
        "rebal: 2 groups, 0 rebalances, 0 assignor lists, 0 incidents, 1 errors are in "
        f"{out}; next: rebal fleet report {out}",
    ]
    assert orders[0].offsets == ("a.jsonl",)


@pytest.mark.usefixtures("orders")
def test_a_scan_prints_json_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert run(["fleet", "scan", "--offsets", "a.jsonl", "--out", out, "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    body = checked(printed.out)
    assert body["schema"] == "rebal.fleet-summary/1"
    assert (body["folder"], body["cluster"]) == (out, "mK8")
    assert sum(body["records"].values()) == body["records_read"] == 12
    assert body["last_offsets"] == {"0": 41, "17": 5}
    assert body["breaks"] == {"17": [2]}
    assert body["tables"] == {"groups": 2, "errors": 1}
    assert (body["observed_from"], body["exit_code"]) == (None, 0)


def test_a_scan_manifest_is_valid_against_its_json_schema() -> None:
    assert checked(msgspec.json.encode(MADE).decode())["schema"] == SCHEMA


def test_an_option_takes_all_paths_that_follow_it(orders: list[ScanOrder], tmp_path: Path) -> None:
    words = ["--segments", "broker-1", "broker-2", "--request-log", "a.log", "hdfs://nn/logs"]
    assert run(["fleet", "scan", *words, "--out", str(tmp_path / "out"), "--full"]) == 0
    (order,) = orders
    assert order.segments == ("broker-1", "broker-2")
    assert order.request_logs == ("a.log", "hdfs://nn/logs")
    assert order.full


FILE = ["--offsets", "a.jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--segments", "b"], "a scan reads records from one source"),
        (["-b", "127.0.0.1:1"], "a scan reads records from one source"),
        (["--spark-conf", "x"], "expected KEY=VALUE"),
        (["--every", "0s"], "--every 0s: expected a second or more"),
        (["--every", "soon"], "--every soon: expected a duration such as 90s"),
        (["--every", "5m", "-o", "json"], "--every prints sentences: leave out -o"),
        (["--cluster", "a#b"], "expected a name without #"),
    ],
)
def test_invalid_or_conflicting_scan_options_are_rejected(
    words: list[str],
    message: str,
    orders: list[ScanOrder],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["fleet", "scan", *FILE, *words, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert orders == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_scan_progress_on_a_terminal_shows_each_step_and_its_completed_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with _progress() as (say, tasks):
        assert tasks is not None
        say("reading a [file].jsonl")
        tasks(3, 12)
    shown = terminal.getvalue()
    assert "rebal: starting Spark" in shown
    assert "rebal: reading a [file].jsonl" in shown
    assert re.search("━.* 3/12.* tasks, .*0:00:0", shown)


def test_progress_in_a_file_is_one_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    with _progress() as (say, tasks):
        say("reading a.jsonl")
    assert tasks is None
    assert capsys.readouterr().err == "rebal: reading a.jsonl\n"
