"""Intake of a source's rows by one task: it reduces, sorts out and counts them.

rows ─┬─ commits ── reduced ───────────────── commit_parts
      ├─ group and member records ─────────── records, runs of them, and news of their groups
      ├─ what is broken ───────────────────── errors
      └─ all other kinds: only counted
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rebal.groups.wire.offsets_topic import kind_name
from rebal.inspectors.fleet.commits.sums import CommitSums
from rebal.inspectors.fleet.commits.table import name_topics
from rebal.inspectors.fleet.kinds import REPEATED, explain, group_in, sort_out
from rebal.inspectors.fleet.news import Places
from rebal.inspectors.fleet.parts import PartWriter, Target
from rebal.inspectors.fleet.runs import Packer
from rebal.inspectors.fleet.schemas import OF_RECORDS, RECORDS, REQUESTS, TEXT, TIME, in_columns
from rebal.inspectors.fleet.sources.request_rows import COUNTS
from rebal.inspectors.fleet.spark.tasks import Work
from rebal.inspectors.fleet.timeline.clock import extent, span_of

COPIES: Final = "copies"
"""A column that says how often the source has a record; without it, each comes once."""
ROWS: Final = "rows of the source"
"""The count of what was read, records and others, before anything is done with it."""


def only_new(
    batches: Iterable[pa.RecordBatch],
    read: Work | None,
    after: Mapping[int, int],
    broken: frozenset[tuple[str, bytes]],
) -> Iterator[pa.RecordBatch]:
    """A source's rows without those that an earlier scan has read.

    That are those up to the offsets in `after` (by partition), and `broken` rows without an offset
    (file and text).
    """
    for batch in batches if read is None else read(batches):
        yield from _fresh(pa.Table.from_batches([batch]), after, broken).to_batches()


def take_in(
    batches: Iterable[pa.RecordBatch], target: Target, read: Work | None, latest: int
) -> Iterator[pa.RecordBatch]:
    """One task's part of the source → its files in the lake, and reports (`parts.REPORT`).

    `latest` is the last time that can be, by the clock of the machine that scans.
    """
    writer = PartWriter(target)
    commits = CommitSums()
    news, packer = Places(), Packer()
    for batch in batches if read is None else read(batches):
        rows = pa.Table.from_batches([batch])
        if not len(rows):
            continue
        rows = _counted(rows, writer)
        _note_extent(writer, rows, latest)
        found = sort_out(*(batch.column(name) for name in ("key", "value", "problem")))
        counted = found.kinds[~found.doubtful]
        for kind, amount in zip(*np.unique(counted, return_counts=True), strict=True):
            writer.count(kind_name(int(kind)), int(amount))
        if found.commits.any():
            commits.add(rows.filter(pa.array(found.commits)))
        if found.history.any():
            kept = rows.filter(pa.array(found.history)).combine_chunks()
            groups = _groups(kept["key"])
            news.note(groups, kept, "timestamp", of_records=True)
            names = groups.dictionary.take(groups.indices)
            kept = kept.select(RECORDS.names).add_column(0, "group_id", names)
            writer.write("records", kept)
            for runs in packer.add(_told(kept)):
                writer.write("runs", runs)
        if found.doubtful.any():
            for row in rows.filter(pa.array(found.doubtful)).to_pylist():
                explain(writer, row)
    for runs in packer.rest():
        writer.write("runs", runs)
    parts = commits.parts()
    name_topics(parts, writer)
    writer.write("commit_parts", parts)
    news.report(writer)
    yield from writer.report()


def take_requests(
    batches: Iterable[pa.RecordBatch], target: Target, latest: int
) -> Iterator[pa.RecordBatch]:
    """Rows of `request_rows.COUNTED` → files in the lake, and reports; `latest` as in `take_in`."""
    writer = PartWriter(target)
    news = Places()
    times: list[pa.Array] = []
    for batch in batches:
        found = pa.Table.from_batches([batch])
        for name in COUNTS:
            amount = pc.sum(found[name]).as_py()
            if amount:
                writer.say("lines", name, "", amount, 0, None, None)
        rows = found.filter(pc.is_null(found[COUNTS[0]])).select(REQUESTS.names).cast(REQUESTS)
        writer.write("requests", rows)
        read = rows.filter(pc.is_null(rows["problem"])).combine_chunks()
        if len(read):
            groups = read["group_id"].combine_chunks().dictionary_encode()
            news.note(groups, read, "at", of_records=False)
            times.append(read["at"].combine_chunks())
    span = span_of(pa.chunked_array(times, TIME), latest)
    if span is not None:
        writer.span(*span)
    news.report(writer)
    yield from writer.report()


def _counted(rows: pa.Table, writer: PartWriter) -> pa.Table:
    """The rows without the number of their copies, which `writer` gets."""
    if COPIES not in rows.column_names:
        writer.count(ROWS, len(rows))
        return rows
    copies = pc.sum(rows[COPIES]).as_py()
    writer.count(ROWS, copies)
    if copies > len(rows):
        writer.count(REPEATED, copies - len(rows))
    return rows.drop_columns([COPIES])


def _fresh(
    rows: pa.Table, after: Mapping[int, int], broken: frozenset[tuple[str, bytes]]
) -> pa.Table:
    if after:
        partitions = rows["partition"].combine_chunks().dictionary_encode()
        last = [after.get(number, -1) for number in partitions.dictionary.to_pylist()]
        known = pa.array([*last, -1], pa.int64()).take(pc.fill_null(partitions.indices, len(last)))
        newer = pc.or_(pc.is_null(rows["offset"]), pc.greater(rows["offset"], known))
        rows = rows.filter(pc.fill_null(newer, True))
    if broken and rows["offset"].null_count:
        lines = zip(
            *(rows[name].to_pylist() for name in ("offset", "source", "value")), strict=True
        )
        rows = rows.filter(
            pa.array([offset is not None or (*of,) not in broken for offset, *of in lines])
        )
    return rows


def _groups(keys: pa.ChunkedArray) -> pa.DictionaryArray:
    """The groups that these keys name."""
    found = keys.combine_chunks().dictionary_encode()
    names = [group_in(key).decode("utf-8", "replace") for key in found.dictionary.to_pylist()]
    codes = pa.array(names, TEXT).dictionary_encode()
    return pa.DictionaryArray.from_arrays(codes.indices.take(found.indices), codes.dictionary)


def _told(records: pa.Table) -> pa.Table:
    """Rows of the table `records` as a timeline takes them."""
    return in_columns(records.append_column("at", records["timestamp"]), OF_RECORDS)


def _note_extent(writer: PartWriter, rows: pa.Table, latest: int) -> None:
    """Report the last offset of each partition, and the first and last time of records."""
    read = rows.group_by("partition", use_threads=False)
    for one in read.aggregate([("offset", "max"), ("offset", "count")]).to_pylist():
        if one["partition"] is not None and one["offset_max"] is not None:
            writer.reach(str(one["partition"]), one["offset_max"], one["offset_count"])
    if rows["problem"].null_count < len(rows):
        rows = rows.filter(pc.is_null(rows["problem"]))
    found = extent(rows, latest)
    if found is not None:
        writer.span(*found)
