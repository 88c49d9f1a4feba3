"""rebal's assignors against Kafka's own (4.1.1) and kafka-python's, each in a cold process.

All generate the same input in process, build the complete result, and print its SHA-256; a ratio
counts only between equal digests. Times are whole processes; the assign call's stand beside them.
Kafka's own logs its whole result at INFO: that is off here. kafka-python gets one run of at most
`PATIENCE` seconds (REBAL_BENCH_PATIENCE; 0 leaves it out). REBAL_BENCH_CASES picks cases by words
of their names.
"""

import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.assignors_input import Case
from tests.kafka import jars

PATIENCE = float(os.environ.get("REBAL_BENCH_PATIENCE", "60"))
ROOT = Path(__file__).resolve().parents[1]
UNIFORM_1M = ("uniform", 1000, 1_000_000, 2000)

# The case, the ratio of whole processes that must not be passed, whether Java's peak memory must
# not be either, and the runs (Java needs more than a minute for the last one).
CASES = (
    (Case("sticky", "uniform", 100, 100_000, 500, "fresh"), 1.0, False, 5),
    (Case("sticky", "uniform", 100, 100_000, 500, "added"), 0.8, False, 5),
    (Case("cooperative-sticky", *UNIFORM_1M, "fresh"), 0.5, False, 5),
    (Case("cooperative-sticky", *UNIFORM_1M, "added"), 0.4, False, 5),
    (Case("sticky", *UNIFORM_1M, "added"), 0.4, True, 5),
    (Case("sticky", *UNIFORM_1M, "removed"), 0.4, True, 5),
    (Case("range", *UNIFORM_1M, "fresh"), 0.4, False, 5),
    (Case("roundrobin", *UNIFORM_1M, "fresh"), 0.4, False, 5),
    (Case("sticky", "general", 100, 10_000, 100, "fresh"), 0.3, False, 3),
    (Case("sticky", "general", 100, 10_000, 100, "added"), 0.3, False, 3),
    (Case("sticky", "general", 500, 50_000, 200, "fresh"), 0.3, False, 1),
)
GROWING = tuple(("sticky", "uniform", n // 1000, n, 500) for n in (10_000, 100_000, 1_000_000))


@dataclass(frozen=True)
class Run:
    """One process: wall and assign call in seconds, the most memory it had in MB."""

    wall: float
    call: float
    megabytes: float
    digest: str


@dataclass(frozen=True)
class Comparison:
    """One case, all runs; `other` says how kafka-python fared."""

    case: Case
    ours: tuple[Run, ...]
    java: tuple[Run, ...]
    other: str
    limit: float
    memory_matters: bool

    @property
    def same(self) -> bool:
        return len({run.digest for run in (*self.ours, *self.java)}) == 1

    @property
    def ratio(self) -> float:
        return median(self.ours, "wall") / median(self.java, "wall")

    @property
    def holds(self) -> bool:
        lean = median(self.ours, "megabytes") <= median(self.java, "megabytes")
        return self.same and self.ratio <= self.limit and (lean or not self.memory_matters)

    def text(self) -> str:
        ratio = f"ratio {self.ratio:.2f}" if self.same else "NO RATIO: the results differ"
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"{name_of(self.case)}: rebal {told(self.ours)}; Java {told(self.java)}; "
            f"{ratio}, limit {self.limit:.2f}: {verdict}{self.other}"
        )


@dataclass(frozen=True)
class Growth:
    """The assign call's time as the partitions grow tenfold, twice; `holds` if nearly linear.

    Nearly linear: each tenfold costs at most sixteen times as much (an exponent of 1.2).
    """

    event: str
    sizes: tuple[int, ...]
    calls: tuple[float, ...]
    holds: bool

    def text(self) -> str:
        points = ", ".join(
            f"{size:,} {call:.4f} s" for size, call in zip(self.sizes, self.calls, strict=True)
        )
        each = " and ".join(f"{b / a:.1f} x" for a, b in pairwise(self.calls))
        return (
            f"sticky, uniform, 500 members, {self.event}, assign call: {points}; ten times the "
            f"partitions cost {each}: {'nearly linear' if self.holds else 'NOT nearly linear'}"
        )


def rows() -> Iterator[Comparison | Growth]:
    wanted = os.environ.get("REBAL_BENCH_CASES", "").split()
    for case, limit, memory_matters, runs in CASES:
        if all(word in name_of(case) for word in wanted):
            yield compared(case, limit, memory_matters, runs)
    if not wanted:
        for event in ("fresh", "added"):
            yield growth(event, [Case(*size, event) for size in GROWING])


def name_of(case: Case) -> str:
    return (
        f"{case.assignor}, {case.shape}, {case.partitions:,} partitions x {case.members:,} "
        f"members, {case.topics:,} topics, {case.event}"
    )


def compared(case: Case, limit: float, memory_matters: bool, runs: int) -> Comparison:
    ours, java = _rebal(case), java_command(case)
    measured(ours)
    if runs > 3:
        measured(java)
    pairs = [(measured(ours), measured(java)) for _ in range(runs)]
    return Comparison(
        case=case,
        ours=tuple(a for a, _ in pairs),
        java=tuple(b for _, b in pairs),
        other=_kafka_python(case, pairs[0][0]) if PATIENCE else "",
        limit=limit,
        memory_matters=memory_matters,
    )


def growth(event: str, cases: Sequence[Case]) -> Growth:
    calls = [statistics.median(measured(_rebal(case)).call for _ in range(5)) for case in cases]
    holds = all(b <= 16 * a for a, b in pairwise(calls))
    return Growth(event, tuple(case.partitions for case in cases), tuple(calls), holds)


def measured(command: Sequence[str], patience: float | None = None) -> Run:
    """One process that prints the call's seconds and a digest; it must exit 0 in time.

    Raises:
        TimeoutError: it was not done after `patience` seconds.
    """
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        watch = threading.Timer(patience or 3600, child.kill)
        watch.start()
        assert child.stdout is not None
        assert child.stderr is not None
        out, err = child.stdout.read(), child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        watch.cancel()
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode == -signal.SIGKILL:
        raise TimeoutError
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited {child.returncode}: {err[-2000:]}")
    seconds, digest = out.split()
    # Linux counts kilobytes, macOS bytes.
    unit = 1e6 if platform.system() == "Darwin" else 1e3
    return Run(wall, float(seconds), usage.ru_maxrss / unit, digest)


def _rebal(case: Case) -> list[str]:
    return [sys.executable, "-m", "bench.assignors_case", "rebal", *case.words()]


def java_command(case: Case) -> list[str]:
    java = jars.tool("java")
    if java is None:
        raise SystemExit("this bench needs Java 17: install it or set JAVA_HOME")
    classes = jars.compiled("AssignorCase", "clients-4.1.1", Path(__file__).parent / "java")
    path = os.pathsep.join((jars.classpath("clients-4.1.1"), classes))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [java, quiet, "-cp", path, "AssignorCase", *case.words()]


def _kafka_python(case: Case, ours: Run) -> str:
    command = [sys.executable, "-m", "bench.assignors_case", "kafka-python", *case.words()]
    try:
        run = measured(command, PATIENCE)
    except TimeoutError:
        return f"; kafka-python not finished in {PATIENCE:.0f} s"
    if run.digest != ours.digest:
        return f"; kafka-python {run.wall:.2f} s ({run.call:.2f}), another result"
    return f"; kafka-python {run.wall:.2f} s ({run.call:.2f}), same result"


def median(runs: Sequence[Run], field: str) -> float:
    return statistics.median(getattr(run, field) for run in runs)


def told(runs: Sequence[Run]) -> str:
    walls = [run.wall for run in runs]
    return (
        f"{statistics.median(walls):.2f} s ({min(walls):.2f}–{max(walls):.2f}), call "
        f"{median(runs, 'call'):.2f} s, {median(runs, 'megabytes'):.0f} MB"
    )
