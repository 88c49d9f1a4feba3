"""What a step costs, rehearsed restart by restart with the assignors that the group would use.

At each rebalance the coordinator's vote names the assignor; members that run EAGER stop all they
own and tell the leader nothing of it, COOPERATIVE ones give up only what moves, and what they gave
up reaches its new owner in a follow-up rebalance (KIP-429). A batch of members leaves and joins in
one rebalance each.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rebal.groups.assignors import LeaderWouldFail, UnknownAssignorError, get
from rebal.groups.errors import RebalError
from rebal.groups.model import CoordinatorKind, Knowledge
from rebal.groups.vote import elect
from rebal.planner.facts import all_partitions
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.connect import by_workers
from rebal.planner.rehearsal.costs.cost import Restarts, batches, by_arithmetic
from rebal.planner.rehearsal.costs.group import (
    RehearsedGroup,
    at_worst,
    cost_of_paces,
    figure,
)
from rebal.planner.rehearsal.costs.timeouts import back_in_time
from rebal.planner.rehearsal.costs.work import too_much
from rebal.planner.rehearsal.whatif.spec import spec_of


def by_assignors(restarts: Restarts) -> Cost:
    """The cost of these restarts, rehearsed; by arithmetic where the group cannot be rehearsed."""
    if restarts.snapshot is not None and restarts.snapshot.group.protocol_type == "connect":
        return by_workers(restarts)
    plain = by_arithmetic(restarts)
    work = restarts.partitions * max(1, plain.rebalances)
    if restarts.snapshot is None or not restarts.order or too_much(work):
        return plain
    paces = batches(len(restarts.order), restarts.speed.batch)
    try:
        made = [_Rehearsal(restarts).run(batch, name) for batch, name in paces]
    except (RebalError, LeaderWouldFail, UnknownAssignorError):
        return plain
    return cost_of_paces(made, 0, _text(restarts, made[0][0]))


class _Rehearsal:
    """One roll-out."""

    def __init__(self, restarts: Restarts) -> None:
        snapshot = restarts.snapshot
        assert snapshot is not None
        self._restarts = restarts
        self._group = RehearsedGroup(
            spec_of(snapshot), snapshot.members, restarts.eager_ids, restarts.speed
        )
        self._quiet = {
            m.member_id for m in snapshot.members if back_in_time(m, restarts.speed.restart)
        }
        elected = snapshot.group.assignor or ""
        self._elected = elected
        self._lists = {
            member.member_id: member.assignors.list
            if member.assignors.knowledge is Knowledge.EXACT
            else (elected,)
            for member in snapshot.members
        }
        coordinator = snapshot.group.coordinator
        known = coordinator is not None and coordinator.kind is not CoordinatorKind.UNKNOWN
        self._kind = coordinator.kind if coordinator and known else CoordinatorKind.JAVA

    def run(self, batch: int, name: str) -> tuple[Pace, int]:
        """The pace's cost, and the partitions that stopped, summed over all rebalances."""
        order = self._restarts.order
        for start in range(0, len(order), batch):
            self._restart(order[start : start + batch])
        return self._group.pace(name, batch), self._group.stopped

    def _restart(self, ids: Sequence[str]) -> None:
        group, target = self._group, self._restarts.target_list
        members = {id_: group.here[id_] for id_ in ids}
        gone = {id_: group.here.pop(id_) for id_ in ids if id_ not in self._quiet}
        if gone and group.here:
            self._rebalance()
        group.away(members, self._restarts.speed.first)
        for id_ in ids:
            self._lists[id_] = target or self._lists[id_]
            if target:
                group.eager.discard(id_)
                group.eager |= {id_} if self._restarts.eager_after else set()
        for id_, member in gone.items():
            group.here[id_] = replace(member, owned=(), generation=None)
        if gone or self._vote() != self._elected:
            self._rebalance()

    def _vote(self) -> str:
        made = elect([self._lists[id_] for id_ in self._group.here], self._kind).assignor
        wanted = self._restarts.target_list
        return made or (wanted[0] if wanted else self._elected)

    def _rebalance(self) -> None:
        self._elected = self._vote()
        self._group.rebalance(get(self._elected))


def _text(restarts: Restarts, pace: Pace) -> str:
    assert restarts.snapshot is not None
    if not pace.rebalances:
        expected = (
            "no rebalance while static members come back within session.timeout.ms; the partitions "
            f"of each wait for it: {figure(pace.partition_seconds)} partition-seconds stopped"
        )
        return f"{expected}; {at_worst(pace, restarts.snapshot.members)}"
    count = f"{pace.rebalances} rebalance{'' if pace.rebalances == 1 else 's'}"
    if restarts.eager_after and restarts.eager == restarts.members:
        how = f"each stops {all_partitions(restarts.partitions)}"
    elif restarts.eager_after:
        how = "members that run EAGER stop all they own at each"
    elif restarts.eager:
        how = "members that are not restarted yet stop all they own at each"
    else:
        how = "at each only what moves stops"
    return (
        f"{count}; {how}; {pace.partitions_moved} changes of owner, "
        f"{figure(pace.partition_seconds)} partition-seconds stopped, if a restart takes "
        f"{figure(restarts.speed.restart)} s and a rebalance {figure(restarts.speed.rebalance)}"
        " s (a heartbeat interval; the members' own, and what their listeners do, is not visible); "
        f"{at_worst(pace, restarts.snapshot.members)}"
    )
