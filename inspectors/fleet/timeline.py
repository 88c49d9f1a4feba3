"""The timeline: one pass over all groups' records and requests, in order, to the tables' rows.

`make_tables(batches)` takes Arrow batches of `INPUT`, sorted by `ORDER`, a group's rows one after
another (they may span batches), and yields `(table, batch)` for the tables in
`timeline_tables.MADE`. Nothing here needs Spark, the wall clock or a file: the same rows, in batches
of any size, give the same tables. Of a group only its present state and the last ten seconds are
kept in memory (timeline_group.DISORDER).

A row holds a record (`key` is set) or a line of a request log (`request` is set), never both.
Records of kinds 0 and 1 (commits) do not belong here. Rows come out group by group; within a group
in the order in which they are finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import INT, LONG, REQUESTS, TEXT, TIME
from rebal.inspectors.fleet.timeline_group import GroupTimeline, Shared

INPUT: Final = pa.schema(
    [
        ("group_id", TEXT),
        ("at", TIME),
        ("partition", INT),
        ("offset", LONG),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("source", TEXT),
        ("request", pa.struct(list(REQUESTS))),
    ]
)
"""`at` is the record's timestamp, or the request's completion. Columns are found by name."""

ORDER: Final = ("group_id", "at", "offset", "source", "request.position")
"""How rows are sorted: nulls first or last, but the same way each time."""


def make_tables(
    batches: Iterable[pa.RecordBatch],
    topic_names: Mapping[str, str] | None = None,
    observed: tuple[int, int] | None = None,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of groups, members, assignor_lists, rebalances, incidents and errors, as they are ready.

    `topic_names` are names by topic id, for KIP-848 records (without it a topic stands by its id
    where the group's own records do not say its name). `observed` is the time that all sources
    together cover, in microseconds since 1970: rates and `observed_*` go by it (without it, by the
    group's own first and last row).
    """
    shared = Shared(topic_names, observed)
    group: GroupTimeline | None = None
    for batch in batches:
        for row in _rows(batch):
            group_id, at, partition, offset, key, value, source, request = row
            if group is None or group.group_id != group_id:
                if group is not None:
                    group.finish()
                    yield from shared.rows.full()
                group = GroupTimeline(group_id, shared)
            if request is not None:
                group.request(group.last_at if at is None else at, request)
            else:
                group.record(at, partition, offset, key, value, source)
            if len(shared.rows) >= _MANY:
                yield from shared.rows.full()
    if group is not None:
        group.finish()
    yield from shared.rows.rest()


_MANY: Final = 16_384


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = []
    for name in INPUT.names:
        column = batch.column(name)
        if name == "at":
            column = column.cast(TIME).cast(pa.int64())
        if column.null_count == len(column):
            columns.append([None] * len(column))
        else:
            columns.append(column.to_pylist())
    return zip(*columns, strict=True)
