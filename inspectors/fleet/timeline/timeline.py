"""The timeline: one pass over all groups' records and requests, in order, to the tables' rows.

`make_tables(batches)` takes Arrow batches of `INPUT`, sorted by `ORDER`, a group's rows one after
another (they may span batches), and yields `(kind, batch)`: rows of the tables in `rows.MADE`,
those that a later scan may replace as kinds that begin with `rows.OPEN`, and of each group its
state, from which the next scan goes on. Nothing here needs Spark, the wall clock or a file: the
same rows, in batches of any size and in any number of scans, give the same tables. Of a group only
its present state is kept in memory.

A row holds a group's state of the scan before (`state` is set), a record (`key` is set) or a line
of a request log; one that could not be read (`problem` is set) names no group and becomes a row of
`errors`. Records of kinds 0 and 1 (commits) do not belong here. Rows come out group by
group; within a group in the order in which they are finished.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.schemas import REQUESTS, TIME, TIMELINE, in_columns
from rebal.inspectors.fleet.timeline.clock import DISORDER, early
from rebal.inspectors.fleet.timeline.group import Record, apply_record, apply_request, finish
from rebal.inspectors.fleet.timeline.rows import DAMAGED, Rows, Shared
from rebal.inspectors.fleet.timeline.state import SCHEMA, GroupState, decode, encode

INPUT: Final = TIMELINE
"""A record's columns and a request's, side by side; `group_id`, `at` and `source` are both's.
Columns are found by name, and one that a batch has not is null in it. `at` is the record's
effective time (`clock.settle`: of one partition they never run backwards), `told_at` its timestamp
where that may be another one. A row with an `api` is a request, and its `at` is `DISORDER` before
its time (`events.early`); null: its line has no time, it tells lists and nothing of when."""

ORDER: Final = ("group_id", "at", "partition", "offset", "source", "position")
"""How rows are sorted after the group's state, by effective times, nulls last."""
WAITING: Final = "waiting"
"""The kind of rows of `INPUT` that are given again to the next scan, after their group's state."""
FORM: Final = f"schema {SCHEMA}"
"""How states are written: the column `form` of one that this rebal can go on from."""


@dataclass(frozen=True)
class Options:
    """Settings for making the rows of groups.

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
    batches: Iterable[pa.RecordBatch], options: Options
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield rows of groups, members, assignor_lists, rebalances, incidents, errors and states."""
    shared = Shared(options.topic_names, options.breaks)
    for group_id, parts in groupby(_parts(batches), key=attrgetter("group_id")):
        shared.rows.group_id = group_id
        if group_id is None:
            yield from _problems(parts, shared.rows)
        else:
            yield from _tell(group_id, parts, options, shared)
    yield from shared.rows.take(rest=True)


class _Part(NamedTuple):
    """Rows of one group in a batch, whose columns are Python values: from `start` up to `end`."""

    group_id: str | None
    batch: pa.RecordBatch
    columns: Mapping[str, Sequence[Any]]
    start: int
    end: int

    def records(self) -> Iterator[tuple[int, Record]]:
        """Yield each row's number and what it holds of a record."""
        columns = (self.columns[name][self.start : self.end] for name in Record._fields)
        return enumerate(map(Record._make, zip(*columns, strict=True)), self.start)


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[_Part]:
    for batch in batches:
        columns = {name: _values(batch, name) for name in INPUT.names}
        end = 0
        for group_id, rows in groupby(columns["group_id"]):
            start, end = end, end + sum(1 for _ in rows)
            yield _Part(group_id, batch, columns, start, end)


def _problems(parts: Iterable[_Part], rows: Rows) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Make rows of `errors` of lines that could not be read: they are of no group."""
    for part in parts:
        for number, record in part.records():
            rows.add(
                "errors",
                source=record.source,
                offset=part.columns["position"][number],
                what="request log line",
                error=part.columns["problem"][number],
            )
        yield from rows.take()


def _tell(
    group_id: str, parts: Iterator[_Part], options: Options, shared: Shared
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Apply the rows of a group; yield those that wait, and what is finished."""
    rows, until = shared.rows, options.until
    span = options.span
    first = next(parts)
    document = first.columns["state"][first.start]
    state = GroupState(group_id=group_id, recorded=group_id in options.recorded)
    if document is not None:
        try:
            state = decode(document, group_id)
        except DocumentError:
            rows.add(DAMAGED)
            return
    saved: dict[str, Any] | None = None
    is_settled = True
    for part in chain([first], parts):
        waiting = []
        for number, record in part.records():
            if part.columns["state"][number] is not None:
                continue
            at, told_at = record.at, record.told_at
            if at is None or (until is not None and at > until):
                saved = saved or _open(state, until, rows)
                waiting.append(number)
            if record.key is None:
                request = {name: part.columns[name][number] for name in REQUESTS.names}
                apply_request(state, shared, None if at is None else at + DISORDER, request)
            else:
                is_settled &= told_at is None or span is None or span[0] <= told_at <= span[1]
                apply_record(state, shared, record)
        if waiting:
            rows_left = in_columns(part.batch.take(pa.array(waiting)), INPUT)
            yield WAITING, early(rows_left, -DISORDER).to_batches()[0]
        yield from rows.take()
    saved = saved or _open(state, until, rows)
    finish(state, shared)
    rows.of_now(False)
    if not is_settled or saved["state"] is None:
        saved |= {"state": None, "form": None}
    unnamed = sorted(shared.unnamed)
    shared.unnamed.clear()
    rows.add("states", **saved, latest=state.latest, recorded=state.recorded, unnamed=unnamed)


def _open(state: GroupState, until: int | None, rows: Rows) -> dict[str, Any]:
    """Take rows of this group as open ones from here on; return its state as it is now."""
    rows.of_now(True)
    state.told_until = max(state.told_until, until or 0)
    partition, offset = state.place or (None, None)
    return {
        "state": None if state.place is None else encode(state),
        "form": FORM,
        "partition": partition,
        "offset": offset,
        "told_until": state.told_until,
    }


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return a column's values; times are numbers, what the batch has not is null."""
    place = batch.schema.get_field_index(name)
    if place < 0 or batch.column(place).null_count == len(batch):
        return [None] * len(batch)
    column = batch.column(place)
    if name in ("at", "told_at"):
        column = column.cast(TIME).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
