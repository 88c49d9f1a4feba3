"""What is applied to a group, one event after another, and the 10 s that it waits for others."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline.clock import TOLERANCE
from rebal.inspectors.fleet.timeline.facts import LoggedGeneration

DISORDER: Final = 10_000_000
"""How far the clocks of two sources may differ, in microseconds."""


class Event(Struct, array_like=True, tag=True, kw_only=True):
    """Something that happened at `at`, in an incarnation of the group."""

    at: int = 0
    incarnation: int = 1


class Record(Event, kw_only=True):
    """A record as it was read; `told_at` is its own time (None: that is `at`).

    `before` is the offset of the group's record before this one, -1: none.
    """

    key: bytes
    value: bytes | None
    partition: int
    offset: int
    source: str
    told_at: int | None = None
    before: int = -1

    @property
    def timed(self) -> bool:
        """Whether `at` is evidence of when it was written."""
        return abs(self.own_at - self.at) <= TOLERANCE

    @property
    def own_at(self) -> int:
        """The time that it told."""
        return self.at if self.told_at is None else self.told_at


class LeaderSynced(Event, kw_only=True):
    """A leader sent a generation's assignments."""

    generation: LoggedGeneration


class Replaced(Event, kw_only=True):
    """A static member that came back within a generation, with a new member id (KIP-345)."""

    generation: int | None
    before: str
    now: str
    leader: str | None


class Tombstone(Struct, array_like=True):
    """The end of a group of this type, or half of its conversion; `own_at` is what it told."""

    at: int
    own_at: int
    type: GroupType
