"""What it costs to stop some members together and start them with another list.

The others go on: they take over what these owned in one rebalance, and give it back when they come.
"""

from __future__ import annotations

from msgspec.structs import replace

from rebal.groups.assignors import LeaderWouldFail, UnknownAssignorError, get
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupSnapshot, RebalanceProtocol, Record
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.cost import Speed, batches
from rebal.planner.rehearsal.costs.group import RehearsedGroup, at_worst, cost_of_paces, figure
from rebal.planner.rehearsal.costs.work import too_much
from rebal.planner.rehearsal.whatif.spec import spec_of


class Some(Record, frozen=True, kw_only=True):
    """Who stops and comes back: `stopped` are their ids, in the order in which they start again.

    `eager` are the ids of the others that run EAGER; `assignor` is elected as soon as `stopped`
    have left: every other member's list holds it, and these come back with it alone.
    """

    snapshot: GroupSnapshot
    stopped: tuple[str, ...]
    eager: tuple[str, ...]
    assignor: str
    speed: Speed = Speed()


def stop_some(some: Some) -> Cost:
    """The cost when all of them start at once, beside the other paces; else by arithmetic."""
    plain = _by_arithmetic(some)
    paces = list(batches(len(some.stopped), some.speed.batch))
    told = [each for each in paces if not too_much(plain.partitions_stopped // each[0])]
    if not told:
        return plain
    try:
        made = [_run(some, batch, name) for batch, name in told]
    except (RebalError, LeaderWouldFail, UnknownAssignorError):
        return plain
    left_out = len(paces) - len(told)
    more = "; too large a group to rehearse a slower start" if left_out else ""
    return cost_of_paces(made, -1, _text(some, made[-1][0]) + more)


def _run(some: Some, batch: int, name: str) -> tuple[Pace, int]:
    """One pace's cost, and the partitions that stopped, summed over all rebalances."""
    members, speed = some.snapshot.members, some.speed
    group = RehearsedGroup(spec_of(some.snapshot), members, some.eager, speed)
    assignor = get(some.assignor)
    gone = {id_: group.here.pop(id_) for id_ in some.stopped}
    group.rebalance(assignor)
    group.away(gone)
    for start in range(0, len(some.stopped), batch):
        if start:
            group.go_on(speed.restart, speed.restart)
        for id_ in some.stopped[start : start + batch]:
            group.here[id_] = replace(gone[id_], owned=(), generation=None)
            if RebalanceProtocol.COOPERATIVE not in assignor.supported_protocols:
                group.eager.add(id_)
        group.rebalance(assignor)
    return group.pace(name, batch), group.stopped


def _by_arithmetic(some: Some) -> Cost:
    """Each leaves and comes back by itself, and everything stops at each of these."""
    members, rebalances = some.snapshot.members, 2 * len(some.stopped)
    owned = {m.member_id: sum(map(len, m.assignment.values())) for m in members}
    total, pauses = sum(owned.values()), rebalances * some.speed.rebalance
    moved = 2 * sum(owned[id_] for id_ in some.stopped)
    return Cost(
        rebalances=rebalances,
        partitions_stopped=rebalances * total,
        partitions_moved=moved,
        text=f"up to {rebalances} rebalances, fewer when they stop and start together; {moved} "
        f"changes of owner; up to {figure(pauses * total)} partition-seconds stopped, if every "
        f"member stops all it owns at each and a rebalance takes {figure(some.speed.rebalance)} s; "
        "not rehearsed, so at one pace only",
        seconds=some.speed.restart + pauses,
        partition_seconds=pauses * total,
    )


def _text(some: Some, pace: Pace) -> str:
    how = "members that run EAGER stop all they own" if some.eager else "only what moves stops"
    return (
        f"{pace.rebalances} rebalances, one when they stop together and the rest when they start; "
        f"at each {how}; {pace.partitions_moved} changes of owner, "
        f"{figure(pace.partition_seconds)} partition-seconds stopped, if a restart takes "
        f"{figure(some.speed.restart)} s and a rebalance {figure(some.speed.rebalance)} s; they "
        "stop together at any pace, so the paces are those of the start; "
        f"{at_worst(pace, some.snapshot.members)}"
    )
