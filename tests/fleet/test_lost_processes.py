"""Workers, executors and Python processes that are killed during a scan, and speculative tasks.

Each task is killed at a place where it has written something (faulty_python.py), so nothing here
depends on how fast the machine is.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import asdict

from rebal.inspectors.fleet.lake.place import PROBE, find_place
from rebal.inspectors.fleet.lake.scans import SCANS, SCHEMA, Scans
from rebal.inspectors.fleet.lake.table import LakeTable
from rebal.inspectors.fleet.lake.writer import STORED, columns_of
from rebal.inspectors.fleet.manifest import UNNAMED
from tests.fleet import faulty_python
from tests.fleet.conftest import OFFSETS, REBAL, REQUEST_LOG, Tables, lines_in, read_tables, script
from tests.fleet.tablefiles import last_scan
from tests.fleet.test_cluster import cluster_of
from tests.fleet.test_interrupt import alive, stat_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
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
    for option, name, of, shared in (
        ("--offsets", "records.jsonl", lines_in(OFFSETS), 100),
        ("--request-log", "kafka-request.log", lines_in(REQUEST_LOG), 0),
    ):
        for number in range(2):
            begin, end = len(of) * number // 2, len(of) * (number + 1) // 2
            path = folder / f"{number}-{name}"
            path.write_bytes(b"".join(of[max(0, begin - shared) : end]))
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


def test_lost_processes_and_speculative_tasks_leave_the_tables_as_they_are(
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
