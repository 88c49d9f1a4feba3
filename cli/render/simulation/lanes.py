"""A rehearsal drawn over time, as text or as one self-contained HTML page.

The text has a line (lane) for each member; each character stands for a part of the time. The page
also shows each partition's owners, and the reader can move through the time.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, NamedTuple

from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rebal.cli.output import escape, shown
from rebal.cli.render.pages import html_page, ticks
from rebal.cli.render.simulation.documents import (
    cost_rows,
    dangers,
    no_danger_text,
    partition_name,
    sample_text,
)
from rebal.cli.render.text import GAP, count, cut, duration
from rebal.planner.rehearsal.outcome import Doing, Rehearsal, Stretch, lanes

MOST_LANES: Final = 16
_WIDEST: Final = 100
_LONGEST_NAME: Final = 24
_LEAST: Final = 10
_REST: Final = 0.05
_JOINED: Final = "\N{NO-BREAK SPACE}"
_FULL, _PART, _NOTHING, _DOWN, _REJECTED, _TWICE = "█", "▒", "·", "▁", "x", "2"
_STYLES: Final = {_REJECTED: "bold red", _TWICE: "bold red", _PART: "yellow", _NOTHING: "yellow"}
_FIRST: Final = (_TWICE, _REJECTED, _DOWN)
_LEGEND: Final = (
    (_FULL, "owns its share"),
    (_PART, "owns less"),
    (_NOTHING, "owns none"),
    (_DOWN, "down"),
    (_REJECTED, "rejected"),
    (_TWICE, "owned twice"),
)


class LanesView:
    """A rehearsal as text: a line (lane) for each member, with the phases above and the time below.

    In a large group, members in trouble have a line each, and the others share lines in their
    order. A shared line shows a danger if any of its members is in danger, or that a member is
    down. The drawing adapts to any width.
    """

    def __init__(self, run: Rehearsal) -> None:
        self._run = run
        self._usual = _usual(run)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the phases, a line for each lane, the time, and the legend."""
        width = min(options.max_width, _WIDEST)
        rows = _rows(self._run)
        labels = [cut(escape(label), _LONGEST_NAME) for label, _ in rows]
        head = max(map(cell_len, labels), default=0)
        columns = max(_LEAST, width - head - GAP)
        # Some rest at the end shows the outcome.
        seconds = self._run.measures.seconds * (1 + _REST) + 1
        run = replace(self._run, measures=replace(self._run.measures, seconds=seconds))
        worst, most = lanes(run, columns), lanes(run, columns, usual=True)
        blank = " " * (head + GAP)
        phases = _phases(run, columns)
        lines = [Text(blank + phases)] if phases.strip() else []
        marks: set[str] = set()
        for label, (_, names) in zip(labels, rows, strict=True):
            cells = [
                _cells(worst[name], most[name], self._usual.get(name, 1), columns) for name in names
            ]
            made = _together(cells, columns)
            marks.update(made)
            coloured = ((mark, _STYLES.get(mark, "")) for mark in made)
            lines.append(Text.assemble(label, " " * (head + GAP - cell_len(label)), *coloured))
        lines.append(Text(blank + _axis(run.measures.seconds, columns), style="dim"))
        legend = [f"{mark} {what}" for mark, what in _LEGEND if mark in marks]
        yield from lines
        yield from (Text(text, style="dim") for text in _folded(legend, blank, width))


def _usual(run: Rehearsal) -> dict[str, int]:
    """Return member → its usual number of partitions: the smaller of its counts at start and end.

    A count of 0 is ignored; members without any partition at both times are left out.
    """
    spans = [span for story in run.partitions for span in story.owners]
    start = Counter(span.owner for span in spans if span.start == 0)
    end = Counter(span.owner for span in spans if span.end is None)
    return {
        name: min(found)
        for name in {*start, *end}
        if (found := [owned for owned in (start[name], end[name]) if owned])
    }


def _rows(run: Rehearsal) -> list[tuple[str, list[str]]]:
    """Return for each line its label, and the names of the members that share it.

    Up to `MOST_LANES` members have a line each. If there are more, rejected members and those past
    their poll timeout have a line each, on at most half of the lines; the others share the rest.
    """
    names = [member.name for member in run.members]
    names += [note.who for note in run.notes if note.what == "did not start"]
    names = [name for name in dict.fromkeys(names) if any(name == m.name for m in run.members)]
    if len(names) <= MOST_LANES:
        return [(name, [name]) for name in names]
    trouble = [note.who for note in run.notes if note.what in ("rejected", "past its poll timeout")]
    alone = list(dict.fromkeys(name for name in trouble if name in set(names)))[: MOST_LANES // 2]
    rest = [name for name in names if name not in alone]
    size = -(-len(rest) // (MOST_LANES - len(alone)))
    made = [(name, [name]) for name in alone]
    for first in range(0, len(rest), size):
        some = rest[first : first + size]
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        made.append((f"{cut(some[0], _LONGEST_NAME - len(more))}{more}", some))
    return made


def _cells(worst: Sequence[Stretch], most: Sequence[Stretch], usual: int, columns: int) -> str:
    """Return a member's line: `columns` characters, each for an equal part of the time.

    `worst` has the worst state in each part, `most` the state that lasts longest. A character shows
    that the member is down or in danger, if it is at any moment of the part; else the state that
    lasts longest. A member that owns partitions is shown as owning all of them only if it never has
    fewer than `usual` in the part.
    """
    lasting = "".join(_mark(one, usual) * (one.end - one.start) for one in most)
    lowest = "".join(_mark(one, usual) * (one.end - one.start) for one in worst)
    pairs = zip(lasting.ljust(columns, _DOWN), lowest.ljust(columns, _DOWN), strict=False)
    return "".join(map(_either, *zip(*pairs, strict=True)))


def _either(lasting: str, lowest: str) -> str:
    if lowest in (_TWICE, _REJECTED, _DOWN) or lasting == lowest:
        return lowest
    return _PART if lasting in (_FULL, _PART) else lasting


def _mark(one: Stretch, usual: int) -> str:
    if one.doing is Doing.OWNS:
        return _FULL if one.partitions >= usual else _PART
    return _MARKS[one.doing]


_MARKS: Final[Mapping[Doing, str]] = {
    Doing.TWICE: _TWICE,
    Doing.REJECTED: _REJECTED,
    Doing.DOWN: _DOWN,
    Doing.IDLE: _NOTHING,
}


def _together(cells: Sequence[str], columns: int) -> str:
    """Return one line for several members, from their lines `cells`: one character for each column.

    A character shows a member in danger, else a member that is down, else whether all, some or none
    of the members own partitions.
    """
    if len(cells) == 1:
        return cells[0]
    made = []
    for place in range(columns):
        found = {line[place] for line in cells}
        if len(found) == 1:
            made.append(found.pop())
        else:
            danger = next((mark for mark in _FIRST if mark in found), None)
            made.append(danger or (_PART if found & {_FULL, _PART} else _NOTHING))
    return "".join(made)


def _phases(run: Rehearsal, columns: int) -> str:
    line = ""
    length = max(run.measures.seconds, 1e-9)
    for phase in run.phases:
        place = min(round(phase.began / length * columns), columns - 1)
        line = f"{line[:place].ljust(place)}|{escape(phase.name)}"
    return line[:columns]


def _axis(seconds: float, columns: int) -> str:
    """Return the time axis as text: `0 s     1 min     2 min`."""
    line = ""
    for at, mark in ticks(seconds, seconds * 12 / columns):
        place = round(at / max(seconds, 1e-9) * columns)
        if place + len(mark) > columns:
            break
        line = line.ljust(place) + mark
    return line


def _folded(parts: Sequence[str], blank: str, width: int) -> Iterator[str]:
    for line in wrap("  ".join(part.replace(" ", _JOINED) for part in parts), width - len(blank)):
        yield blank + line.replace(_JOINED, " ")


# The page

_WIDE: Final = 1000
_COLUMNS: Final = 1000
_FLAT_COLUMNS: Final = 400
_MOST_PARTITIONS: Final = 96
_MOST_SPANS: Final = 8_000
_TALL, _FLAT = 26, 7
_FEW: Final = 24
# The drawn time in shares of the story's: what follows the last rebalance is seen too.
_AFTER: Final = 1.03


class Row(NamedTuple):
    """One row of the page's drawing: its name, its distance from the top, and its rectangles."""

    name: str
    top: float
    boxes: tuple["Box", ...]


class Box(NamedTuple):
    """One rectangle of the page's drawing; `left` and `width` are thousandths of the whole time.

    `kind` is its CSS class, and `title` its tooltip. `hue` is the colour of a partition's owner in
    degrees. `share` is the opacity of a member that owns partitions: the more, the darker.
    """

    left: float
    width: float
    kind: str
    title: str
    hue: int = 0
    share: float = 1.0


def rehearsal_html(run: Rehearsal, group: str) -> str:
    """Return the HTML page of the rehearsal of `group`; all names are escaped.

    The rehearsal must have been run with `keep`, so that it has each partition's owners over time.

    Raises:
        UsageError: jinja2 is not installed.
    """
    tall = len(run.members) <= _FEW
    columns = _COLUMNS if tall else _FLAT_COLUMNS
    said, found = no_danger_text(run), list(dangers(run))
    about = [("about", sample_text(run.sampled))] if run.sampled is not None else []
    costs = [*about, *cost_rows(run), ("ends", f"{run.state}, assignor {run.assignor or 'none'}")]
    if run.at_rest:
        run = replace(run, measures=replace(run.measures, seconds=run.measures.seconds * _AFTER))
    drawn = {shown(name): line for name, line in lanes(run, columns, usual=not tall).items()}
    gaps, total = _unowned(run), len(run.partitions)
    small = total <= _MOST_PARTITIONS and sum(len(p.owners) for p in run.partitions) <= _MOST_SPANS
    length = max(run.measures.seconds, 1e-9)
    run = shown(run if small else replace(run, partitions=()))
    return html_page(
        "rehearsal",
        run=run,
        group=str(shown(group)),
        verdict="" if found else said,
        dangers=shown([f"{one.label}: {one.text}" for one in found]),
        sums=shown(costs),
        total=total,
        members=list(_member_rows(run, drawn, columns, tall=tall)),
        row=_TALL if tall else _FLAT,
        partitions=list(_partition_rows(run)),
        hues=_hues(run) if tall else {},
        marks=list(_marks(run)),
        unowned=gaps,
        ticks=[(_WIDE * at / length, mark) for at, mark in ticks(length, length / 10)],
        notes=[note for note in run.notes if note.what != "ended"],
        clock=duration,
        data=_data(run, drawn, columns),
    )


def _member_rows(
    run: Rehearsal, drawn: dict[str, tuple[Stretch, ...]], columns: int, *, tall: bool
) -> Iterator[Row]:
    """Yield a row for each member.

    `drawn` is member → its stretches; they begin and end at numbers from 0 to `columns`, the end of
    the whole time. Only the boxes of `tall` rows have titles; for others the page's script has the
    texts.
    """
    most = max((one.partitions for line in drawn.values() for one in line), default=1) or 1
    length = run.measures.seconds
    for number, (name, line) in enumerate(drawn.items()):
        boxes = tuple(
            Box(
                left=one.start * _WIDE / columns,
                width=(one.end - one.start) * _WIDE / columns,
                kind=str(one.doing),
                title=_title(name, one.start * length / columns, one, run.unit) if tall else "",
                share=0.35 + 0.65 * one.partitions / most if one.partitions else 1.0,
            )
            for one in line
        )
        yield Row(name, number * (_TALL if tall else _FLAT), boxes)


def _title(name: str, at: float, one: Stretch, unit: str) -> str:
    owns = count(one.partitions, unit)
    does = {
        Doing.TWICE: f"a {unit} has a second owner; {owns}",
        Doing.REJECTED: "rejected",
        Doing.DOWN: "not running",
        Doing.IDLE: "runs" if unit == "none" else "runs, owns nothing",
        Doing.OWNS: owns,
    }
    return f"{name}, from {duration(at)}: {does[one.doing]}"


def _partition_rows(run: Rehearsal) -> Iterator[Row]:
    length = max(run.measures.seconds, 1e-9)
    hues = _hues(run)
    for number, story in enumerate(run.partitions):
        name = partition_name(story, run.unit)
        boxes = tuple(
            Box(
                left=_WIDE * span.start / length,
                width=_WIDE * ((length if span.end is None else span.end) - span.start) / length,
                kind="of",
                title=f"{name}: {span.owner} from {duration(span.start)}",
                hue=hues.get(span.owner, 0),
            )
            for span in story.owners
        )
        yield Row(name, number * 10, boxes)


def _hues(run: Rehearsal) -> dict[str, int]:
    """Return member → hue of its colour in degrees; none is red, the colour of missing owners."""
    return {member.name: 40 + number * 117 % 280 for number, member in enumerate(run.members)}


def _marks(run: Rehearsal) -> Iterator[tuple[float, str]]:
    """Yield (position, name) of each phase's beginning and of the last rebalance's end.

    Positions are thousandths of the whole time.
    """
    length = max(run.measures.seconds, 1e-9)
    yield from ((_WIDE * phase.began / length, phase.name) for phase in run.phases)
    ended = [one.ended or 0.0 for one in run.rebalances]
    if ended and run.at_rest:
        yield _WIDE * max(ended) / length, "at rest"


def _unowned(run: Rehearsal) -> str:
    """Return the points of an SVG polyline: the number of partitions without an owner over time."""
    length, total = max(run.measures.seconds, 1e-9), max(len(run.partitions), 1)
    steps: dict[float, int] = defaultdict(int)
    for story in run.partitions:
        for span in story.owners:
            steps[span.start] -= 1
            if span.end is not None:
                steps[span.end] += 1
    worst = [0] * (_WIDE + 1)
    now, before = total, 0
    for at in sorted(steps):
        column = min(int(_WIDE * at / length), _WIDE)
        for each in range(before, column + 1):
            worst[each] = max(worst[each], now) if at > 0 else worst[each]
        now, before = now + steps[at], column
    for each in range(before, _WIDE + 1):
        worst[each] = max(worst[each], now)
    points = [
        f"{column},{60 - 58 * max(value, 0) / total:.1f}" for column, value in enumerate(worst)
    ]
    return f"0,60 {' '.join(points)} {_WIDE},60"


def _data(run: Rehearsal, drawn: dict[str, tuple[Stretch, ...]], columns: int) -> str:
    """Return the JSON for the page's script: lanes, rebalances, notes and moments to step through.

    `drawn` is member → its stretches, which begin and end at numbers from 0 to `columns`, the end
    of the whole time. The JSON is escaped, so that it is safe inside HTML.
    """
    marks = sorted(
        {
            0.0,
            run.measures.seconds,
            *(one.began for one in run.rebalances),
            *(one.ended for one in run.rebalances if one.ended is not None),
            *(note.at for note in run.notes),
        }
    )
    data: dict[str, Any] = {
        "seconds": run.measures.seconds,
        "columns": columns,
        "unit": run.unit,
        "marks": [round(mark, 3) for mark in marks],
        "lanes": [
            [[one.end, str(one.doing), one.partitions] for one in line] for line in drawn.values()
        ],
        "rebalances": [
            [one.began, one.ended, one.generation, one.assignor, one.why] for one in run.rebalances
        ],
        "notes": [[note.at, note.who, note.what, note.detail] for note in run.notes],
    }
    return json.dumps(data).replace("<", "\\u003c").replace("&", "\\u0026")
