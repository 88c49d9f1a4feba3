"""One group's time line as an inline SVG: rebalances, elected assignors, clients' assignor lists.

Time runs from left to right over what the scan saw. Colours say EAGER, both, COOPERATIVE or other;
the texts in the bars say the same, so that no fact is shown by colour alone. All is presentation
attributes and classes: the page's style sheet, and nothing else, styles it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rebal.cli.output import escape
from rebal.cli.render.fleet.words import text
from rebal.groups.model import Tri
from rebal.inspectors.fleet.tables.columns import moment
from rebal.inspectors.fleet.tables.history import GroupHistory, ListSeen, Rebalance
from rebal.planner.clients import cooperative

MOST_LANES: Final = 12
MOST_REFUSED: Final = 4
MOST_REBALANCES: Final = 400
_WIDTH: Final = 1000
_LEFT: Final = 190
_RIGHT: Final = 10
_LANE: Final = 20
_BARS: Final = 36
_TICKS: Final = 6
_CHAR: Final = 6.6
"""Units that one character of a label needs."""


_BARS_SAY: Final = {
    "eager": "stopped partitions",
    "coop": "stopped none",
    "failed": "failed",
}


class _Scale(NamedTuple):
    """Microseconds → x."""

    low: int
    high: int

    def x(self, at: int) -> float:
        share = (at - self.low) / max(1, self.high - self.low)
        return _LEFT + min(1.0, max(0.0, share)) * (_WIDTH - _LEFT - _RIGHT)


class Lane(NamedTuple):
    """The assignor lists of one client (or static member), the oldest first."""

    label: str
    lists: tuple[ListSeen, ...]


def timeline(history: GroupHistory) -> str:
    """Return the group's time line; empty where the history has no time."""
    scale = _scale(history)
    if scale is None:
        return ""
    shown, folded = lanes_of(history.lists)
    top = 14 + _BARS + 6
    parts = [*_bars(history.rebalances, scale), *_elected(history.rebalances, scale, top)]
    y = top + _LANE + 6
    for lane in shown:
        parts += _lane(lane, history.gone, scale, y)
        y += _LANE
    if folded:
        parts.append(f'<text x="0" y="{y + 14}">{text(folded)}</text>')
        y += _LANE
    for one in [one for one in history.lists if one.refused][-MOST_REFUSED:]:
        parts += _refused(one, scale, y)
        y += _LANE
    parts += _axis(scale, y)
    title = (
        f"{len(history.rebalances)} rebalances and {len(history.lists)} assignor lists over time"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {y + 18}" role="img" aria-label="{title}">'
        f"{''.join(parts)}</svg>"
    )


def kind_of(names: Sequence[str]) -> str:
    """Return the class of an assignor list: `eager`, `coop`, `both` or `other`."""
    said = {cooperative(name) for name in names}
    if said == {Tri.YES}:
        return "coop"
    if said == {Tri.NO}:
        return "eager"
    return "both" if said == {Tri.YES, Tri.NO} else "other"


def lanes_of(lists: Sequence[ListSeen]) -> tuple[list[Lane], str]:
    """Return the lanes to draw, those with most changes first, and a line for the others."""
    by_client: dict[str, list[ListSeen]] = {}
    for one in lists:
        if one.refused:
            continue
        by_client.setdefault(one.instance_id or one.client_id or one.member_id or "", []).append(
            one
        )
    lanes = [
        Lane(label, tuple(sorted(found, key=lambda one: one.at or 0)))
        for label, found in by_client.items()
    ]
    lanes.sort(key=lambda lane: (-len({one.assignors for one in lane.lists}), lane.label))
    left = lanes[MOST_LANES:]
    if not left:
        return lanes, ""
    last = {", ".join(lane.lists[-1].assignors or ()) for lane in left}
    what = f", all [{next(iter(last))}] at the end" if len(last) == 1 else ""
    return lanes[:MOST_LANES], f"and {len(left)} more clients{what}"


def _scale(history: GroupHistory) -> _Scale | None:
    times = [one.at for one in history.rebalances] + [one.at for one in history.lists]
    known = [at for at in (*times, history.observed_from, history.observed_until) if at is not None]
    return _Scale(min(known), max(known)) if known else None


def _bars(found: Sequence[Rebalance], scale: _Scale) -> Iterator[str]:
    """Draw one bar for each rebalance, its height the duration: three paths in all."""
    newest = found[-MOST_REBALANCES:]
    more = f" (newest {len(newest)})" if len(newest) < len(found) else ""
    yield f'<text x="0" y="30">{len(found)} rebalances{more}</text>'
    longest = max((one.latency_ms or 0 for one in newest), default=0) or 1
    if longest > 1:
        yield f'<text class="ds" x="0" y="44">longest {longest / 1000:,.1f} s</text>'
    paths: dict[str, list[str]] = {}
    for one in newest:
        if one.at is None:
            continue
        height = _BARS if one.latency_ms is None else 6 + (one.latency_ms / longest) * (_BARS - 6)
        kind = "failed" if one.failed else "eager" if one.stopped else "coop"
        bar = f"M{scale.x(one.at):.1f} {14 + _BARS}v{-height:.0f}"
        paths.setdefault(kind, []).append(bar)
    for kind, bars in paths.items():
        said = f"{len(bars)} {_BARS_SAY[kind]}"
        yield f'<path class="b {kind}" d="{"".join(bars)}"><title>{said}</title></path>'
    yield f'<path class="ax" d="M{_LEFT} {14 + _BARS}H{_WIDTH - _RIGHT}"/>'


def _elected(found: Sequence[Rebalance], scale: _Scale, y: int) -> Iterator[str]:
    """Draw one bar for each time span of an elected assignor."""
    runs: list[tuple[str, str, int]] = []
    for one in found:
        said = one.assignor or "", one.protocol or ""
        same = bool(runs) and runs[-1][:2] == said
        if one.at is not None and not one.failed and any(said) and not same:
            runs.append((*said, one.at))
    yield f'<text x="0" y="{y + 14}">runs</text>'
    for n, (name, protocol, start) in enumerate(runs):
        end = runs[n + 1][2] if n + 1 < len(runs) else scale.high
        kind = {"EAGER": "eager", "COOPERATIVE": "coop"}.get(
            protocol, kind_of([name] if name else [])
        )
        label = " · ".join(filter(None, (name, protocol)))
        yield from _bar(scale.x(start), scale.x(end), y, kind, label)


def _lane(lane: Lane, gone: Mapping[str, int], scale: _Scale, y: int) -> Iterator[str]:
    yield f'<text x="0" y="{y + 14}">{_cut(lane.label, _LEFT - 8)}</text>'
    taken = [one for one in lane.lists if one.at is not None]
    for n, one in enumerate(taken):
        start = one.at or 0
        end = (taken[n + 1].at or 0) if n + 1 < len(taken) else scale.high
        end = max(start, min(end, gone.get(one.member_id or "", end)))
        names = one.assignors or ()
        yield from _bar(scale.x(start), scale.x(end), y, kind_of(names), ", ".join(names))


def _refused(one: ListSeen, scale: _Scale, y: int) -> Iterator[str]:
    """Draw a cross where a join was rejected, with its assignor list."""
    label = one.instance_id or one.client_id or "a member"
    yield f'<text x="0" y="{y + 14}">{_cut(label, _LEFT - 8)}</text>'
    if one.at is None:
        return
    x, times = scale.x(one.at), f" ×{one.times}" if (one.times or 0) > 1 else ""
    said = f"rejected{times}: [{', '.join(one.assignors or ())}]"
    yield f'<path class="no" d="M{x - 5:.0f} {y + 4}l10 10m0 -10l-10 10"/>'
    end = _WIDTH - x - 12 < len(said) * _CHAR
    where = f'x="{x - 9:.0f}" text-anchor="end"' if end else f'x="{x + 9:.0f}"'
    yield f'<text class="nt" {where} y="{y + 14}">{text(said)}</text>'


def _bar(left: float, right: float, y: int, kind: str, label: str) -> Iterator[str]:
    width = max(1.5, right - left)
    fits = len(escape(label)) * _CHAR <= width - 8
    rect = f'<rect class="{kind}" x="{left:.0f}" y="{y + 2}" width="{width:.1f}" height="16"'
    yield f"{rect}/>" if fits else f"{rect}><title>{text(label)}</title></rect>"
    if fits or width > 5 * _CHAR:
        yield f'<text class="in" x="{left + 4:.0f}" y="{y + 14}">{_cut(label, width - 8)}</text>'


def _axis(scale: _Scale, y: int) -> Iterator[str]:
    span = scale.high - scale.low
    ticks = ""
    hour = 3_600_000_000
    shape = "%H:%M:%S" if span < hour else "%H:%M" if span < 48 * hour else "%b %d %H:%M"
    for n in range(_TICKS):
        at = scale.low + span * n // (_TICKS - 1)
        when = moment(at)
        if when is None or (n and not span):
            continue
        x = f"{scale.x(at):.0f}"
        anchor = ("start", "middle", "end")[0 if n == 0 else 2 if n == _TICKS - 1 else 1]
        said = f"{when:%b %d %H:%M}Z" if n in (0, _TICKS - 1) else f"{when:{shape}}"
        ticks += f"M{x} {y}v4"
        yield f'<text class="ds" x="{x}" y="{y + 15}" text-anchor="{anchor}">{said}</text>'
    yield f'<path class="ax" d="{ticks}"/>'


def _cut(label: str, room: float) -> str:
    most = max(1, int(room / _CHAR))
    shown = escape(label)
    return text(shown if len(shown) <= most else f"{shown[: most - 1]}…")
