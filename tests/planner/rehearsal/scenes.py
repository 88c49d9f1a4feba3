"""Small groups and stories in a line each."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rebal.groups.assignors import Spec, SpecMember, get
from rebal.planner.rehearsal.engine.member import Process, RunningProcess
from rebal.planner.rehearsal.engine.memory import Brokers
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent

RANGE = ("range",)
BOTH = ("cooperative-sticky", "range")
DONE = ("cooperative-sticky",)


def scene(
    *lists: tuple[str, ...],
    partitions: int = 12,
    elected: str = "",
    static: bool = False,
    **more: Any,
) -> Scene:
    """A Stable group: a member for each list, m0 (it leads), m1, …, with the elected assignor's.

    Keywords that a `Process` has are for each of them, the others for the scene.
    """
    usual = {key: more.pop(key) for key in Process.__struct_fields__ if key in more}
    elected = elected or lists[0][0]
    processes = [
        Process(
            name=f"m{number}",
            client_id=f"m{number}",
            instance_id=f"i{number}" if static else None,
            assignors=list_,
            topics=("orders",),
            **usual,
        )
        for number, list_ in enumerate(lists)
    ]
    ids = [f"{one.instance_id or one.client_id}-{'0' * 8}" for one in processes]
    members = tuple(SpecMember(member_id=id_, topics=("orders",)) for id_ in ids)
    given = get(elected).assign(Spec(members=members, partitions={"orders": partitions}))
    return Scene(
        topics={"orders": partitions},
        running=tuple(
            RunningProcess(process=process, member_id=id_, owned=tuple(given[id_]), generation=7)
            for process, id_ in zip(processes, ids, strict=True)
        ),
        assignor=elected,
        generation=7,
        **{"brokers": Brokers(), **more},
    )


def with_processes(where: Scene, *names: str, **fields: Any) -> Scene:
    """Return the scene whose members (those named, or all) have these fields of their processes."""
    running = (
        replace(one, process=replace(one.process, **fields))
        if not names or one.process.name in names
        else one
        for one in where.running
    )
    return replace(where, running=tuple(running))


def restart(*members: str, to: tuple[str, ...] = (), **more: Any) -> ScriptEvent:
    return ScriptEvent(do=Deed.RESTART, members=members, assignors=to, **more)


def event(do: str, *members: str, **more: Any) -> ScriptEvent:
    return ScriptEvent(do=Deed(do), members=members, **more)


def starts(*processes: Process, **more: Any) -> ScriptEvent:
    return ScriptEvent(do=Deed.START, processes=processes, **more)


def play(where: Scene, *events: ScriptEvent, seed: int = 0) -> Rehearsal:
    return rehearse(where, Script(events=events), seed=seed)


def told(run: Rehearsal, what: str) -> list[tuple[str, str]]:
    """Who it happened to, and the detail."""
    return [(note.who, note.detail) for note in run.notes if note.what == what]


def assignors(run: Rehearsal) -> list[str | None]:
    return [one.assignor for one in run.rebalances]
