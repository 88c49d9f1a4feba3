"""From files in the lake to the rows that a group's timeline and `commits` are made of, in Spark.

pieces ── gather ──┬─ by_group(…) ── in_order(…) ── in_tasks(tell)
                   └─ by_group(…) ── in_tasks(tell_commits)

Each is a function from DataFrame to DataFrame, chained with `.transform`. Executors read the
lake's files with Arrow, so Spark itself needs no jar of the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.commits.table import as_parts
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.parts import SCAN
from rebal.inspectors.fleet.runs import Packer
from rebal.inspectors.fleet.schemas import (
    COMMIT_PARTS,
    COMMITS,
    INPUTS,
    PACKED,
    TIME,
    TIMELINE,
    in_columns,
)
from rebal.inspectors.fleet.spark.tasks import Work, cores_of, in_tasks
from rebal.inspectors.fleet.timeline.clock import settle

Change = Callable[[DataFrame], DataFrame]
_ROWS: Final = 4096
_SHARE: Final = 64 << 20
"""Bytes of files, packed, that one task sorts and tells, about."""
_PACKED_BY: Final = 16
"""How many times smaller a run is than the same rows in a file of the table `records`, at least."""
_LITTLE: Final = 4 << 20
"""Bytes of files that one task tells alone: less than what another would cost."""
_SLIM: Final = ("group_id", "partition", "offset", "at")
_MOVED: Final = pa.schema(
    [*(TIMELINE.field(name) for name in _SLIM[:3]), pa.field("at", pa.int64())]
)


@dataclass(frozen=True)
class Piece:
    """A file of the lake and which of its rows are wanted.

    `groups` are the groups (None: all), but for those in `without`; a state and what waits for it
    are those of the scan that `scans` names for the group.
    """

    kind: str
    path: str
    size: int
    groups: frozenset[str] | None = None
    scans: Mapping[str, int] | None = None
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gather:
    """A task's order to read pieces: the lake, and the time that all sources cover
    (microseconds since 1970), outside of which no request's time is believed; `moved` is as
    `find_effective_times` gives it."""

    place: Place
    pieces: Sequence[Piece]
    span: tuple[int, int] | None = None
    moved: Mapping[str, Mapping[tuple[int, int], int]] = field(default_factory=dict)
    shares: Sequence[Sequence[int]] = field(default_factory=tuple)


def gather(spark: SparkSession, wanted: Gather, schema: pa.Schema) -> DataFrame:
    """The rows of the pieces in this schema: `PACKED`, `TIMELINE` or `COMMIT_PARTS`."""
    shares = shared_out(wanted.pieces, cores_of(spark))
    numbers = spark.range(0, len(shares), 1, max(1, len(shares)))
    work = partial(_read, wanted=replace(wanted, shares=shares), packed=schema is PACKED)
    return in_tasks(numbers, work, from_arrow_schema(schema, prefer_timestamp_ntz=False))


def in_one_task(spark: SparkSession, wanted: Gather, work: Work, ddl: str) -> DataFrame:
    """Reports of one task in which `work` gets all rows of the pieces, without a way by the JVM."""
    wanted = replace(wanted, shares=shared_out(wanted.pieces, 1))
    return in_tasks(spark.range(0, 1, 1, 1), partial(_read_for, wanted=wanted, work=work), ddl)


def by_group(tasks: int) -> Change:
    """Each group's rows in one of so many tasks."""
    return lambda rows: rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, "group_id")


def in_order(*order: str) -> Change:
    """Each task's rows sorted by these columns, nulls last."""
    return lambda rows: rows.sortWithinPartitions(
        *(sql.col(name).asc_nulls_last() for name in order)
    )


def find_effective_times(
    spark: SparkSession, wanted: Gather, groups: Collection[str]
) -> Mapping[str, Mapping[tuple[int, int], int]]:
    """The times that records of these groups take instead of their own (`clock.settle`).

    By group, then by partition and offset, in microseconds since 1970. In memory of the driver is
    what a wrong clock wrote, and nothing else.
    """
    if not groups:
        return {}
    work = partial(_settled, span=wanted.span)
    rows = (
        gather(spark, wanted, TIMELINE)
        .where(sql.col("offset").isNotNull() & sql.col("group_id").isin(*groups))
        .select(*_SLIM)
        .transform(by_group(1))
        .transform(in_order(*_SLIM[:3]))
    )
    made: dict[str, dict[tuple[int, int], int]] = {}
    found = in_tasks(rows, work, from_arrow_schema(_MOVED, prefer_timestamp_ntz=False))
    for group_id, partition, offset, at in found.collect():
        made.setdefault(group_id, {})[partition, offset] = at
    return made


def tasks_for(pieces: Iterable[Piece], cores: int) -> int:
    """Return the number of tasks for the rows of these pieces: one, or a multiple of the cores."""
    size = sum(piece.size * (_PACKED_BY if piece.kind == "runs" else 1) for piece in pieces)
    return 1 if size <= _LITTLE else cores * max(1, -(-size // (_SHARE * cores)))


def shared_out(pieces: Sequence[Piece | DataFile], tasks: int) -> list[list[int]]:
    """The numbers of the pieces, those of each of at most so many tasks, about even."""
    shares: list[list[int]] = [[] for _ in range(min(tasks, len(pieces)))]
    held = [0] * len(shares)
    for number in sorted(range(len(pieces)), key=lambda n: -pieces[n].size):
        least = held.index(min(held))
        shares[least].append(number)
        held[least] += pieces[number].size
    return shares


def _read(
    batches: Iterable[pa.RecordBatch], wanted: Gather, packed: bool
) -> Iterator[pa.RecordBatch]:
    files = wanted.place.files()
    packer = Packer()
    for batch in batches:
        for share in batch.column(0).to_pylist():
            for number in wanted.shares[share]:
                piece = wanted.pieces[number]
                with files.open_input_file(piece.path) as opened:
                    for rows in _rows(piece, pq.ParquetFile(opened), wanted):
                        if packed and piece.kind != "runs":
                            yield from packer.add(rows)
                        else:
                            yield from rows.to_batches()
    yield from packer.rest()


def _read_for(
    batches: Iterable[pa.RecordBatch], wanted: Gather, work: Work
) -> Iterator[pa.RecordBatch]:
    return work(_read(batches, wanted, packed=False))


def _rows(piece: Piece, file: pq.ParquetFile, wanted: Gather) -> Iterator[pa.Table]:
    """A piece's rows of `TIMELINE`, of `PACKED` or of `COMMIT_PARTS`."""
    if piece.kind in ("commits", "commit_parts"):
        schema = COMMITS if piece.kind == "commits" else COMMIT_PARTS
        for batch in file.iter_batches(_ROWS, columns=schema.names):
            rows = in_columns(batch, schema)
            yield as_parts(rows) if piece.kind == "commits" else rows
        return
    if piece.kind == "runs":
        for batch in file.iter_batches(_ROWS, columns=PACKED.names):
            rows = pa.Table.from_batches([batch])
            without = pa.array(piece.without, pa.string())
            yield rows.filter(pc.invert(pc.is_in(rows["group_id"], without)))
        return
    columns = INPUTS[piece.kind].append(SCAN)
    for batch in file.iter_batches(_ROWS, columns=columns.names):
        rows = _wanted(in_columns(batch, columns), piece)
        if len(rows):
            yield _with_effective(_as_input(rows, wanted.span), wanted.moved)


def _with_effective(rows: pa.Table, moved: Mapping[str, Mapping[tuple[int, int], int]]) -> pa.Table:
    """The rows with effective times, where those are others than their own."""
    if not moved:
        return rows
    places = [rows[name].to_pylist() for name in ("group_id", "partition", "offset")]
    own = rows["at"].cast(pa.int64()).to_pylist()
    made = [
        moved.get(group_id, {}).get((partition, offset), at)
        for group_id, partition, offset, at in zip(*places, own, strict=True)
    ]
    changed = pa.array([a != b for a, b in zip(own, made, strict=True)])
    told = pc.if_else(changed, rows["at"], pa.scalar(None, TIME))
    at = pa.array(made, pa.int64()).cast(TIME)
    for name, column in (("told_at", told), ("at", at)):
        rows = rows.set_column(rows.schema.get_field_index(name), TIMELINE.field(name), column)
    return rows


def _wanted(rows: pa.Table, piece: Piece) -> pa.Table:
    if piece.groups is not None:
        rows = rows.filter(pc.is_in(rows["group_id"], pa.array(piece.groups, pa.string())))
    if piece.scans is not None:
        wanted = [piece.scans.get(name, -1) for name in rows["group_id"].to_pylist()]
        rows = rows.filter(pc.equal(rows[SCAN.name], pa.array(wanted, pa.int64())))
    return rows


def _as_input(rows: pa.Table, span: tuple[int, int] | None) -> pa.Table:
    """Rows of any of the kinds as rows of `TIMELINE`; a request's time outside the span is none."""
    given = {name: rows[name] for name in rows.column_names if name in TIMELINE.names}
    if "timestamp" in rows.column_names:
        given["at"] = rows["timestamp"]
    elif span is not None and "at" in given:
        at = given["at"].cast(pa.int64())
        inside = pc.and_(pc.greater_equal(at, span[0]), pc.less_equal(at, span[1]))
        given["at"] = pc.if_else(
            pc.or_(inside, pc.is_valid(rows["offset"])) if "offset" in given else inside,
            given["at"],
            pa.scalar(None, TIME),
        )
    return in_columns(pa.table(given), TIMELINE)


def _settled(
    batches: Iterable[pa.RecordBatch], span: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    """Records by group and offset → those that take another time than their own."""
    held: list[pa.Table] = []
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        last = rows["group_id"][-1].as_py() if len(rows) else None
        mine = rows.filter(pc.equal(rows["group_id"], last)) if len(rows) else rows
        if held and len(rows) and held[-1]["group_id"][-1].as_py() != rows["group_id"][0].as_py():
            yield from _moved(held, span)
            held = []
        ended = rows.slice(0, len(rows) - len(mine))
        if len(ended):
            yield from _moved([*held, ended], span)
            held = []
        held.append(mine)
    yield from _moved(held, span)


def _moved(held: Sequence[pa.Table], span: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
    if not held:
        return
    rows = pa.concat_tables(held).combine_chunks()
    made = settle(rows, span)
    found = made.filter(pc.not_equal(made["at"], rows["at"]))
    at = found["at"].cast(pa.int64())
    yield from found.set_column(3, "at", at).cast(_MOVED).to_batches()
