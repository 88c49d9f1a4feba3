"""The text of `rebal groups`: a line for each group, those that need attention first."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from rebal.cli import output
from rebal.cli.overview import NONE, GroupLine, Overview, changes
from rebal.cli.render.plans.parts import VERDICT_STYLES
from rebal.cli.render.text import GAP, Column, WideTable, count, cut, facts, listing
from rebal.planner.commands import COOPERATIVE, Given
from rebal.planner.plan import Verdict

_COLUMNS: Final = (
    Column("VERDICT"),
    Column("GROUP"),
    Column("STATE", rank=4),
    Column("PROTOCOL", rank=1),
    Column("ASSIGNOR", rank=5),
    Column("MEMBERS", right=True, rank=3),
    Column("LAG", right=True, rank=2),
    Column("WHY", rank=6),
)
_WHY: Final = len(_COLUMNS) - 1
# Cells that the last column needs at least; its text is cut, except with --wide.
_SHORT: Final = 24
# Cells of a group's name beyond which only its own line gets longer.
_LONG: Final = 40
# Lines of a watch's screen that are not rows of the table.
_AROUND: Final = 12


def overview_view(
    overview: Overview,
    given: Given,
    *,
    to: str = COOPERATIVE,
    wide: bool = False,
    rows: int | None = None,
) -> output.View:
    """Return the screen of `rebal groups` with at most `rows` groups (None: all).

    The printed command plans the first group, with the goal `to` and the options that were `given`.
    """
    names = [line.group_id for line in overview.groups]
    overview = output.shown(overview)
    view: output.View = [Text(headline(overview))]
    if overview.failures:
        label = Text("not read", style="bold red")
        view += [Text(""), facts([(label, one.message) for one in overview.failures])]
    lines = overview.groups[:rows]
    if lines:
        view += [Text(""), _Table([_row(line) for line in lines], wide=wide)]
        if len(lines) < len(overview.groups):
            view.append(Text(f"and {len(overview.groups) - len(lines):,} more", style="dim"))
        next_one = (Text("next:", style="bold"), given.plan_upgrade(names[0], to))
        view += [Text(""), facts([next_one], label=0)]
    return view


def headline(overview: Overview) -> str:
    """Return the summary line: `4 groups: 2 blocked, 1 unproven, 1 ready · 1 not read`."""
    listed = (
        ", ".join(f"{number:,} {verdict}" for verdict, number in overview.counts.items())
        or "only those that this user may describe are listed"
    )
    return f"{count(len(overview.groups), 'group')}: {listed}" + (
        f" · {len(overview.failures):,} not read" if overview.failures else ""
    )


class _Table:
    """Table of groups, one line each; columns that do not fit are left out, the least needed first.

    It is used because a `FittingTable` takes seconds for thousands of rows.
    """

    def __init__(self, rows: Sequence[Sequence[str | Text]], *, wide: bool) -> None:
        self._rows = rows
        self._wide = wide

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with the columns that fit, and a line with the names of the others."""
        widths = WideTable(_COLUMNS, self._rows, _LONG).widths()
        for most in range(max(column.rank for column in _COLUMNS), -1, -1):
            kept = [n for n, column in enumerate(_COLUMNS) if column.rank <= most]
            room = options.max_width - sum(widths[n] + GAP for n in kept if n != _WHY)
            if self._wide or room >= (_SHORT if _WHY in kept else -GAP) or not most:
                break
        rows = [[row[n] for n in kept] for row in self._rows]
        if _WHY in kept and not self._wide:
            rows = [[*row[:-1], cut(str(row[-1]), room)] for row in rows]
        yield WideTable([_COLUMNS[n] for n in kept], rows, _LONG)
        if len(kept) < len(_COLUMNS):
            hidden = [column.header for n, column in enumerate(_COLUMNS) if n not in kept]
            yield Text(f"(no room for {listing(hidden)}: --wide)", style="dim")


def _row(line: GroupLine) -> tuple[str | Text, ...]:
    return (
        Text(line.verdict.value, style=VERDICT_STYLES[Verdict(line.verdict)]),
        line.group_id,
        line.state.value,
        "–" if line.protocol == NONE else line.protocol,
        line.assignor or "–",
        f"{line.members:,}",
        "–" if line.lag is None else f"{line.lag:,}",
        line.summary,
    )


@contextmanager
def overview_shower(
    seconds: float, given: Given, *, to: str, wide: bool
) -> Iterator[Callable[[Overview], None]]:
    """Yield a function that shows each overview of a watch of `seconds`.

    On a terminal it redraws the screen. Elsewhere, or if `wide`, it prints the first overview and
    then a line for each change.
    """
    if output.is_screen() and not wide:
        yield from _live(datetime.now(UTC) + timedelta(seconds=seconds), given, to)
        return
    before: list[Overview] = []

    def show(overview: Overview) -> None:
        if not before:
            output.page(overview_view(overview, given, to=to, wide=wide), wide=wide)
        else:
            for line in changes(before.pop(), overview):
                output.print_text(f"{datetime.now(UTC):%H:%M:%SZ} {output.escape(line)}\n")
        before.append(overview)

    yield show


def _live(until: datetime, given: Given, to: str) -> Iterator[Callable[[Overview], None]]:
    console = Console(markup=False, emoji=False, highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(overview: Overview) -> None:
            rows = max(3, console.height - _AROUND - len(overview.failures))
            text = output.render(
                overview_view(overview, given, to=to, rows=rows),
                width=console.width,
                colour=console.color_system is not None and not console.no_color,
                plain=output.is_ascii_only(sys.stdout),
            )
            foot = f"looked at {datetime.now(UTC):%H:%M:%SZ}, watching until {until:%H:%M:%SZ}; "
            below = [*overview.notes, f"{foot}Ctrl-C stops it"]
            live.update(
                Group(
                    Text.from_ansi(text.rstrip("\n")),
                    *(Text(output.escape(line), style="dim") for line in below),
                ),
                refresh=True,
            )

        yield show
