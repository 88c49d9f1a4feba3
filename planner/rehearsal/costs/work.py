"""How much of a roll-out is rehearsed: all of it, or a sample of the restarts.

Work is partitions x rebalances, and eight for each member: about three microseconds of processor
time each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_ENOUGH: Final = 30_000
_FEWEST: Final = 6
_ROUNDS: Final = 3
_A_MEMBER: Final = 8


class Estimate:
    """What was not rehearsed within `estimating`: `work` adds up (0: nothing was left out)."""

    def __init__(self) -> None:
        self.work = 0


_ESTIMATE: Final[ContextVar[Estimate | None]] = ContextVar("estimate", default=None)


_UNPRICED: Final[ContextVar[bool]] = ContextVar("unpriced", default=False)


@contextmanager
def estimating() -> Iterator[Estimate]:
    """Within it one restart of a step is rehearsed, and stands for all: quick, and rough."""
    estimate = Estimate()
    token = _ESTIMATE.set(estimate)
    try:
        yield estimate
    finally:
        _ESTIMATE.reset(token)


@contextmanager
def unpriced() -> Iterator[None]:
    """Within it nothing is rehearsed, and no cost has figures: for lists that show none."""
    token = _UNPRICED.set(True)
    try:
        yield
    finally:
        _UNPRICED.reset(token)


def is_unpriced() -> bool:
    """Return whether nobody wants to know costs."""
    return _UNPRICED.get()


def is_estimate() -> bool:
    """Return whether a rough cost is enough."""
    return _ESTIMATE.get() is not None


def samples(restarts: int, members: int, partitions: int) -> Sequence[int]:
    """Return which of so many restarts to rehearse: all, or some that are spread evenly."""
    each = _ROUNDS * (_A_MEMBER * members + partitions)
    estimate = _ESTIMATE.get()
    if estimate is not None:
        estimate.work += restarts * each
        return (restarts // 2,) if restarts > 2 else range(restarts)
    some = max(_FEWEST, _ENOUGH // each)
    if restarts <= some:
        return range(restarts)
    return [(2 * place + 1) * restarts // (2 * some) for place in range(some)]
