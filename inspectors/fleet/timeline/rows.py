"""Rows of the timeline's tables, gathered by name, made into Arrow batches by the column.

Members say the same things in row after row. Each identity, subscription and assignment is made
into columns once, and taken for each row of `members` that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.schemas import MEMBERS, PARTITIONS, STATES, TABLES
from rebal.inspectors.fleet.timeline.values import PartitionList

MADE: Final = ("groups", "members", "assignor_lists", "rebalances", "incidents", "errors")
"""The tables that the timeline makes, all but `commits`."""
_SCHEMAS: Final = {**{name: TABLES[name] for name in MADE}, "states": STATES}
_AT_ONCE: Final = 16_384

OPEN: Final = "open_"
"""How the kinds of rows begin that a later scan may replace: what is said of a group as of now."""
HEARD: Final = (
    "instance_id", "client_id", "host", "session_timeout_ms", "rebalance_timeout_ms",
    "software_name", "software_version", "assignors",
)  # fmt: skip
"""What the request log may say of a member, at the time of its row: a row's `heard`."""
_UNHEARD: Final = (None,) * len(HEARD)
_SAID: Final = {
    "identity": {name: name for name in ("member_id", "protocol_type", *HEARD[:5])},
    "server": {"target": "target", "topic_regex": "regex", "rack_id": "rack"},
    "subscription": {
        "subscription_version": "version", "topics": "topics", "owned": "owned",
        "user_data": "user_data", "rack_id": "rack", "error": "error",
    },
    "assignment": {
        "assignment": "partitions", "assignment_user_data": "user_data", "error": "error",
    },
}  # fmt: skip
"""The columns that say what a member said, by the part of it and its attribute."""
_NOT_EMPTY: Final = frozenset(HEARD[:5])
"""Columns in which nothing, or zero, is null."""


class Rows:
    """Rows of one group after another waiting to be written, each column by its name.

    Of `members` they are what `member_batch` takes. Times are microseconds since 1970; a column
    that is not told is null. Rows are settled, or open, which is what is said of a group as if no
    row of it were to come: `of_now` says which follow.
    """

    def __init__(self) -> None:
        self.group_id: str | None = None
        self._settled: dict[str, list[Any]] = {name: [] for name in _SCHEMAS}
        self._open: dict[str, list[Any]] = {name: [] for name in _SCHEMAS}
        self.of_now(False)

    def of_now(self, yes: bool) -> None:
        """Take the rows that follow as open ones, or as settled ones."""
        self._held = self._open if yes else self._settled

    def add(self, table: str, **columns: Any) -> None:
        """Add a row of `table`, of the present group unless `group_id` says another one."""
        self._held[table].append({"group_id": self.group_id, **columns})

    def take(self, *, rest: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the kinds that have gathered enough rows for a batch, or the `rest` of all."""
        least = 1 if rest else _AT_ONCE
        for before, held in (("", self._settled), (OPEN, self._open)):
            for table, rows in held.items():
                if len(rows) >= least:
                    yield before + table, _batch(table, rows)
                    rows.clear()


class Shared:
    """Parts that all groups of one scan share: rows and topics' names.

    `breaks` says where records may be missing, by partition; `unnamed` are ids of topics whose name
    was asked for in vain.
    """

    def __init__(
        self,
        topic_names: Mapping[str, str] | None = None,
        breaks: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.rows = Rows()
        self.breaks = breaks or {}
        self.unnamed: set[str] = set()
        self._names = topic_names or {}

    def topic(self, topic_id: str, learned: Mapping[str, str]) -> str:
        """Return the name of the topic; its id where no record of the cluster or group has it."""
        name = self._names.get(topic_id) or learned.get(topic_id)
        if name is None:
            self.unnamed.add(topic_id)
        return name or topic_id


def _batch(table: str, rows: Sequence[Any]) -> pa.RecordBatch:
    if table == "members":
        return member_batch(rows)
    schema = _SCHEMAS[table]
    arrays = [
        pa.array([row.get(name) for row in rows], kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def member_batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Rows as those of `schemas.MEMBERS`.

    They have a `member`, what the log says of it as `heard` (None: nothing), and other columns.
    """
    columns = {
        name: pa.array([row[name] for row in rows], MEMBERS.field(name).type)
        for name in rows[0].keys() & set(MEMBERS.names)
    }
    for part, names in _SAID.items():
        part_of = attrgetter(part)
        once = _Once([part_of(row["member"]) for row in rows])
        for name, attribute in names.items():
            _or_else(columns, name, once.column(name, attrgetter(attribute)))
    once = _Once([row["heard"] or _UNHEARD for row in rows])
    for place, name in enumerate(HEARD):
        _or_else(columns, name, once.column(name, itemgetter(place)))
    return pa.RecordBatch.from_arrays([columns[name] for name in MEMBERS.names], schema=MEMBERS)


def _or_else(columns: dict[str, pa.Array], name: str, column: pa.Array) -> None:
    """Add a column, or what it says where the one that there is says nothing."""
    columns[name] = pc.coalesce(columns[name], column) if name in columns else column


class _Once:
    """Objects, one a row, of which each is looked at once."""

    def __init__(self, objects: Sequence[Any]) -> None:
        codes = pa.array(np.fromiter(map(id, objects), np.int64, len(objects))).dictionary_encode()
        self._codes = codes.indices
        places = np.zeros(len(codes.dictionary), np.int64)
        places[self._codes.to_numpy()[::-1]] = np.arange(len(objects))[::-1]
        self._distinct = [objects[place] for place in places.tolist()]

    def column(self, name: str, what: Callable[[Any], Any]) -> pa.Array:
        """Return this attribute of each, as the column of that name."""
        said = list(map(what, self._distinct))
        if MEMBERS.field(name).type == PARTITIONS:
            return partition_lists(said).take(self._codes)
        if name in _NOT_EMPTY:
            said = [one or None for one in said]
        return pa.array(said, MEMBERS.field(name).type).take(self._codes)


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
