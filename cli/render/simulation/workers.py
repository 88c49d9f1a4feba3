"""The text of `rebal simulate` for Connect workers: a table of the protocols, then its
assumptions.
"""

from __future__ import annotations

from rich.text import Text

from rebal.cli.output import View
from rebal.cli.render.plans.costs import duration, partition_seconds_text
from rebal.cli.render.text import Column, FittingTable, count, facts, listing
from rebal.groups.commands import Command
from rebal.planner.plan import Pace
from rebal.planner.rehearsal.whatif.workers import WorkersSimulation


def workers_view(made: WorkersSimulation, source: str, next_command: Command) -> View:
    """Return the screen: a row for each protocol and pace. `source` says where the group
    was read.
    """
    head = Text.assemble(
        (made.group_id, "bold"),
        f" ({source}): {count(made.workers, 'worker')}, {count(made.connectors, 'connector')}, "
        f"{count(made.tasks, 'task')}; {made.assignor_now or 'no protocol'} now",
    )
    columns = [
        Column("PROTOCOL"),
        Column("RESTARTS"),
        Column("REBALANCES", right=True),
        Column("MOVES", right=True),
        Column("TASK-SECONDS", right=True),
        Column("TAKES", right=True),
        Column("AT WORST", right=True, rank=1),
    ]
    rows = [
        _row(run.protocol if first else "", pace)
        for run in made.runs
        for first, pace in ((pace is run.cost.paces[0], pace) for pace in run.cost.paces)
    ]
    legend = ((run.protocol, run.cost.text) for run in made.runs)
    return [
        head,
        Text(f"restart: {listing(made.restarted, 12)}"),
        Text(""),
        FittingTable(columns, rows),
        Text(""),
        facts([*legend, (Text("next:", style="bold"), next_command)], label=10),
    ]


def _row(protocol: str, pace: Pace) -> list[str | Text]:
    return [
        protocol,
        pace.name,
        f"{pace.rebalances:,}",
        f"{pace.partitions_moved:,}",
        partition_seconds_text(pace),
        duration(pace.seconds),
        "" if pace.worst_seconds is None else duration(pace.worst_seconds),
    ]
