"""The text of `rebal simulate` for several assignors: one line each, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from rebal.cli.render.common import Column, FittingTable, facts, listing
from rebal.cli.render.simulation.words import apart, range_text, verdict
from rebal.planner.rehearsal.whatif.simulation import Simulation

if TYPE_CHECKING:
    from rich.console import RenderableType


def compare_view(
    simulations: Sequence[Simulation], source: str, next_command: str
) -> list[RenderableType]:
    """One row an assignor, in the order asked for; `source` says where the group was read."""
    first = simulations[0]
    columns = [
        Column("ASSIGNOR"),
        Column("MOVES", right=True),
        Column("LOST", right=True, rank=3),
        Column("EACH", right=True),
        Column("TOPIC", right=True, rank=2),
        Column("REBALANCES", right=True),
        Column("STOPS", right=True),
        Column("STOPS, ALL EAGER", right=True, rank=1),
        Column(""),
    ]
    now = f"{first.assignor_now or 'no assignor'} now"
    before = range_text(first.balance.now_min, first.balance.now_max)
    rows: list[list[str | Text]] = [
        [now, "", "", before, f"{apart(first, then=False)}", "", "", "", ""]
    ]
    rows += [_row(one) for one in simulations]
    head = Text.assemble((first.group_id, "bold"), f" ({source}): {first.partitions:,} partitions")
    if first.what_if:
        head.append(f"; {', then '.join(first.what_if)}")
    view: list[RenderableType] = [head, Text(""), FittingTable(columns, rows), Text("")]
    view.append(facts(_legend(simulations, next_command), label=7))
    return view


def _row(one: Simulation) -> list[str | Text]:
    name = one.assignor
    if one.failure is not None:
        return [name, "", "", "", "", "", "", "", Text("the leader would fail", "bold red")]
    return [
        name,
        f"{one.moved:,}",
        f"{one.lost:,}",
        range_text(one.balance.then_min, one.balance.then_max),
        str(apart(one, then=True)),
        f"{one.rebalances:,}" if not one.server_side else "none",
        f"{one.stops:,}",
        f"{one.eager_stops:,}" if not one.server_side else "–",
        verdict(one),
    ]


def _legend(simulations: Sequence[Simulation], next_command: str) -> Iterator[tuple[Text, str]]:
    yield Text("EACH"), "fewest–most partitions of one member; TOPIC: most apart in one topic"
    yield (
        Text("STOPS"),
        "partitions that stop, each time counted: COOPERATIVE where the assignor can",
    )
    if any(one.server_side for one in simulations):
        names = [one.assignor for one in simulations if one.server_side]
        yield (
            Text("KIP-848"),
            f"{listing(names)}: the broker's; members change one by one, none waits for another",
        )
    for one in simulations:
        if one.failure is not None:
            yield Text("fails", style="bold red"), f"{one.assignor}: {one.failure.message}"
    shared = [note for one in simulations for note in one.assumes if not _own(note, one)]
    for number, note in enumerate(dict.fromkeys(shared)):
        yield Text("" if number else "assumes"), note
    yield Text("next:", style="bold"), next_command


def _own(note: str, one: Simulation) -> bool:
    """A note about this assignor alone, which the row says already."""
    return note.startswith(f"every member runs {one.assignor}")
