"""Times in the order of offsets: a record's timestamp is advice, its offset is the order.

A broker's clock may be set back, or be years ahead for a while. Records of one partition stand in
the order in which they were written, so their true times never run backwards. The longest series
of timestamps that does not either is believed; every other record takes the time of the believed
one before it (of the first one where none is before it). Such an effective time is no evidence of
when: nothing that is measured between times (a latency, a storm, a short life) is told by it.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rebal.inspectors.fleet.schemas import TIME

Ints = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

TOLERANCE: Final = 1_000_000
"""Microseconds by which a record's own time may differ from its effective one and be evidence:
request threads of older brokers take the time before they take the partition's lock."""
_JITTER: Final = 10_000_000
_EARLIEST: Final = int(datetime(2011, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
"""Kafka's first release: no record is older."""
_AHEAD: Final = timedelta(days=1)


def believed(at: Ints) -> Mask:
    """Return which of these times, in the order of offsets, form the longest series in order."""
    tails: list[int] = []
    last: list[int] = []
    before = np.full(len(at), -1, np.int64)
    for place, time in enumerate(at.tolist()):
        length = bisect_right(tails, time)
        if length:
            before[place] = last[length - 1]
        if length == len(tails):
            tails.append(time)
            last.append(place)
        else:
            tails[length], last[length] = time, place
    kept = np.zeros(len(at), bool)
    place = last[-1] if last else -1
    while place >= 0:
        kept[place] = True
        place = int(before[place])
    return kept


def effective(at: Ints, span: tuple[int, int] | None = None) -> Ints:
    """Return times, in the order of offsets, that never run backwards.

    `span` is the time that all sources cover, in microseconds since 1970: what lies outside is not
    believed.
    """
    first, until = span or (_EARLIEST, int(at.max(initial=_EARLIEST)))
    kept = (at >= first) & (at <= until)
    inside = np.flatnonzero(kept)
    if (np.diff(at[inside]) < 0).any():
        kept[inside] = believed(at[inside])
    if kept.all():
        return at
    places = np.flatnonzero(kept)
    if not len(places):
        return np.maximum.accumulate(np.clip(at, first, until))
    nearest = np.searchsorted(places, np.arange(len(at)), side="right") - 1
    made: Ints = at[places[np.maximum(nearest, 0)]]
    return made


def settle(rows: pa.Table, span: tuple[int, int] | None = None) -> pa.Table:
    """Return the rows with effective times in `at`; the same table where they are so already.

    Rows have `group_id`, `at`, `partition` and `offset`; one without an offset is a request, which
    loses its time where that lies outside the `span`.
    """
    if not len(rows):
        return rows
    at = rows["at"].combine_chunks()
    times = at.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    told = at.is_valid().to_numpy(zero_copy_only=False)
    offsets = rows["offset"].combine_chunks()
    of_record = offsets.is_valid().to_numpy(zero_copy_only=False)
    records = np.flatnonzero(of_record & told)
    groups = rows["group_id"].combine_chunks().dictionary_encode().indices
    keys = [
        column.fill_null(-1).to_numpy(zero_copy_only=False)[records]
        for column in (offsets, rows["partition"].combine_chunks(), groups)
    ]
    order = np.lexsort(keys)
    records, series = records[order], [key[order] for key in keys[1:]]
    made = times.copy()
    bounds = np.flatnonzero((np.diff(series[0]) != 0) | (np.diff(series[1]) != 0)) + 1
    ordered = times[records]
    first, until = span or (_EARLIEST, np.iinfo(np.int64).max)
    backwards = np.diff(ordered) < 0
    backwards[bounds - 1] = False
    doubtful = (ordered < first) | (ordered > until)
    doubtful[1:] |= backwards
    for place in np.unique(np.searchsorted(bounds, np.flatnonzero(doubtful), side="right")):
        begin = bounds[place - 1] if place else 0
        end = bounds[place] if place < len(bounds) else len(records)
        made[records[begin:end]] = effective(ordered[begin:end], span)
    lost = ~of_record & told & ((times < first) | (times > until))
    if not lost.any() and not doubtful.any():
        return rows
    column = pa.array(made, mask=~told | lost).cast(at.type)
    return rows.set_column(rows.schema.get_field_index("at"), rows.field("at"), column)


def extent(rows: pa.Table, latest: int) -> tuple[int, int] | None:
    """Return the first and the last time of a source's records that can be believed.

    Rows have `partition`, `offset` and `timestamp`. Times before Kafka was, and those after
    `latest` beside others that are not, are left out; so are those that other records of their
    partition contradict by more than ten seconds.
    """
    times = rows["timestamp"].combine_chunks().cast(TIME)
    told = times.is_valid().to_numpy(zero_copy_only=False)
    at = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    partitions, offsets = (
        rows[name].combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)
        for name in ("partition", "offset")
    )
    kept = told & _can_be(at, latest)
    places = np.flatnonzero(kept)
    if len(places) and not _in_order(partitions[places], offsets[places]):
        places = places[np.lexsort((offsets[places], partitions[places]))]
    bounds = np.flatnonzero(np.diff(partitions[places])) + 1
    for part in np.split(places, bounds):
        mine = at[part]
        if len(part) and (np.maximum.accumulate(mine) - mine > _JITTER).any():
            kept[part] = believed(mine)
    return span_of(pa.chunked_array([times.filter(pa.array(kept))]), latest)


def span_of(times: pa.ChunkedArray, latest: int) -> tuple[int, int] | None:
    """Return the first and the last of these times, without those that cannot be."""
    at = times.drop_null().cast(TIME).cast(pa.int64()).to_numpy()
    found = at[_can_be(at, latest)]
    return (int(found.min()), int(found.max())) if len(found) else None


def latest_time() -> int:
    """Return the last time that is believed by this machine's clock: a day ahead of it."""
    return int((datetime.now(UTC) + _AHEAD).timestamp()) * 1_000_000


def _can_be(at: Ints, latest: int) -> Mask:
    """Return which times are not before Kafka was, nor after `latest` beside others."""
    kept: Mask = at >= _EARLIEST
    now = kept & (at <= latest)
    return now if now.any() else kept


def _in_order(partitions: Ints, offsets: Ints) -> bool:
    """Return whether rows stand by partition, and by offset within one."""
    step = np.diff(partitions)
    return bool(((step > 0) | ((step == 0) & (np.diff(offsets) >= 0))).all())
