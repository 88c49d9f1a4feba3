"""The timeline of one group: its rebalances, elected assignors and clients' assignor lists.

Time runs from left to right over the history that the scan read. The colour of a bar shows eager
assignors, cooperative ones, both, or others. The text in the bar says the same, so that no fact is
shown by colour alone. `group.html` draws these shapes as SVG; only the page's style sheet styles
them.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rebal.cli.output import escape
from rebal.cli.render.fleet.words import time_text
from rebal.cli.render.text import cut
from rebal.groups.model import Tri
from rebal.inspectors.tables.reader import GroupHistory, ListSeen, RebalanceRow
from rebal.planner.clients import cooperative

MOST_LANES: Final = 12
MOST_REFUSED: Final = 4
MOST_REBALANCES: Final = 400
_WIDTH: Final = 1000
_LEFT: Final = 190
_RIGHT: Final = 10
_LANE: Final = 20
_BARS: Final = 36
# Units above the first line, but for that of the elected assignors, which stands higher.
_FIRST: Final = 62
_TICKS: Final = 6
# Units that one character of a label needs.
_CHAR: Final = 6.6


_BARS_SAY: Final = {
    "eager": "stopped partitions",
    "coop": "stopped none",
    "other": "whose stopped partitions are not known",
    "failed": "failed",
}
_BY_STOPPED: Final = {None: "other", 0: "coop"}
_SORTS: Final = {
    frozenset({Tri.YES}): "coop",
    frozenset({Tri.NO}): "eager",
    frozenset({Tri.YES, Tri.NO}): "both",
}


class Lane(NamedTuple):
    """The assignor lists of one client (or static member), the oldest first."""

    label: str
    lists: tuple[ListSeen, ...]


class ListBar(NamedTuple):
    """One bar of a line: a client's assignor list, the elected assignor, or a rejected join.

    `kind` is the result of `kind_of` for the assignors, or `no` for a rejected join. `title` is the
    full text if `label` is cut. `x` and `width` are the bar's left edge and width, `label_x` is the
    left edge of `label`: SVG coordinates as text.
    """

    kind: str
    x: str
    width: str
    title: str
    label: str
    label_x: str


class Line(NamedTuple):
    """One line of the drawing: its name on the left, then bars."""

    label: str
    bars: Sequence[ListBar] = ()


class DrawnTimeline:
    """The shapes of one group's timeline; the template `group.html` assumes the same sizes.

    `low` and `high` are the ends of the time axis, in microseconds since 1970.
    """

    def __init__(self, history: GroupHistory, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self._unit = (_WIDTH - _LEFT - _RIGHT) / max(1, high - low)
        self.count = f"{len(history.rebalances)} rebalances"
        self.title = f"{self.count} and {len(history.lists)} assignor lists over time"
        self.longest = ""
        self.outlines: Sequence[tuple[str, str, str]] = ()
        """(CSS class, SVG path, title) of each kind of rebalance; a bar's height is its time."""
        self._draw_rebalances(history.rebalances)
        self.lines = list(self._lines(history))
        self.bottom = _FIRST + _LANE * len(self.lines)

    def _x(self, at: int) -> float:
        return _LEFT + (at - self.low) * self._unit

    def _draw_rebalances(self, found: Sequence[RebalanceRow]) -> None:
        newest = found[-MOST_REBALANCES:]
        if len(newest) < len(found):
            self.count += f" (newest {len(newest)})"
        longest = max((one.latency_ms or 0 for one in newest), default=0) or 1
        if longest > 1:
            self.longest = f"longest {longest / 1000:,.1f} s"
        bars: dict[str, list[str]] = {}
        for one in newest:
            if one.at is None:
                continue
            latency = one.latency_ms
            height = _BARS if latency is None else 6 + (latency / longest) * (_BARS - 6)
            kind = "failed" if one.failed else _BY_STOPPED.get(one.stopped, "eager")
            bars.setdefault(kind, []).append(f"M{self._x(one.at):.1f} {14 + _BARS}v{-height:.0f}")
        self.outlines = [
            (kind, "".join(drawn), f"{len(drawn)} {_BARS_SAY[kind]}")
            for kind, drawn in bars.items()
        ]

    def _lines(self, history: GroupHistory) -> Iterator[Line]:
        yield Line("runs", list(self._elected(history.rebalances)))
        shown, folded = lanes_of(history.lists, history.gone)
        for lane in shown:
            yield Line(_cut(lane.label, _LEFT - 8), list(self._lists(lane, history.gone)))
        if folded:
            yield Line(folded)
        for one in [one for one in history.lists if one.refused][-MOST_REFUSED:]:
            yield Line(
                _cut(one.instance_id or one.client_id or "a member", _LEFT - 8),
                list(self._rejected(one)),
            )

    def _elected(self, found: Sequence[RebalanceRow]) -> Iterator[ListBar]:
        runs: list[tuple[str, str, int]] = []
        for one in found:
            elected = one.assignor or "", one.protocol or ""
            same = bool(runs) and runs[-1][:2] == elected
            if one.at is not None and not one.failed and any(elected) and not same:
                runs.append((*elected, one.at))
        for (name, protocol, start), end in zip(
            runs, [*(start for _, _, start in runs[1:]), self.high], strict=False
        ):
            kind = {"EAGER": "eager", "COOPERATIVE": "coop"}.get(protocol) or kind_of(
                (name,) if name else ()
            )
            yield self._bar(start, end, kind, " · ".join(filter(None, (name, protocol))))

    def _lists(self, lane: Lane, gone: Mapping[str, int]) -> Iterator[ListBar]:
        timed = [(one, one.at) for one in lane.lists if one.at is not None]
        for (one, start), end in zip(
            timed, [*(start for _, start in timed[1:]), self.high], strict=False
        ):
            names = one.assignors or ()
            yield self._bar(
                start,
                max(start, min(end, gone.get(one.member_id or "", end))),
                kind_of(names),
                ", ".join(names),
            )

    def _rejected(self, one: ListSeen) -> Iterator[ListBar]:
        """Yield a cross for a rejected join; nothing if its time is not known.

        Its text is on the right, or on the left if there is no room on the right.
        """
        if one.at is None:
            return
        x, times = self._x(one.at), f" ×{one.times}" if (one.times or 0) > 1 else ""
        label = f"rejected{times}: [{', '.join(one.assignors or ())}]"
        room = len(label) * _CHAR
        left = x + 9 if x + 12 + room <= _WIDTH else x - 9 - room
        yield ListBar("no", f"{x - 5:.0f}", "10", "", label, f"{left:.0f}")

    def _bar(self, start: int, end: int, kind: str, label: str) -> ListBar:
        left = self._x(start)
        width = max(1.5, self._x(end) - left)
        short = _cut(label, width - 8)
        fits = short == escape(label)
        return ListBar(
            kind,
            f"{left:.0f}",
            f"{width:.1f}",
            title="" if fits else label,
            label=short if fits or width > 5 * _CHAR else "",
            label_x=f"{left + 4:.0f}",
        )


def timeline(history: GroupHistory) -> DrawnTimeline | None:
    """Return the drawn timeline of a group's history; None if the history contains no time."""
    times = [one.at for one in history.rebalances] + [one.at for one in history.lists]
    known = [at for at in (*times, history.observed_from, history.observed_until) if at is not None]
    return DrawnTimeline(history, min(known), max(known)) if known else None


@lru_cache(1024)
def kind_of(names: tuple[str, ...]) -> str:
    """Return `eager`, `coop` or `both`, by the protocols of the assignors `names`.

    Return `other` if there is none, or if the protocol of one is not known.
    """
    return _SORTS.get(frozenset(map(cooperative, names)), "other")


def lanes_of(lists: Sequence[ListSeen], gone: Collection[str]) -> tuple[list[Lane], str]:
    """Return the lanes to draw, and a line of text on the clients that get none.

    A lane shows one client's assignor lists over time, or one member's if several members that are
    present have its client id; `gone` are the ids of those that are not. At most `MOST_LANES` are
    drawn, those with the most different lists first. The text is empty if every client has a lane.
    """
    seen = [one for one in lists if not one.refused]
    here = {(one.client_id, one.member_id) for one in seen if one.member_id not in gone}
    shared = Counter(client for client, _ in here)
    by_client: dict[tuple[str, str | None], list[ListSeen]] = {}
    for one in seen:
        client = one.instance_id or one.client_id or one.member_id or ""
        many = one.instance_id is None and shared[one.client_id] > 1
        by_client.setdefault((client, one.member_id if many else None), []).append(one)
    lanes = [
        Lane(label, tuple(sorted(found, key=lambda one: one.at or 0)))
        for (label, _), found in by_client.items()
    ]
    lanes.sort(key=lambda lane: (-len({one.assignors for one in lane.lists}), lane.label))
    left = lanes[MOST_LANES:]
    if not left:
        return lanes, ""
    last = {", ".join(lane.lists[-1].assignors or ()) for lane in left}
    what = f", all [{next(iter(last))}] at the end" if len(last) == 1 else ""
    return lanes[:MOST_LANES], f"and {len(left)} more clients{what}"


def ticks_of(low: int, high: int) -> Iterator[tuple[int, str, str]]:
    """Yield the x, SVG text anchor and text of each label of a time axis.

    `low` and `high` are the ends of the axis, in microseconds since 1970.
    """
    span, hour = high - low, 3_600_000_000
    shape = "%H:%M:%S" if span < hour else "%H:%M" if span < 48 * hour else "%b %d %H:%M"
    last = _TICKS - 1
    for n in range(_TICKS if span else 1):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * n // last
        anchor = "start" if n == 0 else "end" if n == last else "middle"
        time = time_text(low + span * n // last, "%b %d %H:%MZ" if n in (0, last) else shape)
        yield x, anchor, time


def _cut(label: str, room: float) -> str:
    return cut(escape(label), max(1, int(room / _CHAR)))
