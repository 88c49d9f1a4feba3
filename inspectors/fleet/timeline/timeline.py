"""The timeline: one pass over all groups' records and requests, in order, to the tables' rows.

`make_tables(batches)` takes Arrow batches of `INPUT`, sorted by `ORDER`, a group's rows one after
another (they may span batches), and yields `(kind, batch)`: rows of the tables in `rows.MADE`,
those that a later scan may replace as kinds that begin with `rows.OPEN`, and of each group its
state, from which the next scan goes on. Nothing here needs Spark, the wall clock or a file: the
same rows, in batches of any size and in any number of scans, give the same tables. Of a group only
its present state and the last ten seconds are kept in memory (`order.DISORDER`).

A row holds a group's state of the scan before (`state` is set), a record (`key` is set) or a line
of a request log; one that could not be read (`problem` is set) belongs to no group and becomes a
row of `errors`. Records of kinds 0 and 1 (commits) do not belong here. Rows come out group by
group; within a group in the order in which they are finished.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from rebal.inspectors.fleet.schemas import REQUESTS, STATES, TIME, TIMELINE, in_columns
from rebal.inspectors.fleet.timeline.group import GroupTimeline, Shared
from rebal.inspectors.fleet.timeline.order import Raw
from rebal.inspectors.fleet.timeline.state import form, freeze, thaw

RECORD: Final = ("key", "value", "partition", "offset")
INPUT: Final = TIMELINE
"""A record's columns and a request's, side by side; `group_id`, `at` and `source` are both's.
Columns are found by name, and one that a batch has not is null in it. `at` is the record's
effective time (`clock.settle`: of one partition they never run backwards), `told_at` its timestamp
where that may be another one. `at` is null only in a request's line without a time: it tells lists,
and nothing of when. A row with an `api` is a request."""

ORDER: Final = ("group_id", "at", "partition", "offset", "source", "position")
"""How rows are sorted after the group's state, by effective times, nulls last."""
WAITING: Final = "waiting"
"""The kind of rows of `INPUT` that are given again to the next scan, after their group's state."""


@dataclass(frozen=True)
class Tale:
    """Order to make the rows of groups.

    `topic_names` are names by topic id, for KIP-848 records (without it a topic stands by its id
    where the group's own records do not say its name). `breaks` are, by partition, offsets after
    which records may be missing: generations between a record up to there and one after it are not
    known. `recorded` are the groups that have records: what a log shows of them waits for those.
    What is later than `until` (microseconds since 1970), or has no time, tells open rows only and
    waits for the next scan, which may read what belongs before it. `span` is the time that all
    sources cover: of a group with a timestamp outside of it no state is kept, as a later scan may
    believe that timestamp.
    """

    topic_names: Mapping[str, str] = field(default_factory=dict)
    breaks: Mapping[int, Sequence[int]] = field(default_factory=dict)
    recorded: Collection[str] = ()
    until: int | None = None
    span: tuple[int, int] | None = None


def make_tables(
    batches: Iterable[pa.RecordBatch], tale: Tale
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of groups, members, assignor_lists, rebalances, incidents, errors and states."""
    told = _Told(tale)
    for batch in batches:
        yield from told.batch(batch)
    yield from told.rest()


class _Told:
    """Groups whose rows are made, one after another."""

    def __init__(self, tale: Tale) -> None:
        self._shared = Shared(tale.topic_names, tale.breaks, tale.recorded)
        self._until = tale.until
        self._span = tale.span
        self._is_settled = True
        self._group: GroupTimeline | None = None
        self._state: bytes | None = None
        self._place: tuple[int | None, int | None] | None = None
        self._is_open = False
        self._states: list[tuple[Any, ...]] = []

    def batch(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Tell the rows of a batch; what is finished by it."""
        shared = self._shared
        states = _states(batch, shared)
        waiting = []
        for row, (group_id, at, is_state, record, request) in enumerate(_rows(batch)):
            if request is not None and request["problem"] is not None:
                shared.rows.add("errors", _unreadable(request))
                continue
            if self._group is None or self._group.group_id != group_id:
                self._finish()
                self._group = states[group_id] if is_state else GroupTimeline(group_id, shared)
            if is_state:
                continue
            if at is None or (self._until is not None and at > self._until):
                self._open()
                waiting.append(row)
            if request is not None:
                self._group.request(at, request)
                continue
            if record.told_at is not None and not _within(record.told_at, self._span):
                self._is_settled = False
            self._group.record(at, record)
        if waiting:
            rows = in_columns(batch.take(pa.array(waiting)), INPUT)
            yield WAITING, rows.to_batches()[0]
        yield from shared.rows.full()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Tell the last group's end; all that is left."""
        self._finish()
        yield from self._shared.rows.rest()
        if self._states:
            columns = zip(*self._states, strict=True)
            arrays = [pa.array(one, field.type) for one, field in zip(columns, STATES, strict=True)]
            yield "states", pa.RecordBatch.from_arrays(arrays, schema=STATES)

    def _open(self) -> None:
        """From here on rows of this group are open: its state is kept as it is now."""
        if self._is_open or self._group is None:
            return
        group = self._group
        group.told_until = max(group.told_until, self._until or group.last_at)
        self._is_open = True
        self._state = freeze(group)
        self._place = group.place
        self._shared.rows.of_now(True)

    def _finish(self) -> None:
        group, shared = self._group, self._shared
        if group is None:
            return
        self._open()
        group.finish()
        state = self._state if self._place is not None and self._is_settled else None
        partition, offset = self._place or (None, None)
        self._states.append(
            (
                group.group_id, state, None if state is None else form(), partition, offset,
                group.told_until, group.latest, group.log.recorded,
                tuple(sorted(shared.topics.unnamed)),
            )
        )  # fmt: skip
        shared.topics.unnamed.clear()
        shared.rows.of_now(False)
        self._group, self._is_open, self._is_settled = None, False, True


def _states(batch: pa.RecordBatch, shared: Shared) -> dict[str, GroupTimeline]:
    """The timelines in a batch, by group."""
    if batch.schema.get_field_index("state") < 0:
        return {}
    held = batch.filter(batch["state"].is_valid())
    pairs = zip(held["group_id"].to_pylist(), held["state"].to_pylist(), strict=True)
    return {name: thaw(data, shared) for name, data in pairs}


def _within(at: int, span: tuple[int, int] | None) -> bool:
    return span is None or span[0] <= at <= span[1]


def _unreadable(request: Mapping[str, Any]) -> tuple[Any, ...]:
    """A line of a request log that could not be read, as a row of `errors`."""
    place = (request["source"], None, request["position"], None, None)
    return (*place, "request log line", request["problem"], None, None)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, Any, bool, Raw, Any]]:
    """Each row's group and time, whether it is a state, with its record or its request."""
    fields = (_values(batch, name) for name in Raw._fields)
    records = [Raw._make(row) for row in zip(*fields, strict=True)]
    requests: Iterable[Any] = itertools.repeat(None, len(batch))
    if any(one.key is None for one in records):
        names = REQUESTS.names
        columns = (_values(batch, name) for name in names)
        requests = [
            dict(zip(names, row, strict=True)) if record.key is None else None
            for record, row in zip(records, zip(*columns, strict=True), strict=True)
        ]
    states: Iterable[bool] = itertools.repeat(False, len(batch))
    if batch.schema.get_field_index("state") >= 0:
        states = batch["state"].is_valid().to_pylist()
    groups, times = _values(batch, "group_id"), _values(batch, "at")
    return zip(groups, times, states, records, requests, strict=True)


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    place = batch.schema.get_field_index(name)
    if place < 0 or batch.column(place).null_count == len(batch):
        return [None] * len(batch)
    column = batch.column(place)
    if name in ("at", "told_at"):
        column = column.cast(TIME).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
