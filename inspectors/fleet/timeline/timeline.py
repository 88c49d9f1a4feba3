"""The timeline: one pass over all groups' records and requests, in order, to the tables' rows.

`make_tables(batches)` takes Arrow batches of `INPUT`, sorted by `ORDER`, a group's rows one after
another (they may span batches), and yields `(kind, batch)`: rows of the tables in `rows.MADE`,
those that a later scan may replace as kinds that begin with `rows.OPEN`, and of each group its
state, from which the next scan goes on. Nothing here needs Spark, the wall clock or a file: the
same rows, in batches of any size and in any number of scans, give the same tables. Of a group only
its present state is kept in memory.

A row holds a group's state of the scan before (`state` is set), a record (`key` is set) or a line
of a request log; one that could not be read (`problem` is set) belongs to no group and becomes a
row of `errors`. Records of kinds 0 and 1 (commits) do not belong here. Rows come out group by
group; within a group in the order in which they are finished.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.schemas import REQUESTS, STATES, TIME, TIMELINE, in_columns
from rebal.inspectors.fleet.timeline.events import DISORDER, Record, early
from rebal.inspectors.fleet.timeline.group import apply_record, apply_request, finish
from rebal.inspectors.fleet.timeline.rows import make_batch
from rebal.inspectors.fleet.timeline.shared import Shared
from rebal.inspectors.fleet.timeline.state import SCHEMA, GroupState, decode, encode, new_state

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
DAMAGED: Final = "damaged"
"""The kind of rows of `_DAMAGED`: groups whose states are damaged; no other row of them is made."""
_DAMAGED: Final = pa.schema([STATES.field("group_id")])


@dataclass(frozen=True)
class Options:
    """How the rows of groups are made.

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
    """Rows of groups, members, assignor_lists, rebalances, incidents, errors and states."""
    timeline = _Timeline(options)
    for batch in batches:
        yield from timeline.batch(batch)
    yield from timeline.rest()


class _Timeline:
    """Groups whose rows are made, one after another."""

    def __init__(self, options: Options) -> None:
        self._shared = Shared(options.topic_names, options.breaks)
        self._options = options
        self._group_id: str | None = None
        # None: before the first group, or where its state is damaged
        self._group: GroupState | None = None
        self._is_settled = True
        # the state's row, once rows are open
        self._saved: dict[str, Any] | None = None
        self._states: list[dict[str, Any]] = []
        self._damaged: list[dict[str, Any]] = []

    def batch(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Tell the rows of a batch; what is finished by it."""
        rows, until = self._shared.rows, self._options.until
        waiting = []
        columns = {name: _values(batch, name) for name in INPUT.names}
        heads = zip(columns["group_id"], columns["state"], columns["problem"], strict=True)
        records = map(Record._make, zip(*(columns[name] for name in Record._fields), strict=True))
        for number, ((group_id, state, problem), record) in enumerate(
            zip(heads, records, strict=True)
        ):
            if problem is not None:
                rows.add(
                    "errors",
                    group_id=None,
                    source=record.source,
                    offset=columns["position"][number],
                    what="request log line",
                    error=problem,
                )
                continue
            if self._group_id != group_id:
                self._finish()
                self._begin(group_id, state)
            if state is not None or self._group is None:
                continue
            at, told_at = record.at, record.told_at
            if at is None or (until is not None and at > until):
                self._open(self._group)
                waiting.append(number)
            if record.key is None:
                request = {name: columns[name][number] for name in REQUESTS.names}
                at = None if at is None else at + DISORDER
                apply_request(self._group, self._shared, at, request)
                continue
            self._is_settled &= told_at is None or _within(told_at, self._options.span)
            apply_record(self._group, self._shared, record)
        if waiting:
            rows_left = in_columns(batch.take(pa.array(waiting)), INPUT)
            yield WAITING, early(rows_left, -DISORDER).to_batches()[0]
        yield from rows.full()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Tell the last group's end; all that is left."""
        self._finish()
        yield from self._shared.rows.rest()
        if self._states:
            yield "states", make_batch(self._states, STATES)
        if self._damaged:
            yield DAMAGED, make_batch(self._damaged, _DAMAGED)

    def _begin(self, group_id: str, document: bytes | None) -> None:
        """Go on from the group's state, if it has one."""
        self._group_id = self._shared.rows.group_id = group_id
        if document is None:
            self._group = new_state(group_id, recorded=group_id in self._options.recorded)
            return
        try:
            self._group = decode(document, group_id)
        except DocumentError:
            self._damaged.append({"group_id": group_id})

    def _open(self, state: GroupState) -> None:
        """From here on rows of this group are open: its state is kept as it is now."""
        if self._saved is not None:
            return
        state.told_until = max(state.told_until, self._options.until or 0)
        partition, offset = state.place or (None, None)
        self._saved = {
            "group_id": state.group_id,
            "state": None if state.place is None else encode(state),
            "form": FORM,
            "partition": partition,
            "offset": offset,
            "told_until": state.told_until,
        }
        self._shared.rows.of_now(True)

    def _finish(self) -> None:
        state, shared = self._group, self._shared
        if state is None:
            return
        self._open(state)
        finish(state, shared)
        row = self._saved or {}
        if not self._is_settled or row["state"] is None:
            row |= {"state": None, "form": None}
        row["latest"], row["recorded"] = state.latest, state.recorded
        row["unnamed"] = sorted(shared.topics.unnamed)
        self._states.append(row)
        shared.topics.unnamed.clear()
        shared.rows.of_now(False)
        self._group, self._saved, self._is_settled = None, None, True


def _within(at: int, span: tuple[int, int] | None) -> bool:
    return span is None or span[0] <= at <= span[1]


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """A column's values; times are numbers, what the batch has not is null."""
    place = batch.schema.get_field_index(name)
    if place < 0 or batch.column(place).null_count == len(batch):
        return [None] * len(batch)
    column = batch.column(place)
    if name in ("at", "told_at"):
        column = column.cast(TIME).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
