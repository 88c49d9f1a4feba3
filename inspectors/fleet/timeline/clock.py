"""Times in the order of offsets: a record's timestamp is advice, its offset is the order.

A broker's clock may be set back, or be years ahead for a while. Records of one partition stand in
the order in which they were written, so their true times never run backwards. A timestamp that is
before an earlier record's, or outside of the time that all sources cover, is not believed: the
record takes the time of the one before it (of the first believed one where none is before it). Such
an effective time is no evidence of when: nothing that is measured between times (a latency, a
storm, a short life) rests on it.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from rebal.inspectors.fleet.schemas import TIME

TOLERANCE: Final = 1_000_000
"""Microseconds by which a record's own time may differ from its effective one and be evidence:
request threads of older brokers take the time before they take the partition's lock."""
DISORDER: Final = 10_000_000
"""How far the clocks of two sources may differ, in microseconds: a request counts so much early."""
# Kafka's first release: no record is older.
_EARLIEST: Final = int(datetime(2011, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


def effective_times(rows: pa.Table, span: tuple[int, int] | None = None) -> pa.Array:
    """Return the effective times of one group's rows, which have `at`, `partition` and `offset`.

    Those of one partition never run backwards in the order of offsets. `span` is the time that all
    sources cover, in microseconds since 1970: what lies outside is not believed. A row without an
    offset is a request, which loses such a time.
    """
    first, until = span or (_EARLIEST, np.iinfo(np.int64).max)
    at, offset, partition = (rows[name].combine_chunks() for name in ("at", "offset", "partition"))
    told, is_record = (np.asarray(column.is_valid()) for column in (at, offset))
    times, offsets = (np.asarray(one.cast(pa.int64()).fill_null(0)) for one in (at, offset))
    partitions = np.asarray(partition.fill_null(-1))
    inside = (times >= first) & (times <= until)
    made = times.copy()
    for number in np.unique(partitions[is_record & told]):
        mine = np.flatnonzero(is_record & told & (partitions == number))
        series = mine[np.argsort(offsets[mine], kind="stable")]
        believed = times[series][inside[series]]
        earliest = believed[0] if len(believed) else first
        made[series] = np.maximum.accumulate(np.where(inside[series], times[series], earliest))
    lost = ~(is_record | inside)
    return pa.array(made, mask=~told | lost).cast(at.type)


def span_of(times: pa.ChunkedArray, latest: int) -> tuple[int, int] | None:
    """Return the first and the last of these times, without those that cannot be.

    Such are times before Kafka was, and those after `latest` beside others that are not.
    """
    at = times.drop_null().cast(TIME).cast(pa.int64()).to_numpy()
    possible = at[at >= _EARLIEST]
    past = possible[possible <= latest]
    found = past if len(past) else possible
    return (int(found.min()), int(found.max())) if len(found) else None


def latest_time() -> int:
    """Return the last time that is believed by this machine's clock: a day ahead of it."""
    return int((datetime.now(UTC) + timedelta(days=1)).timestamp()) * 1_000_000
