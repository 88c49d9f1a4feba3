"""The part of the fleet report's text that tells one group: why, its metrics and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from rich.text import Text

from rebal.cli.fleet import FleetGroup
from rebal.cli.output import escape
from rebal.cli.render.common import Column, FittingTable, facts, span_text, when
from rebal.cli.render.fleet.words import metrics_text, number_text
from rebal.inspectors.fleet.tables.columns import moment
from rebal.inspectors.fleet.tables.history import ListSeen, Rebalance

if TYPE_CHECKING:
    from rich.console import RenderableType

_T = TypeVar("_T")
_MOST: Final = 20
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


def group_view(group: FleetGroup, *, now: datetime, wide: bool) -> Iterator[RenderableType]:
    """Where it stands, its metrics, incidents, rebalances and lists, the newest first."""
    ready, history = group.readiness, group.history
    rows: list[tuple[str | Text, str | Text]] = []
    if ready is not None:
        rows.append(("plan", ready.plan.summary))
        rows += [
            (Text(one.rule, style="bold red"), f"blocks: {one.what}") for one in ready.blockers
        ]
        rows += [
            (Text(one.rule, style="red"), f"in the way of step {one.before_step}: {one.what}")
            for one in ready.later
        ]
        rows += [
            (
                Text(one.rule, style="bold yellow"),
                f"cannot tell: {one.what}{f' → {one.how}' if one.how else ''}",
            )
            for one in ready.missing
        ]
    metrics = " · ".join(f"{name} {value}" for name, value in metrics_text(group))
    rows.append(("metrics", metrics or "no rebalance was seen"))
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


def plain_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> FittingTable:
    """A table of which no cell has a line break, or anything else that a terminal obeys."""
    return FittingTable(columns, ([_plain(cell) for cell in row] for row in rows))


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


def _rebalance(one: Rebalance) -> tuple[str | Text, ...]:
    return (
        _second(moment(one.at)),
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
        _second(at),
        lasted,
        one.instance_id or one.client_id or one.member_id or "",
        Text(f"{names} REFUSED{_times(one.times)}", style="red") if one.refused else names,
        f"{one.software_name or ''} {one.software_version or ''}".strip(),
        one.evidence or "",
    )


def _second(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}" if at is not None else ""


def _times(times: int | None) -> str:
    return f" ×{times}" if (times or 0) > 1 else ""
