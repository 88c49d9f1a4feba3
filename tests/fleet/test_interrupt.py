"""Ctrl-C and SIGKILL in the middle of a real Spark job; a Java or an extra that is missing."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fleet.conftest import OFFSETS, REQUEST_LOG, read_tables, without_sources
from tests.fleet.tablefiles import last_scan

REBAL = str(Path(sys.executable).with_name("rebal"))
_QUICK = ("--master", "local[2]", "--spark-conf", "spark.driver.memory=512m")


def descendants(pid: int) -> set[int]:
    """The processes that `pid` has started, and theirs."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except (OSError, IndexError):
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


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
        assert not list((out / "_work").glob("*"))
    deadline = time.monotonic() + 30
    while any(map(alive, started)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in started if alive(pid)]
    assert read_tables(out) == before


@pytest.mark.live
@pytest.mark.timeout(300)
def test_scans_again_and_again_give_the_tables_of_one(scanned: Path, tmp_path: Path) -> None:
    """Killed at some moment of a later scan, it has lost and doubled nothing."""
    lines = gzip.decompress(OFFSETS.read_bytes()).splitlines(keepends=True)
    log = gzip.decompress(REQUEST_LOG.read_bytes()).splitlines(keepends=True)
    lines.sort(key=lambda line: json.loads(line)["timestamp"])
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
    done = subprocess.run(
        [REBAL, "fleet", "scan", *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert last_scan(out).read == last_scan(scanned).read == len(lines)
    assert without_sources(read_tables(out)) == without_sources(read_tables(scanned))


def scan_with(tmp_path: Path, **env: str) -> str:
    done = subprocess.run(
        [REBAL, "fleet", "scan", "--offsets", str(OFFSETS), "--out", str(tmp_path / "out")],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
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
        path = tmp_path / "bin" / "java"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\necho '{java}' >&2\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    assert says in scan_with(tmp_path, JAVA_HOME=str(tmp_path))


def test_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('not installed')\n")
    said = scan_with(tmp_path, PYTHONPATH=str(tmp_path))
    assert "pip install 'rebal[fleet]'" in said
