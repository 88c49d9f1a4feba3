"""Cost of moving a running group to KIP-848 or back, restart by restart.

Up: the first stop is a rebalance of the classic group, the first join converts it; from then on
each leave and each join gives it a new target, by the coordinator's own assignor. Down: the same,
until the last member with group.protocol=consumer leaves; what is left then rebalances as a classic
group. A static member that is back in time takes the place of its old self: no new target.
All of this was seen on 4.1.1 (tests/live/test_kip848_costs_live.py).
"""

from __future__ import annotations

from rebal.groups.model import GroupSnapshot, GroupType, Record
from rebal.planner.facts import figure
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.cost import FULL, Pricing
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.timeouts import (
    RECONCILE_INTERVAL,
    Speed,
    at_worst,
    back_in_time,
    with_brokers_sessions,
)


class Move(Record, frozen=True, kw_only=True):
    """Members that restart with the other protocol: `order` are their ids, in order.

    `up`: to group.protocol=consumer. `server_side` is the coordinator's assignor, `classic` that of
    the classic group: before the way up, after the way down. `eager` are the ids of those that run
    EAGER now; `eager_after` says whether a member that has gone down does.
    """

    snapshot: GroupSnapshot
    order: tuple[str, ...]
    up: bool
    server_side: str
    classic: str
    eager: tuple[str, ...] = ()
    eager_after: bool = False
    speed: Speed = Speed()
    pricing: Pricing | None = FULL


def move_online(move: Move) -> Cost | None:
    """Return the cost at each pace; the figures are those of one restart after another.

    Without a pricing there is none.
    """
    roll = Roll(
        snapshot=move.snapshot,
        order=move.order,
        target=() if move.up else (move.classic,),
        protocol="consumer" if move.up else "classic",
        server_side=move.server_side,
        eager=move.eager,
        eager_after=move.eager_after,
        speed=move.speed,
    )
    return priced(roll, move.pricing, 0, _text(move))


def _text(move: Move) -> str:
    members = with_brokers_sessions(move.snapshot)
    static = sum(m.member_id in move.order and back_in_time(m, move.speed.restart) for m in members)
    parts = []
    if static < len(move.order):
        parts.append(
            f"each leave and each join gives the group a new target ({move.server_side}), and only "
            f"what moves stops"
        )
        if move.up and move.snapshot.group.type is not GroupType.CONSUMER:
            parts.append("the first leave is a rebalance of the classic group")
        if not move.up:
            parts.append("what follows the last leave is a rebalance of the classic group")
        if move.server_side == "range":
            parts.append(
                "range assigns by member id, and a restarted member has a new one: more or fewer "
                "partitions may move"
            )
        if move.eager or move.eager_after:
            parts.append(
                "classic members that run EAGER rejoin at each, revoke all partitions, and are "
                "assigned at once those that stay"
            )
    if static:
        parts.append(
            f"{static} static: their partitions wait for them, and no other member rejoins"
        )
    default = "" if RECONCILE_INTERVAL in move.snapshot.cluster.settings else ", by default"
    return (
        f"{'; '.join(parts)}, if a restart takes {figure(move.speed.restart)} s and what moves "
        f"stops for up to {figure(move.speed.reconcile)} s ({RECONCILE_INTERVAL}{default}); "
        f"{at_worst(members)}"
    )
