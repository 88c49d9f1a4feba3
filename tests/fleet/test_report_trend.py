"""The report's trend: two scans of a lake are compared where that is honest, and only there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from rebal.cli.fleet import NoTrend, Trend, trend_of
from rebal.inspectors.tables.reader import GroupHistory, RebalanceRow, ScanStanding
from tests.documents import checked
from tests.fleet.conftest import report_lines
from tests.fleet.synthetic import fleet
from tests.fleet.tablefiles import write_tables
from tests.fleet.test_report_kept import two_scans

pytestmark = pytest.mark.usefixtures("no_costs")

Said = pytest.CaptureFixture[str]
HOUR = 3_600_000_000
DAY = 24.0
FACTS: dict[str, Any] = dict.fromkeys(GroupHistory.__struct_fields__[:-7])


@dataclass
class Group:
    """A group that an earlier scan saw at hour 24; each rebalance takes 2 s and stops 10."""

    rebalances: list[RebalanceRow] = field(default_factory=list)

    def rebalance(self, hours: Iterable[float], **told: Any) -> Group:
        for at in (round(hour * HOUR) for hour in hours):
            known = {"incarnation": 1, "generation": len(self.rebalances) + 1, "ended_at": at}
            known |= {"latency_ms": 2000.0, "stopped": 10, "members": 3, "failed": False, **told}
            self.rebalances.append(RebalanceRow(**dict.fromkeys(RebalanceRow._fields) | known))
        return self

    def trend(self, until: float = 48.0, **earlier: Any) -> Trend | NoTrend:
        """Its trend in a scan that ends at hour `until`; `earlier` is how it stood at hour 24."""
        seen = [one for one in self.rebalances if one.ended_at <= DAY * HOUR]
        stood = {"incarnation": 1, "generation": len(seen), "is_gone": False, **earlier}
        now = {"observed_until": round(until * HOUR), "rebalances": tuple(self.rebalances)}
        now |= {"incarnation": 1, "generation": self.rebalances[-1].generation}
        return trend_of(GroupHistory(**FACTS | now), ScanStanding(**stood), round(DAY * HOUR))


def often(count: int, since: float = DAY, until: float = 2 * DAY) -> list[float]:
    """The hours of so many rebalances between these two."""
    return [since + (until - since) * (n + 0.5) / count for n in range(count)]


def calm() -> Group:
    """One that rebalanced twelve times until hour 24."""
    return Group().rebalance(often(12, 0, DAY))


def test_a_group_that_rebalances_more_often_is_worse_and_one_that_stops_is_better() -> None:
    worse = calm().rebalance(often(96)).trend()
    assert worse.change == "worse"
    # The first one is where what is known of it begins.
    assert worse.rebalances.before == pytest.approx(11 / 23)
    assert worse.rebalances.since == 4
    assert worse.downtime.since == pytest.approx(4 * 2 * 10)
    assert (worse.seconds_before, worse.seconds_since) == (23 * 3600, 24 * 3600)
    assert Group().rebalance(often(160, 0, DAY)).trend().change == "better"
    assert calm().rebalance(often(14)).trend().change == "unclear"
    assert calm().rebalance(often(96), stopped=0).trend().change == "mixed"


@pytest.mark.parametrize(("count", "change"), [(0, "unclear"), (2, "unclear"), (20, "worse")])
def test_few_events_in_a_short_time_are_no_trend(count: int, change: str) -> None:
    """Five minutes after a scan: none, one or two rebalances may be chance, twenty are not."""
    soon = DAY + 5 / 60
    assert calm().rebalance(often(count, DAY, soon)).trend(soon).change == change


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"incarnation": 2}, "deleted and created again since then"),
        ({"is_gone": True}, "deleted and created again since then"),
        ({"until": DAY}, "the scans end at the same time"),
        ({"until": DAY - 3}, "the scans end at the same time"),
        ({"until": DAY + 0.01}, "less than a minute of it was seen before or since"),
        ({"generation": None}, "no rebalance is known"),
    ],
)
def test_groups_that_cannot_be_compared_say_why(told: dict[str, Any], why: str) -> None:
    assert calm().rebalance([23.9]).trend(**told) == NoTrend(why=why)


def test_a_rebalance_that_the_log_cleaner_took_leaves_no_trend() -> None:
    group = calm().rebalance(often(30))
    del group.rebalances[-3]
    assert group.trend() == NoTrend(why="not all its rebalances are known")


def test_a_compacted_topic_does_not_make_a_group_look_worse() -> None:
    """The first scan found the newest generation alone: the rate before it is not known."""
    group = calm().rebalance(often(12))
    del group.rebalances[:11]
    trend = group.trend(generation=12)
    assert (trend.seconds_before, trend.rebalances.before) == (3600, 0)


def test_downtime_is_compared_only_where_all_lengths_are_known_or_none() -> None:
    """The second scan was given no request log: its rebalances have no length."""
    trend = calm().rebalance(often(96), latency_ms=None).trend()
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
    tmp_path: Path, capsys: Said
) -> None:
    """A scan that ended a moment ago has removed them."""
    two_scans(tmp_path)
    for path in tmp_path.glob("groups/*-00000001-*/*.parquet"):
        path.unlink()
    assert "no trend yet: no earlier scan is left" in report_lines(tmp_path, capsys)[2]
    assert app.run(["fleet", "report", str(tmp_path), "--baseline", "1"]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_document_tells_each_groups_trend_or_why_there_is_none(
    tmp_path: Path, capsys: Said
) -> None:
    two_scans(tmp_path)
    body = checked("\n".join(report_lines(tmp_path, capsys, "-o", "json")))
    assert (body["trend"]["groups"], body["no_trend"], body["baseline"]) == (17, None, None)
    found = {group["group_id"]: group for group in body["groups"]}
    trend = found["orders-eager-0000"]["trend"]
    assert (trend["scan"], trend["change"]) == (1, "worse")
    assert trend["rebalances_per_hour"]["since"] == 4
    assert found["payments-deleted-0017"]["no_trend"] == "deleted"
    assert found["search-eager-0020"]["no_trend"] == "new since then"


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
