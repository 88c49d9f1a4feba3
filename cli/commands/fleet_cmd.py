"""`rebal fleet`: a whole cluster's history, scanned once and read many times.

scan          commands/fleet_scan_cmd.py      reads the history into tables (Spark)
report        commands/fleet_report_cmd.py    which groups are ready, blocked, not proven
"""

from __future__ import annotations

from typing import Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS: Final = (
    ("scan", "fleet_scan_cmd", "Read the history of all groups into tables, in one pass."),
    ("report", "fleet_report_cmd", "Show which groups are ready, and in which order to take them."),
)


def build() -> TyperGroup:
    """The commands under `rebal fleet`, with no module of theirs loaded."""
    from rebal.cli.app import LazyCommand

    app = typer.Typer(
        name="fleet",
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name, module, summary in COMMANDS:
        group.add_command(LazyCommand(name, module, summary))
    return group


def _root() -> None:
    """Read a whole cluster's history in one pass, and plan for all its groups."""
