"""Intake of a source's rows by one task: it reduces, sorts out and counts them.

rows ─┬─ commits ── reduced ───────────────── commit_parts
      ├─ group and member records ─────────── runs of them, and news of their groups
      ├─ what is broken ───────────────────── errors
      └─ all other kinds: only counted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.wire.offsets_topic import kind_name
from rebal.inspectors.fleet.commits import CommitSums, name_topics
from rebal.inspectors.fleet.files import read_rows
from rebal.inspectors.fleet.increments.choice import encoded, summed
from rebal.inspectors.fleet.kinds import REPEATED, explain, group_in, sort_out
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.runs import in_order, pack
from rebal.inspectors.fleet.schemas import ERRORS, TEXT, TIME, TIMELINE, in_columns
from rebal.inspectors.fleet.sources.files import Part
from rebal.inspectors.fleet.sources.requests import read_parts
from rebal.inspectors.fleet.spark.tasks import Work, in_shares
from rebal.inspectors.fleet.timeline.clock import span_of
from rebal.inspectors.fleet.writer import PartWriter, Target, TaskReport
from rebal.inspectors.logs.lines import Zone

COPIES: Final = "copies"
"""A column that says how often the source has a record; without it, each comes once."""
_HELD: Final = 64 << 20
"""Bytes of rows that a task sorts at once."""
_BROKEN: Final = pa.schema(
    [(name, ERRORS.field(name).type) for name in ("source", "offset", "value")]
)


def only_new(
    batches: Iterable[pa.RecordBatch],
    read: Work,
    after: Mapping[int, int],
    broken: Callable[[], Iterable[pa.Table]],
) -> Iterator[pa.RecordBatch]:
    """Yield what `read` makes of the batches without the rows that an earlier scan has read.

    Those are records up to the offsets `after`, by partition. A row without an offset is known by
    its file and a hash of its text, if it is among the `broken` rows.
    """
    known: set[tuple[str, bytes]] | None = None
    for batch in read(batches):
        rows = _later(pa.Table.from_batches([batch]), after)
        if rows["offset"].null_count:
            if known is None:
                known = {line for found in broken() for line in _hashed(found)}
            of = zip(rows["offset"].is_valid().to_pylist(), _hashed(rows), strict=True)
            rows = rows.filter(pa.array([placed or line not in known for placed, line in of]))
        yield from rows.to_batches()


def read_broken(place: Place, paths: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows without an offset in files of what could not be read."""
    for path in paths:
        yield from read_rows(place, path, _BROKEN, pc.field("offset").is_null())


def take_in(
    batches: Iterable[pa.RecordBatch], target: Target, read: Work, latest: int
) -> Iterator[pa.RecordBatch]:
    """One task's part of the source → its files in the lake, and its report.

    `read` makes rows of `SOURCE`, and perhaps `COPIES`, of the batches. `latest` is the last time
    that can be, by the clock of the machine that scans.
    """
    writer = PartWriter(target)
    commits, runs = CommitSums(), _Runs("records", writer)
    for batch in read(batches):
        rows = pa.Table.from_batches([batch])
        if not len(rows):
            continue
        rows = _counted(rows, writer)
        _note_extent(writer.said, rows, latest)
        found = sort_out(batch)
        counted = found.kinds[~found.doubtful]
        for kind, amount in zip(*np.unique(counted, return_counts=True), strict=True):
            writer.said.records[kind_name(int(kind))] += int(amount)
        if found.commits.any():
            commits.add(rows.filter(pa.array(found.commits)))
        if found.history.any():
            kept = rows.filter(pa.array(found.history)).combine_chunks()
            told = kept.append_column("group_id", _groups(kept["key"]))
            told = told.append_column("at", kept["timestamp"])
            runs.add(in_columns(told, TIMELINE))
        if found.doubtful.any():
            explain(writer, rows.filter(pa.array(found.doubtful)))
    runs.end()
    parts = commits.parts()
    name_topics(parts, writer)
    writer.write("commit_parts", parts)
    yield from writer.report()


def take_requests(
    batches: Iterable[pa.RecordBatch],
    target: Target,
    shares: Sequence[Sequence[Part]],
    zone: Zone,
    latest: int,
) -> Iterator[pa.RecordBatch]:
    """One task's shares of request logs → its files in the lake, and its report.

    A time that names no zone is of `zone` (None: UTC); `latest` is as in `take_in`.
    """
    writer = PartWriter(target)
    runs = _Runs("requests", writer)
    times: list[pa.Array] = []
    read = partial(read_parts, zone=zone, counts=writer.said.lines)
    for rows in in_shares(batches, shares, read):
        runs.add(rows)
        times.append(rows["at"].combine_chunks())
    runs.end()
    writer.said.stretch(span_of(pa.chunked_array(times, TIME), latest))
    yield from writer.report()


class _Runs:
    """Writes rows in runs, sorted many at once, and reports the news of their groups."""

    def __init__(self, kind: str, writer: PartWriter) -> None:
        self._kind, self._writer = kind, writer
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._news: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Take rows."""
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _HELD:
            self._write()

    def end(self) -> None:
        """Write what is left, and report the news."""
        self._write()
        self._writer.said.news = encoded(summed(self._news))

    def _write(self) -> None:
        rows = in_order(self._held) if self._held else ()
        self._held, self._bytes = [], 0
        if len(rows):
            runs = pack(rows)
            self._writer.write(self._kind, runs)
            self._news.append(summed([runs]))


def _counted(rows: pa.Table, writer: PartWriter) -> pa.Table:
    """Return the rows without the number of their copies, which `writer` gets."""
    if COPIES not in rows.column_names:
        writer.said.rows += len(rows)
        return rows
    copies = pc.sum(rows[COPIES]).as_py()
    writer.said.rows += copies
    if copies > len(rows):
        writer.said.records[REPEATED] += copies - len(rows)
    return rows.drop_columns([COPIES])


def _later(rows: pa.Table, after: Mapping[int, int]) -> pa.Table:
    """Return the rows after these offsets, and those without a place."""
    partitions = rows["partition"].combine_chunks().dictionary_encode()
    last = [after.get(number, -1) for number in partitions.dictionary.to_pylist()]
    known = pa.array([*last, -1], pa.int64()).take(pc.fill_null(partitions.indices, len(last)))
    newer = pc.or_(pc.is_null(rows["offset"]), pc.greater(rows["offset"], known))
    return rows.filter(pc.fill_null(newer, True))


def _hashed(rows: pa.Table) -> Iterator[tuple[str, bytes]]:
    """Yield the file and a hash of the text of each row."""
    for source, text in zip(rows["source"].to_pylist(), rows["value"].to_pylist(), strict=True):
        yield source, blake2b(text or b"", digest_size=16).digest()


def _groups(keys: pa.ChunkedArray) -> pa.Array:
    """Return the groups that these keys name."""
    found = keys.combine_chunks().dictionary_encode()
    names = [group_in(key).decode("utf-8", "replace") for key in found.dictionary.to_pylist()]
    return pa.array(names, TEXT).take(found.indices)


def _note_extent(said: TaskReport, rows: pa.Table, latest: int) -> None:
    """Report which offsets of each partition were read, and the first and last time of records."""
    read = rows.group_by("partition", use_threads=False)
    asked = [("offset", what) for what in ("min", "max", "count", "count_distinct")]
    for one in read.aggregate(asked).to_pylist():
        if one["partition"] is not None and one["offset_max"] is not None:
            said.reach(one["partition"], one["offset_min"], one["offset_max"])
            said.offsets[one["partition"]] += one["offset_count"]
            said.twice |= one["offset_count_distinct"] < one["offset_count"]
    if rows["problem"].null_count < len(rows):
        rows = rows.filter(pc.is_null(rows["problem"]))
    said.stretch(span_of(rows["timestamp"], latest))
