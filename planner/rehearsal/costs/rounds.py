"""Cost of a step whose members restart in batches, each batch after the one before."""

from __future__ import annotations

from collections.abc import Sequence

from rebal.groups.model import Member
from rebal.planner.facts import all_partitions, figure, owned
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.connect import by_workers
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.timeouts import at_worst, leaves


def by_assignors(roll: Roll) -> Cost | None:
    """Return the cost of these restarts, rehearsed."""
    if roll.snapshot.group.protocol_type == "connect":
        return by_workers(roll)
    return priced(roll, 0, _text(roll))


def _text(roll: Roll) -> str:
    if roll.eager_after and len(roll.eager) == len(roll.snapshot.members):
        everything = sum(map(owned, roll.snapshot.members))
        how = f"each rebalance stops {all_partitions(everything)}"
    elif roll.eager_after:
        how = "members that run EAGER stop all they own at each rebalance"
    elif roll.eager:
        how = "members that are not restarted yet stop all they own at each rebalance"
    else:
        how = "at each rebalance only what moves stops"
    return (
        f"{how}{_counts_on(roll.snapshot.members)}, if a restart takes "
        f"{figure(roll.speed.restart)} s and members send a heartbeat every "
        f"{figure(roll.speed.rebalance)} s (the members' own, and what their listeners do, is "
        f"not visible); {at_worst(roll.snapshot.members)}"
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
