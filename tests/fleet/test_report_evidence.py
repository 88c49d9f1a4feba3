"""`--evidence LAKE`: the group, or what is known of a live one; settings reach the lake's store."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rebal.cli import app, fleet
from rebal.cli.params import Lake
from rebal.cli.sources import scan_snapshots
from rebal.groups.model import GroupSnapshot, Knowledge
from rebal.inspectors.kafka import read as live
from rebal.inspectors.tables import reader
from rebal.inspectors.tables.groups import read_snapshots
from rebal.inspectors.tables.reader import open_tables
from tests.fleet.synthetic import group_named
from tests.fleet.tablefiles import AT

Said = pytest.CaptureFixture[str]
EAGER = group_named("eager")
SECRET = "w8K-not-to-be-printed"
OPTIONS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_SECRET_ACCESS_KEY": SECRET}
WORDS = [word for pair in OPTIONS.items() for word in ("--lake-option", "=".join(pair))]


def test_without_a_broker_the_tables_are_the_group(small_scan: Path, capsys: Said) -> None:
    lake = ["--evidence", str(small_scan)]
    assert app.run(["inspect", "--all", *lake, "-o", "json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["groups"]) == 20
    assert app.run(["inspect", "nobody", *lake]) == 2
    assert "the scan saw no group nobody" in capsys.readouterr().err
    found = scan_snapshots(Lake(str(small_scan)), ["nobody", EAGER], seen_only=True)
    assert [one.group.group_id for one in found] == [EAGER]
    assert app.run(["inspect", EAGER, "--probe", *lake]) == 2
    assert "name a broker" in capsys.readouterr().err


def answer(monkeypatch: pytest.MonkeyPatch, found: GroupSnapshot) -> None:
    """Have the brokers say that this is the group."""
    chosen = live.Selection(group_ids=(found.group.group_id,))
    monkeypatch.setattr(live, "select_groups", lambda *a, **k: chosen)
    monkeypatch.setattr(live, "read_groups", lambda *a, **k: [found])


def test_with_a_broker_the_live_group_gets_what_the_scan_saw(
    small_scan: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member was restarted since the scan: nothing is known of its new member id."""
    (scanned,) = read_snapshots(open_tables(str(small_scan)), EAGER)
    blank = [
        msgspec.structs.replace(
            member,
            member_id="restarted" if n == 0 else member.member_id,
            assignors=type(member.assignors)(),
            software=None,
            timeouts=None,
        )
        for n, member in enumerate(scanned.members)
    ]
    now = AT + timedelta(hours=30)
    found = msgspec.structs.replace(scanned, members=tuple(blank), captured_at=now, unmatched=())
    answer(monkeypatch, found)
    words = ["-b", "kafka-1:9092", "--evidence", str(small_scan)]
    assert app.run(["inspect", EAGER, *words, "-o", "json"]) == 0
    told = capsys.readouterr()
    assert f"rebal: --evidence {small_scan}: as seen until 2026-11-20 09:00Z" in told.err
    (group,) = json.loads(told.out)["groups"]
    known = {m["member_id"]: m["assignors"] for m in group["members"]}
    assert known.pop("restarted")["knowledge"] == Knowledge.BOUNDED.value
    assert {m["knowledge"] for m in known.values()} == {Knowledge.EXACT.value}
    plan = tmp_path / "eager.plan.yaml"
    assert app.run(["plan-upgrade", EAGER, *words, "--out", str(plan)]) == 0
    assert "no broker" not in capsys.readouterr().err
    assert app.run(["verify", str(plan), *words]) == 4
    assert "as seen until 2026-11-20 09:00Z" in capsys.readouterr().err


def test_a_group_that_the_scan_never_saw_gets_no_evidence_and_that_is_said(
    small_scan: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scanned,) = read_snapshots(open_tables(str(small_scan)), EAGER)
    other = msgspec.structs.replace(
        scanned, group=msgspec.structs.replace(scanned.group, group_id="new-since")
    )
    answer(monkeypatch, other)
    app.run(["inspect", "new-since", "-b", "kafka-1:9092", "--evidence", str(small_scan)])
    assert "it saw no join of new-since" in capsys.readouterr().err


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str] | None]:
    """The settings with which each lake was opened."""
    made: list[Mapping[str, str] | None] = []

    def open_tables(text: str, options: Mapping[str, str] | None = None) -> reader.Tables:
        made.append(options)
        return opening(text, options)

    opening = reader.open_tables
    for module in (fleet, reader):
        monkeypatch.setattr(module, "open_tables", open_tables)
    return made


@pytest.mark.parametrize(
    "command",
    [
        ["fleet", "report", "LAKE"],
        ["fleet", "report", "LAKE", "--group", EAGER],
        ["inspect", EAGER, "--evidence", "LAKE"],
        ["plan-upgrade", EAGER, "--evidence", "LAKE"],
        ["simulate", EAGER, "--assignor", "range", "--evidence", "LAKE"],
        ["groups", "--evidence", "LAKE"],
    ],
)
def test_settings_reach_the_store_and_are_repeated_without_secrets(
    command: list[str], small_scan: Path, opened: list[Mapping[str, str] | None], capsys: Said
) -> None:
    words = [str(small_scan) if word == "LAKE" else word for word in command]
    app.run([*words, *WORDS])
    told = capsys.readouterr()
    assert opened
    assert all(options == OPTIONS for options in opened)
    assert SECRET not in told.out + told.err
    lines = told.out.splitlines()
    reading = [line for line in lines if "rebal " in line and str(small_scan) in line]
    assert reading or command[0] == "simulate"
    for line in reading:
        assert "--lake-option AWS_ENDPOINT_URL=http://127.0.0.1:9000" in line
        assert "AWS_SECRET" not in line


def test_verify_and_diff_take_them_too(
    small_scan: Path, tmp_path: Path, opened: list[Mapping[str, str] | None], capsys: Said
) -> None:
    plan = tmp_path / "group.plan.yaml"
    lake = ["--evidence", str(small_scan), *WORDS]
    assert app.run(["plan-upgrade", EAGER, *lake, "--out", str(plan)]) == 0
    assert SECRET not in plan.read_text()
    assert "AWS_ENDPOINT_URL" in plan.read_text()
    before = len(opened)
    app.run(["verify", str(plan), *lake])
    app.run(["diff", str(plan), EAGER, *lake])
    assert len(opened) == before + 2
    assert SECRET not in "".join(capsys.readouterr())


def test_a_setting_needs_a_lake(capsys: Said) -> None:
    assert app.run(["groups", "--lake-option", "A=b"]) == 2
    assert "name the lake with --evidence" in capsys.readouterr().err
