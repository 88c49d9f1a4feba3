"""One group's part of the page: its reasons, the next command, metrics and history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rebal.cli.fleet import FleetGroup, FleetReport, hurts
from rebal.cli.render.fleet.svg import timeline
from rebal.cli.render.fleet.words import metrics_text, number_text, plan_command, text
from rebal.inspectors.fleet.tables.columns import moment
from rebal.inspectors.fleet.tables.history import Rebalance

_NEWEST: Final = 6
_INCIDENTS: Final = 8
_COLUMNS: Final = (
    "Ended",
    "Generation",
    "Took",
    "Cause",
    "Assignor",
    "Members",
    "Moved",
    "Stopped",
)


def group_html(group: FleetGroup, report: FleetReport) -> str:
    """Return the whole part, with every text of the cluster escaped."""
    return "".join(_parts(group, report))


def _parts(group: FleetGroup, report: FleetReport) -> Iterator[str]:
    history, ready = group.history, group.readiness
    if ready is not None:
        yield f"<p><b>{group.verdict}</b>: {text(ready.plan.summary)}</p>"
        yield from _reasons("Blocks", [(one.rule, one.what, "") for one in ready.blockers])
        yield from _reasons(
            "Blocks a later step", [(one.rule, one.what, "") for one in ready.later]
        )
        yield from _reasons("Cannot tell", [(one.rule, one.what, one.how) for one in ready.missing])
    for one in history.incidents[-_INCIDENTS:]:
        at = moment(one.started_at)
        since = f" since {at:%b %d %H:%M}Z" if at is not None else ""
        who = f" ({text(', '.join(one.members[:3]))})" if one.members else ""
        detail = f": {text(one.detail)}" if one.detail else ""
        mark = ' class="inc"' if hurts(one.kind) else ""
        yield f"<p{mark}><b>{text(one.kind)}</b>{since}{who}{detail}</p>"
    if len(history.incidents) > _INCIDENTS:
        yield f"<p>and {len(history.incidents) - _INCIDENTS} incidents before</p>"
    yield timeline(history)
    metrics = metrics_text(group)
    if metrics:
        yield '<dl class="m">'
        yield from (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in metrics)
        yield "</dl>"
    yield from _rebalances(history.rebalances)
    if ready is not None:
        yield f"<p>Next: <code>{text(plan_command(group, report))}</code></p>"


def _reasons(label: str, found: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    for rule, what, how in found:
        then = f" <i>{text(how)}</i>" if how else ""
        yield f"<p>{label}: <b>{rule}</b> {text(what)}{then}</p>"


def _rebalances(found: Sequence[Rebalance]) -> Iterator[str]:
    if not found:
        return
    newest = list(reversed(found))[:_NEWEST]
    said = f"the newest {len(newest)} of {len(found):,}" if len(newest) < len(found) else "all"
    heads = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    yield f'<table class="r"><caption>Rebalances, {said}</caption><tr>{heads}</tr>'
    for one in newest:
        at = moment(one.at)
        cells = (
            f"{at:%b %d %H:%M:%S}Z" if at is not None else "",
            number_text(one.generation),
            "·" if one.latency_ms is None else f"{one.latency_ms / 1000:.1f} s",
            text(one.cause or ""),
            "<b>failed</b>" if one.failed else text(one.assignor or ""),
            number_text(one.members),
            number_text(one.moved),
            number_text(one.stopped),
        )
        yield f"<tr><td>{'<td>'.join(cells)}"
    yield "</table>"
