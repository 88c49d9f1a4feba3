"""What the fleet's report says: costs, the order, terms; on one screen, every name as text."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from rebal.cli import app, output
from rebal.cli import fleet as cli_fleet
from rebal.cli.fleet import FleetReport, make_fleet_report
from rebal.cli.render.fleet.screen import fleet_view
from tests.counted import counted_calls
from tests.documents import checked
from tests.fleet.conftest import report_lines
from tests.fleet.synthetic import HOSTILE, fleet, hostile_fleet
from tests.fleet.tablefiles import AT, write_tables
from tests.rehearsed import forget

Said = pytest.CaptureFixture[str]


def test_what_is_too_much_to_rehearse_is_estimated_and_that_is_said(
    small_scan: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = {g.group_id: g.readiness for g in make_fleet_report(str(small_scan)).groups}
    monkeypatch.setattr(cli_fleet, "_ENOUGH", 0)
    monkeypatch.setattr(cli_fleet, "_LEAST", 4_000)
    report = make_fleet_report(str(small_scan))
    guesses = [g for g in report.groups if g.readiness and g.readiness.work]
    assert 0 < report.estimated == len(guesses) < len(report.to_take)
    for group in guesses:
        near = pytest.approx(exact[group.group_id].outlay.partition_seconds, rel=0.35)
        assert group.readiness.outlay.partition_seconds == near, group.group_id
    said = f"of {len(guesses)} groups only estimated (~)"
    text = "\n".join(report_lines(small_scan, capsys))
    assert said in " ".join(text.split())
    assert text.count("~") > len(guesses)
    body = checked("\n".join(report_lines(small_scan, capsys, "-o", "json")))
    named = {g["group_id"] for g in body["groups"] if (g.get("cost") or {}).get("estimated")}
    assert named == {group.group_id for group in guesses}
    name = guesses[0].group_id
    (one,) = make_fleet_report(str(small_scan), group=name).groups
    assert one.readiness.outlay == exact[name].outlay


def test_the_work_of_a_report_grows_no_faster_than_its_groups(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group is planned and shown once, and so it is for metrics.

    bench/fleet_bench.py measures the time of 2,000.
    """
    monkeypatch.setattr(cli_fleet, "_ENOUGH", 0)
    monkeypatch.setattr(cli_fleet, "_LEAST", 0)
    few, many = (write_tables(tmp_path / str(n), fleet(n)) for n in (20, 40))
    for words in (["report"], ["report", "-o", "html"], ["metrics"]):
        work = []
        for folder in (few, few, many):  # What is loaded and cached once is not of the groups.
            forget()
            with counted_calls() as calls:
                app.run(["fleet", *words, str(folder)])
            work.append(calls.total())
        assert work[2] < 2.14 * work[1], (words, work)
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 100, 130, 200])
def test_four_hundred_groups_fit_one_screen_of_any_width(
    large_report: FleetReport, columns: int
) -> None:
    view = fleet_view(large_report, now=AT + timedelta(hours=27))
    lines = output.render(view, width=columns).splitlines()
    counts = "160 ready, 20 held, 60 blocked, 60 unproven, 80 done, 20 gone"
    assert lines[0] == f"400 groups: {counts}"
    assert len(lines) <= (69 if columns < 100 else 50)
    commands = [line for line in lines if line.startswith("  rebal")]
    assert len(commands) == 2
    assert all(len(line) <= columns for line in lines if line not in commands)
    assert "take first (7 of 160):" in lines


def check_hostile(folder: Path, capsys: Said, *words: str) -> None:
    """No name of a hostile fleet makes a line, a control character, or a tag of a page."""
    lines = report_lines(folder, capsys, *words)
    text = "\n".join(lines)
    assert "forged" in text
    assert not re.search("[\x1b\u202e]", text)
    assert "-o" not in words or not re.search(r"(?<!\\)<script>alert", text)
    assert not [line for line in lines if line.lstrip("| ").startswith("forged")]


def test_hostile_names_stay_text_in_every_form(tmp_path: Path, capsys: Said) -> None:
    """Also those that only the baseline has."""
    hostile = write_tables(tmp_path, hostile_fleet())
    for words in ([], ["--group", HOSTILE], ["-o", "markdown"], ["-o", "html"], ["--wide"]):
        check_hostile(hostile, capsys, *words)
    lines = report_lines(hostile, capsys, "-o", "markdown")
    start = lines.index("## All groups, in the order to take them")
    rows = [line for line in lines[start:] if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [11] * 9
    body = json.loads("\n".join(report_lines(hostile, capsys, "-o", "json")))
    assert HOSTILE in {group["group_id"] for group in body["groups"]}
    write_tables(tmp_path, fleet(3))
    for words in ([], ["-o", "markdown"], ["-o", "html"]):
        check_hostile(hostile, capsys, "--baseline", "1", *words)
