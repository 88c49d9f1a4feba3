"""Restarts of a step to price: their order, their speed, their paces.

`CostModel` is the interface; rounds.py rehearses the restarts with the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rebal.groups.model import GroupSnapshot, Record
from rebal.planner.plan import Cost
from rebal.planner.timeouts import Speed


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


def batches(count: int, asked: int) -> Iterator[tuple[int, str]]:
    """Yield the paces to compare: how many members restart at a time, and the pace's name."""
    yield 1, "one by one"
    if 1 < asked < count:
        yield asked, f"{asked} at a time"
    if count > 1:
        yield count, "all at once"
