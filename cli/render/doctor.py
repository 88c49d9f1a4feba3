"""The text of `rebal doctor`: available evidence, missing evidence, and the ACLs that grant it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text

from rebal.cli.output import View
from rebal.cli.render.documents import Document
from rebal.cli.render.text import facts, to_paste
from rebal.groups.commands import Command
from rebal.groups.model import Tri

if TYPE_CHECKING:
    from rebal.inspectors.kafka.doctor import DoctorReport, DoctorRow

_STYLES: Final = {Tri.YES: "green", Tri.NO: "bold red", Tri.CANNOT_TELL: "yellow"}


class SourceDocument(Document, frozen=True, kw_only=True):
    """One source of evidence."""

    null_if_empty: ClassVar = ("grant",)
    source: str
    available: Tri
    why: str
    adds: str
    grant: str | None


class DoctorDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.doctor/1`."""

    bootstrap: str
    principal: str
    group_id: str | None
    rows: tuple[SourceDocument, ...]


def doctor_view(report: DoctorReport, next_command: Command) -> View:
    """Return the screen of one examination."""
    view: View = [
        Text.assemble(
            (report.group_id or "no group named", "bold" if report.group_id else ""),
            f" on {report.bootstrap}, as {report.principal}",
        ),
        Text(""),
        facts(
            [(Text(row.available, style=_STYLES[row.available]), _said(row)) for row in report.rows]
        ),
    ]
    missing = [row for row in report.rows if row.available is not Tri.YES and row.grant]
    if missing:
        view += [Text(""), Text("to get what is missing, an administrator runs:", style="bold")]
        grants = {
            row.grant: [other for other in missing if other.grant == row.grant] for row in missing
        }
        for grant, rows in grants.items():
            view += [to_paste(f"# {', '.join(row.source for row in rows)}"), to_paste(grant)]
    view += [Text(""), facts([(Text("next:", style="bold"), next_command)], label=0)]
    return view


def _said(row: DoctorRow) -> Text:
    text = Text.assemble((row.source, "bold"), f"  {row.why}")
    if row.available is not Tri.YES and row.adds:
        text.append(f"; it would show {row.adds}", style="dim")
    return text
