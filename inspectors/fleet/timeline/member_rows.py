"""Rows of `members`: gathered by what they share, made into columns all at once.

Members say the same things in row after row. Each head, subscription and assignment is made into
columns once, and taken for each row that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.schemas import MEMBERS, PARTITIONS
from rebal.inspectors.fleet.timeline.values import Member, PartitionList


class Heard(NamedTuple):
    """What the request log says of a member, at the time of its row; None: not said."""

    instance_id: str | None
    client_id: str | None
    host: str | None
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    software_name: str | None
    software_version: str | None
    assignors: tuple[str, ...] | None


class MemberRow(NamedTuple):
    """A row: what its member said, what the log says of it (None: nothing), and other columns."""

    group_id: str | None
    incarnation: int
    first_generation: int | None
    last_generation: int | None
    member: Member
    leader: bool | None
    heard: Heard | None
    first_at: int
    last_at: int
    joined_at: int | None
    joined_reason: str | None
    left_at: int | None
    left_reason: str | None
    current: bool


_UNHEARD: Final = Heard(*[None] * len(Heard._fields))
_PLAIN: Final = tuple(name for name in MemberRow._fields if name in MEMBERS.names)


def member_batch(rows: Sequence[MemberRow]) -> pa.RecordBatch:
    """The rows as those of `schemas.MEMBERS`."""
    told = MemberRow._make(zip(*rows, strict=True))._asdict()
    members: tuple[Member, ...] = told["member"]
    columns = {name: pa.array(told[name], MEMBERS.field(name).type) for name in _PLAIN}
    identities = _Once([one.identity for one in members])
    sent = _Once([one.subscription for one in members])
    given = _Once([one.assignment for one in members])
    server = _Once([one.server for one in members])
    for name in ("member_id", "protocol_type"):
        columns[name] = identities.column(name, attrgetter(name))
    for name in ("instance_id", "client_id", "host", "session_timeout_ms", "rebalance_timeout_ms"):
        columns[name] = identities.column(name, attrgetter(name), empty=False)
    columns |= {
        "subscription_version": sent.column("subscription_version", attrgetter("version")),
        "subscription_generation": sent.column("subscription_generation", attrgetter("generation")),
        "topics": sent.column("topics", attrgetter("topics")),
        "owned": sent.lists(attrgetter("owned")),
        "user_data": sent.column("user_data", attrgetter("user_data")),
        "assignment": given.lists(attrgetter("partitions")),
        "assignment_user_data": given.column("assignment_user_data", attrgetter("user_data")),
        "target": server.lists(attrgetter("target")),
        "topic_regex": server.column("topic_regex", attrgetter("regex")),
        "rack_id": pc.coalesce(
            server.column("rack_id", attrgetter("rack"), empty=False),
            sent.column("rack_id", attrgetter("rack")),
        ),
        "error": pc.coalesce(
            sent.column("error", attrgetter("error"), empty=False),
            given.column("error", attrgetter("error")),
        ),
    }
    columns |= _heard(told["heard"], columns)
    return pa.RecordBatch.from_arrays([columns[name] for name in MEMBERS.names], schema=MEMBERS)


def _heard(heard: Sequence[Heard | None], columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns of which a log may say what the records do not."""
    once = _Once([_UNHEARD if one is None else one for one in heard])
    found = {name: once.column(name, attrgetter(name)) for name in Heard._fields}
    return {
        name: pc.coalesce(columns[name], column) if name in columns else column
        for name, column in found.items()
    }


class _Once:
    """Objects, one a row, of which each is looked at once."""

    def __init__(self, objects: Sequence[Any]) -> None:
        codes = pa.array(np.fromiter(map(id, objects), np.int64, len(objects))).dictionary_encode()
        self._codes = codes.indices
        places = np.zeros(len(codes.dictionary), np.int64)
        places[self._codes.to_numpy()[::-1]] = np.arange(len(objects))[::-1]
        self._distinct = [objects[place] for place in places.tolist()]

    def column(self, name: str, what: Callable[[Any], Any], empty: bool = True) -> pa.Array:
        """What is said of each, as the column of that name; null for nothing unless `empty`."""
        said = list(map(what, self._distinct))
        made = pa.array(said if empty else [one or None for one in said], MEMBERS.field(name).type)
        return made.take(self._codes)

    def lists(self, what: Callable[[Any], PartitionList | None]) -> pa.Array:
        """A partition list of each."""
        return partition_lists(list(map(what, self._distinct))).take(self._codes)


def partition_lists(column: Sequence[PartitionList | None]) -> pa.Array:
    """Partition lists as a column of the tables."""
    ends = [0]
    topics: list[str] = []
    raws: list[bytes] = []
    for one in column:
        if one is not None:
            topics += one.topics
            raws += one.numbers
        ends.append(len(topics))
    numbers = np.frombuffer(b"".join(raws), dtype=">i4").astype(np.int32)
    bounds = np.zeros(len(raws) + 1, dtype=np.int32)
    np.cumsum([len(raw) // 4 for raw in raws], out=bounds[1:])
    structs = pa.StructArray.from_arrays(
        [
            pa.array(topics, pa.string()),
            pa.ListArray.from_arrays(pa.array(bounds), pa.array(numbers)),
        ],
        names=["topic", "partitions"],
    )
    missing = pa.array([one is None for one in column], pa.bool_())
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, mask=missing)
    return lists.cast(PARTITIONS)
