"""The fleet report as Markdown: for a wiki, a ticket, or a plan of the coming weeks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from rebal.cli.fleet import FleetGroup, FleetReport
from rebal.cli.output import escape
from rebal.cli.views.fleet_words import (
    age_text,
    hindrance_text,
    hours_text,
    latency_text,
    number_text,
    path_text,
    rules_met,
    runs_text,
    troubles_text,
    verdicts_text,
)
from rebal.cli.views.plan_markdown import plain
from rebal.planner.rules import rules

_MOST: Final = 20
_WORST: Final = ("Group", "Incidents", "Rebalances/h", "Each takes", "Failed", "Stands still/h")
_ALL: Final = (
    *("#", "Verdict", "Group", "Runs", "Way", "Members"),
    *("Costs", "Saves/h", "Pays in", "In the way"),
)


def fleet_markdown(report: FleetReport, code: int, now: datetime) -> str:
    """The whole report. Names from the cluster stand as text: nothing of them is markup."""
    return "\n".join(_lines(report, code, now)) + "\n"


def _lines(report: FleetReport, code: int, now: datetime) -> Iterator[str]:
    yield f"# Fleet: {verdicts_text(report)}"
    yield ""
    yield f"{age_text(report, now)} (exit code {code}). Goal: {_text(report.to)}."
    sources = ", ".join(report.manifest.sources)
    yield f"Read from {_text(report.folder)}{f' ({_text(sources)})' if sources else ''}."
    for heading, missing in (("Blocked by", False), ("Cannot tell", True)):
        met = rules_met(report.groups, missing=missing)
        if met:
            yield from ("", f"## {heading}", "")
            for rule, number in met.items():
                yield f"- **{rule}** in {number:,}: {_text(rules()[rule].title)}"
    worst = report.worst[:_MOST]
    if worst:
        yield from ("", "## Worst off now", "")
        yield from _table(_WORST, map(_worst, worst))
    yield from ("", "## All groups, in the order to take them", "")
    yield (
        "Ready before not proven before blocked; a roll-out that has begun first, then what pays "
        "for itself soonest. Costs and gains are partition-seconds; `?`: a rule cannot tell."
    )
    yield ""
    yield from _table(_ALL, map(_row, report.groups))


def _worst(group: FleetGroup) -> Sequence[str]:
    metrics = group.history.metrics
    return (
        group.group_id,
        troubles_text(group),
        number_text(metrics["rebalance-rate-per-hour"]),
        latency_text(group),
        number_text(metrics["failed-rebalance-total"]),
        number_text(group.stands_still),
    )


def _row(group: FleetGroup) -> Sequence[str]:
    ready = group.readiness
    outlay = ready.outlay if ready is not None else None
    return (
        str(ready.place or "") if ready is not None else "",
        group.verdict,
        group.group_id,
        runs_text(group),
        path_text(group),
        str(group.history.members or 0),
        number_text(outlay.partition_seconds) if outlay is not None else "",
        number_text(ready.saves) if ready is not None and ready.saves is not None else "",
        hours_text(ready.pays_back) if ready is not None and ready.pays_back is not None else "",
        hindrance_text(group),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(map(_text, row))} |"


def _text(text: str) -> str:
    return plain(escape(text))
