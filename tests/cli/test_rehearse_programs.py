"""`rebal rehearse` on groups of Connect workers and of Kafka Streams."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rebal.cli.app import run
from rebal.groups.evidence.merge import merge
from rebal.groups.snapshot.documents import dump_snapshot
from tests.cli.conftest import flat
from tests.planner.builder import group_of
from tests.planner.worker_groups import workers

Said = pytest.CaptureFixture[str]


@pytest.fixture
def connect(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    path = here / "connect.yaml"
    path.write_text(dump_snapshot(workers("default"), "yaml"))
    return path.name


@pytest.fixture
def streams(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    members = [
        {"id": name, "list": ["stream"], "family": "streams", "version": "2.3.1"} for name in "abc"
    ]
    path = here / "streams.yaml"
    group = group_of({"elected": "stream", "members": members})
    path.write_text(dump_snapshot(merge(group, ()), "yaml"))
    return path.name


def planned(snapshot: str, capsys: Said) -> str:
    assert run(["plan-upgrade", "--snapshot", snapshot, "-o", "yaml"]) == 0
    Path("plan.yaml").write_text(capsys.readouterr().out)
    return "plan.yaml"


def printed(words: list[str], capsys: Said, code: int = 0, *, command: str = "rehearse") -> str:
    assert run([command, *words]) == code
    out = capsys.readouterr().out
    if "-o" not in words:
        # A command is one line, to be copied.
        assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("next:"))
    return out


def test_rollout_of_connect_workers_counts_tasks(connect: str, capsys: Said) -> None:
    words = [planned(connect, capsys)]
    text = flat(printed([*words, "--details"], capsys))
    assert "3 members, 15 connectors and tasks)" in text
    assert "no task is owned twice" in text
    assert "7 rebalances" in text
    assert "task-seconds in 80 stops; 56 moves" in text
    assert "partition" not in text.lower()
    told = json.loads(printed([*words, "-o", "json"], capsys))
    assert (told["unit"], told["partitions"]) == ("task", 15)
    (made,) = told["runs"]
    assert (made["rehearsal"]["unit"], made["rehearsal"]["assignor"]) == ("task", "sessioned")
    assert len(made["rehearsal"]["partitions"]) == 15


def test_lost_work_of_a_worker_is_held_back(connect: str, capsys: Said) -> None:
    Path(connect).write_text(dump_snapshot(workers("sessioned", 60_000), "yaml"))
    Path("stop.yaml").write_text(
        "schema: rebal.script/1\nevents:\n  - stop: w1\n    at: 5s\n  - stop: [w0, w2]\n"
    )
    words = ["--snapshot", connect, "--script", "stop.yaml", "--details"]
    text = flat(printed(words, capsys))
    assert "held back 60 s" in text
    # The group is at rest, and the others stop, when the delay is over.
    assert re.search(r"1:0[5-9] the leader joined again", text)
    assert "no owner 15 tasks have no owner at the end, such as c0" in text


def test_rollout_of_streams_says_that_tasks_are_not_modelled(streams: str, capsys: Said) -> None:
    words = [planned(streams, capsys)]
    text = flat(printed([*words, "--details"], capsys))
    assert "3 members) No member is rejected, if what is assumed below holds." in text
    assert "takes 3 min 5 s, 12 rebalances" in text
    assert "downtime not modelled" in text
    assert "the tasks that Kafka Streams assigns are not modelled" in text
    assert not {"STOPS", "MOVES", "TASK-S", "PARTITION-S"} & set(text.split())
    assert "partition" not in text.lower().replace("parts", "")
    told = json.loads(printed([*words, "-o", "json"], capsys))
    assert (told["unit"], told["runs"][0]["rehearsal"]["partitions"]) == ("none", [])
    page = printed([*words, "-o", "html"], capsys)
    assert "<dt>downtime</dt><dd>not modelled</dd>" in page
    assert "without an owner" not in page
    assert "<th>Stopped</th>" not in page
    assert '"unit": "none"' in page


def test_partition_assignors_are_not_compared_on_groups_that_assign_tasks(
    connect: str, streams: str, capsys: Said
) -> None:
    for snapshot, name in ((connect, "eager"), (streams, "consumer")):
        words = ["rehearse", "--snapshot", snapshot, "--script", "rolling", "--compare", name]
        assert run(words) == 2
        assert "assign tasks by their own protocol: only plan and now" in capsys.readouterr().err


@pytest.mark.parametrize("inspected", [True, False])
def test_evidence_of_the_options_decides_the_times(
    connect: str, capsys: Said, inspected: bool
) -> None:
    Path(connect).write_text(dump_snapshot(workers("sessioned"), "yaml"))
    for name in ("w0", "w1", "w2"):
        Path("inventory").mkdir(exist_ok=True)
        (Path("inventory") / f"{name}.properties").write_text(
            f"group.id=workers\nclient.id={name}\nconnect.protocol=sessioned\n"
            "config.storage.topic=c\nscheduled.rebalance.max.delay.ms=60000\n"
        )
    words = ["--snapshot", connect, "--inventory", "inventory"]
    if inspected:
        restarted = ("--assignor", "sessioned", "--restart-member", "w1")
        text = printed([*words, *restarted], capsys, command="simulate")
        assert "scheduled.rebalance.max.delay.ms is over (60 s)" in flat(text)
    else:
        Path("stop.yaml").write_text("schema: rebal.script/1\nevents:\n  - stop: w1\n")
        text = printed([*words, "--script", "stop.yaml", "--details"], capsys)
        assert "held back 60 s" in flat(text)
    (following,) = [line for line in text.splitlines() if line.startswith("next:")]
    assert following.endswith(" --inventory inventory")
