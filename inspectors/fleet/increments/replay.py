"""Work of a task on its groups: rows of the timeline's tables, states, and rows of `commits`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.commits.groups import commit_groups
from rebal.inspectors.fleet.commits.table import merge_commits, write_commits
from rebal.inspectors.fleet.runs import in_order, pack, unpack
from rebal.inspectors.fleet.schemas import TIME, with_columns
from rebal.inspectors.fleet.timeline.timeline import DAMAGED, WAITING, Options, make_tables
from rebal.inspectors.fleet.writer import PartWriter, Target


def tell(
    batches: Iterable[pa.RecordBatch], target: Target, options: Options
) -> Iterator[pa.RecordBatch]:
    """Runs by group → files in the lake, and reports."""
    writer = PartWriter(target)
    for kind, rows in make_tables(unpack(batches, options.span), options):
        if kind == DAMAGED:
            writer.said.damaged.update(rows["group_id"].to_pylist())
        elif kind == WAITING:
            waiting = _waiting(pa.Table.from_batches([rows]))
            if len(waiting):
                writer.write(kind, pack(waiting))
        else:
            writer.write(kind, rows)
    yield from writer.report()


def _waiting(rows: pa.Table) -> pa.Table:
    """Return the rows that are written again for the next scan.

    Lines without a time are not: they wait for ever, and are among the requests. A line whose time
    is not believed has it again, for the next scan may believe it.
    """
    rows = rows.filter(pc.or_(rows["at"].is_valid(), rows["told_at"].is_valid()))
    is_request = pc.is_null(rows["key"])
    at = pc.if_else(is_request, pc.coalesce(rows["told_at"], rows["at"]), rows["at"])
    told_at = pc.if_else(is_request, pa.scalar(None, TIME), rows["told_at"])
    return in_order([with_columns(rows, {"at": at, "told_at": told_at})])


def tell_commits(
    batches: Iterable[pa.RecordBatch],
    target: Target,
    *,
    span: tuple[int, int] | None,
    known: pa.Array,
    leaving: pa.Array,
    log: bool,
) -> Iterator[pa.RecordBatch]:
    """Parts of groups' commits → files in the lake, and reports.

    `span` is the time that all sources cover (microseconds since 1970), `known` are the groups that
    have a timeline, `leaving` those that leave; `log` is whether a request log was read.
    """
    writer = PartWriter(target)
    merged = merge_commits([pa.Table.from_batches([batch]) for batch in batches])
    merged = merged.filter(pc.invert(pc.is_in(merged["group_id"], leaving)))
    rows = write_commits(merged, writer, span)
    writer.write("open_commit_groups", commit_groups(rows, known, log=log))
    yield from writer.report()
