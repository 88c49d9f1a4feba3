"""`rebal simulate`: another assignor on a group, computed as its leader would."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from rebal.cli import output, params, sources
from rebal.cli.errors import DONE, UsageError
from rebal.cli.output import Format
from rebal.cli.render.simulation.document import simulate_text
from rebal.cli.render.simulation.screen import compare_view, simulate_view
from rebal.cli.render.simulation.workers import workers_view
from rebal.cli.render.text import command_line, when
from rebal.groups.assignors import NAMES, Assignor
from rebal.groups.custom import Guarded
from rebal.groups.errors import CustomAssignorError
from rebal.groups.model import GroupType, Tri
from rebal.planner.rehearsal.whatif.changes import Changes, WhatIfError
from rebal.planner.rehearsal.whatif.run import MOST_ROUNDS
from rebal.planner.rehearsal.whatif.simulation import simulate
from rebal.planner.rehearsal.whatif.workers import simulate_workers
from rebal.planner.verdict import exit_code

if TYPE_CHECKING:
    from rebal.groups.assignors import Assignor
    from rebal.groups.model import GroupSnapshot
    from rebal.planner.rehearsal.whatif.simulation import Simulation
    from rebal.planner.rehearsal.whatif.workers import WorkersSimulation

UNTIL_STABLE: Final = "until-stable"
SERVER_SIDE: Final = ("uniform", "consumer:range")
OF_WORKERS: Final = ("eager", "compatible", "sessioned")
_MOST_ADDED: Final = 100_000
_MOST_PARTITIONS: Final = 10_000_000


def command(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="The group to read live.")
    ] = None,
    *,
    assignors: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor",
            metavar="NAME",
            help=f"One of: {', '.join((*NAMES, *SERVER_SIDE))}, or an installed one; of Connect "
            f"workers: {', '.join(OF_WORKERS)}. Repeat to compare.",
        ),
    ] = None,
    snapshot: params.Snapshot = None,
    add_member: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=_MOST_ADDED, help="N more members join."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC,…", help="What added members subscribe to (as the others)."),
    ] = None,
    remove_member: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="This member leaves; repeat for more.")
    ] = None,
    restart_member: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="This member is restarted; repeat to restart one after another."
        ),
    ] = None,
    add_partitions: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC=N", help="N more partitions for a topic.")
    ] = None,
    add_topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC=N", help="A new topic of N partitions.")
    ] = None,
    rack: Annotated[
        list[str] | None,
        typer.Option(metavar="[MEMBER=]RACK", help="A member's rack; without MEMBER: the added."),
    ] = None,
    rounds: Annotated[
        str,
        typer.Option(metavar="N", help=f"Stop after N rebalances (default: {UNTIL_STABLE})."),
    ] = UNTIL_STABLE,
    rebalance_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1, help="The members' max.poll.interval.ms, in seconds."
        ),
    ] = 300,
    bootstrap: params.Bootstrap = None,
    command_config: params.CommandConfig = None,
    overrides: params.Overrides = None,
    profile: params.Profile = None,
    timeout: params.Timeout = 10,
    form: params.Output = "text",
    wide: params.Wide = False,
) -> int:
    """Simulate an assignor on a group: the partitions each member keeps, loses and gets.

    The result is exactly that of the Java client 4.1.1 (uniform and consumer:range: that of the
    coordinator of Kafka 4.1.1). Nothing moves: the group is read live, or from a snapshot.
    Exits with 3 when the real leader would fail, the group never becomes stable, or an assignor
    breaks its contract.
    """
    names = tuple(dict.fromkeys(assignors or ()))
    custom = _check_names(names)
    most = _rounds(rounds)
    # What follows from the words alone is said before anything is read.
    asked = _pairs(add_partitions, "--add-partitions"), _pairs(add_topic, "--add-topic")
    connection = params.Connection(bootstrap, command_config, overrides, profile, timeout)
    found = sources.snapshot_for(group, snapshot, connection)
    where = str(snapshot) if snapshot else "live" if group else "saved"
    if set(names) & set(OF_WORKERS):
        following = [*([group] if group else []), *connection.typed(snapshot)]
        more = (add_member, topics, remove_member, add_partitions, add_topic, rack, most)
        if any(more):
            raise UsageError("of what may happen, Connect workers know --restart-member alone.")
        made = _of_workers(found, names, restart_member or ())
        return _print_workers(made, where, following, form=form, wide=wide)
    changes = Changes(
        add_members=add_member or 0,
        add_member_topics=tuple(t for text in topics or () for t in text.split(",") if t),
        remove_members=tuple(remove_member or ()),
        restart_members=tuple(restart_member or ()),
        add_partitions=asked[0],
        add_topics=asked[1],
        racks=_racks(rack or ()),
    )
    try:
        simulations = [
            simulate(
                found,
                name,
                changes,
                custom=custom,
                most_rounds=most or MOST_ROUNDS,
                rebalance_timeout=rebalance_timeout,
            )
            for name in names
        ]
    except WhatIfError as error:
        raise UsageError(str(error)) from None
    code = exit_code(*(_succeeds(one, most) for one in simulations))
    if form == "text":
        given = connection.typed(snapshot)
        _print(found, simulations, where, [group, *given] if group else given, wide)
    else:
        output.stream(simulate_text(found, simulations, changes, code, form))
    return code


def _check_names(names: Sequence[str]) -> dict[str, Assignor]:
    """Return the custom assignors among `names`."""
    if not names:
        raise UsageError(f"which assignor? Add --assignor {'|'.join((*NAMES, *SERVER_SIDE))}.")
    workers = set(names) & set(OF_WORKERS)
    if workers and workers != set(names):
        raise UsageError(
            f"--assignor {sorted(workers)[0]} is for Connect workers, and does not go together "
            "with assignors of consumers."
        )
    own = {*NAMES, *SERVER_SIDE, *OF_WORKERS, "consumer:uniform"}
    if own.issuperset(names):
        return {}
    found = custom_assignors([name for name in names if name not in own])
    for name in names:
        if name not in own and name not in found:
            known = (*NAMES, *SERVER_SIDE, *custom_names())
            raise UsageError(f"--assignor {name[:100]}: there are {', '.join(known)}.")
    return found


def _of_workers(
    found: GroupSnapshot, protocols: Sequence[str], restarted: Sequence[str]
) -> WorkersSimulation:
    """Return the effect of restarts on Connect workers, for each value of connect.protocol."""
    try:
        return simulate_workers(found, protocols, restarted)
    except WhatIfError as error:
        raise UsageError(str(error)) from None


def _print_workers(
    made: WorkersSimulation, where: str, following: Sequence[str], *, form: Format, wide: bool
) -> int:
    if form != "text":
        output.write(output.envelope("simulate-workers", made, DONE, form))
        return DONE
    command = output.escape(command_line(["rebal", "plan-upgrade", *following]))
    output.page(workers_view(output.shown(made), output.escape(where), command), wide=wide)
    return DONE


def _rounds(text: str) -> int | None:
    """Return the most rebalances to simulate; None means until the group is stable."""
    if text == UNTIL_STABLE:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 1000:
        raise UsageError(f"--rounds {text[:40]}: give a number from 1 to 1000, or {UNTIL_STABLE}.")
    return int(text)


def _pairs(texts: Sequence[str] | None, option: str) -> dict[str, int]:
    made: dict[str, int] = {}
    for text in texts or ():
        topic, _, number = text.rpartition("=")
        known = topic and number.isascii() and number.isdigit() and len(number) < 9
        if not known or not 1 <= int(number) <= _MOST_PARTITIONS:
            raise UsageError(f"{option} {text[:60]}: write TOPIC=N, such as orders=12.")
        made[topic] = made.get(topic, 0) + int(number)
    return made


def _racks(texts: Sequence[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for text in texts:
        member, _, rack = text.rpartition("=")
        if not rack:
            raise UsageError(f"--rack {text[:60]}: write MEMBER=RACK, or RACK for added members.")
        made[member or "new"] = rack
    return made


def _succeeds(simulation: Simulation, most: int | None) -> Tri:
    # Whoever asks for a few rounds does not ask whether the group becomes stable.
    ended = simulation.stable or most is not None
    failed = simulation.failure is not None or simulation.violations
    return Tri.YES if ended and not failed else Tri.NO


def _print(
    found: GroupSnapshot, made: Sequence[Simulation], where: str, given: list[str], wide: bool
) -> None:
    source = output.escape(where)
    if where != "live":
        source += f", captured {when(found.captured_at, datetime.now(UTC))}"
    words = _next(found, made)
    following = output.escape(command_line(["rebal", *words, *given]))
    shown = [output.shown(_in_short(one)) for one in made]
    if len(shown) == 1:
        one = _with_lists(shown[0], made[0]) if wide else shown[0]
        output.page(simulate_view(one, source, following, wide=wide), wide=wide)
    else:
        output.page(compare_view(shown, source, following), wide=wide)


def _in_short(simulation: Simulation) -> Simulation:
    """Return the simulation without its partition lists, which may hold a million entries."""
    return replace(
        simulation,
        members=tuple(replace(shift, now={}, then={}) for shift in simulation.members),
        rounds=tuple(replace(made, members=()) for made in simulation.rounds),
    )


def _with_lists(short: Simulation, whole: Simulation) -> Simulation:
    """Return `short` with the lists of `whole`; each line is escaped when it is printed."""
    members = zip(short.members, whole.members, strict=True)
    rounds = zip(short.rounds, whole.rounds, strict=True)
    return replace(
        short,
        members=tuple(replace(to, now=of.now, then=of.then) for to, of in members),
        rounds=tuple(replace(to, members=of.members) for to, of in rounds),
    )


def _next(found: GroupSnapshot, made: Sequence[Simulation]) -> list[str]:
    if len(made) > 1:
        return ["simulate", "--assignor", made[-1].assignor]
    if found.group.type is GroupType.CONSUMER:
        other = "range" if made[0].assignor == "uniform" else "uniform"
        return ["simulate", "--assignor", other]
    if made[0].server_side:
        return ["plan-upgrade", "--to", "consumer"]
    if made[0].assignor == "cooperative-sticky":
        return ["plan-upgrade"]
    return ["simulate", "--assignor", "cooperative-sticky"]


GROUP: Final = "rebal.assignors"


def custom_names() -> tuple[str, ...]:
    """Return the sorted names of installed assignors, without importing them."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def custom_assignors(wanted: Sequence[str]) -> dict[str, Assignor]:
    """Return the installed assignors named in `wanted`.

    Raises:
        CustomAssignorError: one cannot be imported or is no assignor, two packages bring the same
            name, or one takes a name of Kafka's own.
    """
    made: dict[str, Assignor] = {}
    for name in dict.fromkeys(wanted):
        points = sorted(entry_points(group=GROUP, name=name), key=lambda point: point.value)
        if not points:
            continue
        where = [_where(point) for point in points]
        if name in NAMES or name == "uniform" or ":" in name:
            raise CustomAssignorError(
                f"{where[0]}: {name} is Kafka's own name; give the assignor another one."
            )
        if len({point.value for point in points}) > 1:
            raise CustomAssignorError(
                f"{name} is brought by {' and by '.join(where)}: uninstall one of them."
            )
        made[name] = _loaded(points[0], where[0])
    return made


def _loaded(point: EntryPoint, where: str) -> Assignor:
    try:
        found = point.load()
        if not hasattr(found, "supported_protocols") or isinstance(found, type):
            found = found()
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise CustomAssignorError(
            f"{where} cannot be loaded ({type(error).__name__}: {said})."
        ) from error
    return Guarded(found, where)


def _where(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else "an installed package"
    return f"assignor {point.name} of {package} ({point.value})"
