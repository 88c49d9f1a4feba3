"""The report on what was really captured: each group's story ends where its README says it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.cli.fleet import FleetGroup, FleetReport, make_fleet_report
from rebal.cli.render.fleet.page import group_html
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = tables([*captured_records(CAPTURES), *captured_requests(CAPTURES)])
    return write_tables(tmp_path_factory.mktemp("captures"), rows)


@pytest.fixture(scope="module")
def report(folder: Path) -> FleetReport:
    return make_fleet_report(str(folder))


def group_of(report: FleetReport, name: str) -> FleetGroup:
    (found,) = (group for group in report.groups if group.group_id == name)
    return found


def rules_of(group: FleetGroup) -> tuple[set[str], set[str], set[str]]:
    ready = group.readiness
    blockers, later, missing = (
        {one.rule for one in found} for found in (ready.blockers, ready.later, ready.missing)
    )
    return blockers, later, missing


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


def test_what_stands_in_the_way_is_what_the_clients_are(report: FleetReport) -> None:
    assert rules_of(group_of(report, "flappy"))[0] == {"RB104"}
    assert rules_of(group_of(report, "web-node")) == (set(), set(), {"RB105"})
    # Two of four have both lists: the others would get those refused that go on.
    assert rules_of(group_of(report, "shipping"))[1] == {"RB102"}
    assert rules_of(group_of(report, "reports"))[2] == {"RB113"}
    assert rules_of(group_of(report, "inventory")) == (set(), set(), set())


def test_what_no_rule_keeps_back_is_not_left_without_a_word(folder: Path) -> None:
    report = make_fleet_report(str(folder), to="consumer")
    waiting = [group for group in report.groups if group.verdict in ("blocked", "unproven")]
    assert len(waiting) > 8
    assert all(hindrance_text(group) for group in waiting)
    told = {group.group_id: hindrance_text(group) for group in waiting}
    assert told["ml-features"] == "RB413"


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


def test_incidents_and_lists_tell_the_story(report: FleetReport) -> None:
    checkout = group_of(report, "checkout")
    assert [one.kind for one in checkout.history.incidents] == ["crash loop"]
    part = group_html(checkout, report)
    assert "checkout-0 was rejected with [cooperative-sticky] 3 times" in part
    assert "rejected ×3: [cooperative-sticky]" in part
    for client in ("checkout-0", "checkout-1", "checkout-2", "checkout-3"):
        lists = [
            one.assignors
            for one in checkout.history.lists
            if one.client_id == client and not one.refused
        ]
        assert lists == [("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",)]
    kinds = {one.kind for one in group_of(report, "static-orders").history.incidents}
    assert "hidden list" in kinds
    assert "storm" in {one.kind for one in group_of(report, "flappy").history.incidents}


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
