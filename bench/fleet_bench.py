"""The fleet pipeline beside its peers: Spark's own reading, and Kafka's DumpLogSegments.

The times begin when the Spark session is there. Each side has sessions of its own, Spark's reading
one as Spark comes: what a session does first is what a user waits for, what it does again is warm.
The checksum reads every byte of keys and values that the scan reads; DumpLogSegments decodes the
same records from a log segment, whole process (its JVM starts in half a second, a Spark session in
several). Memory is that of the driver's Python process: the tables never pass through it.
"""

import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.timing import Row, wall

FULL, TENTH = 2_000_000, 200_000
RUNS = 3
AGAIN = 2
SCANS = 50
CHECKSUMS = ("crc32", "sha2")
IN_PARTS = {"increments": "offsets", "grown logs": "request_logs"}


@dataclass(frozen=True)
class Figure:
    """One figure with its limit: at most, or at least."""

    case: str
    figures: tuple[float, ...]
    unit: str
    limit: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        median = statistics.median(self.figures)
        return median >= self.limit if self.at_least else median <= self.limit

    def text(self) -> str:
        median = statistics.median(self.figures)
        spread = f"{min(self.figures):.4g}–{max(self.figures):.4g}"
        word = "at least" if self.at_least else "at most"
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return f"{self.case}: {median:.4g} {self.unit} ({spread}); {word} {self.limit:g}: {verdict}"


def rows() -> Iterator[Row | Figure]:
    from bench.fleet_input import write_parquet, write_segment

    with tempfile.TemporaryDirectory() as folder:
        parquet = {count: Path(folder) / f"{count}.parquet" for count in (TENTH, FULL)}
        for count, path in parquet.items():
            write_parquet(path, count)
        tenth = in_session("offsets", parquet[TENTH])
        turns = [
            {what: in_session(what, parquet[FULL]) for what in ("offsets", *CHECKSUMS)}
            for _ in range(RUNS)
        ]
        size = parquet[FULL].stat().st_size / 1e6
        case = f"fleet scan of 2 M records ({size:.0f} MB zstd Parquet) to all tables"
        scan = _warm(turns, "offsets")
        for checksum in CHECKSUMS:
            peer = f"Spark reads the same bytes and makes their {checksum}"
            yield Row(
                f"first {case}, after the session's start",
                tuple(turn["offsets"]["times"][0] for turn in turns),
                tuple(turn[checksum]["times"][0] for turn in turns),
                f"{peer}, first too",
                3.0,
            )
            yield Row(f"{case}, again, warm", scan, _warm(turns, checksum), f"{peer}, again", 3.0)
        moving = Path(folder) / "moving.parquet"
        write_parquet(moving, FULL, moving=True)
        yield Figure(
            "2 M records whose members all get other partitions each time take this many times the "
            "seconds",
            (statistics.median(_again(in_session("offsets", moving))) / statistics.median(scan),),
            "×",
            4,
        )
        segment = Path(folder) / "00000000000000000000.log"
        write_segment(segment, TENTH)
        dump = [wall(_dump(segment)) for _ in range(RUNS + 1)][1:]
        yield Row(
            "seconds for 200,000 records of a scan of 2 M",
            tuple(seconds * TENTH / FULL for seconds in scan),
            tuple(dump),
            "DumpLogSegments --offsets-decoder of 200,000 of them",
            0.2,
        )
        yield Figure(
            "2 M records take this many times the seconds of 0.2 M",
            (statistics.median(scan) / statistics.median(_again(tenth)),),
            "×",
            12,
        )
        yield Figure(
            "2 M records take this many times the driver's peak memory of 0.2 M",
            (turns[0]["offsets"]["peak"] / tenth["peak"],),
            "×",
            1.1,
        )
        yield from _increments(Path(folder))
        yield from _report(Path(folder))


def _increments(folder: Path) -> Iterator[Figure]:
    from bench.fleet_input import write_parts

    news = folder / "news"
    news.mkdir()
    write_parts([news / "0.parquet", news / "1.parquet"], [FULL - FULL // 100, FULL])
    whole, one = in_session("increments", news)["times"]
    yield Figure(
        "a scan of 1 % new records takes this share of the first scan, both after the session's "
        "start",
        (one / whole,),
        "×",
        0.2,
    )
    many = folder / "many"
    many.mkdir()
    paths = [many / f"{number}.parquet" for number in range(SCANS)]
    write_parts(paths, [TENTH * (number + 1) // SCANS for number in range(SCANS)])
    times = in_session("increments", many)["times"]
    late, early = times[-5:], times[2:7]
    yield Figure(
        f"scan {SCANS - 4} to {SCANS} of equal parts take this many times the seconds of the third "
        "to the seventh",
        (statistics.median(late) / statistics.median(early),),
        "×",
        1.1,
    )


def _again(found: dict[str, Any]) -> list[float]:
    return list(found["times"][1:])


def _warm(turns: list[dict[str, dict[str, Any]]], what: str) -> tuple[float, ...]:
    return tuple(seconds for turn in turns for seconds in _again(turn[what]))


def _report(folder: Path) -> Iterator[Figure]:
    from tests.fleet.synthetic import fleet, write_tables

    write_tables(folder / "fleet", fleet(2000))
    rebal = str(Path(sys.executable).with_name("rebal"))
    report = [rebal, "fleet", "report", str(folder / "fleet"), "--exit-zero"]
    for words in ([], ["--out", str(folder / "fleet.html")]):
        times = [wall([*report, *words]) for _ in range(RUNS + 1)][1:]
        case = "rebal fleet report of 2,000 groups" + (", as a page" if words else "")
        yield Figure(f"{case}, whole process", tuple(times), "s", 5)


def _dump(segment: Path) -> list[str]:
    from tests.kafka import jars

    path = jars.classpath("broker-4.1.1")
    words = ["--offsets-decoder", "--files", str(segment)]
    return [
        jars.tool("java") or "java",
        "-Xmx1g",
        "-cp",
        path,
        "kafka.tools.DumpLogSegments",
        *words,
    ]


def in_session(what: str, path: Path) -> dict[str, Any]:
    """Return what `measure` returns, from a process with a Spark session of its own."""
    command = [sys.executable, "-m", "bench.fleet_bench", what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(what: str, path: str) -> dict[str, Any]:
    """Measure scans of `offsets` or `log`, of `IN_PARTS`, or checksums, in this process.

    Returns: `times` in seconds, the first run's first, and the driver's `peak` in megabytes.
    """
    measured = _checksums(what, path) if what in CHECKSUMS else _scans(what, path)
    unit = 1024 if sys.platform == "linux" else 1024 * 1024
    count = None if what in IN_PARTS else 1 + AGAIN
    times = list(itertools.islice(measured, count))
    return {"times": times, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit}


_CONF = (("spark.driver.memory", "3g"), ("spark.ui.enabled", "false"))


def _scans(what: str, path: str) -> Iterator[float]:
    from rebal.inspectors.fleet.job import ScanOrder, run_scan
    from rebal.inspectors.fleet.lake.place import find_place
    from rebal.inspectors.fleet.spark.session import SparkSettings, spark_session

    settings = SparkSettings(master="local[2]", conf=_CONF)
    if what in IN_PARTS:
        yield from _in_parts(settings, Path(path), IN_PARTS[what])
        return
    given = {"offsets": (path,)} if what == "offsets" else {"request_logs": (path,)}
    with spark_session(settings), tempfile.TemporaryDirectory() as out:
        for run in itertools.count():
            begin = time.perf_counter()
            run_scan(ScanOrder(out=find_place(f"{out}/{run}"), **given), say=_silent)
            yield time.perf_counter() - begin


def _in_parts(settings: Any, folder: Path, source: str) -> Iterator[float]:
    """Each path in the folder is a scan that goes on from the one before."""
    from rebal.inspectors.fleet.job import ScanOrder, run_scan
    from rebal.inspectors.fleet.lake.place import find_place
    from rebal.inspectors.fleet.spark.session import spark_session

    paths = sorted(folder.iterdir(), key=lambda one: int(one.stem))
    with spark_session(settings), tempfile.TemporaryDirectory() as out:
        for path in paths:
            given: Any = {source: (str(path),)}
            begin = time.perf_counter()
            run_scan(ScanOrder(out=find_place(out), **given), say=_silent)
            yield time.perf_counter() - begin


def _checksums(what: str, path: str) -> Iterator[float]:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sql

    builder = SparkSession.builder.master("local[2]")
    for name, value in _CONF:
        builder = builder.config(name, value)
    with builder.getOrCreate() as spark:
        made = {
            "crc32": [sql.sum(sql.crc32(name)) for name in ("key", "value")],
            "sha2": [sql.max(sql.sha2(name, 256)) for name in ("key", "value")],
        }
        while True:
            begin = time.perf_counter()
            spark.read.parquet(path).select(*made[what]).collect()
            yield time.perf_counter() - begin


def _silent(text: str) -> None:
    del text


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3])), flush=True)
