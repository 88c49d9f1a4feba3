"""Packed runs: many rows of one group as one row of `RUNS`, as the lake keeps them.

The rows are a group's records or requests. They are nearly equal, so a run packs them to a few
hundredths of their size, in the lake and on the way through the JVM. The other columns of a run
bound its offsets and times. A task holds the runs of one group packed. It first looks at all their
times together, because a timestamp is believed or not by comparison with the others. It then
unpacks each run when its first row is due, and merges runs that overlap.

The order of records is their offsets, not their timestamps. A broker's clock may be set back, or be
years ahead for a while. Records of one partition are stored in the order in which they were
written, so their true times never run backwards. A timestamp is not believed if it is before that
of an earlier record, or outside the time that all sources cover. Such a record takes the time of
the record before it, or of the first believed record where none is before it. Such an effective
time does not prove when the record was written, so no duration (a latency, a storm, a short life)
is measured with it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import chain, groupby, pairwise, starmap
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.schemas import RUNS, TIME, TIMELINE, values_of, with_columns
from rebal.inspectors.fleet.timeline.facts import DISORDER
from rebal.inspectors.fleet.timeline.group import ORDER, TimelineRow

STATE, RECORDS, REQUESTS = KINDS = ("state", "records", "requests")
_RUN_BYTES: Final = 1 << 20
_RUN_ROWS: Final = 1024
# As many runs become one that is no larger than one may be.
_SHORT: Final = 8
_CODEC: Final = "zstd"
# Kafka's first release: no record is older.
_EARLIEST: Final = int(datetime(2011, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_Values = np.ndarray[Any, np.dtype[Any]]


class PackedRun(NamedTuple):
    """A row of `RUNS` as a tuple; times are microseconds since 1970.

    `size` is the bytes of its rows before packing. `times` are effective times that replace those
    of its rows (None: the rows keep their own).
    """

    group_id: str
    kind: str
    partition: int | None
    offset: int
    last_offset: int
    at: int | None
    until: int
    ordered: bool
    size: int
    packed: bytes
    times: pa.Array | None = None

    def rows(self) -> pa.Table:
        """Return the run's rows, unpacked and sorted by `ORDER`.

        If the run has effective `times`, `told_at` keeps each timestamp that they replace.
        """
        rows = pa.Table.from_batches(
            [pa.ipc.read_record_batch(pa.decompress(self.packed, self.size, _CODEC), TIMELINE)]
        )
        if self.times is None:
            return rows
        own = pc.if_else(
            pc.fill_null(pc.not_equal(self.times, rows["at"]), True),
            rows["at"],
            pa.scalar(None, TIME),
        )
        return in_order([with_columns(rows, {"at": self.times, "told_at": own})])


def in_order(held: Sequence[pa.Table]) -> pa.Table:
    """Return all rows of these tables in one table, sorted by the columns `ORDER` (group first)."""
    rows = pa.concat_tables(held, promote_options="default")
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in ORDER]))


def pack(rows: pa.Table) -> pa.Table:
    """Pack rows of `TIMELINE`, which `in_order` has sorted, into runs; return rows of `RUNS`."""
    is_record, is_state, is_timed = (_valid(rows, name) for name in ("key", "state", "at"))
    kinds = np.where(is_state, 0, np.where(is_record, 1, 2))
    partitions, offsets, times = (_numbers(rows, name) for name in ("partition", "offset", "at"))
    large = (pc.fill_null(pc.binary_length(rows[name]), 0) for name in ("value", "state"))
    starts = _starts(
        _codes(rows),
        kinds,
        partitions,
        is_timed,
        np.cumsum(sum(map(np.asarray, large), start=np.full(len(rows), 64))),
    )
    starts = np.union1d(starts, np.arange(0, len(rows), _RUN_ROWS))
    backwards = np.diff(offsets, prepend=offsets[:1]) < 0
    backwards[starts] = False
    whole = rows.select(TIMELINE.names).combine_chunks()
    found = [
        whole.slice(start, end - start).to_batches()[0].serialize()
        for start, end in zip(starts, np.append(starts, len(rows))[1:], strict=True)
    ]
    is_placed, has_time = is_record[starts], is_timed[starts]
    columns = {
        "group_id": rows["group_id"].take(pa.array(starts)),
        "kind": pa.array([KINDS[kind] for kind in kinds[starts]]),
        "partition": pa.array(partitions[starts], mask=~is_placed),
        "offset": pa.array(np.minimum.reduceat(offsets, starts), mask=~is_placed),
        "last_offset": pa.array(np.maximum.reduceat(offsets, starts), mask=~is_placed),
        "at": pa.array(np.minimum.reduceat(times, starts), mask=~has_time),
        "until": pa.array(np.maximum.reduceat(times, starts), mask=~has_time),
        "ordered": pa.array(~np.logical_or.reduceat(backwards, starts)),
        "size": pa.array([one.size for one in found], pa.int64()),
        "rows": pa.array([pa.compress(one, _CODEC, asbytes=True) for one in found], pa.binary()),
    }
    return pa.table([columns[one.name].cast(one.type) for one in RUNS], schema=RUNS)


def merge_short_runs(runs: pa.Table) -> pa.Table:
    """Merge neighbouring runs of one group, kind and partition if 8 or more fit into one run.

    `runs` are sorted rows of `RUNS`. The result is rows of `RUNS` in any order.
    """
    kinds = _codes(runs, "kind")
    partitions, sizes = _numbers(runs, "partition"), np.cumsum(_numbers(runs, "size"))
    starts = _starts(_codes(runs), kinds, partitions, _valid(runs, "at"), sizes)
    counts = np.append(starts[1:], len(runs)) - starts
    alone = runs.filter(pa.array(np.repeat(counts < _SHORT, counts)))
    parts = (runs.slice(starts[one], counts[one]) for one in np.flatnonzero(counts >= _SHORT))
    made = [pack(in_order([run.rows() for run in runs_of(part)])) for part in parts]
    return pa.concat_tables([alone.select(RUNS.names), *made])


def gathered(tables: Iterable[pa.Table], most_bytes: int) -> Iterator[list[pa.Table]]:
    """Yield the tables in lists of at least `most_bytes` bytes each; leave out empty tables.

    The last list may be smaller.
    """
    held: list[pa.Table] = []
    size = 0
    for rows in filter(len, tables):
        held.append(rows)
        size += rows.nbytes
        if size >= most_bytes:
            yield held
            held, size = [], 0
    if held:
        yield held


def runs_of(rows: pa.Table | pa.RecordBatch) -> Iterator[PackedRun]:
    """Yield each row of `RUNS` as a `PackedRun`."""
    yield from starmap(PackedRun, zip(*(values_of(rows[one.name]) for one in RUNS), strict=True))


def unpack(
    batches: Iterable[pa.RecordBatch], span: tuple[int, int] | None
) -> Iterator[TimelineRow]:
    """Yield the rows of packed runs: of each group first its state, then its other rows by `ORDER`.

    `batches` hold rows of `RUNS`, one group after another. A request is placed `DISORDER` earlier
    than its time. Rows have effective times (`effective_times`). `span` is the first and last time
    that all sources cover, in microseconds since 1970 (None: not limited).
    """
    for _, of_group in groupby(
        chain.from_iterable(map(runs_of, batches)), key=attrgetter("group_id")
    ):
        for _, record in merge(*map(_opened, _settled(list(of_group), span)), key=itemgetter(0)):
            if record is not None:
                yield record


def _opened(run: PackedRun) -> Iterator[tuple[tuple[Any, ...], TimelineRow | None]]:
    """Yield the run's sort key with None, then each of its rows with the row's own sort key.

    The first key needs no unpacking, so a merge unpacks the run only when it is due.
    """
    early = DISORDER if run.kind == REQUESTS else 0
    yield (run.kind != STATE, run.at is None, (run.at or 0) - early), None
    rows = run.rows()
    for record in map(TimelineRow, *(values_of(rows[name]) for name in TimelineRow._fields)):
        time = (run.kind != STATE, record.at is None, (record.at or 0) - early)
        place = (record.partition or 0, record.offset or 0, record.source, record.position or 0)
        yield (*time, record.partition is None, *place), record


def _settled(runs: list[PackedRun], span: tuple[int, int] | None) -> list[PackedRun]:
    """Return a group's runs, with effective times if not all of their timestamps are believed."""
    if not _is_doubtful(runs, span):
        return runs
    tables = [run.rows().select(["at", "partition", "offset"]) for run in runs]
    times = effective_times(pa.concat_tables(tables), span)
    made, end = [], 0
    for run, rows in zip(runs, tables, strict=True):
        mine, end = times.slice(end, len(rows)), end + len(rows)
        made.append(run._replace(times=mine, at=pc.min(mine.cast(pa.int64())).as_py()))
    return made


def _is_doubtful(runs: Sequence[PackedRun], span: tuple[int, int] | None) -> bool:
    if span is not None and any(
        run.at is not None and (run.at < span[0] or run.until > span[1]) for run in runs
    ):
        return True
    records = [run for run in runs if run.kind == RECORDS]
    records.sort(key=attrgetter("partition", "offset"))
    return not all(run.ordered for run in records) or any(
        before.partition == run.partition
        and (run.offset <= before.last_offset or (run.at or 0) < before.until)
        for before, run in pairwise(records)
    )


def effective_times(rows: pa.Table, span: tuple[int, int] | None = None) -> pa.Array:
    """Return the effective times of one group's rows, which have `at`, `partition` and `offset`.

    Within a partition they never run backwards in the order of offsets. `span` is the first and
    last time that all sources cover, in microseconds since 1970; a time outside is not believed. A
    row without an offset is a request, and its time becomes null if it is not believed.
    """
    first, until = span or (_EARLIEST, np.iinfo(np.int64).max)
    at, offset, partition = (rows[name].combine_chunks() for name in ("at", "offset", "partition"))
    timed, is_record = (np.asarray(column.is_valid()) for column in (at, offset))
    times, offsets = (np.asarray(one.cast(pa.int64()).fill_null(0)) for one in (at, offset))
    partitions = np.asarray(partition.fill_null(-1))
    inside = (times >= first) & (times <= until)
    made = times.copy()
    for number in np.unique(partitions[is_record & timed]):
        mine = np.flatnonzero(is_record & timed & (partitions == number))
        series = mine[np.argsort(offsets[mine], kind="stable")]
        believed = times[series][inside[series]]
        made[series] = np.maximum.accumulate(
            np.where(inside[series], times[series], believed[0] if len(believed) else first)
        )
    return pa.array(made, mask=~(timed & (is_record | inside))).cast(at.type)


def span_of(times: pa.ChunkedArray, latest: int) -> tuple[int, int] | None:
    """Return the earliest and the latest plausible time in `times`, in microseconds since 1970.

    Times before 2011, Kafka's first release, are ignored. Times after `latest` are ignored too,
    unless no other time is left. None: there is no plausible time.
    """
    at = times.drop_null().cast(TIME).cast(pa.int64()).to_numpy()
    possible = at[at >= _EARLIEST]
    past = possible[possible <= latest]
    found = past if len(past) else possible
    return (int(found.min()), int(found.max())) if len(found) else None


def latest_time() -> int:
    """Return the latest timestamp that is believed: this machine's time plus one day.

    It is in microseconds since 1970.
    """
    return int((datetime.now(UTC) + timedelta(days=1)).timestamp()) * 1_000_000


def _starts(*columns: _Values) -> _Values:
    """Return the indexes of the rows at which runs begin.

    A run begins where one of the columns changes its value. The last column is a running sum of
    bytes: a run also begins where the sum passes another multiple of `_RUN_BYTES`.
    """
    *marks, sizes = columns
    cuts = np.diff(sizes // _RUN_BYTES, prepend=-1) != 0
    cuts[:1] = True
    for one in marks:
        cuts[1:] |= one[1:] != one[:-1]
    return np.flatnonzero(cuts)


def _codes(rows: pa.Table, name: str = "group_id") -> _Values:
    return np.asarray(rows[name].combine_chunks().dictionary_encode().indices.fill_null(-1))


def _numbers(rows: pa.Table, name: str) -> _Values:
    return np.asarray(rows[name].cast(pa.int64()).combine_chunks().fill_null(0))


def _valid(rows: pa.Table, name: str) -> _Values:
    return np.asarray(rows[name].combine_chunks().is_valid())
