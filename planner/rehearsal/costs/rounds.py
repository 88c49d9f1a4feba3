"""Cost of a step whose members restart in batches, each batch after the one before."""

from __future__ import annotations

from collections.abc import Sequence

from rebal.groups.model import Member
from rebal.planner.facts import all_partitions, figure, owned
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.connect import by_workers
from rebal.planner.rehearsal.costs.cost import Restarts
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.timeouts import at_worst, leaves


def by_assignors(restarts: Restarts) -> Cost | None:
    """Return the cost of these restarts, rehearsed; None without a pricing."""
    snapshot = restarts.snapshot
    if snapshot.group.protocol_type == "connect":
        return by_workers(restarts)
    roll = Roll(
        snapshot=snapshot,
        order=restarts.order,
        target=restarts.target_list,
        eager=restarts.eager_ids,
        eager_after=restarts.eager_after,
        speed=restarts.speed,
    )
    return priced(roll, restarts.pricing, 0, _text(restarts))


def _text(restarts: Restarts) -> str:
    if restarts.eager_after and len(restarts.eager_ids) == len(restarts.snapshot.members):
        everything = sum(map(owned, restarts.snapshot.members))
        how = f"each rebalance stops {all_partitions(everything)}"
    elif restarts.eager_after:
        how = "members that run EAGER stop all they own at each rebalance"
    elif restarts.eager_ids:
        how = "members that are not restarted yet stop all they own at each rebalance"
    else:
        how = "at each rebalance only what moves stops"
    return (
        f"{how}{_counts_on(restarts.snapshot.members)}, if a restart takes "
        f"{figure(restarts.speed.restart)} s and members send a heartbeat every "
        f"{figure(restarts.speed.rebalance)} s (the members' own, and what their listeners do, is "
        f"not visible); {at_worst(restarts.snapshot.members)}"
    )


def _counts_on(members: Sequence[Member]) -> str:
    if any(member.instance_id is None and not leaves(member) for member in members):
        return (
            "; a member that is closed does not leave: it counts until its session ends, and its "
            "next join and its partitions wait for that"
        )
    if any(member.instance_id is not None for member in members):
        return "; the partitions of a static member that restarts in time wait for it"
    return ""
