"""What is to be applied to a group, kept back until what is a little late has come too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rebal.groups.wire import offsets_topic as kinds
from rebal.inspectors.fleet.timeline.log import Era, Round
from rebal.inspectors.fleet.timeline.reader import Value
from rebal.inspectors.fleet.timeline.requests import Replacement

DISORDER: Final = 10_000_000
"""How far the clocks of two sources may differ, in microseconds."""


class Raw(NamedTuple):
    """A record as it was read; its value may be decoded already."""

    key: bytes
    value: bytes | Value | None
    partition: int
    offset: int
    source: str


class Item:
    """Something to apply to the group: a record (`key` is set), a leader's sync (`round_` is set)
    or a static member's restart that the log shows (`replacement` is set)."""

    __slots__ = ("at", "era", "key", "offset", "replacement", "round_", "value")

    def __init__(self, at: int, era: Era, offset: int | None = None) -> None:
        self.at = at
        self.era = era
        self.offset = offset
        self.key: kinds.Key | None = None
        self.value: Any = None
        self.round_: Round | None = None
        self.replacement: Replacement | None = None


class Window:
    """Items in the order of time; records among themselves in the order of their offsets."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._last_offset = -1

    def put(self, item: Item) -> None:
        """Add one; a record that comes after a newer one of its group takes its place."""
        items = self._items
        items.append(item)
        if item.offset is None:
            return
        if item.offset > self._last_offset:
            self._last_offset = item.offset
            return
        slots = [n for n, one in enumerate(items) if one.offset is not None]
        records = sorted((items[n] for n in slots), key=lambda one: one.offset or 0)
        for n, record in zip(slots, records, strict=True):
            items[n] = record

    def take(self, until: int | None) -> Iterator[Item]:
        """The items up to this time, in order; all of them where it is None."""
        items = self._items
        while items and (until is None or items[0].at <= until):
            yield items.popleft()
