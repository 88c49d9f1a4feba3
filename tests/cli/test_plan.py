"""`rebal plan-upgrade` as it is typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rebal.cli import app, files
from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, Member
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.plan import load_plan
from tests.cli.conftest import flat
from tests.planner.builder import group_of

Make = Callable[..., GroupSnapshot]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def save(tmp_path: Path) -> Callable[[GroupSnapshot], str]:
    return lambda snapshot: str(files.save_snapshot(snapshot, tmp_path))


def plan(path: str, *more: str) -> int:
    return app.run(["plan-upgrade", "--snapshot", path, *more])


def test_times_of_a_saved_group_are_not_those_of_its_capture(
    group: Make, save: Any, capsys: Said
) -> None:
    assert plan(save(group()), "--details") == 0
    said = capsys.readouterr().out
    assert "just now" not in said
    assert re.search(r"based on the snapshot of (2026-11-20|Nov 20) 09:15Z\n", said)
    assert re.search(r"\(request log (2026-11-20|Nov 20) 09:12Z\)", said)


def test_a_blocked_plan_exits_3_unless_the_rule_is_ignored(
    group: Make, save: Any, capsys: Said, librdkafka: tuple[Member, ...]
) -> None:
    path = save(group(members=librdkafka))
    assert plan(path) == 3
    assert "RB104" in capsys.readouterr().out
    assert plan(path, "--exit-zero") == 0
    ignored = plan(
        path, "--ignore", "rb104", "--reason", "we stop everything on Sunday", "-o", "json"
    )
    said = capsys.readouterr().out
    body = json.loads(said[said.rindex('{\n  "schema"') :])
    assert ignored == 0
    assert "RB104 is ignored: we stop everything on Sunday" in body["assumptions"]
    assert [f["ignored"] for f in body["findings"] if f["rule"] == "RB104"]


def test_fail_on_warning_makes_a_warning_exit_3(save: Any) -> None:
    path = save(group_of({"members": [{"id": "a", "list": ["range"], "version": "3.1.0"}]}))
    assert plan(path) == 0
    assert plan(path, "--fail-on", "warning") == 3


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_out_writes_a_plan_that_reads_back_with_its_baseline(
    group: Make, save: Any, tmp_path: Path, capsys: Said, ending: str
) -> None:
    out = tmp_path / f"checkout.plan.{ending}"
    snapshot = group()
    path = save(snapshot)
    assert plan(path, "--out", str(out)) == 0
    read = load_plan(out.read_text(encoding="utf-8"), ending, out.name)
    assert read.baseline == merge(files.read_snapshot(Path(path)), ())
    assert read.baseline.group == snapshot.group
    assert read.next_step == 1
    assert f"wrote {out}" in capsys.readouterr().err
    before = out.read_bytes()
    plan(path, "--out", str(out))
    assert out.read_bytes() == before
    assert {step.gate.command for step in read.steps} == {f"rebal verify {out}"}


def test_markdown_is_a_runbook(group: Make, save: Any, capsys: Said) -> None:
    assert plan(save(group()), "-o", "markdown") == 0
    text = capsys.readouterr().out
    assert text.startswith("# checkout: EAGER (range) → COOPERATIVE (cooperative-sticky)\n")
    assert "\n```properties\n" in text
    assert "\n- [ ] Gate: `rebal plan-upgrade --snapshot" in text
    assert "\n## Not checked\n" in text


def test_a_family_can_be_assumed(group: Make, save: Any, capsys: Said) -> None:
    snapshot = group()
    members = (
        *snapshot.members[:2],
        msgspec.structs.replace(snapshot.members[2], software=None, subscription=None),
    )
    path = save(msgspec.structs.replace(snapshot, members=members))
    assert plan(path) == 4
    assert "RB906 checkout-3 may not start" in flat(capsys.readouterr().out)
    assert plan(path, "--assume-family", "checkout-3=java") == 0
    assert re.search(r"assumed +client id checkout-3 is java", capsys.readouterr().out)


def test_members_stand_in_natural_order(capsys: Said, tmp_path: Path) -> None:
    members = [{"id": f"worker-{number}", "list": ["range"]} for number in (10, 2, 1, 11)]
    file = tmp_path / "group.yaml"
    file.write_text(dump_snapshot(group_of({"members": members})))
    order = ["worker-1", "worker-2", "worker-10", "worker-11"]
    out = tmp_path / "a.plan.yaml"
    words = ["plan-upgrade", "--snapshot", str(file), "--out", str(out), "--details"]
    assert app.run(words) == 0
    assert f"to do        {', '.join(order[:-1])} and {order[-1]}" in capsys.readouterr().out
    for words in (["inspect"], ["verify", str(out)], ["simulate", "--assignor", "sticky"]):
        app.run([*words, "--snapshot", str(file)])
        lines = capsys.readouterr().out.splitlines()
        firsts = [line.split()[0] for line in lines if line.startswith("worker-")]
        assert firsts[:4] == order, words
