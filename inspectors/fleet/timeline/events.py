"""The events that are applied to a group, one after another."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline.clock import TOLERANCE

DISORDER: Final = 10_000_000
"""How far the clocks of two sources may differ, in microseconds: a request counts so much early."""


class Record(NamedTuple):
    """A record as it was read; `told_at` is its own time (None: that is `at`)."""

    at: int
    told_at: int | None
    key: bytes
    value: bytes | None
    partition: int
    offset: int
    source: str

    @property
    def timed(self) -> bool:
        """Return whether `at` is evidence of when it was written."""
        return abs(self.own_at - self.at) <= TOLERANCE

    @property
    def own_at(self) -> int:
        """The time that it told."""
        return self.at if self.told_at is None else self.told_at


class Logged(NamedTuple):
    """A log's sign of a generation: its leader sent the assignments.

    Where `before` is set, that a static member came back within it as `now` (KIP-345).
    """

    at: int
    generation: int
    before: str | None = None
    now: str = ""
    leader: str | None = None


class Tombstone(Struct, array_like=True):
    """The end of a group of this type, or half of its conversion; `own_at` is what it told."""

    at: int
    own_at: int
    type: GroupType


def early(rows: pa.Table, by: int = DISORDER) -> pa.Table:
    """Return rows of `TIMELINE` in which requests are that much earlier, and so sorted."""
    place = rows.schema.get_field_index("at")
    at = pc.subtract(rows["at"].cast(pa.int64()), pc.if_else(pc.is_valid(rows["api"]), by, 0))
    return rows.set_column(place, rows.schema.field(place), at.cast(rows.schema.field(place).type))
