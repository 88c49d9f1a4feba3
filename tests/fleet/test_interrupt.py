"""Ctrl-C and SIGKILL in the middle of a real Spark job; a Java or an extra that is missing."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fleet.conftest import (
    OFFSETS,
    REBAL,
    REQUEST_LOG,
    lines_in,
    read_tables,
    run_rebal,
    script,
    without_sources,
)
from tests.fleet.tablefiles import last_scan

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
def test_a_stopped_scan_leaves_the_tables_and_no_process(
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
def test_scans_again_and_again_give_the_tables_of_one(scanned: Path, tmp_path: Path) -> None:
    """Killed at some moment of a later scan, it has lost and doubled nothing."""
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
    ("java", "says"),
    [
        (None, "was not found: install a JDK 17"),
        ('openjdk version "1.8.0_412"', "is Java 8: install a JDK 17"),
        ("no JVM here", "does not run"),
    ],
)
def test_without_a_java_that_is_new_enough(tmp_path: Path, java: str | None, says: str) -> None:
    if java is not None:
        (tmp_path / "bin").mkdir()
        script(tmp_path / "bin" / "java", f"echo '{java}' >&2")
    assert says in refused(tmp_path, JAVA_HOME=str(tmp_path))


def test_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('not installed')\n")
    assert "pip install 'rebal[fleet]'" in refused(tmp_path, PYTHONPATH=str(tmp_path))
