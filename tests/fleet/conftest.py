"""What is made once for all: a Spark session, a scan of the captures, scans of made-up fleets."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.fleet.synthetic import fleet, write_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rebal.cli.fleet import FleetReport

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
TIMEOUTS = CAPTURES.with_name("captures_timeouts")
FAILURES = CAPTURES.with_name("fleet_failures.yaml")
OFFSETS = CAPTURES / "consumer_offsets.jsonl.gz"
REQUEST_LOG = CAPTURES / "kafka-request.log.gz"

REBAL = str(Path(sys.executable).with_name("rebal"))

Tables = dict[str, list[dict[str, Any]]]


def run_rebal(*words: object, timeout: float = 170, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `rebal` in a process of its own; `env` is added to this process's environment."""
    return subprocess.run(
        [REBAL, *map(str, words)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def script(path: Path, text: str) -> Path:
    """A program of the shell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def lines_in(packed: Path) -> list[bytes]:
    """The lines of a captured file."""
    return gzip.decompress(packed.read_bytes()).splitlines(keepends=True)


def failures(of: str) -> list[list[str]]:
    """What others say when something fails, each with the sentence that rebal makes of it."""
    kept: dict[str, list[list[str]]] = yaml.safe_load(FAILURES.read_text(encoding="utf-8"))
    return kept[of]


def check_kept(file: Path, made: str) -> None:
    """The text is as it was kept; REBAL_SCREENS=renew keeps the new one."""
    if os.environ.get("REBAL_SCREENS") == "renew":
        file.write_text(made, encoding="utf-8")
    kept = file.read_text(encoding="utf-8")
    change = unified_diff(kept.splitlines(), made.splitlines(), "kept", "now", n=0, lineterm="")
    assert made == kept, "\n".join(change)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session, as its start takes longer than most tests: two threads, 700 MB."""
    from rebal.inspectors.fleet.spark.session import SparkSettings, require, spark_session

    settings = SparkSettings(
        master="local[2]",
        conf=(("spark.driver.memory", "700m"), ("spark.sql.shuffle.partitions", "2")),
    )
    require(settings, secrets=False)
    with spark_session(settings) as session:
        yield session


@pytest.fixture
def scan(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs `rebal fleet scan` in this process, in the shared session; gives what it said."""
    from rebal.cli.app import run

    def scan(*words: object, code: int = 0) -> str:
        capsys.readouterr()
        got = run(["fleet", "scan", *map(str, words)])
        told = capsys.readouterr()
        assert got == code, told.err
        assert told.out == ""
        assert "Traceback" not in told.err
        return told.err

    return scan


@pytest.fixture(scope="session")
def new_scan(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Scans into a new lake in the shared session; copy it before changing anything."""
    from rebal.cli.app import run

    def scan(*words: object) -> Path:
        out = tmp_path_factory.mktemp("scan") / "out"
        assert run(["fleet", "scan", *map(str, words), "--out", str(out)]) == 0
        return out

    return scan


@pytest.fixture(scope="session")
def scanned(new_scan: Callable[..., Path]) -> Path:
    """A full scan of the captures."""
    return new_scan("--offsets", OFFSETS, "--request-log", REQUEST_LOG)


@pytest.fixture(scope="session")
def local_tables(scanned: Path) -> Tables:
    """Its tables."""
    return read_tables(scanned)


def read_tables(lake: Path | str, options: Mapping[str, str] | None = None) -> Tables:
    """All tables of the last finished scan in a lake, whole; `options` are its store's."""
    from rebal.inspectors.fleet.schemas import TABLES
    from rebal.inspectors.tables.reader import open_tables

    tables = open_tables(str(lake), options)
    made: Tables = {}
    for name, columns in TABLES.items():
        whole = tables.read(name, columns.names)
        assert len(whole) == tables.manifest.tables[name].rows
        made[name] = sorted(whole.to_pylist(), key=in_time)
    return made


def in_time(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """By what a row of any table is sorted: its group, its generation, its time."""
    generation = row.get("first_generation", row.get("generation"))
    times = [row.get(name) for name in ("started_at", "first_at", "at", "ended_at")]
    first = next((str(at) for at in times if at is not None), "")
    return str(row.get("group_id")), row.get("incarnation") or 0, generation or 0, first, repr(row)


def without_sources(tables: Tables) -> Tables:
    """The tables without what says where a row was read, or when brokers were asked, sorted."""
    return {
        name: sorted(
            ({k: v for k, v in row.items() if k not in ("source", "sources")} for row in rows),
            key=repr,
        )
        for name, rows in tables.items()
        if name != "log_ends"
    }


@pytest.fixture(scope="session")
def small_scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scan of a made-up fleet, one group of each shape (twenty); only to be read."""
    return write_tables(tmp_path_factory.mktemp("small"), fleet(20), parts=3)


@pytest.fixture(scope="session")
def large_report(tmp_path_factory: pytest.TempPathFactory) -> FleetReport:
    """What `rebal fleet report` makes of a scan of four hundred groups."""
    from rebal.cli.fleet import make_fleet_report

    folder = write_tables(tmp_path_factory.mktemp("large"), fleet(400), parts=4)
    return make_fleet_report(str(folder))


def report_lines(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The screen of `rebal fleet report FOLDER` with these options."""
    from rebal.cli.app import run

    run(["fleet", "report", str(folder), *words])
    return capsys.readouterr().out.splitlines()
