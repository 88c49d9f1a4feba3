"""The report on lakes that `rebal fleet scan` wrote: two scans of growing captures, and --every."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rebal.cli.fleet import make_fleet_report
from rebal.cli.trend import NoTrend, Trend
from tests.documents import checked
from tests.fleet.conftest import OFFSETS, report_lines

Said = pytest.CaptureFixture[str]


def first_part(out: Path, share: float) -> Path:
    """The records of the captures that were written in the first part of their time."""
    with gzip.open(OFFSETS, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    times = [row["timestamp"] for row in rows]
    end = min(times) + (max(times) - min(times)) * share
    with gzip.open(out, "wt", encoding="utf-8") as made:
        for row in rows:
            if row["timestamp"] <= end:
                made.write(json.dumps(row) + "\n")
    return out


def test_two_scans_of_a_growing_topic_give_a_trend(
    scan: Callable[..., str], tmp_path: Path, capsys: Said
) -> None:
    lake = tmp_path / "lake"
    scan("--offsets", first_part(tmp_path / "a.jsonl.gz", 0.5), "--out", lake)
    assert make_fleet_report(str(lake)).earlier is None
    scan("--offsets", OFFSETS, "--out", lake)
    report = make_fleet_report(str(lake))
    assert report.earlier is not None
    assert report.earlier.run == 1
    trends = {one.group_id: one.trend for one in report.groups}
    compared = {name: one for name, one in trends.items() if isinstance(one, Trend)}
    assert len(compared) >= 5, trends
    for group in report.groups:
        trend = compared.get(group.group_id)
        if trend is None:
            continue
        done = [one for one in group.history.rebalances if not one.failed and one.members != 0]
        since = round(trend.rebalances.since * trend.seconds_since / 3600)
        before = round(trend.rebalances.before * trend.seconds_before / 3600)
        assert 0 < since + before <= len(done)
        until = report.earlier.observed_until
        assert until is not None
        assert min(trend.seconds_before, trend.seconds_since) >= 60
        if group.history.type == "consumer":
            continue  # KIP-848: an epoch that the first scan saw may have ended after it.
        assert since == sum((one.at or 0) > until.timestamp() * 1e6 for one in done)
    assert all(one is None or isinstance(one, (Trend, NoTrend)) for one in trends.values())
    text = " ".join(report_lines(lake, capsys)[2:4])
    assert text.startswith("since scan 1 (")
    assert "extrapolated from" in text
    body = checked("\n".join(report_lines(lake, capsys, "--baseline", "1", "-o", "json")))
    assert body["baseline"]["scan"] == 1
