"""What the engine writes down of a group: rebalances, notes, owners; times in seconds."""

from __future__ import annotations

from rebal.groups.model import Record


class Rebalance(Record, frozen=True, kw_only=True):
    """One rebalance; times in seconds since the start, counts in partitions.

    `ended` is None where it has not ended. `members` were in its generation.
    """

    why: str
    began: float
    ended: float | None
    generation: int
    assignor: str | None
    members: int
    stopped: int
    moved: int


class Note(Record, frozen=True, kw_only=True):
    """Something that happened to a member (`who` empty: to the group)."""

    at: float
    who: str
    what: str
    detail: str = ""


class Ownership(Record, frozen=True, kw_only=True):
    """One partition's owners in order; `end` is None while it lasts. Spans may overlap."""

    owner: str
    start: float
    end: float | None
