"""`rebal simulate` for Connect workers: text, JSON, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli.app import run
from rebal.groups.model import GroupSnapshot, WorkerState
from rebal.groups.snapshot.documents import dump_snapshot
from tests.documents import checked
from tests.planner.worker_groups import workers

Said = pytest.CaptureFixture[str]


def saved(folder: Path, snapshot: GroupSnapshot) -> str:
    path = folder / "workers.yaml"
    path.write_text(dump_snapshot(snapshot, "yaml"))
    return str(path)


def test_protocols_stand_side_by_side(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    saved(tmp_path, workers("sessioned"))
    monkeypatch.chdir(tmp_path)
    both = ["--assignor", "eager", "--assignor", "sessioned"]
    w1 = ["--restart-member", "w1", "--restart-member", "w1-1"]
    words = ["simulate", "--snapshot", "workers.yaml", *both, *w1]
    assert run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("workers (workers.yaml")
    assert "3 workers, 3 connectors, 12 tasks; sessioned now" in " ".join(lines[:2])
    (eager,) = [line.split() for line in lines if line.startswith("eager  ") and "one by" in line]
    assert eager[4:6] == ["2", "20"]
    # All 15 connectors and tasks stop for less than a heartbeat interval (3 s) at both.
    assert 1 <= int(eager[6]) <= 2 * 15 * 3
    (later,) = [line.split() for line in lines if line.startswith("sessioned  one")]
    # It leads nothing, so its five wait for 300 s.
    assert later[4:6] == ["3", "0"]
    assert 5 * 300 <= int(later[6].replace(",", "")) <= 5 * 306


def test_each_worker_restarts_where_none_is_named(tmp_path: Path, capsys: Said) -> None:
    path = saved(tmp_path, workers("default"))
    assert run(["simulate", "--snapshot", path, "--assignor", "eager", "-o", "json"]) == 0
    told = checked(capsys.readouterr().out)
    (one,) = told["runs"]
    assert (told["restarted"], one["cost"]["rebalances"]) == (["w0", "w1", "w2"], 6)


def test_groups_without_known_connect_work_are_rejected(tmp_path: Path, capsys: Said) -> None:
    group = workers("sessioned")
    blind = tuple(replace(m, worker=WorkerState(url="")) for m in group.members)
    for snapshot, says in (
        (replace(group, members=blind), "what its workers run is not known"),
        (
            replace(group, group=replace(group.group, protocol_type="consumer")),
            "is no group of Connect workers",
        ),
    ):
        path = saved(tmp_path, snapshot)
        assert run(["simulate", "--snapshot", path, "--assignor", "eager"]) == 2
        assert says in capsys.readouterr().err
