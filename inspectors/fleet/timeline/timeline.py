"""The timeline: one pass over all groups' records and requests, in order, to the tables' rows.

`make_tables(records)` takes rows of `schemas.TIMELINE`, sorted by `ORDER`, a group's rows one after
another, and yields `(kind, batch)`: rows of the tables in `rows.MADE`, those that a later scan may
replace as kinds that begin with `rows.OPEN`, those of the input that wait for it, and of each group
its state, from which the next scan goes on. Nothing here needs Spark, the wall clock or a file: the
same rows, in any number of scans, give the same tables. Of a group only its present state is kept
in memory.

A row holds a group's state of the scan before (`state` is set), a record (`key` is set) or a line
of a request log. Records of kinds 0 and 1 (commits) do not belong here. Rows come out group by
group; within a group in the order in which they are finished.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import replace

from rebal.inspectors.fleet.timeline.clock import DISORDER
from rebal.inspectors.fleet.timeline.facts import unpack_request
from rebal.inspectors.fleet.timeline.group import TimelineRow, apply_record, apply_request, finish
from rebal.inspectors.fleet.timeline.rows import OPEN, SETTLED, Rows
from rebal.inspectors.fleet.timeline.state import SCHEMA, TimelineState, decode, encode

ORDER: Final = ("group_id", "at", "partition", "offset", "source", "position")
"""How rows are sorted after the group's state, by effective times (requests early), nulls last."""
FORM: Final = f"state {SCHEMA}"
"""How states are written: the column `form` of one that this rebal can go on from."""
_Line = tuple[int | None, int | None, bytes | None]
# After so many rows of a group those that are made are handed on.
_OFTEN: Final = 1024


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
    records: Iterable[TimelineRow], options: Options
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield rows of groups, members, assignor_lists, rebalances, incidents, errors and states."""
    rows = Rows(options.topic_names, options.breaks)
    for group_id, of_group in groupby(records, key=attrgetter("group_id")):
        rows.group_id = group_id
        yield from _tell(group_id, of_group, options, rows)
    yield from rows.take(rest=True)


def _tell(
    group_id: str, records: Iterable[TimelineRow], options: Options, rows: Rows
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Apply the rows of a group; yield those that wait, and what is finished."""
    until, span = options.until, options.span
    state = TimelineState(group_id=group_id, recorded=group_id in options.recorded)
    saved: dict[str, Any] | None = None
    is_settled = True
    heard: set[_Line] = set()
    for number, record in enumerate(records):
        if record.state is not None:
            state = decode(record.state, group_id)
            continue
        if _is_heard(record, heard):
            continue
        is_request, told_at = record.key is None, record.told_at
        early = DISORDER if is_request else 0
        if record.at is None or (until is not None and record.at - early > until):
            saved = saved or _open(state, until, rows)
            own = record.at if told_at is None else told_at
            rows.add("waiting", **record._replace(at=own, told_at=None)._asdict())
        if is_request:
            request = replace(unpack_request(record.value or b""), log=record.source)
            apply_request(state, rows, record.at, request)
        else:
            is_settled &= told_at is None or span is None or span[0] <= told_at <= span[1]
            apply_record(state, rows, record)
        if number % _OFTEN == 0:
            yield from rows.take()
    saved = saved or _open(state, until, rows)
    finish(state, rows)
    rows.kind = SETTLED
    if not is_settled or saved["state"] is None:
        saved |= {"state": None, "form": None}
    unnamed = sorted(rows.unnamed)
    rows.unnamed.clear()
    rows.add("states", **saved, latest=state.latest, recorded=state.recorded, unnamed=unnamed)
    yield from rows.take()


def _is_heard(row: TimelineRow, heard: set[_Line]) -> bool:
    """Return whether a row is a line that was `heard`: copies of logs may hold it again.

    Those of one time come one after another, and no others are remembered.
    """
    if row.key is not None:
        return False
    if any(at != row.at for at, _, _ in islice(heard, 1)):
        heard.clear()
    count = len(heard)
    heard.add((row.at, row.told_at, row.value))
    return len(heard) == count


def _open(state: TimelineState, until: int | None, rows: Rows) -> dict[str, Any]:
    """Take rows of this group as open ones from here on; return its state as it is now."""
    rows.kind = OPEN
    state.told_until = max(state.told_until, until or 0)
    # of a group with records in several partitions there is no one place to go on from
    partition, offset = next(iter(state.newest.items()), (None, None))
    is_split = len(state.newest) > 1
    return {
        "state": None if is_split else encode(state),
        "form": FORM,
        "partition": None if is_split else partition,
        "offset": None if is_split else offset,
        "told_until": state.told_until,
    }
