"""The text of `rebal doctor`: available evidence, missing evidence, and the ACLs that grant it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text

from rebal.cli.output import View
from rebal.cli.render.documents import Document
from rebal.cli.render.text import facts, to_paste
from rebal.groups.commands import Command
from rebal.groups.model import Tri
from rebal.inspectors.connection.config import Origins
from rebal.inspectors.connection.managed import Allowance
from rebal.planner.commands import NamedCommand

if TYPE_CHECKING:
    from rebal.inspectors.connection.managed import ManagedService
    from rebal.inspectors.kafka.doctor import DoctorReport, DoctorRow

_STYLES: Final = {Tri.YES: "green", Tri.NO: "bold red", Tri.CANNOT_TELL: "yellow"}


class SourceDocument(Document, frozen=True, kw_only=True):
    """One source of evidence: whether it is available, why, and what it adds.

    `grant` is the command that grants the missing right (null: no right is missing).
    """

    null_if_empty: ClassVar = ("grant",)
    source: str
    available: Tri
    why: str
    adds: str
    grant: str | None


class ManagedDocument(Document, frozen=True, kw_only=True):
    """The managed service that the host names point to, and what its documentation allows."""

    name: str
    allows: tuple[Allowance, ...]


class DoctorDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.doctor/1`; `managed` is a guess by host name (null: no service known).

    `request_log` are the commands that switch the coordinator's request log on and off again.
    """

    bootstrap: str
    principal: str
    group_id: str | None
    settings: Origins
    managed: ManagedDocument | None
    rows: tuple[SourceDocument, ...]
    request_log: tuple[NamedCommand, ...]


def doctor_view(
    report: DoctorReport,
    settings: Origins,
    managed: ManagedService | None,
    next_command: Command | None,
    *,
    switch: Sequence[NamedCommand] = (),
) -> View:
    """Return the screen of `rebal doctor`; `settings` names the sources of the connection settings.

    `next_command` is None if the login was rejected, because any other command would fail too.
    `switch` are the commands that switch the coordinator's request log on and off again.
    """
    view: View = [
        Text.assemble(
            (report.group_id or "no group named", "bold" if report.group_id else ""),
            f" on {report.bootstrap}, as {report.principal}",
        ),
        facts(
            [
                (Text("settings", style="dim"), Text(_settings(settings))),
                (Text("profiles", style="dim"), Text(_profiles(settings))),
            ]
        ),
        Text(""),
        facts(
            [(Text(row.available, style=_STYLES[row.available]), _said(row)) for row in report.rows]
        ),
    ]
    if managed is not None:
        view += [
            Text(""),
            Text(f"{managed.name}, guessed from the host name; its documents say:", style="bold"),
            facts([(one.source, f"{one.what} ({one.page})") for one in managed.allows], label=18),
        ]
    missing = [row for row in report.rows if row.available is not Tri.YES and row.grant]
    if missing:
        view += [Text(""), Text("to get what is missing, an administrator runs:", style="bold")]
        for grant, rows in {
            row.grant: [other for other in missing if other.grant == row.grant] for row in missing
        }.items():
            view += [to_paste(f"# {', '.join(row.source for row in rows)}"), to_paste(grant)]
    if switch:
        view += [
            Text(""),
            Text(
                "for every member's list, across one restart (KIP-412; needs AlterConfigs):",
                style="bold",
            ),
            *(to_paste(line) for one in switch for line in (f"# {one.use}", one.line)),
        ]
    if next_command is not None:
        view += [Text(""), facts([(Text("next:", style="bold"), next_command)], label=0)]
    return view


def _settings(settings: Origins) -> str:
    """Return the options, files and variables that set the connection, without their values."""
    found = [name for name in settings.options if name not in ("--profile", "--command-config")]
    if settings.profile:
        found.append(f"profile {settings.profile} of {settings.config_file}")
    if settings.properties:
        found.append(f"{settings.properties} (named by {settings.named_by})")
    return ", ".join([*found, *settings.variables])


def _profiles(settings: Origins) -> str:
    if not settings.exists:
        return f"none: there is no {settings.config_file}"
    known = ", ".join(settings.profiles) or "none"
    read = "" if settings.profile else "; none was read (--profile NAME)"
    return f"{known} in {settings.config_file}{read}"


def _said(row: DoctorRow) -> Text:
    text = Text.assemble((row.source, "bold"), f"  {row.why}")
    if row.available is not Tri.YES and row.adds:
        text.append(f"; it would show {row.adds}", style="dim")
    return text
