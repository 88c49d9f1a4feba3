"""What a step costs, foretold.

`CostModel` is the interface. `by_arithmetic` counts rebalances and shares partitions out evenly,
as hazard RB110 does; rounds.py rehearses the restarts with the real assignors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from msgspec.structs import replace

from rebal.groups.model import Cluster, GroupSnapshot, Record
from rebal.planner.facts import all_partitions
from rebal.planner.plan import Cost, Pace
from rebal.planner.rehearsal.costs.timeouts import in_words, leaves, slowest, waits

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


def batches(count: int, asked: int) -> Iterator[tuple[int, str]]:
    """The paces that stand side by side: how many members at a time, and what that is called."""
    yield 1, "one by one"
    if 1 < asked < count:
        yield asked, f"{asked} at a time"
    if count > 1:
        yield count, "all at once"


def by_arithmetic(restarts: Restarts) -> Cost:
    """Two rebalances for a member that leaves and joins, a third where a COOPERATIVE one joins.

    At each of them the members that run EAGER stop all they own; a COOPERATIVE group stops what
    moves: what the restarted member owns, out and back. Static members that come back in time
    cause none; what they own waits for them. A member that does not leave when it is closed (Kafka
    Streams) counts until its session ends. The rebalance in which it comes back waits for that, as
    does what it owned, and what others own that run EAGER (seen on 4.1.1).
    """
    paces = batches(restarts.restarting, restarts.speed.batch)
    made = [_Count(restarts).run(batch, name) for batch, name in paces]
    pace, stopped = made[0]
    return Cost(
        rebalances=pace.rebalances,
        partitions_stopped=stopped,
        partitions_moved=pace.partitions_moved,
        text=_text(restarts, pace),
        seconds=pace.seconds,
        partition_seconds=pace.partition_seconds,
        worst_seconds=pace.worst_seconds,
        worst_partition_seconds=pace.worst_partition_seconds,
        paces=tuple(pace for pace, _ in made),
    )


class _Count:
    """Restarts in batches, by arithmetic; times in seconds."""

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._share = restarts.partitions / max(1, restarts.members)
        self._eager = restarts.eager
        self._rebalances = 0
        self._empty = 0.0
        self._stopped = self._held = 0.0
        members = restarts.snapshot.members if restarts.snapshot is not None else ()
        ours = [member for member in members if member.member_id in restarts.order]
        self._session = max((waits(member).session for member in ours), default=0.0)
        self._longest = max(restarts.speed.rebalance, slowest(members) if members else 0)
        # How long the group counts with a member that stopped without leaving.
        stay = [m for m in ours if m.instance_id is None and not leaves(m)]
        self._counts = max((waits(member).session for member in stay), default=0.0)

    def run(self, batch: int, name: str) -> tuple[Pace, int]:
        """The pace's cost, and the partitions that stopped, summed over all rebalances."""
        restarts, speed = self._restarts, self._restarts.speed
        moving = restarts.restarting - restarts.static
        down = max(speed.restart, self._counts)
        for start in range(0, moving, batch):
            self._restart(min(batch, moving - start), down)
        rounds, static = -(-restarts.restarting // batch), restarts.static * self._share
        # Each is away for its whole session without having left, and each rebalance lasts longest.
        away = max(down, self._session)
        pace = Pace(
            name=name,
            batch=batch,
            seconds=round(rounds * down + self._empty + self._rebalances * speed.rebalance, 1),
            partition_seconds=round(
                self._stopped * speed.rebalance + self._held + static * speed.restart, 1
            ),
            rebalances=self._rebalances,
            partitions_moved=round(2 * self._share * moving),
            worst_seconds=round(rounds * away + self._empty + self._rebalances * self._longest, 1),
            worst_partition_seconds=round(
                self._stopped * self._longest
                + max(self._held, moving * self._share * self._session)
                + static * self._session,
                1,
            ),
        )
        return pace, round(self._stopped)

    def _restart(self, some: int, down: float) -> None:
        restarts, everything = self._restarts, self._restarts.partitions
        if some == restarts.members:
            self._rebalances, self._stopped, self._empty = 1, everything, restarts.speed.first
            self._held = everything * (down + self._empty)
            return
        self._eager += some if restarts.eager_after else -some
        eager = self._share * min(restarts.members, max(0, self._eager))
        rebalances = 2 if restarts.eager_after else 3
        late = down - restarts.speed.restart
        if late:
            # Who is still counted when it joins has not been left out by a rebalance before.
            rebalances -= 1
        if self._counts:
            others = min(everything - some * self._share, eager)
            self._held += some * self._share * down + others * late
        self._rebalances += rebalances
        self._stopped += rebalances * min(everything, eager)
        if not restarts.eager_after:
            self._stopped += some * self._share


def _text(restarts: Restarts, pace: Pace) -> str:
    speed = restarts.speed
    count = f"about {pace.rebalances} rebalances"
    moving = restarts.restarting - restarts.static
    if not moving:
        text = (
            "no rebalance while static members come back within session.timeout.ms, except one "
            "where the vote changes"
        )
    elif restarts.eager_after and restarts.eager < restarts.members:
        text = (
            f"{count}; members restarted in this step run EAGER from then on and stop all they own "
            "at each"
        )
    elif restarts.eager_after:
        text = f"{count}, and each stops {all_partitions(restarts.partitions)}"
    else:
        text = f"{count}; at each, the members that are not restarted yet stop all they own"
    if restarts.snapshot is None:
        return text
    members = restarts.snapshot.members
    if any(m.instance_id is None and not leaves(m) for m in members):
        text += (
            "; a member that is closed does not leave: it counts until its session ends, the "
            "rebalance in which it comes back waits for that, and what it owned stands still"
        )
    return (
        f"{text}; about {pace.partition_seconds:,.0f} partition-seconds stopped, if a restart "
        f"takes {speed.restart:g} s and a rebalance {speed.rebalance:g} s; each may last up to "
        f"{slowest(members):g} s: {in_words(members)}"
    )
