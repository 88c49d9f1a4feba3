"""Work of a scan's tasks beside its intake, and how they come by the rows of the lake's files.

pieces ── gather ──┬─ sorted ── in_tasks(tell)
                   └─ in_tasks(tell_commits)

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
    """Return the rows of the pieces in this schema, `RUNS` or `COMMIT_PARTS`.

    Those of a group are in one of its tasks: there is one, or a multiple of the cores.
    """
    cores = cores_of(spark)
    shares = shares_of([(piece, piece.size) for piece in pieces], cores)
    columns = from_arrow_schema(schema, prefer_timestamp_ntz=False)
    rows = in_shares(spark, shares, partial(_read, place=place), columns)
    size = sum(piece.size * (_PACKED_BY if piece.kind in RUN_KINDS else 1) for piece in pieces)
    if size <= _LITTLE:
        return rows.coalesce(1)
    return rows.repartition(cores * -(-size // (_SHARE * cores)), "group_id")


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
        for rows in read_rows(place, piece.path, _STATE, piece.wanted):
            yield pack(in_columns(rows, TIMELINE))
    else:
        yield from read_rows(place, piece.path, RUNS, piece.wanted)


NO_GROUPS: Final = pa.array([], TEXT)
_STATE: Final = pa.schema([STATES.field(name) for name in ("group_id", "state")])
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
    """Files of a kind that one task looks through, for the rows that are `staying`.

    With `whole` they are written again even if all do.
    """

    kind: str
    paths: tuple[str, ...]
    staying: pc.Expression
    whole: bool = False


def carry(load: Load, target: Target) -> Iterator[pa.RecordBatch]:
    """Carry out a load; yield a report."""
    writer, columns = PartWriter(target), WRITTEN[load.kind].append(SCAN)
    for path in load.paths:
        going = read_rows(target.place, path, _GROUP, ~load.staying)
        if load.whole or next(going, None) is not None:
            writer.said.gone.add(path)
            for rows in read_rows(target.place, path, columns, load.staying):
                writer.write(load.kind, rows)
    yield from writer.report()
