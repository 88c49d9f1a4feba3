"""Work of a scan's tasks beside its intake, and how they come by the rows of the lake's files.

pieces ── gather ──┬─ by_group ── sorted ── in_tasks(tell)
                   └─ by_group ── in_tasks(tell_commits)

Executors read the lake's files with Arrow, so Spark itself needs no jar of the store's. `tell`
makes rows of the timeline's tables and states, `tell_commits` those of `commits`. `carry` goes on
with files of the scan before, without the rows that this one replaces: one that holds no row of a
group that was told is kept as it is, and any other is written again without these groups, together
with others of its kind; so are small files, once there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.commits import as_parts, commit_groups, merge_commits, write_commits
from rebal.inspectors.fleet.files import may_hold, of_groups, read_rows
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.runs import in_order, pack, unpack
from rebal.inspectors.fleet.schemas import (
    COMMIT_PARTS,
    COMMITS,
    RUNS,
    SCAN,
    STATES,
    TEXT,
    TIME,
    TIMELINE,
    in_columns,
    with_columns,
)
from rebal.inspectors.fleet.spark.tasks import cores_of, in_shares, shares_of
from rebal.inspectors.fleet.timeline.timeline import WAITING, Options, make_tables
from rebal.inspectors.fleet.writer import RUN_KINDS, WRITTEN, PartWriter, Target

_SHARE: Final = 64 << 20
"""Bytes of rows, unpacked, that one task sorts and tells, about."""
_PACKED_BY: Final = 16
"""How many times smaller a run is than its rows, at least."""
_LITTLE: Final = 4 << 20
"""Bytes of rows that one task tells alone: less than what another would cost."""


class Piece(NamedTuple):
    """A file of the lake and which of its rows are wanted."""

    kind: str
    path: str
    size: int
    wanted: pc.Expression | None = None


def pieces_of(
    kind: str,
    files: Iterable[DataFile],
    groups: pa.Array | None = None,
    wanted: pc.Expression | None = None,
) -> list[Piece]:
    """Return the files that may hold rows of these groups (None: of any) as pieces.

    Of their rows only those `wanted` are (None: all).
    """
    if groups is None:
        return [Piece(kind, one.path, one.size, wanted) for one in files]
    names, of = sorted(groups.to_pylist()), of_groups(groups)
    both = of if wanted is None else of & wanted
    return [
        Piece(kind, one.path, one.size, both) for one in files if may_hold(one.low, one.high, names)
    ]


def gather(
    spark: SparkSession, place: Place, pieces: Sequence[Piece], schema: pa.Schema
) -> DataFrame:
    """Return the rows of the pieces in this schema: `RUNS` or `COMMIT_PARTS`."""
    shares = shares_of([(piece, piece.size) for piece in pieces], cores_of(spark))
    read = partial(_read, place=place)
    return in_shares(spark, shares, read, from_arrow_schema(schema, prefer_timestamp_ntz=False))


def by_group(rows: DataFrame, tasks: int) -> DataFrame:
    """Each group's rows in one of so many tasks."""
    return rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, "group_id")


def tasks_for(pieces: Iterable[Piece], cores: int) -> int:
    """Return the number of tasks for the rows of these pieces: one, or a multiple of the cores."""
    size = sum(piece.size * (_PACKED_BY if piece.kind in RUN_KINDS else 1) for piece in pieces)
    return 1 if size <= _LITTLE else cores * max(1, -(-size // (_SHARE * cores)))


def _read(pieces: Sequence[Piece], place: Place) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        for rows in _rows(piece, place):
            yield from rows.to_batches()


def _rows(piece: Piece, place: Place) -> Iterator[pa.Table]:
    """Yield a piece's rows, as `RUNS` or `COMMIT_PARTS`."""
    if piece.kind == "commits":
        yield from map(as_parts, read_rows(place, piece.path, COMMITS))
    elif piece.kind == "commit_parts":
        yield from read_rows(place, piece.path, COMMIT_PARTS)
    elif piece.kind == "states":
        for rows in read_rows(place, piece.path, STATES.append(SCAN), piece.wanted):
            yield pack(in_columns(rows.select(["group_id", "state"]), TIMELINE))
    else:
        for rows in read_rows(place, piece.path, RUNS.append(SCAN), piece.wanted):
            yield rows.select(RUNS.names)


NO_GROUPS: Final = pa.array([], TEXT)
_GROUP: Final = pa.schema([("group_id", TEXT)])


def tell(
    batches: Iterable[pa.RecordBatch], target: Target, options: Options
) -> Iterator[pa.RecordBatch]:
    """Write the rows of the groups of these runs; yield reports."""
    writer = PartWriter(target)
    for kind, rows in make_tables(unpack(batches, options.span), options):
        if kind == WAITING:
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
    known: pa.Array,
    leaving: pa.Array,
    log: bool,
) -> Iterator[pa.RecordBatch]:
    """Parts of groups' commits → files in the lake, and reports.

    `known` are the groups that have a timeline, `leaving` those that leave; `log` is whether a
    request log was read.
    """
    writer = PartWriter(target)
    merged = merge_commits([pa.Table.from_batches([batch]) for batch in batches])
    merged = merged.filter(pc.invert(pc.is_in(merged["group_id"], leaving)))
    rows = write_commits(merged, writer)
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
    writer, gone = PartWriter(target), of_groups(load.without)
    staying = ~gone if load.staying is None else ~gone & load.staying
    for path in load.paths:
        if load.whole or next(read_rows(target.place, path, _GROUP, gone), None) is not None:
            writer.said.gone.add(path)
            for rows in read_rows(target.place, path, WRITTEN[load.kind].append(SCAN), staying):
                writer.write(load.kind, rows)
    yield from writer.report()
