"""Command lines that cannot be meant: each is one sentence that says what to type."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from rebal.cli import app
from rebal.groups.model import AssignorList, Cluster, GroupSnapshot, Knowledge, WorkerState
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.groups.snapshot.redact import redact
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from tests.planner.worker_groups import workers

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
def test_a_wrong_command_line_is_one_sentence(
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
