"""A roll-out's timeline as text and as one HTML page: `rebal show PLAN --timeline`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from rich.text import Text

from rebal.cli.output import View, shown
from rebal.cli.render.pages import html_page
from rebal.cli.render.text import Column, FittingTable, Rows, count, facts, span_text
from rebal.groups.model import Record
from rebal.planner.verification.timeline import MemberTimeline, Timeline

_CELLS: Final = 24
_OLD, _AWAY = "·", " "


class Bar(Record, frozen=True, kw_only=True):
    """A segment of a member's bar; `left` and `width` are percentages of the whole roll-out.

    `step` is the last step that the member has completed (0: none).
    """

    left: float
    width: float
    step: int
    title: str


def timeline_view(timeline: Timeline) -> View:
    """Return the roll-out as text: its duration, steps, members and events."""
    timeline = shown(timeline)
    view: View = [Text.assemble((timeline.group_id, "bold"), f": {headline(timeline)}")]
    if timeline.began is None:
        return view
    view += [facts(_sums(timeline)), Text(""), _steps(timeline), Text(""), _members(timeline)]
    if timeline.events:
        rows = ((f"{e.at:%H:%M:%SZ}", f"{e.kind}: {e.text}") for e in timeline.events)
        view += [Text(""), facts(rows)]
    return view


def headline(timeline: Timeline) -> str:
    """Return the summary line: `roll-out finished, Nov 22 14:02Z to 14:31Z (29 min), 41 looks`."""
    if timeline.began is None or timeline.ended is None:
        return "no look is in the journal yet"
    state = "roll-out finished" if timeline.finished else "roll-out under way"
    began, ended = (at.astimezone(UTC) for at in (timeline.began, timeline.ended))
    day = "" if began.date() == ended.date() else f"{ended:%b} {ended.day} "
    return (
        f"{state}, {began:%b} {began.day} {began:%H:%M}Z to {day}{ended:%H:%M}Z "
        f"({span_text(ended - began)}), {count(timeline.looks, 'look')}"
    )


def timeline_html(timeline: Timeline) -> str:
    """Return the roll-out as a page that needs no other file; all values are escaped.

    Raises:
        UsageError: jinja2 is not installed.
    """
    return html_page(
        "timeline",
        timeline=shown(timeline),
        headline=headline(timeline),
        sums=[(str(label), str(text)) for label, text in _sums(timeline)],
        bars=bars,
        clock=_clock,
    )


def bars(timeline: Timeline, member: MemberTimeline) -> Iterator[Bar]:
    """Yield the segments of a member's bar: each restart or completed step begins a new one."""
    began, ended = timeline.began, timeline.ended
    whole = max((ended - began).total_seconds(), 1e-9) if began and ended else 1e-9
    for tenure in member.tenures:
        cuts = sorted({tenure.since, *(made.at for made in tenure.made), tenure.until})
        for since, until in zip(cuts, cuts[1:] or cuts, strict=False):
            step = max((made.step for made in tenure.made if made.at <= since), default=0)
            what = f"step {step} done" if step else "not done"
            yield Bar(
                left=100 * (since - (began or since)).total_seconds() / whole,
                width=100 * (until - since).total_seconds() / whole,
                step=step,
                title=f"{_clock(since)} to {_clock(until)}: {what} ({tenure.member_id})",
            )


def _sums(timeline: Timeline) -> Rows:
    if timeline.rebalances is not None:
        yield "rebalances", f"{timeline.rebalances:,}"


def _steps(timeline: Timeline) -> FittingTable:
    return FittingTable(
        [Column("STEP"), Column("BEGAN"), Column("GATE HELD"), Column("", rank=1)],
        [
            (str(step.step), _clock(step.began), _clock(step.held), step.title)
            for step in timeline.steps
        ],
    )


def _members(timeline: Timeline) -> FittingTable:
    return FittingTable(
        [
            Column("MEMBER"),
            Column("RESTARTS", right=True),
            *[Column(f"STEP {step.step}") for step in timeline.steps],
            Column(f"{_OLD} old, N step N done", rank=2),
        ],
        [
            (
                member.name,
                str(len(member.tenures) - 1),
                *(_made(member, step.step) for step in timeline.steps),
                _line(timeline, member),
            )
            for member in timeline.members
        ],
    )


def _line(timeline: Timeline, member: MemberTimeline) -> str:
    """Return a member's bar as text: one character for each equal part of the time."""
    cells = [_AWAY] * _CELLS
    for bar in bars(timeline, member):
        first = min(_CELLS - 1, int(bar.left * _CELLS / 100))
        last = min(_CELLS, max(first + 1, round((bar.left + bar.width) * _CELLS / 100)))
        cells[first:last] = [str(bar.step) if bar.step else _OLD] * (last - first)
    return "".join(cells)


def _made(member: MemberTimeline, step: int) -> str:
    made = member.made.get(step)
    if made is None:
        return "no"
    return f"{_clock(made.at)}{' (your word)' if made.confirmed else ''}"


def _clock(at: datetime | None) -> str:
    return "not yet" if at is None else f"{at.astimezone(UTC):%H:%M:%S}Z"
