"""Restarts of Connect workers, simulated under each connect.protocol."""

from collections.abc import Sequence

from msgspec.structs import replace

from rebal.groups.clients import worker_list
from rebal.groups.model import AssignorList, GroupSnapshot, Knowledge, Record
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_workers
from rebal.planner.rehearsal.whatif.changes import Finder, WhatIfError
from rebal.planner.timeouts import Speed


class WorkersRun(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Cost of the restarts while every worker has this connect.protocol."""

    protocol: str
    cost: Cost


class WorkersSimulation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The restarts of `restarted` (names for people, in order), one by one or as its paces say.

    `assignor_now` is the elected protocol as it is called on the wire.
    """

    group_id: str
    assignor_now: str | None
    workers: int
    connectors: int
    tasks: int
    restarted: tuple[str, ...]
    runs: tuple[WorkersRun, ...]


def simulate_workers(
    snapshot: GroupSnapshot, protocols: Sequence[str], restarted: Sequence[str] = ()
) -> WorkersSimulation:
    """Restart the workers in `restarted` (none named: each of them) and count the cost.

    Each of `protocols` (values of connect.protocol) starts from what the workers run now. Workers
    are named by member id, client id or short name.

    Raises:
        WhatIfError: no Connect workers, not known what they run, or no such worker.
    """
    group = snapshot.group
    running = [m.worker for m in snapshot.members if m.worker is not None]
    if group.protocol_type != "connect":
        raise WhatIfError(
            f"{group.group_id} is no group of Connect workers: {', '.join(protocols)} is for them."
        )
    if (
        not running
        or len(running) < len(snapshot.members)
        or any(worker.running is None for worker in running)
    ):
        raise WhatIfError(
            f"cannot simulate {group.group_id}: what its workers run is not known; capture it "
            "while it is Stable: rebal inspect GROUP --save."
        )
    find = Finder(snapshot)
    order = list(dict.fromkeys(map(find, restarted)) or find.labels)
    return WorkersSimulation(
        group_id=group.group_id,
        assignor_now=group.assignor,
        workers=len(running),
        connectors=sum(worker.connectors or 0 for worker in running),
        tasks=sum(worker.tasks or 0 for worker in running),
        restarted=tuple(find.labels[id_] for id_ in order),
        runs=tuple(
            WorkersRun(protocol=name, cost=_cost(_under(snapshot, name), order))
            for name in protocols
        ),
    )


def _under(snapshot: GroupSnapshot, protocol: str) -> GroupSnapshot:
    """Return the group as if every worker had this connect.protocol."""
    offers = worker_list(protocol) or ()
    all_offer = AssignorList(knowledge=Knowledge.EXACT, list=offers)
    return replace(
        snapshot,
        group=replace(snapshot.group, assignor=offers[0]),
        members=tuple(replace(member, assignors=all_offer) for member in snapshot.members),
    )


def _cost(snapshot: GroupSnapshot, order: Sequence[str]) -> Cost:
    eager, speed = snapshot.group.assignor == "default", Speed().at(snapshot.cluster)
    cost = by_workers(Roll(snapshot=snapshot, order=tuple(order), eager_after=eager, speed=speed))
    assert cost is not None, "it has a pricing"
    return cost
