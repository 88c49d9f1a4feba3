"""The text of `rebal fleet report`: the answer, the groups to upgrade first, groups in trouble."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from rich.console import RenderableType
from rich.text import Text

from rebal.cli.fleet import GONE, FleetGroup, FleetReport
from rebal.cli.output import escape
from rebal.cli.render.fleet.words import (
    CHANGE_COLUMNS,
    GROUP_COLUMNS,
    MEANING,
    RATES,
    WORST_COLUMNS,
    age_text,
    answer_texts,
    change_rows,
    costs_are,
    group_trend_text,
    incident_terms,
    metrics_text,
    number_text,
    plan_command,
    plan_terms,
    row_texts,
    rules_met,
    terms_text,
    time_text,
    trend_text,
    verdicts_text,
    worst_texts,
)
from rebal.cli.render.plans.parts import before_text
from rebal.cli.render.text import (
    Column,
    FittingTable,
    count,
    facts,
    labelled,
    span_text,
    to_paste,
    when,
)
from rebal.groups.commands import option, rebal
from rebal.inspectors.clock import moment
from rebal.inspectors.tables.reader import ListSeen, RebalanceRow
from rebal.planner.commands import COOPERATIVE
from rebal.planner.plan import Verdict
from rebal.planner.rules import rules

MOST: Final = 7
_FEW: Final = 25
_FEW_HELD: Final = 3
_STYLES: Final = {
    Verdict.READY.value: "bold green",
    Verdict.DONE.value: "green",
    Verdict.BLOCKED.value: "bold red",
    Verdict.UNPROVEN.value: "bold yellow",
    GONE: "dim",
}
# Columns that are left out where no group has a value.
_SPARED: Final = ("TREND", "EXTRAPOLATED")


def fleet_view(
    report: FleetReport, *, now: datetime, one: str | None = None, wide: bool = False
) -> list[RenderableType]:
    """Return the screen of the fleet report, or of one group with its history if `one` names it.

    The fleet's screen lists every group if there are at most 25 groups or `wide` is set. Ages are
    relative to `now`.
    """
    view: list[RenderableType] = [
        Text(verdicts_text(report), style="bold"),
        Text(age_text(report, now), style="dim"),
        Text(trend_text(report), style="dim"),
    ]
    if one is not None and report.groups:
        return [*view, *_whole(report, report.groups[0], now, wide)]
    if not report.groups:
        return view
    answers = ((Text(head, style="bold"), text) for head, text in answer_texts(report))
    view += [Text(""), facts(answers)]
    if wide or len(report.groups) <= _FEW:
        view += [Text(""), _table(report.groups), _terms(report.groups, wide)]
    else:
        view += list(_lists(report, wide))
    rows = list(_rules(report))
    if rows:
        view += [Text(""), facts(rows)]
    return [*view, *_changes(report, wide), *_suffering(report, wide), *_next(report)]


def _lists(report: FleetReport, wide: bool) -> Iterator[RenderableType]:
    first = report.to_take
    if first:
        yield from (Text(""), Text(_first(len(first), "take first"), style="bold"))
        yield from (_table(first[:MOST], verdict=False), _terms(first[:MOST], wide))


def _table(groups: Sequence[FleetGroup], *, verdict: bool = True) -> FittingTable:
    return plain_table(GROUP_COLUMNS, map(_row, groups), () if verdict else ("VERDICT",))


def _terms(groups: Iterable[FleetGroup], wide: bool) -> Text:
    return Text(f"({terms_text(plan_terms(groups, protocols=wide))})", style="dim")


def _changes(report: FleetReport, wide: bool) -> Iterator[RenderableType]:
    rows = change_rows(report)
    if rows and report.earlier is not None:
        head = _first(len(rows), f"compared with scan {report.earlier.run}", every=wide)
        yield from (Text(""), Text(head, style="bold"))
        yield plain_table(
            CHANGE_COLUMNS, rows[: None if wide else MOST], () if report.baseline else ("VERDICT",)
        )
        yield Text(f"({MEANING})", style="dim")


def _row(group: FleetGroup) -> tuple[str | Text, ...]:
    place, verdict, *rest = row_texts(group)
    return (place, Text(verdict, style=_STYLES.get(verdict, "bold yellow")), *rest)


def _held(groups: Sequence[FleetGroup]) -> Iterator[tuple[str | Text, RenderableType]]:
    if len(groups) > _FEW_HELD:
        said = [f"{count(len(groups), 'group')}: a member is down or rejected; --wide lists them"]
    else:
        said = [escape(f"{group.group_id}: {'; '.join(group.held)}") for group in groups]
    yield from labelled(Text("held", style=_STYLES[Verdict.UNPROVEN]), said)


def _rules(report: FleetReport) -> Iterator[tuple[str | Text, RenderableType]]:
    yield from _held(report.to_hold)
    for label, met in rules_met(report.groups).items():
        said = (f"{r} in {count(number, 'group')}: {rules()[r].title}" for r, number in met.items())
        yield from labelled(
            Text(
                label,
                style={"blocked by": "bold red", "later step": "red", "cannot tell": "bold yellow"}[
                    label
                ],
            ),
            said,
        )


def _suffering(report: FleetReport, wide: bool) -> Iterator[RenderableType]:
    worst = report.worst
    if not worst:
        return
    yield from (Text(""), Text(_first(len(worst), "worst off now"), style="bold"))
    shown = worst[:MOST]
    rows = [_worst_row(group) for group in shown]
    found = zip((column.header for column in WORST_COLUMNS), *rows, strict=True)
    empty = [
        head
        for head, *cells in found
        if head in _SPARED and frozenset({"", "·", "0"}).issuperset(cells)
    ]
    yield plain_table(WORST_COLUMNS, rows, empty)
    rates = RATES if wide else {"downtime/h": RATES["downtime/h"]}
    yield Text(f"({terms_text({**incident_terms(shown), **rates})})", style="dim")


def _worst_row(group: FleetGroup) -> tuple[str | Text, ...]:
    name, troubles, *rest = worst_texts(group)
    return (name, Text(troubles, style="red" if group.troubles else ""), *rest)


def _next(report: FleetReport) -> Iterator[RenderableType]:
    yield Text(
        "(costs and gains are downtime in partition-seconds; RB901? marks a rule that is not "
        f"verified; {costs_are(report)})",
        style="dim",
    )
    chosen = next(iter(report.to_take), None) or next(
        (group for group in report.groups if group.verdict != GONE), None
    )
    yield Text("next: the plan of one group; all groups as a page:", style="bold")
    if chosen is not None:
        yield to_paste(plan_command(chosen, report))
    words = (
        *(option("--to", report.to) if report.to != COOPERATIVE else ()),
        *report.lake.settings,
        "--out",
        "fleet.html",
    )
    yield to_paste(rebal("fleet report", (report.lake.text,), words))


def _first(number: int, what: str, *, every: bool = False) -> str:
    return f"{what} ({MOST} of {number:,}):" if number > MOST and not every else f"{what}:"


def _whole(
    report: FleetReport, group: FleetGroup, now: datetime, wide: bool
) -> Iterator[RenderableType]:
    yield from (Text(""), _table([group]))
    yield from group_view(group, report, now=now, wide=wide)
    yield from (Text(""), Text("next:", style="bold"), to_paste(plan_command(group, report)))


_T = TypeVar("_T")
_MOST: Final = 20
_SECOND: Final = "%Y-%m-%d %H:%M:%SZ"
_REBALANCES: Final = (
    Column("ENDED"),
    Column("GENERATION", right=True),
    Column("TOOK", right=True),
    Column("CAUSE"),
    Column("ASSIGNOR"),
    Column("RUNS", rank=1),
    Column("MEMBERS", right=True, rank=1),
    Column("MOVED", right=True),
    Column("STOPPED", right=True),
)
_LISTS: Final = (
    Column("FROM"),
    Column("FOR", right=True, rank=1),
    Column("CLIENT"),
    Column("LIST"),
    Column("SOFTWARE", rank=2),
    Column("EVIDENCE", rank=1),
)


def group_view(
    group: FleetGroup, report: FleetReport, *, now: datetime, wide: bool
) -> Iterator[RenderableType]:
    """Yield one group's plan, trend, metrics, incidents, rebalances and assignor lists.

    The newest rebalances and assignor lists come first.
    """
    ready, history = group.readiness, group.history
    rows: list[tuple[str | Text, str | Text]] = []
    if ready is not None:
        rows.append(("plan", ready.plan.summary))
        rows += [
            (Text(one.rule, style="bold red"), f"blocks: {one.what}") for one in ready.blockers
        ]
        for later in ready.later:
            at_end = (later.before_step or 0) > ready.steps
            step = "the end" if at_end else f"step {later.before_step}"
            rows.append((Text(later.rule, style="red"), f"in the way of {step}: {later.what}"))
        rows += [
            (
                Text(one.rule, style="bold yellow"),
                f"{before_text(one.before_step, ready.steps)}cannot tell: {one.what}"
                f"{f' → {one.how}' if one.how else ''}",
            )
            for one in ready.missing
        ]
        rows += [(Text("held", style="bold yellow"), one) for one in ready.held]
    trend = group_trend_text(group, report)
    rows += [("trend", trend)] if trend else []
    rows.append(
        (
            "metrics",
            " · ".join(f"{name} {value}" for name, value in metrics_text(group))
            or "the scan saw no rebalance",
        )
    )
    for one in history.incidents:
        at = moment(one.started_at)
        since = f" since {when(at, now)}" if at else ""
        detail = f": {one.detail}" if one.detail else ""
        rows.append(
            (Text("incident", style="red"), f"{one.kind}{_times(one.times)}{since}{detail}")
        )
    yield Text("")
    yield facts((name, _plain(said)) for name, said in rows)
    yield from _newest("rebalances", history.rebalances, _REBALANCES, _rebalance, wide)
    yield from _newest("assignor lists", history.lists, _LISTS, _list, wide)


def plain_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | Text]],
    spared: Collection[str] = (),
) -> FittingTable:
    """Return a table without the columns named in `spared`; control characters are escaped."""
    kept = [n for n, column in enumerate(columns) if column.header not in spared]
    return FittingTable(
        [columns[n] for n in kept], ([_plain(row[n]) for n in kept] for row in rows)
    )


def _plain(cell: str | Text) -> str | Text:
    return escape(cell) if isinstance(cell, str) else Text(escape(cell.plain), style=cell.style)


def _newest(
    what: str,
    found: Sequence[_T],
    columns: Sequence[Column],
    row: Callable[[_T], Sequence[str | Text]],
    wide: bool,
) -> Iterator[RenderableType]:
    if not found:
        return
    newest = list(reversed(found))[: None if wide else _MOST]
    of = f" (the newest {len(newest)} of {len(found):,})" if len(newest) < len(found) else ""
    yield Text("")
    yield Text(f"{what}{of}:", style="bold")
    yield plain_table(columns, map(row, newest))


def _rebalance(one: RebalanceRow) -> tuple[str | Text, ...]:
    return (
        time_text(one.at, _SECOND),
        number_text(one.generation),
        "·" if one.latency_ms is None else f"{one.latency_ms / 1000:.1f} s",
        one.cause or "",
        Text("failed", style="red") if one.failed else (one.assignor or ""),
        one.protocol or "",
        number_text(one.members),
        number_text(one.moved),
        number_text(one.stopped),
    )


def _list(one: ListSeen) -> tuple[str | Text, ...]:
    at, last = moment(one.at), moment(one.last_at)
    lasted = "·"
    if at is not None and last is not None:
        lasted = span_text(last - at) if last - at > timedelta(0) else ""
    names = f"[{', '.join(one.assignors or ())}]"
    return (
        time_text(one.at, _SECOND),
        lasted,
        one.instance_id or one.client_id or one.member_id or "",
        Text(f"{names} REJECTED{_times(one.times)}", style="red") if one.refused else names,
        f"{one.software_name or ''} {one.software_version or ''}".strip(),
        one.evidence or "",
    )


def _times(times: int | None) -> str:
    return f" ×{times}" if (times or 0) > 1 else ""
