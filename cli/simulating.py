"""Simulations as the options of `rebal simulate` ask for them, and their output."""

from collections.abc import Mapping, Sequence

from rebal.cli import output
from rebal.cli.errors import DONE, as_usage
from rebal.cli.render.simulation.documents import SimulationsDocument
from rebal.cli.render.simulation.screen import compare_view, simulate_view, workers_view
from rebal.cli.render.text import read_from
from rebal.groups.assignors import Assignor
from rebal.groups.commands import Command, option
from rebal.groups.model import GroupSnapshot, GroupType
from rebal.planner.commands import Given
from rebal.planner.rehearsal.whatif.changes import Changes, WhatIfError
from rebal.planner.rehearsal.whatif.simulation import Simulation, simulate, simulate_workers
from rebal.planner.verdict import BLOCKED


def simulate_restarts(
    found: GroupSnapshot,
    protocols: Sequence[str],
    restarted: Sequence[str],
    *,
    where: str,
    given: Given,
    form: output.Format,
    wide: bool,
) -> int:
    """Print the simulated cost of restarts of Connect workers, and return the exit code 0.

    The cost is simulated for each value of connect.protocol in `protocols`.

    Raises:
        UsageError: the members are not workers, or a worker to restart is not in the group.
    """
    with as_usage(WhatIfError):
        made = simulate_workers(found, protocols, restarted)
    if form == "text":
        output.page(
            workers_view(
                output.shown(made),
                output.escape(where),
                given.plan_upgrade(found.group.group_id),
            ),
            wide=wide,
        )
    else:
        output.write(output.envelope("simulate-workers", made, DONE, form))
    return DONE


def simulate_assignors(
    found: GroupSnapshot,
    names: Sequence[str],
    changes: Changes,
    *,
    where: str,
    given: Given,
    form: output.Format,
    wide: bool,
    custom: Mapping[str, Assignor],
    rebalance_timeout: float,
) -> int:
    """Print the simulated result of each assignor, and return the exit code.

    It is 3 if an assignor fails, breaks its contract or never becomes stable, else 0.

    Raises:
        UsageError: a change does not fit the group.
    """
    with as_usage(WhatIfError):
        simulations = [
            simulate(
                found,
                name,
                changes,
                custom=custom,
                rebalance_timeout=rebalance_timeout,
            )
            for name in names
        ]
    failed = any(one.failure or one.violations or not one.stable for one in simulations)
    code = BLOCKED if failed else DONE
    if form == "text":
        read = read_from(where, found.captured_at)
        following = _next(found, simulations, given)
        shown = output.shown(simulations)
        output.page(
            compare_view(shown, read, following)
            if len(shown) > 1
            else simulate_view(shown[0], read, following, wide=wide),
            wide=wide,
        )
    else:
        together = SimulationsDocument(
            group_id=found.group.group_id,
            captured_at=found.captured_at,
            assignor_now=found.group.assignor,
            changes=changes,
            simulations=simulations,
        )
        output.write(
            output.envelope(
                "simulate", together if len(simulations) > 1 else simulations[0], code, form
            )
        )
    return code


def _next(found: GroupSnapshot, made: Sequence[Simulation], given: Given) -> Command:
    group, last = found.group, made[-1]
    if len(made) > 1:
        other = last.assignor
    elif group.type is GroupType.CONSUMER:
        other = "range" if last.assignor == "uniform" else "uniform"
    elif last.server_side:
        return given.plan_upgrade(group.group_id, "consumer")
    elif last.assignor == "cooperative-sticky":
        return given.plan_upgrade(group.group_id)
    else:
        other = "cooperative-sticky"
    return given.simulate(group.group_id, *option("--assignor", other))
