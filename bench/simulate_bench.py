"""A captured group of 100 k partitions and 500 members: load it, and simulate it to the end.

The snapshot has everything that `rebal inspect --save` writes: subscriptions, what each member owns
(dealt like roundrobin, so that no run of partitions shortens it), replicas, and both offsets of
each partition. Loading is timed inside a process that does nothing else; `rebal simulate` is the
whole process, with a member that joins, from the start of Python to the last line of the screen.
Beside it stands what cannot be left out, timed in a process of its own: loading, and the assignor's
calls, as many as there are rebalances.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rebal.groups.compact import Lag, Partitions
from rebal.groups.model import (
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Member,
    Subscription,
    Topic,
)
from rebal.groups.snapshot.documents import Format, dump_snapshot

MEMBERS = 500
PARTITIONS = 100_000
RUNS = 5
FORMS: tuple[Format, ...] = ("yaml", "json")
_LOAD = """
import sys, time
from pathlib import Path
from rebal.cli.files import read_snapshot
begin = time.perf_counter()
read_snapshot(Path(sys.argv[1]))
print(time.perf_counter() - begin)
"""
_PARTS = """
import sys, time
from pathlib import Path
from rebal.cli.files import read_snapshot
from rebal.groups.assignors.client.kafka import KafkaAssignor
from rebal.planner.rehearsal.whatif.simulation import simulate
from rebal.planner.rehearsal.whatif.changes import Changes
calls = []
whole = KafkaAssignor.assign_remembered
def timed(assignor, spec):
    begin = time.process_time()
    result = whole(assignor, spec)
    calls.append(time.process_time() - begin)
    return result
KafkaAssignor.assign_remembered = timed
begin = time.process_time()
snapshot = read_snapshot(Path(sys.argv[1]))
loaded = time.process_time() - begin
simulate(snapshot, sys.argv[2], Changes(add_members=1))
print(loaded + sum(calls))
"""


@dataclass(frozen=True)
class Row:
    """Seconds and peak megabytes of several runs; a limit of None is none.

    `cpu` is what of a processor it took, at most `most_cpu`, and `parts` the same of what cannot be
    left out, all in seconds; `most_ratio` is how many times that it may take.
    """

    case: str
    seconds: tuple[float, ...]
    megabytes: tuple[float, ...]
    most_seconds: float | None = None
    most_megabytes: float | None = None
    cpu: tuple[float, ...] = ()
    parts: tuple[float, ...] = ()
    most_ratio: float | None = None
    most_cpu: float | None = None

    @property
    def ratio(self) -> float:
        return statistics.median(self.cpu) / statistics.median(self.parts)

    @property
    def holds(self) -> bool:
        slow = self.most_seconds is not None and statistics.median(self.seconds) > self.most_seconds
        large = self.most_megabytes is not None and max(self.megabytes) > self.most_megabytes
        long = self.most_ratio is not None and self.ratio > self.most_ratio
        busy = self.most_cpu is not None and statistics.median(self.cpu) > self.most_cpu
        return not slow and not large and not long and not busy

    def text(self) -> str:
        median = statistics.median(self.seconds)
        spread = f"{min(self.seconds):.2f}–{max(self.seconds):.2f}"
        made = f"{self.case}: {median:.2f} s ({spread}), {max(self.megabytes):.0f} MB"
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        if self.cpu:
            made += f"; CPU {statistics.median(self.cpu):.2f} s"
        if self.parts:
            made += f", of that load + assign calls {statistics.median(self.parts):.2f} s"
            made += f", ratio {self.ratio:.2f}"
        if self.most_ratio is not None:
            return f"{made}, limit {self.most_ratio:.2f}: {verdict}"
        if self.most_cpu is not None:
            limit = f"limit {self.most_cpu:g} s of CPU, {self.most_megabytes:g} MB"
            return f"{made}; {limit}: {verdict}"
        if self.most_seconds is None:
            return made
        return f"{made}; limit {self.most_seconds:g} s, {self.most_megabytes:g} MB: {verdict}"


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for topics in (10, 100, 1000):
            # In a process of its own: the system counts a parent's memory as its children's.
            make = [sys.executable, "-m", "bench.simulate_bench", folder, str(topics)]
            subprocess.run(make, check=True)
            for form in FORMS:
                path = Path(folder) / f"big-{topics}.rebal.{form}"
                runs = [loaded(path) for _ in range(RUNS)]
                yield Row(
                    f"load 100 k partitions, 500 members, {topics:,} topics, {form}, "
                    f"{path.stat().st_size / 1e6:.0f} MB",
                    tuple(seconds for seconds, _ in runs),
                    tuple(megabytes for _, megabytes in runs),
                    2.0,
                    400,
                )
        for topics in (100, 1000):
            path = Path(folder) / f"big-{topics}.rebal.yaml"
            for assignor in ("cooperative-sticky", "sticky", "range", "uniform"):
                yield _end_to_end(path, topics, assignor)
        for assignor in ("cooperative-sticky", "uniform"):
            for options in (("-o", "json"), ("--wide",)):
                yield _with_lists(path, assignor, options)


def _end_to_end(path: Path, topics: int, assignor: str) -> Row:
    """One assignor; the sticky ones' own work is enough for a ratio to mean something."""
    whole, parts = [], []
    for _ in range(3):
        whole.append(simulated(path, assignor))
        if assignor != "uniform":
            parts.append(float(_run([sys.executable, "-c", _PARTS, str(path), assignor])[0]))
    return Row(
        f"rebal simulate --assignor {assignor} --add-member 1, {topics:,} topics, yaml",
        tuple(seconds for seconds, _, _ in whole),
        tuple(megabytes for _, megabytes, _ in whole),
        cpu=tuple(cpu for _, _, cpu in whole),
        parts=tuple(parts),
        most_ratio=3.0 if "sticky" in assignor else None,
    )


def _with_lists(path: Path, assignor: str, options: tuple[str, ...]) -> Row:
    """Measure a simulation that lists every member's partitions, before and after."""
    runs = [simulated(path, assignor, *options) for _ in range(3)]
    return Row(
        f"rebal simulate --assignor {assignor} --add-member 1 {' '.join(options)}, 1,000 topics",
        tuple(seconds for seconds, _, _ in runs),
        tuple(megabytes for _, megabytes, _ in runs),
        most_megabytes=500,
        cpu=tuple(cpu for _, _, cpu in runs),
        most_cpu=4.0,
    )


def captured(topics: int) -> GroupSnapshot:
    """Return the snapshot that a user with all rights would save of the group."""
    each = PARTITIONS // topics
    names = tuple(f"topic-{t:05}" for t in range(topics))
    members = []
    for m in range(MEMBERS):
        owned = {
            name: Partitions(range((m - t * each) % MEMBERS, each, MEMBERS))
            for t, name in enumerate(names)
            if (m - t * each) % MEMBERS < each
        }
        members.append(
            Member(
                member_id=f"member-{m:05}-6ec5ac94-9c3d-4c2e-8d3f-{m:012}",
                client_id=f"member-{m:05}",
                host=f"/10.0.{m // 250}.{m % 250}",
                subscription=Subscription(
                    version=3, topics=names, owned_partitions=owned, generation_id=7
                ),
                subscribed_topics=names,
                assignment=owned,
            )
        )
    return GroupSnapshot(
        group=Group(
            group_id="big",
            state=GroupState.STABLE,
            type=GroupType.CLASSIC,
            protocol_type="consumer",
            assignor="cooperative-sticky",
            generation=7,
        ),
        captured_at=datetime(2026, 11, 20, tzinfo=UTC),
        members=tuple(members),
        topics=tuple(
            Topic(
                name=name,
                partitions=each,
                replicas=[(p % 6, (p + 1) % 6, (p + 2) % 6) for p in range(each)],
            )
            for name in names
        ),
        lag=(Lag(name, p, 1_000_000 + p, 1_000_100 + p) for name in names for p in range(each)),
    )


def loaded(path: Path) -> tuple[float, float]:
    """Seconds of read_snapshot alone, and the most memory its process had."""
    out, megabytes, _ = _run([sys.executable, "-c", _LOAD, str(path)])
    return float(out), megabytes


def simulated(path: Path, assignor: str, *options: str) -> tuple[float, float, float]:
    """Seconds of the whole process, the most memory it had, and its seconds of a processor."""
    import time

    words = ["simulate", "--snapshot", str(path), "--assignor", assignor, "--add-member", "1"]
    words += options
    begin = time.perf_counter()
    _, megabytes, cpu = _run([str(Path(sys.executable).with_name("rebal")), *words])
    return time.perf_counter() - begin, megabytes, cpu


def _run(command: list[str]) -> tuple[str, float, float]:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command[:2])} … ended with {process.returncode}")
        out.seek(0)
        # Linux counts kilobytes, macOS bytes.
        unit = 1024 if sys.platform == "linux" else 1024 * 1024
        return out.read(), used.ru_maxrss / unit, used.ru_utime + used.ru_stime


def write(folder: Path, topics: int) -> None:
    """Write the snapshot as YAML and as JSON."""
    group = captured(topics)
    for form in FORMS:
        path = folder / f"big-{topics}.rebal.{form}"
        path.write_text(dump_snapshot(group, form), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
