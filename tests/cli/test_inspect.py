"""`rebal inspect` as it is typed: offline on a file, live through stand-ins of the readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rebal.cli import app, files
from rebal.cli.commands import inspect_cmd
from rebal.groups.model import GroupSnapshot
from rebal.inspectors.kafka import read as live
from rebal.inspectors.kafka.listing import GroupFailure
from rebal.planner.plan import Finding, Severity

Make = Callable[..., GroupSnapshot]
Said = pytest.CaptureFixture[str]


BILLING = GroupFailure(
    group_id="billing", message="billing: no DESCRIBE right", kind="authorization"
)


class Cluster:
    """Stands for the live readers: answers with `groups`, and keeps what it was asked."""

    def __init__(self, answers: Sequence[GroupSnapshot | GroupFailure]) -> None:
        self.answers = {
            one.group_id if isinstance(one, GroupFailure) else one.group.group_id: one
            for one in answers
        }
        self.unlisted: tuple[GroupFailure, ...] = ()
        self.asked: list[dict[str, Any]] = []

    def select_groups(self, config: object, names: Sequence[str], **more: Any) -> live.Selection:
        self.asked.append({"select": list(names), **more})
        found = tuple(names) or tuple(map(str, self.answers))
        return live.Selection(group_ids=found, unlisted=self.unlisted)

    def read_groups(
        self, config: object, names: Sequence[str], *, coordinators: object, **more: Any
    ) -> list[Any]:
        self.asked.append({"read": list(names), **more})
        return [self.answers[name] for name in names]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    def start(*answers: GroupSnapshot | GroupFailure) -> Cluster:
        made = Cluster(answers)
        monkeypatch.setattr(live, "select_groups", made.select_groups)
        monkeypatch.setattr(live, "read_groups", made.read_groups)
        return made

    return start


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_document_holds_what_is_known_of_members(saved: str, form: str, capsys: Said) -> None:
    assert app.run(["inspect", "--snapshot", saved, "-o", form]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    body = json.loads(out) if form == "json" else yaml.safe_load(out)
    (found,) = body["groups"]
    assert found["rebalance_protocol"]["value"] == "EAGER"
    assert found["common_assignors"]["supported"] == ["range"]
    assert [m["assignors"]["knowledge"] for m in found["members"]] == ["exact", "exact", "bounded"]
    assert found["members"][0]["assignment"] == [{"topic": "orders", "partitions": [0, 1, 2, 3]}]


def test_groups_are_shown_when_another_could_not_be_read(
    cluster: Callable[..., Cluster], group: Make, capsys: Said
) -> None:
    made = cluster(group(), BILLING, group(group_id="ship ping"))
    words = ["inspect", "checkout", "billing", "ship ping", "-b", "127.0.0.1:1"]
    assert app.run(words) == 1
    out, err = capsys.readouterr()
    assert err == "rebal: billing: no DESCRIBE right\n"
    assert [line for line in out.splitlines() if line.startswith("next:")] == [
        "next:  rebal inspect checkout --probe -b 127.0.0.1:1",
        "next:  rebal inspect 'ship ping' --probe -b 127.0.0.1:1",
    ]
    assert made.asked[1] == {"read": words[1:4], "probe": False, "assignors": ()}
    assert app.run([*words, "-o", "json"]) == 1
    body = json.loads(capsys.readouterr().out)
    (failure,) = body["failures"]
    assert (failure["group_id"], failure["message"]) == ("billing", BILLING.message)
    assert [found["group_id"] for found in body["groups"]] == ["checkout", "ship ping"]
    assert app.run([*words, "-o", "sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert not run["invocations"][0]["executionSuccessful"]


def test_a_broker_that_did_not_list_its_groups_is_a_failure_beside_the_groups_of_the_others(
    cluster: Callable[..., Cluster], group: Make, capsys: Said
) -> None:
    why = "broker 2 at b2:9092 cannot be reached (no answer): the groups that it coordinates …"
    silent = GroupFailure(group_id=None, message=why, kind="network", broker_id=2)
    cluster(group()).unlisted = (silent,)
    words = ["inspect", "--all", "-b", "127.0.0.1:1"]
    assert app.run(words) == 1
    out, err = capsys.readouterr()
    assert out.startswith("checkout ")
    assert err == f"rebal: {why}\n"
    assert app.run([*words, "-o", "json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["group_id"], failure["broker_id"]) == (None, 2)
    assert app.run([*words, "-o", "github"]) == 1
    assert "broker 2" in capsys.readouterr().out


def test_the_probe_and_its_assignors_reach_the_reader(
    cluster: Callable[..., Cluster], group: Make, capsys: Said
) -> None:
    made = cluster(group())
    words = ["inspect", "checkout", "-b", "h:1", "--probe", "--assignor", "a", "--assignor", "b"]
    assert app.run(words) == 0
    assert made.asked[1] == {"read": ["checkout"], "probe": True, "assignors": ("a", "b")}
    assert capsys.readouterr().out.splitlines()[-1] == (
        "next:  rebal plan-upgrade checkout -b h:1 --probe --assignor a --assignor b"
    )


def test_screens_of_many_groups_are_those_of_each(
    cluster: Callable[..., Cluster], group: Make, capsys: Said
) -> None:
    """More than one processor makes them."""
    names = [f"g-{number:03}" for number in range(inspect_cmd._MANY + 7)]
    cluster(*(group(group_id=name) for name in names))
    assert app.run(["inspect", "--all", "-b", "h:1"]) == 0
    together = capsys.readouterr().out
    alone = []
    for name in names:
        assert app.run(["inspect", name, "-b", "h:1"]) == 0
        alone.append(capsys.readouterr().out)
    assert together == "\n".join(alone)


def test_a_blocking_finding_exits_3_and_the_options_can_say_otherwise(
    saved: str, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    found = Finding(rule="RB113", severity=Severity.BLOCK, message="stop")
    monkeypatch.setattr("rebal.cli.report.evaluate", lambda _: (found,))
    assert app.run(["inspect", "--snapshot", saved]) == 3
    assert app.run(["inspect", "--snapshot", saved, "--exit-zero"]) == 0
    found = replace(found, severity=Severity.WARN)
    assert app.run(["inspect", "--snapshot", saved]) == 0
    assert app.run(["inspect", "--snapshot", saved, "--fail-on", "warning", "-o", "json"]) == 3
    assert '"exit_code": 3' in capsys.readouterr().out


def test_save_writes_one_snapshot_for_each_group(
    cluster: Callable[..., Cluster], group: Make, here: Path, capsys: Said
) -> None:
    cluster(group(), group(group_id="../up"))
    assert app.run(["inspect", "checkout", "../up", "-b", "h:1", "--save"]) == 0
    assert sorted(p.name for p in here.iterdir()) == [
        "%2E.%2Fup.rebal.yaml", "checkout.rebal.yaml",
    ]  # fmt: skip
    assert f"rebal: saved {here}/checkout.rebal.yaml\n" in capsys.readouterr().err
    read = files.read_snapshot(here / "checkout.rebal.yaml")
    assert read.members[0].client_id == "checkout-1"
    assert app.run(["inspect", "checkout", "-b", "h:1", "--save-to", "one.json", "--redact"]) == 0
    assert files.read_snapshot(here / "one.json").redacted
    assert app.run(["inspect", "checkout", "../up", "-b", "h:1", "--save-to", "two.yaml"]) == 2
    assert "several groups need a folder" in capsys.readouterr().err


def test_a_shell_pattern_of_logs_is_files_not_groups(
    cluster: Callable[..., Cluster], group: Make, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(
        "rebal.cli.sources.EvidenceFiles.observations",
        lambda files: given.append([str(path) for path in files.client_log]) or (),
    )
    for name in ("a.log", "b.log", "checkout"):
        (here / name).write_text("")
    made = cluster(group())
    assert app.run(["inspect", "checkout", "-b", "h:1", "--client-log", "a.log", "b.log"]) == 0
    assert given == [["a.log", "b.log"]]
    assert made.asked[0]["select"] == ["checkout"]
    assert app.run(["inspect", "-b", "h:1", "--client-log=a.log", "checkout"]) == 0
    assert given[1] == ["a.log"]
