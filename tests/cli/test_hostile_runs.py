"""Hostile runs (tests/hostile), and command lines that cannot be meant."""

import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from rebal.cli import app
from rebal.groups.model import AssignorList, Cluster, GroupSnapshot, Knowledge, WorkerState
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.groups.snapshot.redact import redact
from rebal.inspectors.kafka.wire import Deadline
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from tests.hostile.ground import SECRET
from tests.hostile.runs import MOST_KILOBYTES, MOST_SECONDS, Range, Run, draw
from tests.planner.worker_groups import workers


@pytest.fixture(scope="module")
def hostile_range(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = Range(folder)
        yield made
        made.close()


@pytest.mark.parametrize(
    "runs", [100, pytest.param(100_000, marks=[pytest.mark.full, pytest.mark.timeout(14_400)])]
)
def test_a_run_with_hostile_input_ends_with_a_sentence_without_secrets(
    runs: int, hostile_range: Range
) -> None:
    faults = []
    for seed in range(runs):
        run = draw(seed, hostile_range)
        end = hostile_range.run(run)
        if end.fault:
            faults.append((seed, end.fault, run.words))
    assert not faults


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "sparse.yaml", "sparse.json"),
        ("inspect", "--snapshot", "sparse.json"),
        ("inspect", "g", "--command-config", "sparse.properties"),
        ("inspect", "--snapshot", "checkout.rebal.yaml", "--client-log", "sparse.log"),
        ("inspect", "--snapshot", "checkout.rebal.yaml", "--client-log", "bomb.gz"),
        ("inspect", "--snapshot", "checkout.rebal.yaml", "--inventory", "sparse.yaml"),
        ("verify", "fifo.yaml"),
        ("inspect", "--snapshot", "/dev/zero"),
        ("inspect", "g", "-X", f"{SECRET}=="),
        ("inspect", "g\udcff", "-b", "127.0.0.1:1"),
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_hostile_input_stays_within_limits(words: tuple[str, ...], hostile_range: Range) -> None:
    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_KILOBYTES << 10,) * 2)

    done = subprocess.run(
        [sys.executable, "-m", "rebal.cli.entry", *map(os.fsencode, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=limit_memory,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1, 2)
    assert b"rebal: " in done.stdout
    assert b"this is a fault" not in done.stdout
    assert SECRET.encode() not in done.stdout


def test_huge_broker_answers_that_are_cut_off_keep_no_memory(hostile_range: Range) -> None:
    """Each of three connections announces an answer of 99 MB."""
    live = ["-b", f"127.0.0.1:{hostile_range.broker.port}", "--timeout", "0.5"]
    run = Run(["inspect", "g", "h", "i", "--probe", *live], way="huge", after=7, seed=625830631)
    assert hostile_range.run(run).fault == ""


@pytest.mark.parametrize("answers", [2, 3, 4])
def test_all_rows_of_doctor_share_one_timeout(
    answers: int, hostile_range: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines = []

    class Counted(Deadline):
        def __init__(self, timeout_ms: int) -> None:
            super().__init__(timeout_ms)
            deadlines.append(self)

    for module in ("cluster", "doctor"):
        monkeypatch.setattr(f"rebal.inspectors.kafka.{module}.Deadline", Counted)
    broker = hostile_range.broker
    broker.way, broker.after = "silent", answers
    app.run(["doctor", "g", "-b", f"127.0.0.1:{broker.port}", "--timeout", "0.5"])
    assert len(deadlines) == 1


Said = pytest.CaptureFixture[str]
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def folder(here: Path, group: Callable[..., GroupSnapshot]) -> Path:
    """A group, its plan, a script, and files that do not go with them."""
    busy = workers("sessioned")
    blind = [replace(each, worker=WorkerState(url="")) for each in busy.members]
    stream = AssignorList(knowledge=Knowledge.EXACT, list=("stream",))
    programs = [replace(each, assignors=stream) for each in group().members]
    snapshots = {
        "g": group(), "other": group(group_id="billing"), "redacted": redact(group()),
        "w": busy, "blind": replace(busy, members=tuple(blind)), "nobody": group(members=()),
        "streams": group(assignor="stream", members=tuple(programs)),
        "west": group(cluster=Cluster(cluster_id="west")),
    }  # fmt: skip
    for name, snapshot in snapshots.items():
        Path(f"{name}.yaml").write_text(dump_snapshot(snapshot))
    Path("p.yaml").write_text(dump_plan(make_plan(group())))
    east = group(cluster=Cluster(cluster_id="east"))
    Path("east.yaml").write_text(dump_plan(make_plan(east)))
    Path("s.yaml").write_text("schema: rebal.script/1\nevents:\n  - kill: checkout-1\n")
    entry = {"schema": "rebal.journal/2", "at": "2026-11-20T09:00:00Z", "group_id": "checkout"}
    Path("old.jsonl").write_text(json.dumps(entry | {"plan": "of yesterday"}) + "\n")
    Path("folder.jsonl").mkdir()
    Path("utf16.jsonl").write_bytes(b"\xff\xfe{}\n")
    Path("odd.jsonl").write_text('{"schema": "rebal.journal/2", "at": 7}\n')
    Path("later.jsonl").write_text('{"schema": "rebal.journal/1"}\n')
    Path("loop.yaml").symlink_to("loop.yaml")
    return here


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


ROWS = [
    (f"{begin} {words}", code, says)
    for code, lines in yaml.safe_load((DATA / "wrong_usage.yaml").read_text()).items()
    for begin, rows in lines.items()
    for words, says in rows
]
LONG = [
    (f"rehearse --snapshot g.yaml --script crash --batch {'9' * 5000}", 2, "--batch 9"),
    (f"rehearse {'x' * 5000}", 1, "there is no such plan file. A live group without a plan"),
]


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [pytest.param(*row, id=row[0][:80]) for row in (*ROWS, *LONG)],
)
def test_a_wrong_command_line_is_reported_in_one_sentence(
    line: str, code: int, says: str, *, folder: Path, capsys: Said
) -> None:
    before = contents(folder)
    assert app.run(shlex.split(line)) == code
    out, err = capsys.readouterr()
    assert out == ""
    *notes, last = err.splitlines()
    assert says in last
    assert all(each.startswith("rebal: ") for each in (*notes, last))
    assert len(notes) == (1 if "shows the group as of" in err else 0)
    assert contents(folder) == before
