"""Work of a scan's tasks beside its intake.

`tell` makes rows of the timeline's tables and states, `tell_commits` those of `commits`. `carry`
goes on with files of the scan before, without the rows that this one replaces: one that holds no
row of a group that was told is kept as it is, and any other is written again without these groups,
together with others of its kind; so are small files, once there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.commits.table import commit_groups, merge_commits, write_commits
from rebal.inspectors.fleet.files import of_groups, read_rows
from rebal.inspectors.fleet.runs import in_order, pack, unpack
from rebal.inspectors.fleet.schemas import SCAN, TEXT, TIME, with_columns
from rebal.inspectors.fleet.timeline.rows import DAMAGED
from rebal.inspectors.fleet.timeline.timeline import WAITING, Options, make_tables
from rebal.inspectors.fleet.writer import WRITTEN, PartWriter, Target

NO_GROUPS: Final = pa.array([], TEXT)
_GROUP: Final = pa.schema([("group_id", TEXT)])


def tell(
    batches: Iterable[pa.RecordBatch], target: Target, options: Options
) -> Iterator[pa.RecordBatch]:
    """Write the rows of the groups of these runs; yield reports."""
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


class Load(NamedTuple):
    """Files of a kind that one task looks through.

    With `whole` they are written again in any case. `without` are the groups whose rows go; of the
    others only those stay for which `staying` is true (None: all).
    """

    kind: str
    paths: tuple[str, ...]
    without: pa.Array = NO_GROUPS
    staying: pc.Expression | None = None
    whole: bool = False


def carry(load: Load, target: Target) -> Iterator[pa.RecordBatch]:
    """Carry out a load; yield a report."""
    writer = PartWriter(target)
    for path in load.paths:
        _carry(load, path, target, writer)
    yield from writer.report()


def _carry(load: Load, path: str, target: Target, writer: PartWriter) -> None:
    gone = of_groups(load.without)
    if not load.whole and next(read_rows(target.place, path, _GROUP, gone), None) is None:
        return
    writer.said.gone.add(path)
    staying = ~gone if load.staying is None else ~gone & load.staying
    for rows in read_rows(target.place, path, WRITTEN[load.kind].append(SCAN), staying):
        writer.write(load.kind, rows)
