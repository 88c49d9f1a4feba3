"""`rebal simulate`: what another assignor would do to a group, computed as its leader would."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rebal.cli import options, output
from rebal.cli.errors import BLOCKED, DONE, UsageError
from rebal.cli.output import Format
from rebal.groups.assignors import NAMES

if TYPE_CHECKING:
    from rebal.planner.whatif import Simulation


def command(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="The group to read live.")
    ] = None,
    *,
    assignor: Annotated[
        str | None,
        typer.Option("--assignor", metavar="NAME", help=f"One of: {', '.join(NAMES)}."),
    ] = None,
    snapshot: options.Snapshot = None,
    bootstrap: options.Bootstrap = None,
    command_config: options.CommandConfig = None,
    overrides: options.Overrides = None,
    profile: options.Profile = None,
    timeout: options.Timeout = 10,
    form: options.Output = Format.TEXT,
    wide: options.Wide = False,
) -> int:
    """Show what an assignor would do to a group: who keeps, gives and gets what, and what stops.

    The result is exactly what the Java client 4.1.1 computes. Nothing moves: the group is read
    live, or from a snapshot. Exits with 3 when the real leader would fail, or never come to rest.
    """
    if assignor is None:
        raise UsageError(f"which assignor? Add --assignor {'|'.join(NAMES)}.")
    if assignor not in NAMES:
        raise UsageError(f"--assignor {assignor}: there are {', '.join(NAMES)}.")
    found = options.snapshot_for(
        group,
        snapshot,
        bootstrap=bootstrap,
        command_config=command_config,
        overrides=overrides,
        profile=profile,
        timeout=timeout,
    )
    from rebal.planner.whatif import simulate

    simulation = simulate(found, assignor)
    code = DONE if simulation.stable else BLOCKED
    if form is Format.TEXT:
        where = str(snapshot) if snapshot else "live" if group else "saved"
        given = options.typed(bootstrap, command_config, overrides, profile, snapshot)
        _print(simulation, where, [group, *given] if group else given, wide)
    else:
        output.write(output.envelope("simulate", _body(simulation), code, form))
    return code


def _print(simulation: Simulation, where: str, given: list[str], wide: bool) -> None:
    from rebal.cli.views.common import command_line, when
    from rebal.cli.views.simulate_view import simulate_view

    other = "cooperative-sticky"
    words = ["plan-upgrade"] if simulation.assignor == other else ["simulate", "--assignor", other]
    age = when(simulation.captured_at, datetime.now(UTC))
    view = simulate_view(
        output.shown(simulation),
        output.escape(where) + ("" if where == "live" else f", captured {age}"),
        output.escape(command_line(["rebal", *words, *given])),
        wide=wide,
    )
    output.page(view, wide=wide)


def _body(simulation: Simulation) -> dict[str, object]:
    return {name: getattr(simulation, name) for name in simulation.__struct_fields__}
