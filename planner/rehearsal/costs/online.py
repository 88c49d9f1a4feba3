"""Cost of moving a running group to KIP-848 or back, restart by restart.

Up: the first stop is a rebalance of the classic group, the first join converts it; from then on
each leave and each join gives it a new target, by the coordinator's own assignor. Down: the same,
until the last member with group.protocol=consumer leaves; what is left then rebalances as a classic
group. A static member that is back in time takes the place of its old self: no new target.
All of this was seen on 4.1.1 (tests/live/test_kip848_costs_live.py).
"""

from __future__ import annotations

from rebal.groups.model import GroupType
from rebal.planner.facts import figure
from rebal.planner.plan import Cost
from rebal.planner.rehearsal.costs.rehearsed import priced
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.timeouts import (
    RECONCILE_INTERVAL,
    at_worst,
    back_in_time,
    with_brokers_sessions,
)


def move_online(roll: Roll) -> Cost | None:
    """Return the cost at each pace; the figures are those of one restart after another."""
    return priced(roll, 0, _text(roll))


def _text(roll: Roll) -> str:
    up = roll.protocol == "consumer"
    members = with_brokers_sessions(roll.snapshot)
    static = sum(m.member_id in roll.order and back_in_time(m, roll.speed.restart) for m in members)
    parts = []
    if static < len(roll.order):
        parts.append(
            f"each leave and each join gives the group a new target ({roll.server_side}), and only "
            f"what moves stops"
        )
        if up and roll.snapshot.group.type is not GroupType.CONSUMER:
            parts.append("the first leave is a rebalance of the classic group")
        if not up:
            parts.append("what follows the last leave is a rebalance of the classic group")
        if roll.server_side == "range":
            parts.append(
                "range assigns by member id, and a restarted member has a new one: more or fewer "
                "partitions may move"
            )
        if roll.eager or roll.eager_after:
            parts.append(
                "classic members that run EAGER rejoin at each, revoke all partitions, and are "
                "assigned at once those that stay"
            )
    if static:
        parts.append(
            f"{static} static: their partitions wait for them, and no other member rejoins"
        )
    default = "" if RECONCILE_INTERVAL in roll.snapshot.cluster.settings else ", by default"
    return (
        f"{'; '.join(parts)}, if a restart takes {figure(roll.speed.restart)} s and what moves "
        f"stops for up to {figure(roll.speed.reconcile)} s ({RECONCILE_INTERVAL}{default}); "
        f"{at_worst(members)}"
    )
