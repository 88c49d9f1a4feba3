"""The report on what was really captured: what a scan proves, and what its plans say as well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rebal.cli import app
from rebal.cli.fleet import make_fleet_report
from rebal.cli.render.fleet.words import hindrance_text
from tests.documents import checked
from tests.fleet.conftest import CAPTURES
from tests.fleet.tablefiles import write_tables
from tests.fleet.test_report_held import of
from tests.fleet.timeline_input import captured_records, tables


def test_kip_848_groups_in_a_scan_prove_that_the_brokers_have_the_feature(tmp_path: Path) -> None:
    rows = tables(captured_records(CAPTURES))
    for records, known in (({"GROUP_METADATA": 9}, False), ({"CONSUMER_GROUP_METADATA": 1}, True)):
        folder = write_tables(tmp_path, rows, records=records)
        ready = of(make_fleet_report(str(folder), to="consumer"), "shipping").readiness
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
