"""Restarts of a step to price: their order, their speed, their paces.

`CostModel` is the interface; rounds.py rehearses the restarts with the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from msgspec.structs import replace

from rebal.groups.assignors.server import SERVER_NAMES
from rebal.groups.model import Cluster, GroupSnapshot, Record
from rebal.planner.plan import Cost

FIRST_DELAY: Final = "group.initial.rebalance.delay.ms"
RECONCILE_INTERVAL: Final = "group.consumer.heartbeat.interval.ms"
_ASSIGNORS: Final = "group.consumer.assignors"


class Speed(Record, frozen=True, kw_only=True):
    """Speed of a roll-out; times in seconds.

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
        """Return this speed with the brokers' own `first` and `reconcile`, where they were read."""
        said = {
            field: int(text) / 1000
            for field, key in (("first", FIRST_DELAY), ("reconcile", RECONCILE_INTERVAL))
            if (text := cluster.settings.get(key, "")).isdigit()
        }
        return replace(self, **said)


class Restarts(Record, frozen=True, kw_only=True):
    """A roll-out to price: `order` are the ids of those that restart, in order.

    `snapshot` is the group when the step begins, `eager_ids` those that run EAGER then.
    `eager_after` says whether a restarted member does, `target_list` what it has (empty: its own).
    """

    snapshot: GroupSnapshot
    order: tuple[str, ...]
    eager_after: bool
    eager_ids: tuple[str, ...] = ()
    target_list: tuple[str, ...] = ()
    speed: Speed = Speed()


class CostModel(Protocol):
    """Prediction of a roll-out's cost."""

    def __call__(self, restarts: Restarts) -> Cost:
        """Return the cost of these restarts."""


def figure(value: float) -> str:
    """Return a figure as people read it: `1,234`, `3.5`."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def default_server_side(snapshot: GroupSnapshot) -> str:
    """Return the assignor of KIP-848 groups that ask for none: the first that the brokers have."""
    first = snapshot.cluster.settings.get(_ASSIGNORS, "").split(",")[0].strip()
    named = {"UniformAssignor": "uniform", "RangeAssignor": "range"}
    return named.get(first.rpartition(".")[2], first) or SERVER_NAMES[0]


def batches(count: int, asked: int) -> Iterator[tuple[int, str]]:
    """Yield the paces to compare: how many members restart at a time, and the pace's name."""
    yield 1, "one by one"
    if 1 < asked < count:
        yield asked, f"{asked} at a time"
    if count > 1:
        yield count, "all at once"
