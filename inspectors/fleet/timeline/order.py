"""What is to be applied to a group, kept back until what is a little late has come too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rebal.groups.wire import offsets_topic as kinds
from rebal.inspectors.fleet.timeline.clock import TOLERANCE
from rebal.inspectors.fleet.timeline.log import Era, Round
from rebal.inspectors.fleet.timeline.requests import Replacement

DISORDER: Final = 10_000_000
"""How far the clocks of two sources may differ, in microseconds."""


class Raw(NamedTuple):
    """A record as it was read."""

    key: bytes
    value: bytes | None
    partition: int
    offset: int
    source: str
    told_at: int | None = None


class Item:
    """Something to apply to the group: a record (`key` is set), a leader's sync (`round_` is set)
    or a static member's restart that the log shows (`replacement` is set)."""

    __slots__ = (
        "at",
        "before",
        "era",
        "key",
        "offset",
        "replacement",
        "round_",
        "told_at",
        "value",
    )

    def __init__(
        self, at: int, era: Era, offset: int | None = None, told_at: int | None = None
    ) -> None:
        self.at = at
        # None: `at` is its own time
        self.told_at = told_at
        self.era = era
        self.offset = offset
        # the group's record before this one, -1: none
        self.before = -1
        self.key: kinds.Key | None = None
        self.value: Any = None
        self.round_: Round | None = None
        self.replacement: Replacement | None = None

    @property
    def timed(self) -> bool:
        """Whether `at` is evidence of when it was written."""
        return self.told_at is None or abs(self.told_at - self.at) <= TOLERANCE

    @property
    def own_at(self) -> int:
        """The time that it told."""
        return self.at if self.told_at is None else self.told_at


class Window:
    """Items in the order in which they came: that of effective times."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()

    def put(self, item: Item) -> None:
        """Add one."""
        self._items.append(item)

    def take(self, until: int | None) -> Iterator[Item]:
        """The items up to this time, in order; all of them where it is None."""
        items = self._items
        while items and (until is None or items[0].at <= until):
            yield items.popleft()
