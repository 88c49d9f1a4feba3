"""The text of `rebal fleet report`: the answer first, whom to take first, who suffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.text import Text

from rebal.cli.fleet import GONE, FleetGroup, FleetReport
from rebal.cli.output import escape
from rebal.cli.render.common import (
    Column,
    FittingTable,
    command_line,
    count,
    facts,
    to_paste,
)
from rebal.cli.render.fleet.screen_group import group_view, plain_table
from rebal.cli.render.fleet.words import (
    age_text,
    costs_are,
    plan_command,
    row_texts,
    rules_met,
    verdicts_text,
    worst_texts,
)
from rebal.planner.plan import Verdict
from rebal.planner.rules import rules

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST: Final = 10
_FEW: Final = 25
_STYLES: Final = {
    Verdict.READY.value: "bold green",
    Verdict.DONE.value: "green",
    Verdict.BLOCKED.value: "bold red",
    Verdict.UNPROVEN.value: "bold yellow",
    GONE: "dim",
}
_LABELS: Final = {"blocked by": "bold red", "later step": "red", "cannot tell": "bold yellow"}
_UNITS: Final = (
    "costs and gains in partition-seconds: how long partitions stand still, added up; RB901? is a "
    "rule that cannot tell"
)


def fleet_view(
    report: FleetReport, *, now: datetime, one: str | None = None, wide: bool = False
) -> list[RenderableType]:
    """The report; of the group `one` its whole history. Up to 25 groups (or wide) are all listed.

    Times are told as of `now`.
    """
    view: list[RenderableType] = [
        Text(verdicts_text(report), style="bold"),
        Text(age_text(report, now), style="dim"),
    ]
    if one is not None and report.groups:
        return [*view, *_whole(report, report.groups[0], now, wide)]
    if not report.groups:
        return view
    if wide or len(report.groups) <= _FEW:
        view += [Text(""), _table(report.groups)]
    else:
        view += list(_lists(report))
    rows = list(_rules(report))
    if rows:
        view += [Text(""), facts(rows)]
    return [*view, *_suffering(report), *_next(report)]


def _lists(report: FleetReport) -> Iterator[RenderableType]:
    first = report.to_take
    if first:
        yield Text("")
        yield Text(_first(len(first), "take first"), style="bold")
        yield _table(first[:MOST], verdict=False)


def _table(groups: Sequence[FleetGroup], *, verdict: bool = True) -> FittingTable:
    columns = [
        Column("#", right=True),
        *([Column("VERDICT")] if verdict else []),
        Column("GROUP"),
        Column("RUNS", rank=1),
        Column("PATH"),
        Column("MEMBERS", right=True, rank=3),
        Column("COSTS", right=True, rank=2),
        Column("SAVES/H", right=True, rank=2),
        Column("PAYS IN", right=True, rank=3),
        Column("IN THE WAY"),
    ]
    rows = map(_row, groups)
    return plain_table(columns, rows if verdict else ([n, *row] for n, _, *row in rows))


def _row(group: FleetGroup) -> tuple[str | Text, ...]:
    place, verdict, *rest = row_texts(group)
    return (place, Text(verdict, style=_STYLES[verdict]), *rest)


def _rules(report: FleetReport) -> Iterator[tuple[str | Text, RenderableType]]:
    for label, met in rules_met(report.groups).items():
        for n, (rule, number) in enumerate(met.items()):
            head = Text(label if n == 0 else "", style=_LABELS[label])
            yield head, f"{rule} in {count(number, 'group')}: {rules()[rule].title}"


def _suffering(report: FleetReport) -> Iterator[RenderableType]:
    worst = report.worst
    if not worst:
        return
    yield Text("")
    yield Text(_first(len(worst), "worst off now"), style="bold")
    columns = [
        Column("GROUP"),
        Column("INCIDENTS"),
        Column("REBALANCES/H", right=True),
        Column("EACH TAKES", rank=2),
        Column("FAILED", right=True, rank=1),
        Column("REFUSED", right=True, rank=1),
        Column("STANDS STILL/H", right=True),
    ]
    yield plain_table(columns, map(_worst_row, worst[:MOST]))


def _worst_row(group: FleetGroup) -> tuple[str | Text, ...]:
    name, troubles, *rest = worst_texts(group)
    return (name, Text(troubles, style="red" if group.troubles else ""), *rest)


def _next(report: FleetReport) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(f"({_UNITS}; {costs_are(report)})", style="dim")
    chosen = next(iter(report.to_take), None) or next(
        (group for group in report.groups if group.verdict != GONE), None
    )
    yield Text("next: one of them, whole; and all of them as a page:", style="bold")
    if chosen is not None:
        yield _plan_of(chosen, report)
    goal = ["--to", report.to] if report.to != "cooperative" else []
    words = ["rebal", "fleet", "report", report.folder, *goal, "--out", "fleet.html"]
    yield to_paste(command_line(words))


def _plan_of(group: FleetGroup, report: FleetReport) -> Text:
    return to_paste(escape(plan_command(group, report)))


def _first(number: int, what: str) -> str:
    return f"{what} ({MOST} of {number:,}):" if number > MOST else f"{what}:"


def _whole(
    report: FleetReport, group: FleetGroup, now: datetime, wide: bool
) -> Iterator[RenderableType]:
    yield Text("")
    yield _table([group])
    yield from group_view(group, now=now, wide=wide)
    yield Text("")
    yield Text("next:", style="bold")
    yield _plan_of(group, report)
