"""Parts that all text views share: short texts for facts, and tables that fit.

Views are pure: they take records that went through `output.shown` and return rich renderables.
Members are named by `planner.context.names`, so that tables and findings use the same names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rebal.cli.output import escape
from rebal.groups.commands import Command
from rebal.groups.model import (
    AssignorList,
    Evidence,
    GroupSnapshot,
    Knowledge,
    Member,
    Software,
    TopicPartitions,
)
from rebal.planner.commands import NamedCommand
from rebal.planner.plan import Finding, Severity
from rebal.planner.rules import Trait, rules

Rows: TypeAlias = "Iterator[tuple[str | Text, RenderableType]]"
"""Rows of (label, text)."""
GAP: Final = 2
FACTS: Final = 10
"""Least width of the label column of `facts`, in cells."""
LONG: Final = 20
"""Greatest width of a column that is never folded, in cells."""


class Column(NamedTuple):
    """A table column; `rank` 0 is always shown, and the highest rank is left out first.

    `under` is the header of another column. In a narrow table this column's text stands on a second
    line below the text of that column.
    """

    header: str
    right: bool = False
    rank: int = 0
    under: str | None = None


class FittingTable:
    """A borderless table that takes another form if it is wider than the terminal.

    Columns move under others (`Column.under`). If no column has `under`, those of the highest rank
    are left out and named below the table. In the narrowest form each row is a block of lines. Each
    of `rows` has one cell for each column.
    """

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
        self._columns = tuple(columns)
        self._rows = tuple(tuple(row) for row in rows)
        heads = [column.header for column in self._columns]
        self._widest = [max(map(_cells, column)) for column in zip(heads, *self._rows, strict=True)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the widest form of the table that fits."""
        width = options.max_width
        if self._width() <= width:
            yield WideTable(self._columns, self._rows)
        elif any(column.under for column in self._columns):
            folded = self._folded()
            yield folded._made() if folded._least() <= width else self._blocks()
        else:
            yield from self._cut(width)

    def _cut(self, width: int) -> Iterator[RenderableType]:
        """Yield the table without the columns of the highest ranks, or as blocks if none fits."""
        for limit in sorted({column.rank for column in self._columns}, reverse=True):
            part = self._of([n for n, column in enumerate(self._columns) if column.rank <= limit])
            if part._width() <= width or (limit == 0 and part._least() <= width):
                yield part._made()
                hidden = [column.header for column in self._columns if column.rank > limit]
                if hidden:
                    yield Text(f"(no room for {listing(hidden)}: --wide)", style="dim")
                return
        yield self._blocks()

    def _of(self, kept: Sequence[int]) -> "FittingTable":
        rows = [[row[n] for n in kept] for row in self._rows]
        return FittingTable([self._columns[n] for n in kept], rows)

    def _folded(self) -> "FittingTable":
        """Return the table with each column that has `under` moved below the column it names."""
        by_header = {column.header: n for n, column in enumerate(self._columns)}
        lower = {
            by_header[column.under]: n
            for n, column in enumerate(self._columns)
            if column.under in by_header
        }
        kept = [n for n in by_header.values() if n not in lower.values()]
        columns = [
            Column(
                "\n".join(self._columns[m].header for m in (n, lower.get(n)) if m is not None),
                right=self._columns[n].right,
            )
            for n in kept
        ]
        rows = [
            [_above(row[n], row[lower[n]]) if n in lower else row[n] for n in kept]
            for row in self._rows
        ]
        return FittingTable(columns, rows)

    def _width(self) -> int:
        """Return the width of the table in cells if no cell is wrapped."""
        return sum(self._widest) + GAP * (len(self._widest) - 1)

    def _least(self) -> int:
        """Return the least width of the table in cells: columns above `LONG` cells are wrapped."""
        return sum(min(n, LONG) for n in self._widest) + GAP * (len(self._widest) - 1)

    def _made(self) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for column, widest in zip(self._columns, self._widest, strict=True):
            made.add_column(
                column.header,
                justify="right" if column.right else "left",
                no_wrap=widest <= LONG,
                overflow="fold",
            )
        for row in self._rows:
            made.add_row(*row)
        return made

    def _blocks(self) -> Group:
        """Return each row as a block of lines; cells after the first follow their headers."""
        parts: list[RenderableType] = []
        label = max((cell_len(column.header) for column in self._columns[1:]), default=0)
        for first, *rest in self._rows:
            rows = [
                (column.header.lower(), cell)
                for column, cell in zip(self._columns[1:], rest, strict=True)
                if str(cell)
            ]
            parts += [first, facts(rows, label=label, indent=GAP)]
        return Group(*parts)


class Forms:
    """A line with several forms: the first that fits the width is shown, else the last, wrapped."""

    def __init__(self, *forms: str | Text) -> None:
        self._forms = tuple(map(Text.assemble, forms))

    def at(self, width: int) -> Text:
        """Return the first form that fits in `width` cells, else the last form."""
        return next((form for form in self._forms if form.cell_len <= width), self._forms[-1])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the first form that fits, else the last."""
        yield self.at(options.max_width)


def _cells(cell: str | Text) -> int:
    return max(map(cell_len, str(cell).split("\n")))


def _above(upper: str | Text, lower: str | Text) -> Text:
    return Text("\n" if str(lower) else "").join(
        [cell if isinstance(cell, Text) else Text(cell) for cell in (upper, lower)]
    )


class Labelled:
    """Lines of a label and a text; a long text wraps within its own column.

    `wide` is the width of the label column in cells. `indent` blanks stand before it and `gap`
    blanks after it.
    """

    def __init__(
        self, rows: Iterable[tuple[Text, RenderableType]], wide: int, gap: int, indent: int = 0
    ) -> None:
        self._rows = tuple(rows)
        self._wide = wide
        self._gap = gap
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines one by one, because a table of rich takes ten times as long."""
        before = self._indent + self._wide + self._gap
        inner = options.update(width=max(1, options.max_width - before), overflow="fold")
        for name, text in self._rows:
            blank = Segment(" " * (before - self._indent - name.cell_len))
            head = [Segment(" " * self._indent), *drawn(console, name), blank]
            for line in _lines(console, text, inner):
                yield from (*head, *line, Segment.line())
                head = [Segment(" " * before)]


def _lines(
    console: Console, text: RenderableType, options: ConsoleOptions
) -> Iterable[Iterable[Segment]]:
    """Return the lines of `text`, wrapped to the width; a text that fits skips slow wrapping."""
    if isinstance(text, Forms):
        text = text.at(options.max_width)
    if isinstance(text, str | Text):
        line = str(text)
        if "\n" not in line and cell_len(line) <= options.max_width:
            return [drawn(console, text)]
    return Segment.split_lines(console.render(text, options))


def drawn(console: Console, text: str | Text) -> Iterable[Segment]:
    """Return the segments of a one-line text; styles are skipped if the console has no colours."""
    if isinstance(text, str) or console.color_system is None:
        return [Segment(str(text))]
    # `render` leaves out the style of a text without spans.
    return Text.assemble(text).render(console)


def facts(
    rows: Iterable[tuple[str | Text, RenderableType]], *, label: int = FACTS, indent: int = 0
) -> Labelled:
    """Return lines of a label and a text; a long text wraps within its column, a command never.

    `label` is the least width of the label column in cells.
    """
    kept = [
        (Text.assemble(name), to_paste(text, 0, "bold") if isinstance(text, Command) else text)
        for name, text in rows
    ]
    return Labelled(kept, max([label, *(name.cell_len for name, _ in kept)]), GAP, indent)


def hanging(mark: str | Text, text: RenderableType, gap: int = GAP) -> Labelled:
    """Return `text` after `mark`; its further lines are aligned with the first."""
    name = Text.assemble(mark)
    return Labelled([(name, text)], name.cell_len, gap)


def urgent_view(
    findings: Iterable[Finding], dangers: Iterable[tuple[str, str]] = ()
) -> list[RenderableType]:
    """Return the first lines of a screen: the clients that the group rejects; empty if none.

    These are the (message, fix) pairs in `dangers`, then the urgent findings that are not ignored.
    """
    found = [one for one in findings if one.urgent and not one.ignored]
    rows: list[tuple[str | Text, RenderableType]] = []
    for message, fix in (*dangers, *((f"{one.rule} {one.message}", one.fix) for one in found)):
        rows.append((Text("REJECTED", style="bold red"), message))
        rows += [("", hanging("→", fix, 1))] if fix else []
    return [facts(rows), Text("")] if rows else []


def asks_of_a_fact(finding: Finding) -> bool:
    """Return whether the finding is an open question on something that was seen in this group.

    It was raised by a member, a file or a time, not asked of every group. An ignored one is not.
    """
    known = rules().get(finding.rule)
    return (
        known is not None
        and Trait.FACT in known.traits
        and finding.severity is Severity.ASK
        and not finding.ignored
    )


def labelled(label: str | Text, texts: Iterable[RenderableType]) -> Rows:
    """Yield one row for each text; only the first row has the label."""
    for text in texts:
        yield label, text
        label = ""


def to_run(found: Iterable[NamedCommand]) -> Rows:
    """Yield two rows for each command: its use, then the command."""
    for one in found:
        yield "", f"{one.use}:"
        yield "", Command.read(one.line)


def count(number: int, noun: str) -> str:
    """Return `1 member`, `2 members`, `1,200 partitions`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listing(names: Sequence[str], most: int = 6) -> str:
    """Return `a, b and c`, or `a, b and 4 more` if there are more than `most` names."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def cut(text: str, most: int) -> str:
    """Return a one-line text cut to `most` cells; `…` stands for the rest."""
    return text if cell_len(text) <= most else f"{text[: most - 1]}…"


def when(at: datetime, now: datetime) -> str:
    """Return a time in short form: `just now`, `4 min ago`, `09:12Z`, `Nov 20 09:12Z`."""
    age = now - at
    if timedelta(seconds=-5) <= age < timedelta(minutes=1):
        return "just now"
    if timedelta() <= age < timedelta(hours=1):
        return f"{age.seconds // 60} min ago"
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    if at.date() == now.date():
        return f"{at:%H:%M}Z"
    return f"{at:%b} {at.day} {at:%H:%M}Z" if at.year == now.year else f"{at:%Y-%m-%d %H:%M}Z"


def read_from(where: str, at: datetime) -> str:
    """Return the source `where` of a group as text; unless it is `live`, with the capture time."""
    captured = "" if where == "live" else f", captured {when(at, datetime.now(UTC))}"
    return f"{escape(where)}{captured}"


def moment(seconds: float) -> str:
    """Return a time since the start of a simulation: `2:05`, `1:02:05`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def duration(seconds: float) -> str:
    """Return a duration in at most two units: `45 s`, `3 min 20 s`, `1 h 5 min`, `4 d 17 h`."""
    left, words = round(seconds), []
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number:
            words.append(f"{number} {name}")
        if words and (len(words) == 2 or not number):
            break
    return " ".join(words) or "0 s"


def span_text(span: timedelta) -> str:
    """Return a duration in one unit: `40 s`, `12 min`, `5 h`, `9 days`."""
    seconds = max(0, round(span.total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit} {name}"
    return f"{seconds // 86_400} days"


def software_text(software: Software | None) -> str:
    """Return `java 3.9.1`, `java ≥ 3.4 or franz-go`, `librdkafka`, or `unknown`."""
    if software is None:
        return "unknown"
    bounds = (software.version_range or "").replace(">=", "≥")
    name = software.family or software.name
    if name is None or name == "unknown":
        return bounds or "unknown"
    return f"{name} {software.version or bounds}".strip()


def assignors_text(known: AssignorList) -> str:
    """Return a member's assignor list as text: exact, declared for the next start, or bounds."""
    if known.knowledge is Knowledge.EXACT:
        return ", ".join(known.list) or "(none)"
    if known.knowledge is Knowledge.DECLARED:
        return f"not seen; next start: {', '.join(known.list) or '(default)'}"
    bounds = (
        f"at least {', '.join(known.at_least)}" if known.at_least else "",
        f"not {', '.join(known.lacks)}" if known.lacks else "",
    )
    return f"unknown ({'; '.join(filter(None, bounds))})" if any(bounds) else "unknown"


def evidence_text(evidence: Sequence[Evidence], now: datetime) -> str:
    """Return the sources of evidence, each with its newest time: `request log 09:12Z, probe just
    now`.
    """
    newest: dict[str, datetime | None] = {}
    for item in evidence:
        before = newest.get(item.source)
        if item.source not in newest or (item.at and (before is None or item.at > before)):
            newest[item.source] = item.at
    return ", ".join(f"{source} {when(at, now)}" if at else source for source, at in newest.items())


def partitions_text(owned: TopicPartitions) -> str:
    """Return partitions by topic as text: `orders 0-3,7 · payments 1`."""
    return " · ".join(f"{topic} {numbers}" for topic, numbers in owned.items())


def severity_style(severity: str) -> str:
    """Return the style of the labels of findings with this severity."""
    return {"block": "bold red", "warn": "yellow"}.get(severity, "cyan")


def spread(counts: Iterable[int]) -> str:
    """Return the range of the counts: `6`, or `2–6` if they differ."""
    found = sorted(set(counts))
    return str(found[0]) if len(found) == 1 else f"{found[0]}–{found[-1]}"


def known_lag(snapshot: GroupSnapshot) -> dict[tuple[str, int], int]:
    """Return (topic, partition) → lag in records, if committed and end offset are both known."""
    return {
        (lag.topic, lag.partition): lag.records for lag in snapshot.lag if lag.records is not None
    }


def lag_by_member(
    members: Sequence[Member], lag: Mapping[tuple[str, int], int]
) -> dict[str, int | None]:
    """Return member id → total lag of its partitions; None if the lag of one is not known."""
    made: dict[str, int | None] = {}
    for member in members:
        found = [
            lag.get((topic, number))
            for topic, numbers in member.assignment.items()
            for number in numbers
        ]
        known = [number for number in found if number is not None]
        made[member.member_id] = sum(known) if len(known) == len(found) else None
    return made


def to_paste(line: str, indent: int = 2, style: str = "") -> Text:
    """Return a line to copy; it is never wrapped, so that it stays one line when copied."""
    return Text(" " * indent + line, style, no_wrap=True, overflow="ignore")


class WideTable:
    """A table of one line for each row, whatever the width; nothing is left out or wrapped.

    A cell longer than `longest` lengthens its own line only, not the column.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[str | Text]],
        longest: int | None = None,
    ) -> None:
        self._columns = columns
        self._rows = ([Text(column.header, style="bold") for column in columns], *rows)
        self._longest = longest

    def widths(self) -> list[int]:
        """Return the width of each column in cells."""
        sizes = ([cell_len(str(row[n])) for row in self._rows] for n in range(len(self._columns)))
        most = self._longest
        return [max(n for n in column if most is None or n <= most) for column in sizes]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the header line, then a line for each row."""
        widths = self.widths()
        for row in self._rows:
            for column, cell, width in zip(self._columns, row, widths, strict=True):
                blank = " " * (width - cell_len(str(cell)))
                if column.right:
                    yield Segment(blank)
                yield from drawn(console, cell)
                yield Segment(" " * GAP if column.right else blank + " " * GAP)
            yield Segment.line()
