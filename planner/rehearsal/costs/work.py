"""How much work a cost may be: whether to rehearse a roll-out, or to count by arithmetic.

Work is partitions x rebalances: about two or three microseconds of processor time each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

# About half a second.
_MOST: Final = 150_000


class Estimate:
    """What was not rehearsed within `estimating`: `work` adds up (0: every cost is exact)."""

    def __init__(self) -> None:
        self.work = 0


_ESTIMATE: Final[ContextVar[Estimate | None]] = ContextVar("estimate", default=None)


@contextmanager
def estimating() -> Iterator[Estimate]:
    """Within it nothing is rehearsed: every cost is by arithmetic, and quick."""
    estimate = Estimate()
    token = _ESTIMATE.set(estimate)
    try:
        yield estimate
    finally:
        _ESTIMATE.reset(token)


def too_much(work: int) -> bool:
    """Must a rehearsal of so much work be left out?"""
    if work > _MOST:
        return True
    estimate = _ESTIMATE.get()
    if estimate is not None:
        estimate.work += work
    return estimate is not None
