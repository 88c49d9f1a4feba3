"""Lakes in object stores, and scans that lose workers, executors or Python processes of Spark.

Each task is killed at a place where it has written something (faulty_python.py), so nothing here
depends on how fast the machine is.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import asdict
from pyarrow.fs import FileSelector

from rebal.cli import app
from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.lake.place import PROBE, LakeError, LakePlace, find_place
from rebal.inspectors.fleet.lake.run import compact
from rebal.inspectors.fleet.lake.scans import SCANS, SCHEMA, Scans
from rebal.inspectors.fleet.lake.table import DataFile, LakeTable
from rebal.inspectors.fleet.lake.writer import STORED, columns_of
from rebal.inspectors.fleet.manifest import UNNAMED
from rebal.inspectors.fleet.sources.captured import find_files
from rebal.inspectors.fleet.sources.source import blocks, share_out
from rebal.inspectors.tables.reader import open_tables
from tests.fleet import faulty_python
from tests.fleet.conftest import (
    OFFSETS,
    REBAL,
    REQUEST_LOG,
    Tables,
    lines_in,
    read_tables,
    run_rebal,
    script,
)
from tests.fleet.stores import STORES, Store
from tests.fleet.synthetic import last_scan
from tests.fleet.test_lake import check_clusters_at_once, finish, new_scan, of, seen_in
from tests.fleet.test_session import alive, cluster_of, stat_of
from tests.fleet.test_sources_live import rows_at

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


_COLUMNS = pa.schema([("group_id", pa.string()), ("scan_id", pa.int64())])


_OF_TASKS = (
    "arro3", "dateutil", "deltalake", "deprecated", "kafka", "msgspec", "numpy", "packaging",
    "pandas", "pyarrow", "pytz", "six", "typing_extensions", "tzdata", "wrapt", "yaml", "_yaml",
)  # fmt: skip


"""Packages that tasks import, and those that these need."""


_PRIVATE = ("unshare", "--user", "--map-root-user", "--mount")


def in_full(*names: str) -> list[object]:
    """All stores; `names` are for `make test-full`."""
    full = pytest.mark.full
    return [pytest.param(one, marks=full) if one in names else one for one in STORES]


@pytest.fixture(scope="module", params=list(STORES))
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    with STORES[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def place(store: Store, request: pytest.FixtureRequest) -> LakePlace:
    """A new lake."""
    return find_place(store.url(request.node.originalname), store.options)


# A scan takes seconds where each new file takes a third of one.
@pytest.mark.parametrize("store", in_full("abfss", "gs", "hdfs"), indirect=True)
def test_a_compaction_in_an_object_store_keeps_the_files_of_kept_scans(place: LakePlace) -> None:
    for offset in range(1, 11):
        run = new_scan(place, "east", full=False, retain=86_400.0)
        finish(run, offset)
    planned = compact(place, ["east"], retain=1.0, dry=True)
    done = compact(place, ["east"], retain=1.0)
    assert (done.lost, done.dropped) == ((), {"east": tuple(range(1, 9))})
    assert set(planned.files) <= set(done.files)
    left = {info.path for info in place.files().get_file_info(FileSelector("", recursive=True))}
    assert not left & {one.path for one in (*done.files, *done.log)}
    assert seen_in(place, "east") == of(10, records=10)
    tables = open_tables(f"{place}#east", place.options)
    assert tables.scans == (9, 10)
    groups = tables.of_scan(9).read("groups", ["group_id"])
    assert groups["group_id"].to_pylist() == ["g9"]


@pytest.mark.parametrize("store", in_full("abfss", "gs", "hdfs"), indirect=True)
def test_captures_and_request_logs_are_read_from_object_stores_as_from_files(
    store: Store, place: LakePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store's settings come from the environment."""
    for name, value in store.options.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "captured").mkdir()
    records = rows_at(OFFSETS)
    pq.write_table(pa.concat_tables([records] * 3), tmp_path / "captured" / "a.parquet")
    for given in (OFFSETS, REQUEST_LOG):
        (tmp_path / "captured" / given.name).write_bytes(given.read_bytes())
    files = place.files()
    files.create_dir("captured")
    for here in (tmp_path / "captured").iterdir():
        with files.open_output_stream(f"captured/{here.name}", compression=None) as out:
            out.write(here.read_bytes())
    for name in ("captured", "captured/a.parquet", f"captured/{OFFSETS.name}"):
        assert rows_at(f"{place}/{name}") == rows_at(tmp_path / name)
    log = f"captured/{REQUEST_LOG.name}"
    (there,), (here,) = (share_out([f"{at}/{log}"], 1)[0] for at in (place, tmp_path))
    assert [list(blocks(one)) for one in there] == [list(blocks(one)) for one in here]
    with pytest.raises(DocumentError, match="no file is there; check the URL"):
        find_files([f"{place}/none"])


# A scan that is killed while it writes, with a file that is open in each kind of folder.
_KILLED = """
import json, os, signal, sys
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.lake.run import new_scan

run = new_scan(find_place(sys.argv[1], json.loads(sys.argv[2])), "east", full=False)
files, token = run.place.files(), run.target.token
print(token, flush=True)
names = (f"groups/{token}/a.parquet", f"records/{token}/a.parquet", f"_probe/{token}")
opened = [files.open_output_stream(name) for name in names]
for one in opened:
    one.write(bytes(12 << 20))
with files.open_output_stream(f"groups/{token}/b.parquet") as done:
    done.write(b"whole")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_later_scans_remove_the_leftover_files_of_a_killed_scan(
    store: Store, place: LakePlace
) -> None:
    words = [sys.executable, "-c", _KILLED, place.text, json.dumps(dict(store.options))]
    killed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, timeout=100)
    assert killed.returncode == -signal.SIGKILL
    for offset in (5, 6):
        run = new_scan(place, "east", full=False)
        finish(run, offset)
    assert seen_in(place, "east") == of(6, records=2)
    left = place.files().get_file_info(FileSelector("", recursive=True))
    assert left
    assert not [one.path for one in left if killed.stdout.strip() in one.path]


def commit(place: LakePlace, writer: int, number: int) -> int | None:
    table = LakeTable(place, "groups", _COLUMNS)
    return table.commit_files("east", [DataFile(f"{writer}-{number}.parquet", 1, 10)], number)


def test_of_concurrent_commits_to_one_table_version_exactly_one_succeeds(place: LakePlace) -> None:
    """The store rejects a second file of the same name (If-None-Match of PutObject)."""
    LakeTable(place, "groups", _COLUMNS).create("east")
    with ThreadPoolExecutor(3) as pool:
        for number in range(1, 6):
            made = list(pool.map(commit, [place] * 3, range(3), [number] * 3))
            won = [writer for writer, version in enumerate(made) if version is not None]
            assert len(won) == 1, made
            (file,) = LakeTable(place, "groups", _COLUMNS).files("east")
            assert file.path == f"{won[0]}-{number}.parquet"


def test_concurrent_commits_of_several_clusters_in_an_object_store_all_succeed(
    store: Store, place: LakePlace
) -> None:
    slow = store.base.startswith("hdfs")
    check_clusters_at_once(place, clusters=2 if slow else 3, commits=2 if slow else 5)


def test_an_object_store_access_error_is_reported_in_one_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base, options, environment, says in store.refused:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            place = find_place(f"{base}/x", options)
            with pytest.raises(LakeError) as error:
                new_scan(place, "east", full=False)
        assert re.fullmatch(f"{re.escape(base)}/x: the store says: {says}", str(error.value))


@pytest.mark.parametrize("store", ["hdfs"], indirect=True)
def test_the_hdfs_address_is_read_from_hadoop_conf_dir(
    store: Store, place: LakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_scan(place, "east", full=False)
    finish(run, 5)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(store.configured))
    assert seen_in(find_place(place.text), "east") == of(5)
    by_default = place.text.replace(store.base, "hdfs:///lakes")
    assert seen_in(find_place(by_default), "east") == of(5)


def test_a_scan_writes_the_same_tables_to_each_object_store(
    store: Store, scan: Callable[..., str], local_tables: Tables
) -> None:
    url = store.url("scan")
    scan("--offsets", OFFSETS, "--request-log", REQUEST_LOG, "--out", url, *store.words)
    assert read_tables(url, store.options) == local_tables
    assert app.run(["fleet", "report", url, *store.words]) == 3


@pytest.mark.skipif(
    os.environ.get("CI", "").lower() != "true"
    and subprocess.run([*_PRIVATE, "true"], capture_output=True, check=False).returncode != 0,
    reason="needs unshare and user namespaces",
)
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_scan_works_without_a_shared_disk_only_if_the_lake_is_in_an_object_store(
    store: Store, tmp_path: Path, local_tables: Tables
) -> None:
    """Two workers, each in a mount namespace of its own in which the driver's folder is empty.

    The Python of the first scan has the standard library alone: an archive gives it the packages.
    """
    driver = tmp_path / "driver"
    driver.mkdir()
    empty_python = script(tmp_path / "empty-python", f'exec {sys.executable} -S "$@"')
    for module in ("numpy", "pandas", "pyarrow", "msgspec", "yaml", "kafka", "rebal.groups"):
        words = [empty_python, "-c", f"import {module}"]
        assert subprocess.run(words, capture_output=True, check=False).returncode == 1, module
    packages, archive = Path(pa.__file__).parents[1], driver / "packages.tar.gz"
    within = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for name in _OF_TASKS:
            for path in packages.glob(f"{name}*"):
                packed.add(path, f"{within}/{path.name}")
    hidden = f'mount -t tmpfs none {driver} && exec "$0" "$@"'
    private = [*_PRIVATE, "sh", "-c", hidden]
    conf = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(driver),
    }
    words = [word for key, value in conf.items() for word in ("--spark-conf", f"{key}={value}")]
    alone = ["--spark-conf", f"spark.pyspark.python={empty_python}"]
    alone += ["--spark-conf", f"spark.archives={archive}#packages"]
    alone += ["--spark-conf", f"spark.executorEnv.PYTHONPATH=packages/{within}"]
    source = ["--offsets", str(OFFSETS), "--request-log", str(REQUEST_LOG)]
    with cluster_of(tmp_path, private) as master:

        def scan(*to: str) -> subprocess.CompletedProcess[str]:
            given = ("--master", master, *words, *source, *to)
            return run_rebal("fleet", "scan", *given, TMPDIR=str(driver))

        url = store.url("cluster")
        done = scan(*alone, "--out", url, *store.words)
        assert done.returncode == 0, done.stderr
        assert "Spark ran on spark://" in done.stderr
        assert "tasks at a time" in done.stderr
        assert store.options["AWS_SECRET_ACCESS_KEY"] not in done.stderr
        apart = scan(
            "--spark-conf", f"spark.pyspark.python={sys.executable}", "--out", str(driver / "lake")
        )
        assert apart.returncode == 1
        assert "the executors wrote where this machine cannot see" in apart.stderr
    assert read_tables(url, store.options) == local_tables
    out = tmp_path / "rebal.prom"
    words = ["fleet", "metrics", url, *store.words, "--out", str(out)]
    assert app.run(words) == 0
    assert "rebal_group_readiness{" in out.read_text()


_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


_WORKER: Final = "deploy.worker.Worker"


_FAULTY: Final = "faulty_python.py"


# Spark runs no second attempt of a task on the host of the first one.
_HOSTS: Final = ("127.0.0.1", "127.0.0.2")


_CONF: Final = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "2s",
}


_OF_THE_RUN: Final = ("run", "finished_at", "tables", "inputs", "logs")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The captures in several files, some records twice: no stage of a scan has one task alone."""
    folder = tmp_path_factory.mktemp("captured")
    made: list[str] = []
    for option, name, lines, shared in (
        ("--offsets", "records.jsonl", lines_in(OFFSETS), 100),
        ("--request-log", "kafka-request.log", lines_in(REQUEST_LOG), 0),
    ):
        for number in range(2):
            begin, end = len(lines) * number // 2, len(lines) * (number + 1) // 2
            path = folder / f"{number}-{name}"
            path.write_bytes(b"".join(lines[max(0, begin - shared) : end]))
            made += [option, str(path)]
    return made


@pytest.fixture(scope="module")
def undisturbed(words: list[str], new_scan: Callable[..., Path]) -> Path:
    """A scan of them to which nothing happens."""
    return new_scan(*words)


class Faulty:
    """A scan on a cluster whose tasks stop at places."""

    def __init__(self, master: str, folder: Path, places: Sequence[str], *words: str) -> None:
        self._places = folder / "places"
        self._places.mkdir()
        for place in places:
            (self._places / place).touch()
        faulty = f'exec {sys.executable} {faulty_python.__file__} {self._places} "$@"'
        conf = {**_CONF, "spark.pyspark.python": str(script(folder / "faulty-python", faulty))}
        options = [word for pair in conf.items() for word in ("--spark-conf", "=".join(pair))]
        command = [REBAL, "fleet", "scan", "--master", master, *options, *words]
        self._child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait_at(self, place: str) -> int:
        """The process of the task that has come to the place."""
        deadline = time.monotonic() + 120
        while not (found := list(self._places.glob(f"{place}.*"))):
            assert self._child.poll() is None, self._said()
            assert time.monotonic() < deadline, f"no task came to {place}"
            time.sleep(0.05)
        return int(found[0].suffix[1:])

    def finish(self) -> None:
        said = self._said()
        assert self._child.returncode == 0, said

    def _said(self) -> str:
        return self._child.communicate(timeout=170)[0]


def above(pid: int, what: str) -> int:
    """The process above `pid`, or it itself, whose command line holds `what`."""
    while what not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(stat_of(pid)[1])
        assert pid > 1, f"no {what} is above it"
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def facts(lake: Path) -> tuple[dict[str, Any], Tables]:
    """All that a scan says, but for its number, its time and its tables' versions."""
    manifest = {k: v for k, v in asdict(last_scan(lake)).items() if k not in _OF_THE_RUN}
    return manifest, read_tables(lake)


def on_disk(lake: Path) -> set[str]:
    """The files beside the tables' logs."""
    files = (path for path in lake.rglob("*") if path.is_file())
    return {str(path.relative_to(lake)) for path in files if "_delta_log" not in path.parts}


def named(lake: Path) -> set[str]:
    """The files that the last two finished scans have in the tables, and those scans' rows."""
    place = find_place(str(lake))
    rows = LakeTable(place, SCANS, SCHEMA).files(UNNAMED)
    found = {f"{SCANS}/{one.path}" for one in rows}
    for scan in Scans(place).of(UNNAMED).rows:
        for name in STORED:
            version = scan.versions[name]
            files = LakeTable(place, name, columns_of(name)).files(UNNAMED, version)
            found |= {f"{name}/{one.path}" for one in files}
    return found


def test_lost_executors_and_speculative_tasks_do_not_change_the_tables_of_a_scan(
    words: list[str], undisturbed: Path, tmp_path: Path, scan: Callable[..., str]
) -> None:
    lake = Path(shutil.copytree(undisturbed, tmp_path / "lake"))
    words = [*words, "--out", str(lake)]
    expected = facts(undisturbed)
    assert all(expected[1][name] for name in ("groups", "members", "rebalances"))
    with cluster_of(tmp_path, hosts=_HOSTS) as master:
        places = ("records-whole", "requests-whole", "states-half", "commits-half")
        job = Faulty(master, tmp_path, places, *words, "--full")
        slow = job.wait_at("records-whole")
        # Another attempt has gone on from there.
        kill(above(job.wait_at("requests-whole"), _EXECUTOR))
        kill(above(job.wait_at("states-half"), _FAULTY))
        assert facts(lake) == expected, "seen while the scan runs"
        kill(above(job.wait_at("commits-half"), _WORKER))
        job.finish()
    assert not alive(slow)
    assert last_scan(lake).run == 2
    assert facts(lake) == expected
    assert on_disk(lake) > named(lake), "the tasks have left no file"
    scan(*words)
    assert last_scan(lake).run == 3
    assert facts(lake) == expected
    assert on_disk(lake) == named(lake)
    assert not list((lake / PROBE).iterdir())
