"""A machine whose clock is an hour ahead of the brokers, and one whose clock is right."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from rebal.cli import app
from rebal.cli.journal import journal_path
from rebal.inspectors import clock
from tests.live_support.services import Service

JAVA = "java-4.1.1"


def right() -> datetime:
    return datetime.now(UTC)


def test_a_rejection_after_the_plan_is_later_than_the_plan(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan's machine is an hour ahead: by its clock the rejection was long before the plan."""
    monkeypatch.setattr(clock, "now", lambda: right() + timedelta(hours=1))
    service.begin([f"{JAVA}-0", f"{JAVA}-1"], ["range"])
    began = right()
    plan = service.plan("--out", str(service.file))
    assert plan["baseline"]["clock_ahead_ms"] == pytest.approx(3_600_000, abs=2000)
    service.refuses(f"{JAVA}-2", ["sticky"], "Inconsistent")
    words = ["verify", str(service.file), "-b", service.broker.bootstrap, "--probe"]
    words += ["--request-log", str(service.broker.request_log_path), "--log-timezone", "UTC"]
    capsys.readouterr()
    assert app.run(words) == 3
    said = capsys.readouterr().out
    assert f"{JAVA}-2" in said
    assert "this machine's clock is 60 min ahead of the brokers'" in said
    # The next look is taken on a machine whose clock is right.
    monkeypatch.setattr(clock, "now", right)
    assert app.run(words) == 3
    assert "left out" not in capsys.readouterr().out
    lines = journal_path(service.file).read_text().splitlines()
    times = [datetime.fromisoformat(json.loads(line)["at"]) for line in lines]
    assert len(times) == 2
    assert began - timedelta(seconds=2) < times[0] < times[1] < right() + timedelta(seconds=2)
