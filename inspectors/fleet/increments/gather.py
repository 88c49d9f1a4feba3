"""Rows of files in the lake, brought to the tasks that make the timelines and `commits`, by Spark.

pieces ── gather ──┬─ by_group ── sorted ── in_tasks(tell)
                   └─ by_group ── in_tasks(tell_commits)

Executors read the lake's files with Arrow, so Spark itself needs no jar of the store's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.commits.table import as_parts
from rebal.inspectors.fleet.files import may_hold, of_groups, read_rows
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.runs import pack, runs_of
from rebal.inspectors.fleet.schemas import (
    COMMIT_PARTS,
    COMMITS,
    RUNS,
    SCAN,
    STATES,
    TIMELINE,
    in_columns,
)
from rebal.inspectors.fleet.spark.tasks import cores_of, in_shares, in_tasks, numbered, shares_of
from rebal.inspectors.fleet.writer import RUN_KINDS

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
    """Return the rows of the pieces in this schema: `RUNS`, `TIMELINE` or `COMMIT_PARTS`."""
    shares = shares_of([(piece, piece.size) for piece in pieces], cores_of(spark))
    work = partial(in_shares, shares=shares, work=partial(_read, place=place, schema=schema))
    rows = from_arrow_schema(schema, prefer_timestamp_ntz=False)
    return in_tasks(numbered(spark, len(shares)), work, rows)


def by_group(rows: DataFrame, tasks: int) -> DataFrame:
    """Each group's rows in one of so many tasks."""
    return rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, "group_id")


def tasks_for(pieces: Iterable[Piece], cores: int) -> int:
    """Return the number of tasks for the rows of these pieces: one, or a multiple of the cores."""
    size = sum(piece.size * (_PACKED_BY if piece.kind in RUN_KINDS else 1) for piece in pieces)
    return 1 if size <= _LITTLE else cores * max(1, -(-size // (_SHARE * cores)))


def _read(pieces: Sequence[Piece], place: Place, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        for rows in _rows(place, piece, schema):
            yield from rows.to_batches()


def _rows(place: Place, piece: Piece, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield a piece's rows in this schema."""
    if piece.kind == "commits":
        yield from map(as_parts, read_rows(place, piece.path, COMMITS))
    elif piece.kind == "commit_parts":
        yield from read_rows(place, piece.path, COMMIT_PARTS)
    elif piece.kind == "states":
        for rows in read_rows(place, piece.path, STATES.append(SCAN), piece.wanted):
            yield pack(in_columns(rows.select(["group_id", "state"]), TIMELINE))
    else:
        for rows in read_rows(place, piece.path, RUNS.append(SCAN), piece.wanted):
            runs = rows.select(RUNS.names)
            if schema == RUNS:
                yield runs
            else:
                yield from (in_columns(run.rows(), TIMELINE) for run in runs_of(runs))
