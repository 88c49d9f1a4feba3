"""Costs of restarting Connect workers, rehearsed with the assignors that their leaders use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rebal.groups.clients import older
from rebal.groups.model import GroupSnapshot, Member, Tri
from rebal.planner.facts import figure
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.engine.workers import EAGER
from rebal.planner.rehearsal.spec import work_by_worker
from rebal.planner.timeouts import at_worst


def by_workers(roll: Roll) -> Cost | None:
    """Return the cost of these restarts, rehearsed.

    What stops and moves are connectors and tasks: `unit` is `task`, and a connector counts as one.
    Where it is not known what the workers run, only rebalances and times are predicted.
    """
    cost = _priced(roll, 0, _text(roll))
    if cost is None or work_by_worker(roll.snapshot) is not None or not cost.paces:
        return cost
    return Cost(
        rebalances=cost.rebalances,
        partitions_stopped=0,
        partitions_moved=0,
        unit="task",
        seconds=cost.seconds,
        text=f"{cost.rebalances} rebalances of connectors and tasks; what the workers run is "
        "not known, so what stops and moves is not predicted",
    )


def stop_workers(roll: Roll) -> Cost | None:
    """Return the cost where all that restart stop before the first of them starts again."""
    text = "nothing runs from the first stop to the end of the one rebalance"
    if work_by_worker(roll.snapshot) is None:
        return Cost(
            rebalances=min(1, len(roll.order)),
            partitions_stopped=0,
            partitions_moved=0,
            unit="task",
            text=f"{text}; what the workers run is not known, so no more can be predicted",
        )

    told = (
        f"{text} (a connector counts as a task), if a restart takes "
        f"{figure(roll.speed.restart)} s and workers send a heartbeat every "
        f"{figure(roll.speed.rebalance)} s; {at_worst(roll.snapshot.members)}"
    )
    return _priced(replace(roll, together=True), -1, told)


def work_of_all(snapshot: GroupSnapshot) -> int:
    """Return how many connectors and tasks the workers run."""
    return sum(map(len, (work_by_worker(snapshot) or {}).values()))


def _priced(roll: Roll, main: int, text: str) -> Cost | None:
    cost = priced(roll, main, text)
    return None if cost is None else replace(cost, unit="task")


def _text(roll: Roll) -> str:
    snapshot, speed = roll.snapshot, roll.speed
    now, then = snapshot.group.assignor == EAGER, roll.eager_after
    how = f"each rebalance stops all {work_of_all(snapshot):,} connectors and tasks"
    if now and roll.target and not then:
        how += " until no worker is eager any more, then only what moves"
    elif then and not now:
        how = f"once a worker is eager, {how}"
    elif not now:
        how = "at each rebalance only what moves stops"
    said = (
        f"{how} (a connector counts as a task), if a restart takes {figure(speed.restart)} s and "
        f"workers send a heartbeat every {figure(speed.rebalance)} s (how long tasks take to stop "
        f"and to start is not visible); {at_worst(snapshot.members)}"
    )
    return "; ".join([said, *_doubts(snapshot.members)])


def _doubts(members: Sequence[Member]) -> Iterator[str]:
    """Yield what the figures leave out, or may have wrong."""
    if any(m.worker is not None and m.worker.held_back_ms for m in members):
        yield "what a lost worker ran is held back right now, and not counted"
    old = [m for m in members if m.software is not None and older(m.software, "3.4") is Tri.YES]
    if old:
        yield (
            f"{len(old)} of the workers are older than 3.4 and share work out otherwise when they "
            "lead (KAFKA-12495): the figures are those of later releases"
        )
