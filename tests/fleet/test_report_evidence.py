"""`--evidence DIR`: a scan's tables as the group, and as what is known of a live one."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rebal.cli import app
from rebal.groups.model import Knowledge
from rebal.inspectors.kafka import read as live
from rebal.inspectors.tables.groups import read_snapshots
from rebal.inspectors.tables.reader import open_tables
from tests.fleet.synthetic import group_named
from tests.fleet.tablefiles import AT

Said = pytest.CaptureFixture[str]


def test_without_a_broker_the_tables_are_the_group(small_scan: Path, capsys: Said) -> None:
    name = group_named("half-way")
    assert app.run(["inspect", name, "--evidence", str(small_scan)]) == 3
    told = capsys.readouterr()
    assert re.fullmatch(
        rf"rebal: no broker was asked: {small_scan}, as seen until 2026-11-20 09:00Z, "
        r"\d+ \w+ ago\.\n",
        told.err,
    )
    assert told.out.startswith("REJECTED"), "a client that is out leads the screen"
    assert "captured" in told.out
    assert "Nov 20 09:00Z by rebal fleet scan" in told.out
    assert f"rebal plan-upgrade {name} --evidence {small_scan}" in told.out
    assert "request log Nov 20" in told.out
    assert app.run(["plan-upgrade", name, "--evidence", str(small_scan)]) == 0
    told = capsys.readouterr()
    assert "cooperative-sticky is in 3 of 5 lists" in told.out
    assert "based on the snapshot of Nov 20 09:00Z" in told.out
    assert "no broker was asked" in told.err
    assert app.run(["inspect", "--all", "--evidence", str(small_scan), "-o", "json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["groups"]) == 20
    assert app.run(["inspect", "nobody", "--evidence", str(small_scan)]) == 2
    assert "the scan saw no group nobody" in capsys.readouterr().err
    assert app.run(["inspect", name, "--probe", "--evidence", str(small_scan)]) == 2
    assert "name a broker" in capsys.readouterr().err


def test_with_a_broker_the_live_group_gets_what_the_scan_saw(
    small_scan: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member was restarted since the scan: nothing is known of its new member id."""
    name = group_named("eager")
    (scanned,) = read_snapshots(open_tables(str(small_scan)), name)
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
    chosen = live.Selection(group_ids=(name,))
    monkeypatch.setattr(live, "select_groups", lambda *a, **k: chosen)
    monkeypatch.setattr(live, "read_groups", lambda *a, **k: [found])
    words = ["-b", "kafka-1:9092", "--evidence", str(small_scan)]
    assert app.run(["inspect", name, *words, "-o", "json"]) == 0
    told = capsys.readouterr()
    assert f"rebal: --evidence {small_scan}: as seen until 2026-11-20 09:00Z" in told.err
    (group,) = json.loads(told.out)["groups"]
    known = {m["member_id"]: m["assignors"] for m in group["members"]}
    assert known.pop("restarted")["knowledge"] == Knowledge.BOUNDED.value
    assert {m["knowledge"] for m in known.values()} == {Knowledge.EXACT.value}
    for each in known.values():
        assert each["list"] == ["range"]
        assert each["evidence"][-1]["at"].startswith("2026-11-20T0")
    plan = tmp_path / "eager.plan.yaml"
    assert app.run(["plan-upgrade", name, *words, "--out", str(plan)]) == 0
    assert "1 member unknown" in capsys.readouterr().out or plan.exists()
    assert app.run(["plan-upgrade", "--all", *words]) == 0
    assert "no broker" not in capsys.readouterr().err
    assert app.run(["verify", str(plan), *words]) == 4
    assert "as seen until 2026-11-20 09:00Z" in capsys.readouterr().err


def test_a_group_that_the_scan_never_saw_gets_no_evidence_and_that_is_said(
    small_scan: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scanned,) = read_snapshots(open_tables(str(small_scan)), group_named("eager"))
    other = msgspec.structs.replace(
        scanned, group=msgspec.structs.replace(scanned.group, group_id="new-since")
    )
    chosen = live.Selection(group_ids=("new-since",))
    monkeypatch.setattr(live, "select_groups", lambda *a, **k: chosen)
    monkeypatch.setattr(live, "read_groups", lambda *a, **k: [other])
    app.run(["inspect", "new-since", "-b", "kafka-1:9092", "--evidence", str(small_scan)])
    assert "it saw no join of new-since" in capsys.readouterr().err
