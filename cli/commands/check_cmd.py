"""`rebal check`: the consumer groups that start differently after a change of a repository."""

from typing import Annotated

import typer

from rebal.cli import output, params
from rebal.cli.errors import UsageError


def command(
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="[BEFORE]", help="A file or folder; with --base the folder to check (.)."
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Argument(metavar="[AFTER]", help="The same, after the change.")
    ] = None,
    *,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="REV", help="Compare the folder with this git revision."),
    ] = None,
    snapshot: params.Snapshot = None,
    connection: params.Connection,
    evidence: Annotated[params.EvidenceOptions, "assignors", "inventory"],
    form: Annotated[
        output.PlanFormat, typer.Option("--output", "-o", help="How to print the answer.")
    ] = "text",
    wide: params.Wide = False,
    exit_zero: params.ExitZero = False,
) -> int:
    """Name the groups whose next start a change alters, and whether it is admitted.

    Compares two versions of a repository's files, or a folder with a git revision: assignor lists,
    group.protocol, static membership, timeouts, client libraries. With -b, --snapshot or
    --evidence the live group is asked: would the coordinator admit this next start now? Exits with
    0 when every changed start is admitted, 3 when one is rejected or does not start, 4 when it is
    not known. Nothing is changed.
    """
    if (base is None) != (before is not None and after is not None):
        raise UsageError("give BEFORE and AFTER, or --base REV with at most one folder.")
    from rebal.cli.checking import check
    from rebal.cli.render.check import check_text, check_view
    from rebal.cli.sources import GroupSource
    from rebal.planner.verdict import SAFE, exit_code

    found = check(before, after, base, GroupSource(None, snapshot, connection, evidence))
    code = SAFE if exit_zero else exit_code(*(each.verdict for each in found.groups))
    if form == "text":
        output.page(check_view(found), wide=wide)
    else:
        output.write(check_text(found, form, code))
    return code
