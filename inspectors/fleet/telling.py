"""What a task makes of the groups that it is given: the timeline's tables and states; `commits`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.commits.groups import commit_groups
from rebal.inspectors.fleet.commits.table import merge_commits, write_commits
from rebal.inspectors.fleet.parts import PartWriter, Target
from rebal.inspectors.fleet.runs import unpack
from rebal.inspectors.fleet.timeline.timeline import REFUSED, WAITING, Options, make_tables


@dataclass(frozen=True)
class Committed:
    """How commits are told: the time that all sources cover (microseconds since 1970), the groups
    that have a timeline, and whether a request log was read."""

    observed: tuple[int, int] | None
    known: pa.Array
    log: bool


def tell(
    batches: Iterable[pa.RecordBatch], target: Target, options: Options
) -> Iterator[pa.RecordBatch]:
    """Packed rows of groups, in order → files in the lake, and reports."""
    writer = PartWriter(target)
    for kind, rows in make_tables(unpack(batches), options):
        if kind == REFUSED:
            writer.said.refused.update(rows["group_id"].to_pylist())
        else:
            writer.write(kind, _timed(rows) if kind == WAITING else rows)
    yield from writer.report()


def _timed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that wait, without lines of no time: those wait for ever, and are among the requests."""
    return rows.filter(pc.or_(rows["at"].is_valid(), rows["told_at"].is_valid()))


def tell_commits(
    batches: Iterable[pa.RecordBatch], target: Target, told: Committed
) -> Iterator[pa.RecordBatch]:
    """Parts of groups' commits → files in the lake, and reports."""
    writer = PartWriter(target)
    merged = merge_commits([pa.Table.from_batches([batch]) for batch in batches])
    rows = write_commits(merged, writer, told.observed)
    writer.write("open_commit_groups", commit_groups(rows, told.known, log=told.log))
    yield from writer.report()
