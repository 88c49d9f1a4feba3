"""What a step costs, foretold.

`CostModel` is the interface. `by_arithmetic` counts rebalances and shares partitions out evenly,
as hazard RB110 does; cost_rounds.py rehearses the restarts with the real assignors.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec.structs import replace

from rebal.groups.model import Cluster, GroupSnapshot, Record
from rebal.planner.cost_timeouts import in_words, slowest
from rebal.planner.plan import Cost

FIRST_DELAY: Final = "group.initial.rebalance.delay.ms"
RECONCILE_INTERVAL: Final = "group.consumer.heartbeat.interval.ms"


class Speed(Record, frozen=True, kw_only=True):
    """How a roll-out is carried out; times in seconds.

    `restart` is from the stop of a process until its consumer joins; `rebalance` is how long one
    rebalance takes, which is mostly until the last member notices it at its next heartbeat;
    `first` is how long the coordinator waits for more members when a group had none
    (group.initial.rebalance.delay.ms); `reconcile` is how long a member of a KIP-848 group takes
    to ask again (group.consumer.heartbeat.interval.ms, by default 5 s). `batch` members restart at
    a time (0: all).
    """

    restart: float = 30.0
    rebalance: float = 3.0
    first: float = 3.0
    reconcile: float = 5.0
    batch: int = 1

    def at(self, cluster: Cluster) -> Speed:
        """This speed with the brokers' own `first` and `reconcile`, where they were read."""
        said = {
            field: int(text) / 1000
            for field, key in (("first", FIRST_DELAY), ("reconcile", RECONCILE_INTERVAL))
            if (text := cluster.settings.get(key, "")).isdigit()
        }
        return replace(self, **said)


class Restarts(Record, frozen=True, kw_only=True):
    """A roll-out to price: how many of `members` restart, and how the group behaves meanwhile.

    `static` of the restarting members are static and back before their session ends;
    `eager_after` says whether a restarted member runs EAGER; `eager` members run EAGER when the
    step begins. `partitions` are the group's. `snapshot` is the group when the step begins, `order`
    the ids of those that restart, in order, `eager_ids` those that run EAGER, `target_list` what a
    restarted member has (empty: its own).
    """

    members: int
    restarting: int
    static: int
    partitions: int
    eager: int
    eager_after: bool
    snapshot: GroupSnapshot | None = None
    order: tuple[str, ...] = ()
    eager_ids: tuple[str, ...] = ()
    target_list: tuple[str, ...] = ()
    speed: Speed = Speed()


class CostModel(Protocol):
    """Anything that foretells the cost of a roll-out, one member at a time."""

    def __call__(self, restarts: Restarts) -> Cost:
        """The cost of these restarts."""


def by_arithmetic(restarts: Restarts) -> Cost:
    """Two rebalances for a member that leaves and joins, a third where a COOPERATIVE one joins.

    At each of them the members that run EAGER stop all they own; a COOPERATIVE group stops what
    moves: what the restarted member owns, out and back. Static members that come back in time
    cause none; what they own waits for them.
    """
    moving = restarts.restarting - restarts.static
    share = restarts.partitions / max(1, restarts.members)
    each = 2 if restarts.eager_after else 3
    eager = restarts.eager
    stopped = 0.0
    for _ in range(moving):
        eager = min(restarts.members, eager + 1) if restarts.eager_after else max(0, eager - 1)
        stopped += each * min(restarts.partitions, eager * share)
        if not restarts.eager_after:
            stopped += share
    rebalances = each * moving
    moved = round(2 * share * moving)
    if moving == 0:
        text = (
            "no rebalance while static members come back within session.timeout.ms, except one "
            "where the vote changes"
        )
    elif restarts.eager_after and restarts.eager < restarts.members:
        text = (
            f"about {rebalances} rebalances ({each} for each restarted member); members restarted "
            "in this step run EAGER from then on and stop all they own at each"
        )
    elif restarts.eager_after:
        text = (
            f"about {rebalances} rebalances ({each} for each restarted member), and each stops all "
            f"{restarts.partitions} partitions"
        )
    else:
        text = (
            f"about {rebalances} rebalances ({each} for each restarted member); at each, the "
            "members that are not restarted yet stop all they own"
        )
    if restarts.snapshot is not None:
        members = restarts.snapshot.members
        text += f"; each may last up to {slowest(members):g} s: {in_words(members)}"
    return Cost(
        rebalances=rebalances,
        partitions_stopped=round(stopped),
        partitions_moved=moved,
        text=text,
        partition_seconds=round(
            stopped * restarts.speed.rebalance + restarts.static * share * restarts.speed.restart,
            1,
        ),
    )
