"""Parts that all text views share: short texts for facts, and tables that fit.

Views are pure: they take records that went through `output.shown` and return rich renderables.
Members are named by `planner.context.names`, so that tables and findings use the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.cells import cell_len
from rich.console import Group
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

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
from rebal.planner.plan import Finding

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

Rows: TypeAlias = "Iterator[tuple[str | Text, RenderableType]]"
"""Lines of a label and a text."""
GAP: Final = 2
LONG: Final = 20
"""Cells up to which a column is never folded."""


class Column:
    """A table column; `rank` 0 is always shown, higher ranks go first when the width is short."""

    def __init__(self, header: str, *, right: bool = False, rank: int = 0) -> None:
        self.header = header
        self.right = right
        self.rank = rank


class FittingTable:
    """A table without lines that leaves out its least needed columns rather than fold its rows.

    A column that is left out is named under the table. `rows` hold one cell a column.
    """

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
        self._columns = tuple(columns)
        self._rows = tuple(tuple(row) for row in rows)
        self._widest = [
            max((cell_len(str(row[n])) for row in self._rows), default=0)
            for n in range(len(self._columns))
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the widest form that fits, or the narrowest one folded."""
        ranks = sorted({column.rank for column in self._columns}, reverse=True)
        unlimited = options.update(max_width=100_000)
        for limit in ranks:
            made = self._make(limit)
            fits = Measurement.get(console, unlimited, made).maximum <= options.max_width
            if fits or limit == ranks[-1]:
                yield made
                hidden = [column.header for column in self._columns if column.rank > limit]
                if hidden:
                    yield Text(f"(no room for {listing(hidden)}: --wide)", style="dim")
                return

    def _make(self, limit: int) -> Table:
        kept = [n for n, column in enumerate(self._columns) if column.rank <= limit]
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for n in kept:
            column = self._columns[n]
            made.add_column(
                column.header,
                justify="right" if column.right else "left",
                no_wrap=self._widest[n] <= LONG,
                overflow="fold",
            )
        for row in self._rows:
            made.add_row(*(row[n] for n in kept))
        return made


def facts(
    rows: Iterable[tuple[str | Text, RenderableType]], *, label: int = 10, indent: int = 0
) -> Group:
    """Return lines of a label and a text; a long text wraps under itself, a command never."""
    kept = [(Text(name) if isinstance(name, str) else name, text) for name, text in rows]
    wide = max([label, *(name.cell_len for name, _ in kept)])
    parts: list[RenderableType] = []
    for commands, block in groupby(kept, key=lambda row: isinstance(row[1], Command)):
        if commands:
            parts += [_command(name, str(line), wide, indent) for name, line in block]
            continue
        made = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        made.add_column(no_wrap=True, min_width=wide)
        made.add_column(overflow="fold")
        for row in block:
            made.add_row(*row)
        parts.append(indented(made, indent) if indent else made)
    return Group(*parts)


def _command(name: Text, line: str, wide: int, indent: int) -> Text:
    head = name.copy()
    head.pad_right(wide + GAP - name.cell_len)
    return Text.assemble(" " * indent, head, (line, "bold"), no_wrap=True, overflow="ignore")


def hanging(mark: str | Text, text: RenderableType, gap: int = GAP) -> Table:
    """`text` after its mark, going on under itself."""
    made = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    made.add_row(mark, text)
    return made


def urgent_view(findings: Iterable[Finding]) -> list[RenderableType]:
    """Return the first lines of a screen where a client is kept out of the group, else nothing."""
    rows: list[tuple[str | Text, RenderableType]] = []
    for finding in findings:
        if finding.urgent and not finding.ignored:
            rows.append((Text("REJECTED", style="bold red"), f"{finding.rule} {finding.message}"))
            rows += [("", hanging("→", finding.fix, 1))] if finding.fix else []
    return [facts(rows), Text("")] if rows else []


def labelled(label: str | Text, texts: Iterable[RenderableType]) -> Rows:
    """Yield the texts as lines of their own; the first has the label."""
    for text in texts:
        yield label, text
        label = ""


def to_run(found: Iterable[NamedCommand]) -> Rows:
    """Yield each command on a line of its own, below its use."""
    for one in found:
        yield "", f"{one.use}:"
        yield "", Command.read(one.line)


def indented(part: RenderableType, by: int = 2) -> Padding:
    """Return `part`, indented."""
    return Padding(part, (0, 0, 0, by))


def count(number: int, noun: str) -> str:
    """Return `1 member`, `2 members`, `1,200 partitions`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listing(names: Sequence[str], most: int = 6) -> str:
    """Return `a, b and c`, cut after `most` names."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def when(at: datetime, now: datetime) -> str:
    """Return a moment in short: `just now`, `4 min ago`, `09:12Z`, `Nov 20 09:12Z`."""
    age = now - at
    if timedelta(seconds=-5) <= age < timedelta(minutes=1):
        return "just now"
    if timedelta() <= age < timedelta(hours=1):
        return f"{age.seconds // 60} min ago"
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    if at.date() == now.date():
        return f"{at:%H:%M}Z"
    return f"{at:%b} {at.day} {at:%H:%M}Z" if at.year == now.year else f"{at:%Y-%m-%d %H:%M}Z"


def span_text(span: timedelta) -> str:
    """Return a duration with one number: `40 s`, `12 min`, `5 h`, `9 days`."""
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
    """Return a member's assignor list: in order where it is exact, else its known bounds."""
    if known.knowledge is Knowledge.EXACT:
        return ", ".join(known.list) or "(none)"
    if known.knowledge is Knowledge.DECLARED:
        return f"not seen; next start: {', '.join(known.list) or '(default)'}"
    bounds = []
    if known.at_least:
        bounds.append(f"at least {', '.join(known.at_least)}")
    if known.lacks:
        bounds.append(f"not {', '.join(known.lacks)}")
    return f"unknown ({'; '.join(bounds)})" if bounds else "unknown"


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


def partition_count(owned: TopicPartitions) -> int:
    """Return the number of partitions over all topics."""
    return sum(map(len, owned.values()))


def partitions_text(owned: TopicPartitions) -> str:
    """Return `orders 0-3,7 · payments 1`."""
    return " · ".join(f"{topic} {numbers}" for topic, numbers in owned.items())


def severity_style(severity: str) -> str:
    """Return the colour of a finding's label."""
    return {"block": "bold red", "warn": "yellow"}.get(severity, "cyan")


def spread(counts: Iterable[int]) -> str:
    """Return `6`, or `2–6` where the counts differ."""
    found = sorted(set(counts))
    if not found:
        return "0"
    return str(found[0]) if len(found) == 1 else f"{found[0]}–{found[-1]}"


def known_lag(snapshot: GroupSnapshot) -> dict[tuple[str, int], int]:
    """Return (topic, partition) → lag in records, where both offsets are known."""
    return {
        (lag.topic, lag.partition): max(0, lag.end - lag.committed)
        for lag in snapshot.lag
        if lag.end is not None and lag.committed is not None
    }


def lag_by_member(
    members: Sequence[Member], lag: Mapping[tuple[str, int], int]
) -> dict[str, int | None]:
    """Return member id → lag over its partitions; None where one of them has no known lag."""
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


def to_paste(line: str, indent: int = 2) -> Text:
    """Return a line to copy; it is never folded, so a terminal still copies one line."""
    return Text(" " * indent + line, no_wrap=True, overflow="ignore")


def path_words(path: str) -> str:
    """Return a plan's path in words: `two bounces`, `KIP-848 online`, `no path`."""
    return "no path" if path == "none" else path.replace("_", " ").replace("kip848", "KIP-848")


class WideTable:
    """A table of one line for each row, whatever the width; nothing is left out or folded."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> None:
        self._columns = columns
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the header, then line by line."""
        head = [column.header for column in self._columns]
        sizes = [[cell_len(str(cell)) for cell in row] for row in (head, *self._rows)]
        widths = [max(column) for column in zip(*sizes, strict=True)]
        bold = Style(bold=True)
        for row, lengths in zip((head, *self._rows), sizes, strict=True):
            for column, cell, length, width in zip(
                self._columns, row, lengths, widths, strict=True
            ):
                blank = " " * (width - length)
                if column.right:
                    yield Segment(blank)
                if isinstance(cell, Text):
                    yield from (s for s in cell.render(console) if s.text)
                else:
                    yield Segment(cell, bold if row is head else None)
                yield Segment(" " * GAP if column.right else blank + " " * GAP)
            yield Segment.line()
