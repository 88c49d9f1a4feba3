"""`rebal fleet report`: a scan's groups, how ready each is, and the order to upgrade them in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from rebal.cli import output, params
from rebal.cli.errors import UsageError

if TYPE_CHECKING:
    from rebal.cli.fleet import FleetReport

FleetFormat = Literal["text", "json", "yaml", "markdown", "html"]
"""Values of `-o`; html is one page that needs no other file."""
_ENDINGS: Final[Mapping[str, FleetFormat]] = {
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".md": "markdown",
    ".html": "html",
    ".htm": "html",
    ".txt": "text",
}


def command(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="LAKE", help="What rebal fleet scan wrote; LAKE#CLUSTER where it has several."
        ),
    ],
    *,
    match: Annotated[
        str | None, typer.Option(metavar="REGEX", help="The groups whose whole name matches.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="One group, with its whole history.")
    ] = None,
    to: Annotated[
        str,
        typer.Option(metavar="GOAL", help="cooperative, eager, consumer, or an assignor's name."),
    ] = "cooperative",
    form: Annotated[
        FleetFormat | None,
        typer.Option("--output", "-o", help="How to print it (default: as --out ends, or text)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it here instead of printing it."),
    ] = None,
    baseline: Annotated[
        int | None,
        typer.Option(
            metavar="SCAN",
            min=1,
            help="Compare with this scan, verdicts too (default: with the one before).",
        ),
    ] = None,
    lake_option: params.LakeOption = None,
    wide: params.Wide = False,
    fail_on: params.Severity = "block",
    exit_zero: params.ExitZero = False,
) -> int:
    """Show which groups of a scan are ready for the change, and in which order to take them.

    Only the scan's tables are read: no broker is asked and no JVM is started. The exit code is the
    worst of all groups' next steps: 3 one is blocked, 4 one cannot be proven safe yet, 0 all can
    start or are done (--exit-zero: always 0). Deleted groups do not count. A cost is the one
    that the group's own plan predicts; in a large fleet only the groups to take first are
    rehearsed, and ~ marks the estimates of the others. Rebalances and downtime are compared with
    the scan before, where both can be read and no rebalance between them is missing.
    """
    if match is not None and group is not None:
        raise UsageError("--group is for one group: leave out --match.")
    chosen = form or ("text" if out is None else _ENDINGS.get(out.suffix.lower()))
    if chosen is None:
        raise UsageError(f"--out {out}: name the format with -o, or use .html or .json.")
    if sys.stderr.isatty():
        output.say(f"reading {folder} …")
    from rebal.cli.files import write_text
    from rebal.cli.fleet import make_fleet_report
    from rebal.cli.render.fleet.screen import fleet_view

    report = make_fleet_report(
        folder,
        options=params.lake_options(lake_option),
        baseline=baseline,
        match=match,
        group=group,
        to=to,
    )
    code = report.exit_code(fail_on, exit_zero)
    now = datetime.now(UTC)
    if chosen == "text" and out is None:
        output.page(fleet_view(report, now=now, one=group, wide=wide), wide=wide)
        return code
    text = _text(report, chosen, code, now, group)
    if out is None:
        output.write(text)
    else:
        write_text(out, text)
        output.say(f"wrote {out}")
    return code


def _text(
    report: FleetReport, form: FleetFormat, code: int, now: datetime, group: str | None
) -> str:
    # Each format loads its own renderer.
    if form == "text":
        from rebal.cli.render.fleet.screen import fleet_view

        return output.render(fleet_view(report, now=now, one=group, wide=True), width=4000)
    if form == "markdown":
        from rebal.cli.render.fleet.markdown import fleet_markdown

        return fleet_markdown(report, code, now)
    if form == "html":
        from rebal.cli.render.fleet.page import fleet_html

        return fleet_html(report, now)
    from rebal.cli.render.fleet.document import fleet_document

    return output.envelope("fleet", fleet_document(report, whole=group is not None), code, form)
