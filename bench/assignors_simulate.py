"""`rebal simulate` from a snapshot file of a million partitions, end to end; and loading the file.

The same group, with one member added, as bench/assignors.py gives to the assignors alone, whose
Java process is the peer: it has no file to read and prints no report.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.assignors import UNIFORM_1M, Run, java_command, measured, median, name_of, told
from bench.assignors_input import GENERATION, Case
from rebal.groups.model import (
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Member,
    Subscription,
    Topic,
)
from rebal.groups.partitions import Partitions
from rebal.groups.snapshot import Format, dump_snapshot, load_snapshot

LOAD_SECONDS, LOAD_MEGABYTES = 2.0, 400.0
RUNS = 3
MYSELF = (sys.executable, "-m", "bench.assignors_simulate")


@dataclass(frozen=True)
class Loading:
    """Seconds of the load alone, megabytes of the process that does it."""

    form: str
    runs: tuple[Run, ...]

    @property
    def holds(self) -> bool:
        seconds, megabytes = median(self.runs, "call"), median(self.runs, "megabytes")
        return seconds <= LOAD_SECONDS and megabytes <= LOAD_MEGABYTES

    def text(self) -> str:
        calls = [run.call for run in self.runs]
        return (
            f"load a snapshot of 1,000,000 partitions and 2,000 members, {self.form}: "
            f"{median(self.runs, 'call'):.2f} s ({min(calls):.2f}–{max(calls):.2f}), "
            f"{median(self.runs, 'megabytes'):.0f} MB; limits {LOAD_SECONDS:.0f} s, "
            f"{LOAD_MEGABYTES:.0f} MB: {'holds' if self.holds else 'DOES NOT HOLD'}"
        )


@dataclass(frozen=True)
class EndToEnd:
    """`rebal simulate` as a whole process; there is no limit to hold."""

    case: Case
    ours: tuple[Run, ...]
    java: tuple[Run, ...]
    holds: bool = True

    def text(self) -> str:
        ratio = median(self.ours, "wall") / median(self.java, "wall")
        return (
            f"rebal simulate --snapshot FILE -o json, {name_of(self.case)}: "
            f"{median(self.ours, 'wall'):.2f} s, {median(self.ours, 'megabytes'):.0f} MB; "
            f"Java, assignor alone {told(self.java)}; ratio {ratio:.2f}, no limit"
        )


def rows() -> Iterator[Loading | EndToEnd]:
    with tempfile.TemporaryDirectory() as folder:
        cases = [Case(name, *UNIFORM_1M, "added") for name in ("sticky", "cooperative-sticky")]
        files = {form: Path(folder) / f"bench.rebal.{form}" for form in ("json", "yaml")}
        for form, path in files.items():
            # In a process of its own: a big parent would count as its children's peak memory.
            measured([*MYSELF, "write", str(path), *cases[0].words()])
            load = [*MYSELF, "load", str(path)]
            yield Loading(form, tuple(measured(load) for _ in range(RUNS)))
        for case in cases:
            ours = [
                str(Path(sys.executable).with_name("rebal")), "simulate",
                "--snapshot", str(files["json"]), "--assignor", case.assignor,
                "--add-member", "1", "-o", "json",
            ]  # fmt: skip
            pairs = [(whole(ours), measured(java_command(case))) for _ in range(RUNS)]
            yield EndToEnd(case, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def whole(command: list[str]) -> Run:
    """A process whose own output does not matter."""
    wrapper = (
        "import subprocess, sys; "
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); print(0, '-')"
    )
    return measured([sys.executable, "-c", wrapper, *command])


def snapshot_of(case: Case) -> GroupSnapshot:
    """The group before the event, as inspect would save it."""
    names, subscribed = case.names(), case.subscribed()
    members = tuple(
        Member(
            member_id=f"member-{m:05}",
            client_id="bench",
            protocol_type="consumer",
            subscription=Subscription(version=3, topics=tuple(names[t] for t in subscribed[m])),
            assignment={names[t]: Partitions(numbers) for t, numbers in owned},
        )
        for m, owned in enumerate(case.before())
    )
    return GroupSnapshot(
        group=Group(
            group_id="bench",
            state=GroupState.STABLE,
            type=GroupType.CLASSIC,
            protocol_type="consumer",
            assignor=case.assignor,
            generation=GENERATION,
        ),
        captured_at=datetime(2026, 1, 1, tzinfo=UTC),
        members=members,
        topics=tuple(Topic(name=name, partitions=case.each) for name in names),
    )


if __name__ == "__main__":
    file = Path(sys.argv[2])
    form: Format = "json" if file.suffix == ".json" else "yaml"
    begin = time.perf_counter()
    if sys.argv[1] == "write":
        file.write_text(dump_snapshot(snapshot_of(Case.parse(sys.argv[3:])), form))
    else:
        load_snapshot(file.read_text(), form, file.name)
    print(time.perf_counter() - begin, "-")
