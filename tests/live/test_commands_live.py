"""The three commands as an operator types them, on a real group with one forgotten member."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling

REBAL = str(Path(sys.executable).with_name("rebal"))
MIXED = ["cooperative-sticky", "range"]


class Shell:
    """Runs rebal in a folder of its own, without the environment's own settings."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.broker = broker

    def __call__(self, *words: str, code: int, **env: str) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("REBAL_")}
        done = subprocess.run(
            [REBAL, *words],
            cwd=self.folder,
            env=clean | {"REBAL_BOOTSTRAP": self.broker.bootstrap} | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def json(self, *words: str, code: int) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self(*words, "-o", "json", code=code))
        assert answer["exit_code"] == code
        return answer


@pytest.fixture
def shell(tmp_path: Path, kafka41: Broker) -> Shell:
    return Shell(tmp_path, kafka41)


@pytest.fixture
def forgotten(kafka41: Broker, members: Members, group_id: str, topic_name: str) -> Rolling:
    """Bounce 1 done on two of three Java members; app-2 was forgotten. The log was on."""
    service = Rolling(kafka41, members, group_id, topic_name, partitions=8, software="java-2.8.2")
    with service.logged():
        service.begin(["app-0", "app-1", "app-2"], ["range"])
        for name in ("app-0", "app-1"):
            service.restart(name, MIXED)
    return service


def test_the_probe_finds_the_missing_assignor_and_the_request_log_names_the_member(
    shell: Shell, forgotten: Rolling, group_id: str, kafka41: Broker
) -> None:
    (probed,) = shell.json("inspect", group_id, "--probe", code=0)["groups"]
    assert "cooperative-sticky" in probed["common_assignors"]["unsupported"]
    assert probed["rebalance_protocol"]["value"] == "EAGER"
    assert {m["assignors"]["knowledge"] for m in probed["members"]} == {"bounded"}

    log = str(kafka41.request_log_path)
    (named,) = shell.json("inspect", group_id, "--probe", "--request-log", log, code=0)["groups"]
    lists = {m["client_id"]: m["assignors"]["list"] for m in named["members"]}
    assert lists == {"app-0": MIXED, "app-1": MIXED, "app-2": ["range"]}
    (blamed,) = [f for f in named["findings"] if f["rule"] == "RB102"]
    assert blamed["members"] == [forgotten.running["app-2"].member_id]

    screen = shell("inspect", group_id, "--probe", "--request-log", log, code=0)
    assert "app-2" in screen
    assert "RB102" in screen
    assert f"next:  rebal plan-upgrade {group_id}" in screen


def test_plan_and_simulate_work_on_the_live_group_and_on_what_inspect_saved(
    shell: Shell, forgotten: Rolling, group_id: str, kafka41: Broker
) -> None:
    log = str(kafka41.request_log_path)
    live = shell.json("plan-upgrade", group_id, "--request-log", log, code=0)
    first, second = live["steps"]
    assert first["to_do"] == [forgotten.running["app-2"].member_id]
    assert set(first["done"]) == {forgotten.running[n].member_id for n in ("app-0", "app-1")}
    assert second["precondition_holds"] == "no"

    shell("inspect", group_id, "--request-log", log, "--save", code=0)
    (saved,) = shell.folder.glob("*.rebal.yaml")
    again = shell.json("plan-upgrade", code=0)
    assert [step["to_do"] for step in again["steps"]] == [first["to_do"], second["to_do"]]

    for words in (["--snapshot", saved.name], []):
        answer = shell.json("simulate", "--assignor", "cooperative-sticky", *words, code=0)
        assert answer["assignor"] == "cooperative-sticky"
    screen = shell("simulate", "--assignor", "cooperative-sticky", group_id, code=0)
    assert "app-2" in screen


def test_reading_a_group_leaves_it_as_it_was(
    shell: Shell, forgotten: Rolling, group_id: str, kafka41: Broker
) -> None:
    def seen() -> list[tuple[str | None, int | None, int]]:
        running = forgotten.running.values()
        return [(one.member_id, one.generation, len(one.events)) for one in running]

    before = seen()
    quiet = kafka41.coordinator_log()
    for words in (
        ["inspect", group_id, "--probe"],
        ["doctor", group_id],
        ["plan-upgrade", group_id, "--probe"],
        ["simulate", "--assignor", "sticky", group_id],
    ):
        assert shell(*words, code=0)
    assert seen() == before
    said = kafka41.coordinator_log().removeprefix(quiet)
    assert group_id not in said
