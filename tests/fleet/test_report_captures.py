"""The report on what was really captured: each group's story ends where its README says it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.cli.fleet import FleetGroup, FleetReport, make_fleet_report
from rebal.cli.render.fleet.words import hindrance_text
from tests.documents import checked
from tests.fleet.conftest import CAPTURES
from tests.fleet.tablefiles import write_tables
from tests.fleet.timeline_input import captured_records, captured_requests, tables

# Group → verdict, way, next step; what README.md beside the captures tells of each.
ENDS = {
    "abandoned": ("gone", None, None),
    "billing": ("ready", "two_bounces", 1),
    "checkout": ("done", "finished", None),
    "flappy": ("blocked", "cut_over", 1),
    "gosvc": ("done", "finished", None),
    "inventory": ("ready", "two_bounces", 2),
    "migrating": ("done", "already_incremental", None),
    "ml-features": ("done", "finished", None),
    "pyapp": ("done", "finished", None),
    "reports": ("ready", "one_bounce", 1),
    "shipping": ("ready", "two_bounces", 1),
    "static-orders": ("done", "finished", None),
    "streams-agg": ("ready", "streams_one_bounce", 1),
    # kafkajs has no cooperative assignor: there is no way, whatever the planner calls that.
    "web-node": ("unproven", None, None),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> FleetReport:
    rows = tables([*captured_records(CAPTURES), *captured_requests(CAPTURES)])
    return make_fleet_report(str(write_tables(tmp_path_factory.mktemp("captures"), rows)))


def group_of(report: FleetReport, name: str) -> FleetGroup:
    (found,) = (group for group in report.groups if group.group_id == name)
    return found


def test_each_group_ends_as_its_story_ended(report: FleetReport) -> None:
    found = {}
    for group in report.groups:
        plan = group.readiness.plan if group.readiness is not None else None
        plan = None if group.group_id == "web-node" else plan
        found[group.group_id] = (
            group.verdict,
            plan.path if plan is not None else None,
            plan.next_step if plan is not None else None,
        )
    assert found == ENDS


def test_kip_848_groups_in_a_scan_prove_that_the_brokers_have_the_feature(tmp_path: Path) -> None:
    rows = tables(captured_records(CAPTURES))
    for records, known in (({"GROUP_METADATA": 9}, False), ({"CONSUMER_GROUP_METADATA": 1}, True)):
        folder = write_tables(tmp_path, rows, records=records)
        ready = group_of(make_fleet_report(str(folder), to="consumer"), "shipping").readiness
        asked = [one for one in ready.missing if one.rule in ("RB401", "RB402")]
        feature = [one for one in asked if "group.version" in one.what]
        assert bool(feature) is not known
        assert len(asked) == 2 + len(feature)
        assert all(one.how.startswith("Name a broker with -b HOST:PORT") for one in asked)


def test_report_and_plan_name_the_same_path_verdict_and_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a request log pyapp's lists are unknown: only the end of its second step needs them.

    No text names a third step of a plan that has two.
    """
    lake = write_tables(tmp_path, tables(captured_records(CAPTURES)))
    report = make_fleet_report(str(lake))
    capsys.readouterr()
    app.run(["fleet", "report", str(lake), "-o", "json"])
    documents = {one["group_id"]: one for one in checked(capsys.readouterr().out)["groups"]}
    ends = 0
    for group in report.groups:
        if group.readiness is None:
            continue
        name, mine = group.group_id, documents[group.group_id]
        app.run(["plan-upgrade", name, "--evidence", str(lake), "-o", "json"])
        plan = checked(capsys.readouterr().out)
        for key in ("verdict", "path", "next_step", "summary", "exit_code"):
            assert mine[key] == plan[key], (name, key)
        assert mine["steps"] == len(plan["steps"]), name
        app.run(["plan-upgrade", name, "--evidence", str(lake), "--details"])
        whole = capsys.readouterr().out
        app.run(["fleet", "report", str(lake), "--group", name, "--wide"])
        text = capsys.readouterr().out
        for said in (hindrance_text(group), whole, text):
            named = [int(number) for number in re.findall(r"\bstep (\d+)", said)]
            assert max(named, default=0) <= mine["steps"], (name, said)
        ends += "to finish: RB901?" in hindrance_text(group)
        assert ("to finish: cannot tell" in whole) == ("to finish" in hindrance_text(group)), name
    assert ends >= 3
