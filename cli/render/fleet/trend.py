"""Texts of the trend: each group's and the fleet's change since an earlier scan."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, timedelta
from typing import Final

from rebal.cli.fleet import GONE, FleetGroup, FleetReport
from rebal.cli.render.fleet.words import extrapolated_text, number_text
from rebal.cli.render.text import count, span_text
from rebal.cli.trend import CHANGES, Measure, NoTrend, Trend

TREND_HEADS: Final = ("GROUP", "VERDICT", "TREND", "REBALANCES/H", "DOWNTIME/H")
"""Columns of `change_rows`."""
MEANING: Final = (
    "worse, better: rebalances or downtime an hour before that scan → since; unclear: the "
    "difference may be chance"
)


def trend_text(report: FleetReport) -> str:
    """Return the fleet's trend in one sentence, or why there is none yet."""
    earlier = report.earlier
    if earlier is None:
        only = "the lake has one scan of this cluster"
        return f"no trend yet: {only if report.manifest.run == 1 else 'no earlier scan is left'}"
    until = earlier.observed_until
    at = "" if until is None else f" ({until.astimezone(UTC):%Y-%m-%d %H:%MZ})"
    since = f"since scan {earlier.run}{at}"
    trend = report.trend
    if trend is None:
        return f"no trend yet {since}: {_why(report)}"
    found = Counter(group.change for group in report.groups if group.change is not None)
    said = ", ".join(f"{found[change]:,} {change}" for change in CHANGES if found[change])
    alive = sum(group.verdict != GONE for group in report.groups)
    others = f", {alive - trend.groups:,} not comparable" if alive > trend.groups else ""
    return f"{since}: {_measures(trend)}; {count(trend.groups, 'group')}: {said}{others}"


def group_trend_text(group: FleetGroup, report: FleetReport) -> str:
    """Return one group's trend in one sentence; empty where there is no earlier scan."""
    if report.earlier is None or group.trend is None:
        return ""
    if isinstance(group.trend, NoTrend):
        return f"no trend yet since scan {report.earlier.run}: {group.trend.why}"
    before, since = (
        span_text(timedelta(seconds=seconds))
        for seconds in (group.trend.seconds_before, group.trend.seconds_since)
    )
    return (
        f"{group.trend.change}: {_measures(group.trend)}; {since} since scan {report.earlier.run}, "
        f"{before} before it"
    )


def change_text(group: FleetGroup) -> str:
    """Return `worse`, `mixed`, `better`, `unclear`; `·` where there is no trend."""
    return group.change or "·"


def change_rows(report: FleetReport) -> list[tuple[str, ...]]:
    """Return the groups with another verdict than in the baseline, or with a clear trend.

    Each row is group, verdicts (empty without a baseline), trend, rebalances/h and downtime/h.
    """
    gone = [(name, "not there any more", "·", "·", "·") for name in report.vanished]
    other = [one for one in report.groups if report.baseline and one.before != one.verdict]
    clear = [one for one in report.changed if one not in other]
    return [*gone, *(_row(group, report) for group in (*other, *clear))]


def _row(group: FleetGroup, report: FleetReport) -> tuple[str, ...]:
    trend = group.trend if isinstance(group.trend, Trend) else None
    return (
        group.group_id,
        _verdicts(group) if report.baseline else "",
        change_text(group),
        rates_text(None if trend is None else trend.rebalances),
        rates_text(None if trend is None else trend.downtime),
    )


def _verdicts(group: FleetGroup) -> str:
    if group.before == group.verdict:
        return group.verdict
    return f"{group.before or 'not there'} → {group.verdict}"


def rates_text(measure: Measure | None) -> str:
    """Return `2 → 3.1`; `·` where not known."""
    if measure is None:
        return "·"
    return f"{number_text(round(measure.before, 4))} → {number_text(round(measure.since, 4))}"


def _measures(trend: Trend) -> str:
    short = min(trend.seconds_before, trend.seconds_since)
    note = extrapolated_text(short)
    said = f"rebalances/h {rates_text(trend.rebalances)} ({trend.rebalances.change})"
    if trend.downtime is not None:
        said += f", downtime/h {rates_text(trend.downtime)} ({trend.downtime.change})"
    return f"{said}{f', {note}' if note else ''}"


def _why(report: FleetReport) -> str:
    found = Counter(one.trend.why for one in report.groups if isinstance(one.trend, NoTrend))
    if not found:
        return "no group is in both scans"
    (why, number), *others = found.most_common()
    return why if not others else f"{why} ({number:,} of {found.total():,} groups)"
