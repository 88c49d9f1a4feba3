"""What the fleet's report says: costs, the order, terms; on one screen, every name as text."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from rebal.cli import fleet as cli_fleet
from rebal.cli import output
from rebal.cli.fleet import FleetReport, make_fleet_report
from rebal.cli.render.fleet.screen import fleet_view
from rebal.cli.render.fleet.terms import INCIDENTS, PATHS, RATES, VERDICTS
from rebal.inspectors.tables.groups import read_snapshots
from rebal.inspectors.tables.reader import open_tables
from rebal.planner.paths import make_plan
from tests.counted import counted_calls
from tests.documents import checked
from tests.fleet.conftest import check_hostile, report_lines
from tests.fleet.synthetic import HOSTILE, fleet, hostile_fleet
from tests.fleet.tablefiles import AT, Rows, write_tables
from tests.rehearsed import forget

Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("to", ["cooperative", "eager", "consumer"])
def test_a_cost_is_that_of_the_groups_own_plan(small_scan: Path, to: str) -> None:
    report = make_fleet_report(str(small_scan), to=to)
    assert report.estimated == 0
    left = {}
    for one in read_snapshots(open_tables(str(small_scan))):
        plan = make_plan(one, to)
        steps = (step for step in plan.steps if step.id >= (plan.next_step or 0))
        left[one.group.group_id] = [step.cost for step in steps if step.cost is not None]
    priced = {
        group.group_id: group.readiness.outlay
        for group in report.groups
        if group.readiness is not None and group.readiness.outlay is not None
    }
    assert len(priced) >= {"cooperative": 12, "eager": 1, "consumer": 10}[to]
    for name, outlay in priced.items():
        seconds = [cost.partition_seconds or 0 for cost in left[name]]
        assert outlay.partition_seconds == pytest.approx(sum(seconds), abs=0.1), name
        assert outlay.rebalances == sum(cost.rebalances for cost in left[name])
        assert outlay.partitions_stopped == sum(cost.partitions_stopped for cost in left[name])
        assert outlay.partitions_moved == sum(cost.partitions_moved for cost in left[name])


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


@pytest.mark.slow
def test_the_order_is_ready_then_unproven_then_blocked_and_what_pays_first(
    large_report: FleetReport,
) -> None:
    groups = large_report.groups
    ranks = [("ready", "unproven", "blocked", "done", "gone").index(g.verdict) for g in groups]
    assert ranks == sorted(ranks)
    placed = [g.readiness.place for g in groups if g.readiness and g.readiness.place is not None]
    assert placed == list(range(1, len(placed) + 1))
    able = [g for g in groups if g.verdict == "ready"]
    assert [bool(g.held) for g in able] == sorted(bool(g.held) for g in able)
    assert sum(bool(g.held) for g in able) == 20
    ready = [g.readiness for g in large_report.to_take]
    begun = [one.under_way for one in ready]
    assert begun == sorted(begun, reverse=True)
    assert True in begun
    fresh = [one.pays_back for one in ready if not one.under_way and one.pays_back is not None]
    assert fresh == sorted(fresh)
    assert len(fresh) > 20
    done = [g for g in groups if g.verdict in ("done", "gone")]
    assert all(g.readiness is None or g.readiness.place is None for g in done)


def test_the_work_of_a_report_grows_no_faster_than_its_groups(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group is planned and shown once; bench/fleet_bench.py measures the time of 2,000."""
    monkeypatch.setattr(cli_fleet, "_ENOUGH", 0)
    monkeypatch.setattr(cli_fleet, "_LEAST", 0)
    few, many = (write_tables(tmp_path / str(n), fleet(n)) for n in (20, 40))
    report_lines(few, capsys)  # What is loaded and cached once is not of the groups.
    for form in ("text", "html"):
        work = []
        for folder in (few, many):
            forget()
            with counted_calls() as calls:
                report_lines(folder, capsys, "-o", form)
            work.append(calls.total())
        assert work[1] < 2.14 * work[0], (form, work)


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


def test_hostile_names_stay_text_in_every_form(tmp_path: Path, capsys: Said) -> None:
    hostile = write_tables(tmp_path, hostile_fleet())
    for words in ([], ["--group", HOSTILE], ["-o", "markdown"], ["--wide"]):
        check_hostile(hostile, capsys, *words)
    lines = report_lines(hostile, capsys, "-o", "markdown")
    start = lines.index("## All groups, in the order to take them")
    rows = [line for line in lines[start:] if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [11] * 9
    body = json.loads("\n".join(report_lines(hostile, capsys, "-o", "json")))
    assert HOSTILE in {group["group_id"] for group in body["groups"]}


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_terms_are_explained_where_they_stand_and_no_others(
    form: str, tmp_path: Path, capsys: Said
) -> None:
    def told(rows: Rows, name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        words = [] if form == "text" else ["-o", form]
        return " ".join(" ".join(report_lines(write_tables(folder, rows), capsys, *words)).split())

    every = told(fleet(20), "every")
    for meaning in (VERDICTS["held"], PATHS["cut over"], INCIDENTS["storm"], RATES["downtime/h"]):
        assert meaning in every
    calm = fleet(20)
    calm["incidents"] = []
    assert INCIDENTS["storm"] not in told(calm, "calm")
