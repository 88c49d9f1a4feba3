"""Size of a rehearsal: all restarts of a roll-out, or a sample of them.

Work is partitions x rebalances, and eight for each member: about seven microseconds of processor
time each, the plan that is made for it included.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar, cast

_ENOUGH: Final = 30_000
_FEWEST: Final = 6
_ROUNDS: Final = 3
_PAIR: Final = 2
_A_MEMBER: Final = 8
_T = TypeVar("_T")


Known = dict[Hashable, tuple[object, int]]
"""Estimates by their roll-out's shape, each with the work that it replaced."""


class Estimate:
    """Work that was not rehearsed within `estimating`: `work` adds up (0: nothing was left out)."""

    def __init__(self, known: Known) -> None:
        self.work = 0
        self._known = known

    def once(self, shape: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returns, or what it returned for an equal shape."""
        found = self._known.get(shape)
        if found is None:
            before = self.work
            made = make()
            self._known[shape] = made, self.work - before
            return made
        self.work += found[1]
        return cast(_T, found[0])


_ESTIMATE: Final[ContextVar[Estimate | None]] = ContextVar("estimate", default=None)


_UNPRICED: Final[ContextVar[bool]] = ContextVar("unpriced", default=False)


@contextmanager
def estimating(known: Known | None = None) -> Iterator[Estimate]:
    """Within it one restart of a step is rehearsed, and stands for all: quick, and rough.

    Groups that share `known` share the estimates of equal shapes.
    """
    estimate = Estimate({} if known is None else known)
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
    """Return whether costs are left out."""
    return _UNPRICED.get()


def estimate_asked() -> Estimate | None:
    """Return the estimate that is to be made, None where an exact cost is asked for."""
    return _ESTIMATE.get()


def rehearsals(restarts: int, members: int, partitions: int) -> int:
    """Return how many of so many restarts to rehearse; of an estimate one, which it notes."""
    each = effort(members, partitions)
    estimate = _ESTIMATE.get()
    if estimate is not None:
        estimate.work += restarts * each
        return 1 if restarts > _PAIR else restarts
    return max(_FEWEST, _ENOUGH // each)


def effort(members: int, partitions: int) -> int:
    """Return the work of one restart."""
    return _ROUNDS * (_A_MEMBER * members + partitions)
