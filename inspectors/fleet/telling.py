"""What a task makes of a range of groups: `commits`, the timeline's tables, all groups' rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from rebal.inspectors.fleet.buckets import BUCKET, Range, Shape, in_order, read_range
from rebal.inspectors.fleet.commits.groups import commit_groups
from rebal.inspectors.fleet.commits.table import merge_commits, write_commits
from rebal.inspectors.fleet.kinds import group_in
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.parts import PartWriter, Target
from rebal.inspectors.fleet.schemas import GROUPS, TEXT
from rebal.inspectors.fleet.timeline.timeline import ORDER, RECORD, make_tables


@dataclass(frozen=True)
class Tale:
    """What is told: these ranges, with topics' names by id, and the time that all sources cover
    in microseconds since 1970 (None: no source has a time). With `log` a request log was read;
    `breaks` are the manifest's."""

    ranges: tuple[Range, ...]
    topic_names: Mapping[str, str]
    observed: tuple[int, int] | None
    log: bool
    breaks: Mapping[int, Sequence[int]] = field(default_factory=dict)


def tell(batches: Iterable[pa.RecordBatch], target: Target, tale: Tale) -> Iterator[pa.RecordBatch]:
    """The ranges whose numbers the batches hold → files in the lake, and reports."""
    writer = PartWriter(target)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            _tell(target.place, tale.ranges[number], tale, writer)
    yield from writer.report()


def _tell(place: Place, within: Range, tale: Tale, writer: PartWriter) -> None:
    parts = merge_commits(read_range(place, within, "commit_parts"))
    commits = write_commits(parts, writer, tale.observed)
    groups = [GROUPS.empty_table()]
    recorded: set[str] = set()
    rows = in_order(place, within, _SHAPES, ORDER, span=tale.observed, recorded=recorded)
    for table, made in make_tables(rows, tale.topic_names, tale.observed, tale.breaks, recorded):
        if table == "groups":
            groups.append(pa.Table.from_batches([made]))
        else:
            writer.write(table, made)
    told = pa.concat_tables(groups)
    told = pa.concat_tables(
        [told, commit_groups(commits, told["group_id"], tale.observed, log=tale.log)]
    )
    writer.write("groups", told.sort_by("group_id"))


def _record_rows(rows: pa.Table) -> pa.Table:
    """Rows of `records` as the timeline takes them, of the columns that are there."""
    keys = rows["key"].combine_chunks().dictionary_encode()
    names = [group_in(key).decode("utf-8", "replace") for key in keys.dictionary.to_pylist()]
    made = {
        "group_id": pa.array(names, TEXT).take(keys.indices),
        "at": rows["timestamp"],
        **{name: rows[name] for name in (*RECORD, "source", BUCKET) if name in rows.column_names},
        "position": pa.nulls(len(rows), pa.int64()),
    }
    return pa.table(made)


def _request_rows(rows: pa.Table) -> pa.Table:
    """Rows of `requests` as the timeline takes them, of the columns that are there."""
    size = len(rows)
    return rows.append_column("partition", pa.nulls(size, pa.int32())).append_column(
        "offset", pa.nulls(size, pa.int64())
    )


_SHAPES: Final = {
    "records": Shape(["key", "timestamp", "partition", "offset", "source"], _record_rows, "value"),
    "requests": Shape(["group_id", "at", "source", "position"], _request_rows),
}
