"""Members' lanes as text: one character for each part of the time, one line for each member."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final

from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rebal.cli.output import escape
from rebal.cli.render.pages import ticks
from rebal.cli.render.text import GAP, cut
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
    """The lanes of a rehearsal at any width, with its phases above and the time below.

    Members in trouble have a line of their own; of a large group the others share lines, in order.
    A line of several members shows a danger of any of them, and who is down.
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
    """Return how many partitions each member owns when all is well: at the start, or at the end."""
    spans = [span for story in run.partitions for span in story.owners]
    start = Counter(span.owner for span in spans if span.start == 0)
    end = Counter(span.owner for span in spans if span.end is None)
    return {
        name: min(found)
        for name in {*start, *end}
        if (found := [owned for owned in (start[name], end[name]) if owned])
    }


def _rows(run: Rehearsal) -> list[tuple[str, list[str]]]:
    """Return each line's label and members: few members alone, of many those in trouble alone."""
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
    """Return a member's line: what is down or in danger at any moment, else what it mostly does."""
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
    """Return one line for several members: danger or down, else whether all, some or none own."""
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
    """Return marks of the time: `0 s     1 min     2 min`."""
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
