"""The text of `rebal fleet report`: the answer first, whom to take first, who suffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from rich.text import Text

from rebal.cli.fleet import GONE, FleetGroup, FleetReport
from rebal.cli.output import escape
from rebal.cli.views.common import (
    Column,
    FittingTable,
    command_line,
    count,
    facts,
    span_text,
    to_paste,
    when,
)
from rebal.cli.views.fleet_words import (
    age_text,
    metrics_text,
    number_text,
    plan_command,
    row_texts,
    rules_met,
    verdicts_text,
    worst_texts,
)
from rebal.inspectors.fleet.tables_columns import moment
from rebal.inspectors.fleet.tables_history import ListSeen, Rebalance
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
_UNITS: Final = (
    "costs and gains in partition-seconds: how long partitions stand still, added up; the cost is "
    "by arithmetic: plan-upgrade GROUP rehearses it; RB901? is a rule that cannot tell"
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
    return _fitting(columns, rows if verdict else ([n, *row] for n, _, *row in rows))


def _row(group: FleetGroup) -> tuple[str | Text, ...]:
    place, verdict, *rest = row_texts(group)
    return (place, Text(verdict, style=_STYLES[verdict]), *rest)


def _rules(report: FleetReport) -> Iterator[tuple[str | Text, RenderableType]]:
    for label, style, missing in (
        ("blocked by", "bold red", False),
        ("cannot tell", "bold yellow", True),
    ):
        for n, (rule, number) in enumerate(rules_met(report.groups, missing=missing).items()):
            head = Text(label if n == 0 else "", style=style)
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
    yield _fitting(columns, map(_worst_row, worst[:MOST]))


def _worst_row(group: FleetGroup) -> tuple[str | Text, ...]:
    name, troubles, *rest = worst_texts(group)
    return (name, Text(troubles, style="red" if group.troubles else ""), *rest)


def _next(report: FleetReport) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(f"({_UNITS})", style="dim")
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


def _fitting(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> FittingTable:
    """A table of which no cell has a line break, or anything else that a terminal obeys."""
    return FittingTable(columns, ([_plain(cell) for cell in row] for row in rows))


def _plain(cell: str | Text) -> str | Text:
    return escape(cell) if isinstance(cell, str) else Text(escape(cell.plain), style=cell.style)


def _first(number: int, what: str) -> str:
    return f"{what} ({MOST} of {number:,}):" if number > MOST else f"{what}:"


def _whole(
    report: FleetReport, group: FleetGroup, now: datetime, wide: bool
) -> Iterator[RenderableType]:
    """One group: where it stands, its metrics, incidents, rebalances and lists, newest first."""
    yield Text("")
    yield _table([group])
    ready, history = group.readiness, group.history
    rows: list[tuple[str | Text, str | Text]] = []
    if ready is not None:
        rows.append(("plan", ready.plan.summary))
        rows += [
            (one.rule, f"{one.what}{f' → {one.how}' if one.how else ''}") for one in ready.missing
        ]
        rows += [(one.rule, one.what) for one in (*ready.blockers, *ready.later)]
    metrics = " · ".join(f"{name} {value}" for name, value in metrics_text(group))
    rows.append(("metrics", metrics or "no rebalance was seen"))
    for one in history.incidents:
        at = moment(one.started_at)
        times = f" ×{one.times}" if (one.times or 0) > 1 else ""
        detail = f": {one.detail}" if one.detail else ""
        said = f"{one.kind}{times}{f' since {when(at, now)}' if at else ''}{detail}"
        rows.append((Text("incident", style="red"), said))
    yield Text("")
    yield facts((name, _plain(said)) for name, said in rows)
    yield from _rebalances(history.rebalances, wide)
    yield from _seen(history.lists, wide)
    yield Text("")
    yield Text("next:", style="bold")
    yield _plan_of(group, report)


def _rebalances(found: Sequence[Rebalance], wide: bool) -> Iterator[RenderableType]:
    if not found:
        return
    newest = list(reversed(found))[: None if wide else 2 * MOST]
    yield Text("")
    yield Text(_of("rebalances", len(newest), len(found)), style="bold")
    columns = [
        Column("ENDED"),
        Column("GENERATION", right=True),
        Column("TOOK", right=True),
        Column("CAUSE"),
        Column("ASSIGNOR"),
        Column("RUNS", rank=1),
        Column("MEMBERS", right=True, rank=1),
        Column("MOVED", right=True),
        Column("STOPPED", right=True),
    ]
    yield _fitting(columns, map(_rebalance_row, newest))


def _rebalance_row(one: Rebalance) -> tuple[str | Text, ...]:
    at = moment(one.at)
    name = Text("failed", style="red") if one.failed else (one.assignor or "")
    return (
        f"{at:%Y-%m-%d %H:%M:%SZ}" if at is not None else "",
        number_text(one.generation),
        "·" if one.latency_ms is None else f"{one.latency_ms / 1000:.1f} s",
        one.cause or "",
        name,
        one.protocol or "",
        number_text(one.members),
        number_text(one.moved),
        number_text(one.stopped),
    )


def _seen(found: Sequence[ListSeen], wide: bool) -> Iterator[RenderableType]:
    if not found:
        return
    newest = list(reversed(found))[: None if wide else 2 * MOST]
    yield Text("")
    yield Text(_of("assignor lists", len(newest), len(found)), style="bold")
    columns = [
        Column("FROM"),
        Column("FOR", right=True, rank=1),
        Column("CLIENT"),
        Column("LIST"),
        Column("SOFTWARE", rank=2),
        Column("EVIDENCE", rank=1),
    ]
    yield _fitting(columns, map(_seen_row, newest))


def _seen_row(one: ListSeen) -> tuple[str | Text, ...]:
    at, last = moment(one.at), moment(one.last_at)
    lasted = span_text(last - at) if at is not None and last is not None else "·"
    names = f"[{', '.join(one.assignors or ())}]"
    refused = f"{names} REFUSED{f' ×{one.times}' if (one.times or 0) > 1 else ''}"
    return (
        f"{at:%Y-%m-%d %H:%M:%SZ}" if at is not None else "",
        lasted if last is None or at is None or last - at > timedelta(0) else "",
        one.instance_id or one.client_id or one.member_id or "",
        Text(refused, style="red") if one.refused else names,
        f"{one.software_name or ''} {one.software_version or ''}".strip(),
        one.evidence or "",
    )


def _of(what: str, number: int, total: int) -> str:
    return f"{what} (the newest {number} of {total:,}):" if number < total else f"{what}:"
