"""Pricing of a roll-out: how much of it is rehearsed, and at which paces.

`start.Roll` says what is rehearsed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, TypeVar, cast

_T = TypeVar("_T")


class Pricing:
    """Amount of rehearsal for the costs of plans.

    `rough`: one restart of a step is rehearsed and counts for all, at the step's own pace and
    without a worst case. Groups that share a rough pricing share the figures of equal shapes.
    """

    def __init__(self, *, rough: bool = False) -> None:
        self.rough = rough
        self._known: dict[Hashable, object] = {}

    def once(self, shape: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returns, or what it returned for an equal shape."""
        if shape not in self._known:
            self._known[shape] = make()
        return cast(_T, self._known[shape])


FULL: Final = Pricing()
"""Every pace, with its worst case."""


def batches(count: int, asked: int) -> Iterator[tuple[int, str]]:
    """Yield the paces to compare: how many members restart at a time, and the pace's name."""
    yield 1, "one by one"
    if 1 < asked < count:
        yield asked, f"{asked} at a time"
    if count > 1:
        yield count, "all at once"
