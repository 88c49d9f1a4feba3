"""What a person accepts or confirms through `rebal verify`, and the journal that keeps it."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import Plan, dump_plan
from tests.cli.conftest import Rebal
from tests.planner.looks import look, pods

MIXED = ["cooperative-sticky", "range"]


@pytest.fixture
def folder(here: Path) -> Path:
    write("plan.yaml", look(0, pods(1, 1)))
    save("half.yaml", look(1, [pods(2, 1, list=MIXED)[0], pods(2, 1)[1]]))
    save("unknown.yaml", look(1, pods(2, 2)))
    return here


def write(name: str, snapshot: GroupSnapshot, goal: str = "cooperative") -> Plan:
    made = make_plan(snapshot, goal, expect_members=2, given=Given(plan=name))
    Path(name).write_text(dump_plan(made))
    return made


def save(name: str, snapshot: GroupSnapshot) -> None:
    Path(name).write_text(dump_snapshot(snapshot))


def looks() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("book.jsonl").read_text().splitlines()]


def at(snapshot: str, plan: str = "plan") -> list[str]:
    """A look at a saved group that the journal keeps."""
    words = ["verify", f"{plan}.yaml", "--snapshot", f"{snapshot}.yaml"]
    return [*words, "--journal", "book.jsonl"]


UNKNOWN = at("unknown")


def test_a_rule_is_ignored_with_a_reason_that_the_journal_keeps(folder: Path, rebal: Rebal) -> None:
    rebal(*UNKNOWN, code=4)
    told = rebal(*UNKNOWN, "--ignore", "rb901", "--reason", "all from one image").out
    assert "your word" in told
    assert "all from one image" in told
    assert "RB901 is ignored: all from one image" in looks()[-1]["accepted"]
    rebal(*UNKNOWN, code=4)


def test_lists_a_family_and_a_count_are_stated_for_one_look(folder: Path, rebal: Rebal) -> None:
    words = [f"--assume=client-id=app-{n}:{','.join(MIXED)}" for n in range(2)]
    told = rebal(*UNKNOWN, *words, "-o", "json").body
    assert [member["vouched"] for member in told["members"]] == [True, True]
    # The journal takes no word for a proof.
    rebal(*UNKNOWN, code=4)
    words = ["--assume-family", "java", "--expect-members", "3", "--departed", "app-9"]
    rebal(*UNKNOWN, *words, code=4)
    assert looks()[-1]["accepted"] == [
        "app-9 left for good", "client id * is java", "3 members are expected",
    ]  # fmt: skip


def test_a_look_at_another_steps_gate_moves_nobody_into_that_step(
    folder: Path, rebal: Rebal
) -> None:
    rebal(*at("half"), "--step", "2", code=4)
    rebal(*at("half"), code=4)
    assert [each.get("step", 1) for each in looks()] == [1, 1]
    mixed, final = pods(2, 2, list=MIXED), pods(3, 2)
    save("ready.yaml", look(2, mixed, elected="cooperative-sticky"))
    save("second.yaml", look(3, [final[0], mixed[1]], elected="cooperative-sticky"))
    rebal(*at("ready"))
    for more, code in (([], 4), (["--step", "1"], 0), ([], 4)):
        told = rebal(*at("second"), *more, "-o", "json", code=code).body
    assert told["step"] == 2
    restarted = {one["name"]: one["restarted"] for one in told["members"]}
    assert restarted == {"app-0": True, "app-1": False}, "app-0 came in step 2"


STREAMS = {"elected": "stream"}


@pytest.fixture
def streams(folder: Path) -> Path:
    """Two Streams instances whose versions and settings nothing shows."""
    bare = [{**pod, "family": None} for pod in pods(1, 1)]
    made = write("streams.yaml", look(0, bare, **STREAMS), "eager")
    assert all(step.gate.by_hand for step in made.steps)
    save("away.yaml", look(1, bare[:1], **STREAMS))
    save("back.yaml", look(2, [{**pod, "family": None} for pod in pods(2, 2)], **STREAMS))
    save("later.yaml", look(3, [{**pod, "family": None} for pod in pods(2, 3)], **STREAMS))
    return folder


def test_confirm_proves_a_step_that_no_evidence_shows(streams: Path, rebal: Rebal) -> None:
    back = at("back", plan="streams")
    words = ["--confirm", "1", "--reason", "read both logs: upgrade.from=2.3"]
    assert "--confirm 1" in rebal(*back, code=4).out
    assert f"confirmed by {getpass.getuser()}, " in rebal(*back, *words).out
    assert looks()[-1]["confirmed"]["reason"] == "read both logs: upgrade.from=2.3"
    rebal(*back)
    # Who came later was not looked at, and without the journal nobody was.
    rebal(*at("later", plan="streams"), "--step", "1", code=4)
    rebal(*back[:4], code=4)


def test_findings_of_one_rule_are_folded(folder: Path, rebal: Rebal) -> None:
    hasty = pods(2, 2, list=["range"], declared=["cooperative-sticky"])
    save("hasty.yaml", look(1, hasty))
    told = rebal(*at("hasty"), code=3).out
    assert told.split("next:")[0].count("RB101") == 1
    assert "(and 1 more of this rule)" in told
    told = rebal(*at("hasty"), "-o", "json", code=3).body
    assert [one["rule"] for one in told["findings"]] == ["RB101", "RB101"]


APPEND = """
import sys
from pathlib import Path
from rebal.cli.files import append_line, locked
for number in range(60):
    with locked(Path(sys.argv[1]), appending=True) as file:
        append_line(file, sys.argv[2] * 30_000 + str(number))
"""


def test_two_that_append_at_the_same_time_keep_every_line_whole(tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    both = [subprocess.Popen([sys.executable, "-c", APPEND, str(path), letter]) for letter in "ab"]
    assert [one.wait(60) for one in both] == [0, 0]
    lines = path.read_text().splitlines()
    assert sorted(lines) == sorted(
        letter * 30_000 + str(number) for letter in "ab" for number in range(60)
    )
