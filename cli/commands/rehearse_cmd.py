"""`rebal rehearse`: a whole roll-out or a script, simulated second by second."""

from pathlib import Path
from typing import Annotated, Final

import typer

from rebal.cli import params
from rebal.cli.output import RehearseFormat

_MOST_RUNS: Final = 10_000


def command(
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="[PLAN]", help="The plan whose remaining steps are rehearsed."),
    ] = None,
    *,
    script: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Rehearse a ready script (rolling, crash, blue-green, …) or a file of events.",
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="The same rehearsal side by side: eager, cooperative, consumer, plan, now.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=_MOST_RUNS, help="Rehearse N times, other seeds."),
    ] = 1,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Where chance begins.")] = 0,
    batch: Annotated[
        str | None, typer.Option(metavar="N|all", help="Members that restart at a time.")
    ] = None,
    restart_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0,
            max=86_400,
            callback=params.finite,
            help="Duration of one member's restart.",
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TIME", help="A time, such as heartbeat=1s or spread=20%."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="The group to read live (default: the plan's)."),
    ] = None,
    snapshot: params.Snapshot = None,
    form: Annotated[
        RehearseFormat, typer.Option("--output", "-o", help="How to print the answer.")
    ] = "text",
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write one HTML page to scrub through too."),
    ] = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="Show every rebalance and the members' metrics."),
    ] = False,
    wide: params.Wide = False,
    exit_zero: params.ExitZero = False,
    connection: params.Connection,
    evidence: Annotated[params.EvidenceOptions, "assignors"],
) -> int:
    """Rehearse a plan, or a script, on a model of the coordinator and of each client.

    It shows rebalances, downtime and rejected members over time. Nothing moves: the group is the
    plan's, or read live (--group), or from a snapshot. A script needs no plan.
    Exits with 3 when a member is rejected or a partition is owned twice, and with 4 when the group
    does not come to rest.
    """
    from rebal.cli import rehearsing
    from rebal.cli.sources import GroupSource

    times = () if restart_seconds is None else (f"restart={restart_seconds:g}",)
    return rehearsing.rehearse_group(
        GroupSource(group, snapshot, connection, evidence),
        rehearsing.Asked(
            plan=plan,
            script=script,
            compare=tuple(n for text in compare or () for n in text.split(",") if n),
            seed=seed,
            runs=runs,
            batch=None if batch is None else params.batch_of(batch),
            parameters=(*times, *(param or ())),
        ),
        form=form,
        wide=wide,
        details=details,
        exit_zero=exit_zero,
        html=html,
    )
