"""What `verify --watch` shows: a view that is drawn anew, or a line for each change."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rebal.cli import output
from rebal.cli.render.verification.screen import changes, verify_view

if TYPE_CHECKING:
    from rebal.cli.journal import Journal
    from rebal.planner.plan import Plan
    from rebal.planner.verification.verify import Standing

_LINES: Final = 8


class _Shower:
    """Remembers the look before, so that only changes are told; a blind look goes on record."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.before: Standing | None = None
        self._journal = journal
        self._plan = plan

    def news(self, standing: Standing) -> list[str]:
        """What has changed since the last look."""
        found = changes(self.before, standing)
        begins = self.before is None or self.before.blind_since is None
        if standing.blind_since is not None and begins:
            from rebal.planner.verification.journal import JournalEntry, plan_key

            self._journal.append(
                JournalEntry(
                    at=standing.at,
                    plan=plan_key(self._plan),
                    group_id=standing.group_id,
                    step=standing.step or 1,
                    blind=standing.blind_why,
                )
            )
        # Nothing is elected while a rebalance runs: that is no news, and neither is the same after.
        if standing.assignor is None and self.before is not None:
            standing = replace(standing, assignor=self.before.assignor)
        self.before = standing
        return found


@contextmanager
def shower(
    seconds: float, journal: Journal, plan: Plan, *, jsonl: bool, wide: bool
) -> Iterator[Callable[[Standing], None]]:
    """A function that shows each look: live on a terminal, else a line for each change."""
    told = _Shower(journal, plan)
    if jsonl:
        yield lambda standing: _jsonl(told, standing)
    elif sys.stdout.isatty() and not wide and os.environ.get("TERM", "") not in ("", "dumb"):
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        yield from _live(told, until)
    else:
        yield lambda standing: _lines(told, standing)
        if told.before is not None and told.before.exit_code == 3:
            output.say(f"next: {told.before.next}")


def _lines(told: _Shower, standing: Standing) -> None:
    for line in told.news(standing):
        output.write(f"{standing.at:%H:%M:%SZ} {output.escape(line)}\n")


def _jsonl(told: _Shower, standing: Standing) -> None:
    from rebal.cli.commands.verify_cmd import body_of

    found = told.news(standing)
    if found:
        body: dict[str, Any] = {"changes": found, **body_of(standing)}
        text = output.envelope("verify", body, standing.exit_code, "json")
        output.write(json.dumps(json.loads(text), separators=(",", ":")) + "\n")


def _live(told: _Shower, until: datetime) -> Iterator[Callable[[Standing], None]]:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(markup=False, emoji=False, highlight=False)
    history: list[str] = []

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(standing: Standing) -> None:
            history.extend(
                f"{standing.at:%H:%M:%SZ} {output.escape(line)}" for line in told.news(standing)
            )
            # What must be seen stands first; of the history as much as there is room for.
            rows = max(3, console.height - _LINES - 14)
            text = output.render(
                verify_view(standing, rows=rows),
                width=console.width,
                colour=console.color_system is not None and not console.no_color,
            )
            looked = "looked" if standing.blind_since is None else "tried to look"
            foot = (
                f"{looked} at {standing.at:%H:%M:%SZ}, watching until {until:%H:%M:%SZ}; "
                "Ctrl-C ends, and the journal goes on from here"
            )
            shown = Text.from_ansi(text.rstrip("\n"))
            room = console.height - len(shown.wrap(console, console.width)) - 3
            lines = history[-min(_LINES, max(1, room)) :]
            below = [
                Text(line, style="dim", no_wrap=True, overflow="ellipsis")
                for line in (*lines, foot)
            ]
            live.update(Group(shown, Text(""), *below), refresh=True)

        yield show
