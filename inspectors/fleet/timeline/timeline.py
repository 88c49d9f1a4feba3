"""The timeline: one pass over all groups' records and requests, in order, to the tables' rows.

`make_tables(batches)` takes Arrow batches of `INPUT`, sorted by `ORDER`, a group's rows one after
another (they may span batches), and yields `(table, batch)` for the tables in
`timeline_tables.MADE`. Nothing here needs Spark, the wall clock or a file: the same rows, in
batches of any size, give the same tables. Of a group only its present state and the last ten
seconds are kept in memory (timeline_order.DISORDER).

A row holds a record (`key` is set) or a line of a request log; one that could not be read
(`problem` is set) belongs to no group and becomes a row of `errors`.
Records of kinds 0 and 1 (commits) do not belong here. Rows come out group by group; within a group
in the order in which they are finished.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from rebal.groups.wire.offsets_topic import GROUP_METADATA
from rebal.inspectors.fleet.schemas import RECORDS, REQUESTS, TIME
from rebal.inspectors.fleet.timeline.group import GroupTimeline, Shared
from rebal.inspectors.fleet.timeline.order import Raw
from rebal.inspectors.fleet.timeline.reader import Value, ValueReader

RECORD: Final = ("key", "value", "partition", "offset")
INPUT: Final = pa.schema(
    [*(RECORDS.field(name) for name in RECORD), pa.field("told_at", TIME), *REQUESTS]
)
"""A record's columns and a request's, side by side; `group_id`, `at` and `source` are both's.
Columns are found by name, and one that a batch has not is null in it. `at` is the record's
effective time (`clock.settle`: of one partition they never run backwards), `told_at` its timestamp
where that may be another one. `at` is null only in a request's line without a time: it tells lists,
and nothing of when. A row with an `api` is a request."""

ORDER: Final = ("group_id", "at", "partition", "offset", "source", "position")
"""How rows are sorted, by effective times: nulls first or last, but the same way each time."""


def make_tables(
    batches: Iterable[pa.RecordBatch],
    topic_names: Mapping[str, str] | None = None,
    observed: tuple[int, int] | None = None,
    breaks: Mapping[int, Sequence[int]] | None = None,
    recorded: Collection[str] = (),
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of groups, members, assignor_lists, rebalances, incidents and errors, as they are ready.

    `topic_names` are names by topic id, for KIP-848 records (without it a topic stands by its id
    where the group's own records do not say its name). `observed` is the time that all sources
    together cover, in microseconds since 1970: rates and `observed_*` go by it (without it, by the
    group's own first and last row). `breaks` are, by partition, offsets after which records may be
    missing: generations between a record up to there and one after it are not known.
    `recorded` are the groups that have records: what a log shows of them waits for those. It may be
    filled until the first batch is given.
    """
    shared = Shared(topic_names, observed, breaks, recorded)
    group: GroupTimeline | None = None
    for batch in batches:
        heard = {group.group_id} if group is not None and group.log.persons else set[str]()
        for group_id, at, record, request in _rows(batch, shared.reader, heard):
            if request is not None and request["problem"] is not None:
                shared.rows.add("errors", _unreadable(request))
                continue
            if group is None or group.group_id != group_id:
                if group is not None:
                    group.finish()
                group = GroupTimeline(group_id, shared)
            if request is not None:
                group.request(at, request)
            else:
                group.record(at, Raw._make(record))
        if len(shared.rows) >= _MANY:
            yield from shared.rows.full()
    if group is not None:
        group.finish()
    yield from shared.rows.rest()


_MANY: Final = 16_384
_CLASSIC: Final = GROUP_METADATA.to_bytes(2, "big")


def _unreadable(request: Mapping[str, Any]) -> tuple[Any, ...]:
    """A line of a request log that could not be read, as a row of `errors`."""
    place = (request["source"], None, request["position"], None, None)
    return (*place, "request log line", request["problem"], None, None)


def _rows(
    batch: pa.RecordBatch, reader: ValueReader, heard: Collection[str]
) -> Iterator[tuple[str, Any, tuple[Any, ...], Any]]:
    """Each row's group and time, with its record's fields or its request.

    Of the groups in `heard`, a log told in an earlier batch.
    """
    names = ("key", "partition", "offset", "source", "told_at")
    keys, *records = (_values(batch, name) for name in names)
    times = _values(batch, "at")
    groups = _values(batch, "group_id")
    requests: Iterable[Any] = itertools.repeat(None, len(batch))
    if None in keys:
        fields = REQUESTS.names
        columns = (_values(batch, name) for name in fields)
        requests = [
            dict(zip(fields, row, strict=True)) if key is None else None
            for key, row in zip(keys, zip(*columns, strict=True), strict=True)
        ]
        heard = {*heard, *(group for group, key in zip(groups, keys, strict=True) if key is None)}
    values = _read_values(batch, groups, keys, reader, heard)
    return zip(groups, times, zip(keys, values, *records, strict=True), requests, strict=True)


def _read_values(
    batch: pa.RecordBatch, groups: Sequence[str], keys: Sequence[bytes | None],
    reader: ValueReader, heard: Collection[str],
) -> list[bytes | Value | None]:  # fmt: skip
    """The records' values, those of classic groups decoded where they are as brokers write them."""
    if batch.schema.get_field_index("value") < 0:
        return [None] * len(batch)
    column = batch["value"]
    given = column.is_valid().to_pylist()
    of_classic = [
        n for n, key in enumerate(keys) if key is not None and key[:2] == _CLASSIC and given[n]
    ]
    read = reader.read(groups, column, of_classic, heard)
    return [
        None if not there else read[n] if n in read else column[n].as_py()
        for n, there in enumerate(given)
    ]


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    place = batch.schema.get_field_index(name)
    if place < 0 or batch.column(place).null_count == len(batch):
        return [None] * len(batch)
    column = batch.column(place)
    if name in ("at", "told_at"):
        column = column.cast(TIME).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
