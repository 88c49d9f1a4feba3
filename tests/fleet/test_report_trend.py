"""The report's trend: two scans of a lake are compared where that is honest, and only there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from rebal.cli.fleet import FleetReport, make_fleet_report
from rebal.cli.trend import NoTrend, Trend
from tests.documents import checked
from tests.fleet import tablefiles
from tests.fleet.conftest import check_hostile, report_lines
from tests.fleet.synthetic import Row, fleet, hostile_fleet
from tests.fleet.tablefiles import AT, write_tables

pytestmark = pytest.mark.usefixtures("no_costs")

Said = pytest.CaptureFixture[str]
Rows = dict[str, list[Row]]
HOUR = timedelta(hours=1)


def go_on(
    rows: Rows, rebalances: dict[int, int], until: datetime = AT + 24 * HOUR, **changes: Any
) -> Rows:
    """The rows of a scan that ends at `until`: group number → rebalances that it had since."""
    for number, group in enumerate(rows["groups"]):
        name, many = group["group_id"], rebalances.get(number, 0)
        last = next(r for r in reversed(rows["rebalances"]) if r["group_id"] == name)
        for place in range(many):
            at = AT + (until - AT) * (place + 0.5) / many
            rows["rebalances"].append(
                {
                    **last,
                    "generation": last["generation"] + place + 1,
                    "started_at": at,
                    "ended_at": at,
                    "latency_ms": 2000.0,
                    "failed": False,
                    **changes,
                }
            )
        group["generation"] = last["generation"] + many
    return rows


@pytest.fixture
def second(
    tmp_path: Path, small_scan: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., FleetReport]:
    """Writes a second scan after one of the same twenty groups, and makes the report of both."""

    def scan(rows: Rows, until: datetime = AT + 24 * HOUR, **options: Any) -> FleetReport:
        shutil.copytree(small_scan, tmp_path, dirs_exist_ok=True)
        monkeypatch.setattr(tablefiles, "AT", until)
        write_tables(tmp_path, rows)
        return make_fleet_report(str(tmp_path), **options)

    return scan


def trend_of(report: FleetReport, number: int) -> Trend:
    name = fleet(20)["groups"][number]["group_id"]
    (found,) = (group.trend for group in report.groups if group.group_id == name)
    assert isinstance(found, Trend)
    return found


def test_a_group_that_rebalances_more_often_is_worse_and_one_that_stops_is_better(
    second: Callable[..., FleetReport], capsys: Said
) -> None:
    rows = go_on(fleet(20), {0: 96, 10: 4, 1: 14})
    report = second(rows)
    assert report.earlier.run == 1
    worse, better, same = (trend_of(report, number) for number in (0, 10, 1))
    assert (worse.change, better.change, same.change) == ("worse", "better", "unclear")
    assert worse.rebalances.since == 4
    assert worse.seconds_since == 24 * 3600
    ended = [r["ended_at"] for r in rows["rebalances"] if r["group_id"] == "orders-eager-0000"]
    before = [at for at in ended if at <= AT]
    assert worse.rebalances.before == pytest.approx((len(before) - 1) / ((AT - before[0]) / HOUR))
    stopped = next(r["stopped"] for r in rows["rebalances"])
    assert worse.downtime.since == pytest.approx(4 * 2 * stopped)
    assert report.trend.groups == 19
    body = checked("\n".join(report_lines(Path(report.folder), capsys, "-o", "json")))
    assert (body["trend"]["groups"], body["no_trend"], body["baseline"]) == (19, None, None)
    found = {group["group_id"]: group for group in body["groups"]}
    trend = found["orders-eager-0000"]["trend"]
    assert (trend["scan"], trend["change"]) == (1, "worse")
    assert trend["rebalances_per_hour"]["since"] == 4
    assert found["payments-deleted-0017"]["no_trend"] == "deleted"


def test_few_events_in_a_short_time_are_no_trend(second: Callable[..., FleetReport]) -> None:
    """Five minutes after a scan: none, one or two rebalances may be chance, twenty are not."""
    soon = AT + timedelta(minutes=5)
    report = second(go_on(fleet(20), {0: 1, 1: 2, 4: 20}, until=soon), until=soon)
    changes = [trend_of(report, number).change for number in (0, 1, 4, 10)]
    assert changes == ["unclear", "unclear", "worse", "unclear"]


def forget(rows: Rows, number: int) -> None:
    """The log cleaner took a rebalance of the group."""
    name = rows["groups"][0]["group_id"]
    rows["rebalances"] = [
        r for r in rows["rebalances"] if (r["group_id"], r["generation"]) != (name, number)
    ]


def test_groups_that_cannot_be_compared_say_why(second: Callable[..., FleetReport]) -> None:
    rows = go_on(fleet(21), {0: 30, 1: 30, 2: 30, 20: 3})
    groups = rows["groups"]
    last = groups[0]["generation"]
    forget(rows, last - 3)
    groups[1]["incarnation"] = 2
    report = second(rows)
    why = {
        group.group_id: group.trend.why
        for group in report.groups
        if isinstance(group.trend, NoTrend)
    }
    assert why == {
        groups[0]["group_id"]: "not all its rebalances are known",
        groups[1]["group_id"]: "deleted and created again since then",
        groups[20]["group_id"]: "new since then",
    }


def test_a_compacted_topic_does_not_make_a_group_look_worse(
    second: Callable[..., FleetReport],
) -> None:
    """The first scan found the newest generation alone: the rate before it is not known."""
    rows = go_on(fleet(20), {0: 12})
    name, last = rows["groups"][0]["group_id"], rows["groups"][0]["generation"] - 12
    for generation in range(1, last):
        forget(rows, generation)
    start = max(r["ended_at"] for r in rows["rebalances"] if r["generation"] == last
                and r["group_id"] == name)  # fmt: skip
    trend = trend_of(second(rows), 0)
    assert trend.seconds_before == (AT - start).total_seconds()
    assert trend.rebalances.before == 0


@pytest.mark.parametrize("back", [0, 3], ids=["at the same time", "a clock was set back"])
def test_scans_of_which_none_ends_later_have_no_trend(
    second: Callable[..., FleetReport], capsys: Said, back: int
) -> None:
    until = AT - back * HOUR
    report = second(go_on(fleet(20), {0: 40} if back else {}, until=until), until)
    assert report.trend is None
    why = {group.trend.why for group in report.groups if isinstance(group.trend, NoTrend)}
    assert "the scans end at the same time" in why
    said = "no trend yet since scan 1 (2026-11-20 09:00Z): the scans end at the same time"
    assert said in report_lines(Path(report.folder), capsys)[2]


def test_downtime_is_compared_only_where_all_lengths_are_known_or_none(
    second: Callable[..., FleetReport],
) -> None:
    """The second scan was given no request log: its rebalances have no length."""
    trend = trend_of(second(go_on(fleet(20), {0: 96}, latency_ms=None)), 0)
    assert trend.rebalances.change == "worse"
    assert trend.downtime is None


def test_a_baseline_that_cannot_be_read_names_those_that_can(tmp_path: Path, capsys: Said) -> None:
    for _ in range(3):
        write_tables(tmp_path, fleet(4))
    report = ["fleet", "report", str(tmp_path), "--exit-zero", "--baseline"]
    assert app.run([*report, "1"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        f"rebal: {tmp_path}: scan 1 was removed or never finished; scans 2 to 3 can be read.\n"
    )
    assert app.run([*report, "3"]) == 2
    assert capsys.readouterr().err == (
        "rebal: --baseline 3: it is the last scan; name one before it.\n"
    )
    assert app.run([*report, "2"]) == 0
    assert "since scan 2 " in capsys.readouterr().out
    assert app.run([*report, "0"]) == 2


def test_an_earlier_scan_whose_files_are_gone_costs_only_the_trend(
    second: Callable[..., FleetReport], capsys: Said
) -> None:
    """A scan that ended a moment ago has removed them."""
    lake = Path(second(go_on(fleet(20), {0: 96})).folder)
    for path in lake.glob("groups/*-00000001-*/*.parquet"):
        path.unlink()
    assert "no trend yet: no earlier scan is left" in report_lines(lake, capsys)[2]
    assert app.run(["fleet", "report", str(lake), "--baseline", "1"]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "json", "yaml", "markdown", "html"])
def test_scans_without_a_group_are_no_error(tmp_path: Path, capsys: Said, form: str) -> None:
    words = ["fleet", "report", str(tmp_path), "--exit-zero", "-o", form]
    write_tables(tmp_path, {})
    assert app.run(words) == 0
    write_tables(tmp_path, fleet(4))
    assert app.run([*words, "--baseline", "1"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert form != "text" or told.out.startswith("no group")
    assert form in ("json", "yaml") or "not there → ready" in told.out
    write_tables(tmp_path, {})
    assert app.run(words) == 0
    assert app.run([*words, "--baseline", "2"]) == 0
    assert "no group is in both scans" in " ".join(capsys.readouterr().out.split())


def test_hostile_names_that_only_the_baseline_has_stay_text(tmp_path: Path, capsys: Said) -> None:
    write_tables(tmp_path, hostile_fleet())
    write_tables(tmp_path, fleet(3))
    for words in ([], ["-o", "markdown"], ["-o", "html"]):
        check_hostile(tmp_path, capsys, "--baseline", "1", *words)
