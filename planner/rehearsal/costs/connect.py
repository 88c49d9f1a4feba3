"""What it costs to restart Connect workers, rehearsed with the assignors that their leaders use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors.connect import held_of
from rebal.groups.clients import older
from rebal.groups.model import GroupSnapshot, Knowledge, Member, Tri, WorkerState
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.cost import Restarts, batches
from rebal.planner.rehearsal.costs.group import at_worst, clocked, cost_of_paces, figure
from rebal.planner.rehearsal.costs.timeouts import slowest, waits
from rebal.planner.rehearsal.costs.work import is_unpriced
from rebal.planner.rehearsal.costs.workers import EAGER, Pauses, RehearsedWorkers, held_back

_PROTOCOLS: Final = ("sessioned", "compatible", EAGER)


def by_workers(restarts: Restarts) -> Cost:
    """Return the cost of these restarts, each of them rehearsed.

    What stops and moves are connectors and tasks: `unit` is `task`, and a connector counts as one.
    Where it is not known what the workers run, only rebalances and times are predicted.
    """
    snapshot = restarts.snapshot
    count = len(restarts.order)
    if not count or is_unpriced():
        return Cost(
            rebalances=0,
            partitions_stopped=0,
            partitions_moved=0,
            unit="task",
            text="nothing is restarted",
        )
    unknown = [m for m in snapshot.members if m.worker is None or m.worker.running is None]
    if unknown:
        snapshot = _without_work(snapshot)
    made = [_paced(restarts, snapshot, *pace) for pace in batches(count, restarts.speed.batch)]
    if unknown:
        pace = made[0][0]
        return Cost(
            rebalances=pace.rebalances,
            partitions_stopped=0,
            partitions_moved=0,
            unit="task",
            seconds=pace.seconds,
            text=f"{pace.rebalances} rebalances of connectors and tasks; what the workers run is "
            "not known, so what stops and moves is not predicted",
        )
    paces = [(pace, group.stopped) for pace, group in made]
    return replace(cost_of_paces(paces, 0, _text(restarts, snapshot, *made[0])), unit="task")


def _without_work(snapshot: GroupSnapshot) -> GroupSnapshot:
    """Return the group as if its workers ran nothing: its rebalances are the same."""
    idle = tuple(replace(m, worker=WorkerState(url="", running=())) for m in snapshot.members)
    return replace(snapshot, members=idle)


def stop_all(restarts: Restarts) -> Cost:
    """The cost where all that restart stop before the first of them starts again."""
    snapshot = restarts.snapshot
    count, total = len(restarts.order), work_of_all(snapshot)
    text = "nothing runs from the first stop to the end of the one rebalance"
    if any(m.worker is None or m.worker.running is None for m in snapshot.members) or not count:
        return Cost(
            rebalances=min(1, count),
            partitions_stopped=total,
            partitions_moved=0,
            unit="task",
            text=f"{text}; what the workers run is not known, so no more can be foretold",
        )
    pace, group = _paced(restarts, snapshot, count, "all at once")
    figures = (
        f"{total:,} connectors and tasks stand still for about {figure(pace.seconds)} s, "
        f"{figure(pace.partition_seconds)} task-seconds (a connector counts as a task), if a "
        f"restart takes {figure(restarts.speed.restart)} s and a rebalance "
        f"{figure(restarts.speed.rebalance)} s"
    )
    told = f"{text}: {figures}; {at_worst(pace, snapshot.members)}"
    return replace(cost_of_paces([(pace, group.stopped)], 0, told), unit="task")


def work_of_all(snapshot: GroupSnapshot) -> int:
    """How many connectors and tasks the workers run."""
    running = (m.worker.running or () for m in snapshot.members if m.worker is not None)
    return sum(len(held_of(one)) for one in running)


def _paced(
    restarts: Restarts, snapshot: GroupSnapshot, batch: int, name: str
) -> tuple[Pace, RehearsedWorkers]:
    """One pace, and the group that went through it as expected."""
    speed = restarts.speed
    longest = max(slowest(snapshot.members), speed.rebalance)
    sessions = {member.member_id: waits(member).session for member in snapshot.members}
    expected, worst = (
        _rehearsed(restarts, snapshot, batch, pauses)
        for pauses in (
            Pauses(restart=speed.restart, rebalance=speed.rebalance, first=speed.first),
            Pauses(restart=speed.restart, rebalance=longest, first=speed.first, leaves=sessions),
        )
    )
    pace = clocked(
        name,
        batch,
        expected.clock,
        worst.clock,
        rebalances=expected.rebalances,
        moved=expected.moved,
    )
    return pace, expected


def _rehearsed(
    restarts: Restarts, snapshot: GroupSnapshot, batch: int, pauses: Pauses
) -> RehearsedWorkers:
    group = RehearsedWorkers(snapshot, _offers(snapshot), pauses)
    for start in range(0, len(restarts.order), batch):
        group.restart(restarts.order[start : start + batch], restarts.target_list)
    return group


def _offers(snapshot: GroupSnapshot) -> Mapping[str, Sequence[str]]:
    """What each worker offers: as it was seen joining, else what is elected and all below it."""
    elected = snapshot.group.assignor
    least = _PROTOCOLS[_PROTOCOLS.index(elected) :] if elected in _PROTOCOLS else (EAGER,)
    return {
        member.member_id: member.assignors.list
        if member.assignors.knowledge is Knowledge.EXACT
        else least
        for member in snapshot.members
    }


def _text(restarts: Restarts, snapshot: GroupSnapshot, pace: Pace, group: RehearsedWorkers) -> str:
    total = work_of_all(snapshot)
    now, then = snapshot.group.assignor == EAGER, restarts.eager_after
    how = f"each stops all {total:,} connectors and tasks"
    if now and restarts.target_list and not then:
        how += " until no worker is eager any more, then only what moves"
    elif then and not now:
        how = f"once a worker is eager, {how}"
    elif not now:
        how = "at each only what moves stops"
    said = (
        f"{pace.rebalances:,} rebalances; {how}; {pace.partitions_moved:,} changes of worker, "
        f"{figure(pace.partition_seconds)} task-seconds stopped (a connector counts as a task), if "
        f"a restart takes {figure(restarts.speed.restart)} s and a rebalance "
        f"{figure(restarts.speed.rebalance)} s (a heartbeat interval; how long tasks take to stop "
        f"and to start is not visible); {at_worst(pace, snapshot.members)}"
    )
    more = [_held_back(snapshot.members)] if group.held_back else []
    return "; ".join([said, *more, *_doubts(snapshot.members)])


def _doubts(members: Sequence[Member]) -> Iterator[str]:
    """What the figures leave out, or may have wrong."""
    if any(m.worker is not None and m.worker.held_back_ms for m in members):
        yield "what a lost worker ran is held back right now, and not counted"
    old = [m for m in members if m.software is not None and older(m.software, "3.4") is Tri.YES]
    if old:
        yield (
            f"{len(old)} of the workers are older than 3.4 and share work out otherwise when they "
            "lead (KAFKA-12495): the figures are those of later releases"
        )


def _held_back(members: Sequence[Member]) -> str:
    """How long lost work waits, and where that was read."""
    longest = figure(max(map(held_back, members)) / 1000)
    read = any(map(_says, members))
    by = f"{longest} s" if read else f"{longest} s by default: nothing shows the workers' own"
    return (
        "while compatible or sessioned is elected, what a restarted worker ran waits until "
        f"scheduled.rebalance.max.delay.ms is over ({by}), also where it is back before; only of "
        "a restarted leader it is given out at once"
    )


def _says(member: Member) -> bool:
    seen, declared = member.timeouts, member.declared
    return (seen is not None and seen.held_back_ms is not None) or (
        declared is not None and declared.held_back_ms is not None
    )
