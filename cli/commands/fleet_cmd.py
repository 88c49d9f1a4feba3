"""`rebal fleet`: a whole cluster's history, scanned once and read many times.

scan          commands/fleet_scan_cmd.py      reads the history into tables (Spark)
report        commands/fleet_report_cmd.py    which groups are ready, blocked, not proven
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rebal.cli.lazy import lazy_group

if TYPE_CHECKING:
    from typer.core import TyperGroup

COMMANDS: Final = (
    ("scan", "fleet_scan_cmd", "Read the history of all groups into tables, in one pass."),
    ("report", "fleet_report_cmd", "Show which groups are ready, and in which order to take them."),
)


def build() -> TyperGroup:
    """The commands under `rebal fleet`, with no module of theirs loaded."""
    return lazy_group(_root, COMMANDS)


def _root() -> None:
    """Read a whole cluster's history in one pass, and plan for all its groups."""
