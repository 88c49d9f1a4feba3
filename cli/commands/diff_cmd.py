"""`rebal diff`: what differs between two snapshots of a group, or since a plan was made."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from rebal.cli import means, output, params
from rebal.cli.errors import DONE

DIFFERS: Final = 3


def _plan_or_snapshot(context: typer.Context, name: str) -> str:
    if context.resilient_parsing:
        return name
    from rebal.cli.difference import is_plan

    return means.kept_plan(context, name) if is_plan(Path(name)) else name


def command(
    context: typer.Context,
    before: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            is_eager=True,
            callback=_plan_or_snapshot,
            help="A plan (its baseline) or a snapshot file.",
        ),
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="A snapshot file, or a live group (default: A's own)."),
    ] = None,
    *,
    connection: params.Connection,
    evidence: Annotated[params.EvidenceOptions, "assignors"],
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help=f"Exit with {DIFFERS} where something differs."),
    ] = False,
    form: params.Output = "text",
    wide: params.Wide = False,
) -> int:
    """Compare two snapshots of a group, or a plan's baseline with the live group.

    It shows which members came, left, restarted or changed, and what changed in the group, its
    topics and the cluster. Only what both sides know is compared; lag is left out. Exits with 0,
    also where something differs; with --exit-code then with 3 (1 and 2 stay failures). Nothing is
    changed, and nothing is written to a plan's journal.
    """
    from rebal.cli.difference import DiffDocument, compare, diff_view, other_side, side_of
    from rebal.cli.render.documents import document_of
    from rebal.cli.sources import GroupSource

    first = side_of(before, context.obj)
    connection = means.with_missing_variables(context, connection)
    second = other_side(first, after, GroupSource(None, None, connection, evidence))
    found, drift = compare(first, second)
    code = DIFFERS if exit_code and found.found else DONE
    if form == "text":
        view = diff_view(
            first.document, second.document, found, drift, now=datetime.now(UTC), wide=wide
        )
        output.page(view, wide=wide)
    else:
        body = document_of(
            DiffDocument, found, before=first.document, after=second.document, drift=drift
        )
        output.write(output.envelope("diff", body, code, form))
    return code
