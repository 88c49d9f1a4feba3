"""From files in the lake to the rows that a group's timeline and `commits` are made of, in Spark.

pieces ── gather ──┬─ by_group(…) ── in_order(…) ── in_tasks(tell)
                   └─ by_group(…) ── in_tasks(tell_commits)

Each is a function from DataFrame to DataFrame, chained with `.transform`. Executors read the
lake's files with Arrow, so Spark itself needs no jar of the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.commits.table import as_parts
from rebal.inspectors.fleet.files import ALL, Wanted, read_rows
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.lake.table import DataFile
from rebal.inspectors.fleet.parts import FOLDERS, SCAN, PartWriter, Target
from rebal.inspectors.fleet.reports import REPORT_DDL
from rebal.inspectors.fleet.runs import Sorter, pack
from rebal.inspectors.fleet.schemas import (
    COMMIT_PARTS,
    COMMITS,
    INPUTS,
    MOVED,
    PACKED,
    TIME,
    TIMELINE,
    in_columns,
)
from rebal.inspectors.fleet.spark.tasks import Work, cores_of, in_tasks, numbered, numbers_in
from rebal.inspectors.fleet.timeline.clock import settle

Change = Callable[[DataFrame], DataFrame]
Moved = Mapping[tuple[str, int, int], int]
"""Effective times that are not the records' own, by group, partition and offset."""
_SLIM: Final = pa.schema(
    [INPUTS["records"].field(name) for name in ("group_id", "partition", "offset", "timestamp")]
)
_SHARE: Final = 64 << 20
"""Bytes of files, packed, that one task sorts and tells, about."""
_PACKED_BY: Final = 16
"""How many times smaller a run is than the same rows in a file of the table `records`, at least."""
_LITTLE: Final = 4 << 20
"""Bytes of files that one task tells alone: less than what another would cost."""


class Piece(NamedTuple):
    """A file of the lake and which of its rows are wanted.

    Of runs, those of the groups in `without` are not.
    """

    kind: str
    path: str
    size: int
    wanted: Wanted = ALL
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gather:
    """A task's order to read pieces: the lake, and the time that all sources cover
    (microseconds since 1970), outside of which no request's time is believed; `moved` are the
    files that `settle_times` wrote."""

    place: Place
    pieces: Sequence[Piece]
    span: tuple[int, int] | None = None
    moved: Sequence[DataFile] = ()
    shares: Sequence[Sequence[int]] = ()


def pieces_of(kind: str, files: Iterable[DataFile], **wanted: Any) -> list[Piece]:
    """Return the files as pieces, with the same rows wanted of each."""
    return [Piece(kind, one.path, one.size, **wanted) for one in files]


def gather(spark: SparkSession, wanted: Gather, schema: pa.Schema) -> DataFrame:
    """The rows of the pieces in this schema: `PACKED`, `TIMELINE`, `MOVED` or `COMMIT_PARTS`."""
    shares = shared_out(wanted.pieces, cores_of(spark))
    work = partial(_read, wanted=replace(wanted, shares=shares), schema=schema)
    rows = from_arrow_schema(schema, prefer_timestamp_ntz=False)
    return in_tasks(numbered(spark, len(shares)), work, rows)


def in_one_task(spark: SparkSession, wanted: Gather, work: Work, ddl: str) -> DataFrame:
    """Reports of one task in which `work` gets all rows of the pieces, without a way by the JVM."""
    wanted = replace(wanted, shares=shared_out(wanted.pieces, 1))
    return in_tasks(numbered(spark, 1), partial(_read_for, wanted=wanted, work=work), ddl)


def by_group(tasks: int) -> Change:
    """Each group's rows in one of so many tasks."""
    return lambda rows: rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, "group_id")


def in_order(*order: str) -> Change:
    """Each task's rows sorted by these columns, nulls last."""
    return lambda rows: rows.sortWithinPartitions(
        *(sql.col(name).asc_nulls_last() for name in order)
    )


def settle_times(spark: SparkSession, wanted: Gather, target: Target) -> DataFrame:
    """Reports of tasks that write the times which records take instead of their own.

    These are rows of `MOVED` (`clock.settle`): what a wrong clock wrote, and nothing else.
    """
    tasks = tasks_for(wanted.pieces, cores_of(spark))
    rows = (
        gather(spark, wanted, MOVED)
        .transform(by_group(tasks))
        .transform(in_order(*MOVED.names[:3]))
    )
    return in_tasks(rows, partial(_settle, target=target, span=wanted.span), REPORT_DDL)


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
    batches: Iterable[pa.RecordBatch], wanted: Gather, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    moved = _moved_in(wanted)
    sorter = Sorter()
    for share in numbers_in(batches):
        for number in wanted.shares[share]:
            piece = wanted.pieces[number]
            for rows in _rows(piece, wanted, schema):
                if schema != PACKED or piece.kind == "runs":
                    yield from rows.to_batches()
                    continue
                for done in sorter.add(_with_effective(rows, moved)):
                    yield pack(done)
    for done in sorter.rest():
        yield pack(done)


def _read_for(
    batches: Iterable[pa.RecordBatch], wanted: Gather, work: Work
) -> Iterator[pa.RecordBatch]:
    return work(_read(batches, wanted, COMMIT_PARTS))


def _rows(piece: Piece, wanted: Gather, schema: pa.Schema) -> Iterator[pa.Table]:
    """A piece's rows of `TIMELINE`, of `PACKED`, of `MOVED` or of `COMMIT_PARTS`."""
    place, path = wanted.place, piece.path
    if piece.kind == "commits":
        yield from map(as_parts, read_rows(place, path, COMMITS))
    elif piece.kind == "commit_parts":
        yield from read_rows(place, path, COMMIT_PARTS)
    elif piece.kind == "runs":
        without = pa.array(piece.without, pa.string())
        for rows in read_rows(place, path, PACKED):
            yield rows.filter(pc.invert(pc.is_in(rows["group_id"], without)))
    elif schema == MOVED:
        for rows in read_rows(place, path, _SLIM, piece.wanted):
            yield rows.rename_columns(MOVED.names)
    else:
        columns = INPUTS[FOLDERS[piece.kind]].append(SCAN)
        for rows in read_rows(place, path, columns, piece.wanted):
            yield _as_input(rows, wanted.span)


def _moved_in(wanted: Gather) -> Moved:
    """The times that `settle_times` found."""
    rows = [
        row
        for file in wanted.moved
        for found in read_rows(wanted.place, file.path, MOVED)
        for row in found.set_column(3, "at", found["at"].cast(pa.int64())).to_pylist()
    ]
    return {(row["group_id"], row["partition"], row["offset"]): row["at"] for row in rows}


def _with_effective(rows: pa.Table, moved: Moved) -> pa.Table:
    """The rows with effective times, where those are others than their own."""
    if not moved:
        return rows
    places = [rows[name].to_pylist() for name in ("group_id", "partition", "offset")]
    own = rows["at"].cast(pa.int64()).to_pylist()
    made = [moved.get(place, at) for place, at in zip(zip(*places, strict=True), own, strict=True)]
    changed = pa.array([a != b for a, b in zip(own, made, strict=True)])
    told = pc.if_else(changed, rows["at"], pa.scalar(None, TIME))
    at = pa.array(made, pa.int64()).cast(TIME)
    for name, column in (("told_at", told), ("at", at)):
        rows = rows.set_column(rows.schema.get_field_index(name), TIMELINE.field(name), column)
    return rows


def _as_input(rows: pa.Table, span: tuple[int, int] | None) -> pa.Table:
    """Rows of any of the kinds as rows of `TIMELINE`; a request's time outside the span is none."""
    given = {name: rows[name] for name in rows.column_names if name in TIMELINE.names}
    if "timestamp" in rows.column_names:
        given["at"] = rows["timestamp"]
    elif span is not None and "at" in given:
        at, none = given["at"].cast(pa.int64()), pa.scalar(None, TIME)
        kept = pc.and_(pc.greater_equal(at, span[0]), pc.less_equal(at, span[1]))
        if "offset" in given:
            kept = pc.or_(kept, pc.is_valid(rows["offset"]))
        # The line waits on (telling.tell): only those without a time are found among the requests.
        own = pc.if_else(kept, none, given["at"])
        given["told_at"] = pc.coalesce(given["told_at"], own) if "told_at" in given else own
        given["at"] = pc.if_else(kept, given["at"], none)
    return in_columns(pa.table(given), TIMELINE)


def _settle(
    batches: Iterable[pa.RecordBatch], target: Target, span: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    """Rows of `MOVED` with the records' own times, by group and offset → the files of `moved`."""
    writer = PartWriter(target)
    held: list[pa.Table] = []
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        if not len(rows):
            continue
        mine = rows.filter(pc.equal(rows["group_id"], rows["group_id"][-1]))
        if held and held[0]["group_id"][-1] != rows["group_id"][0]:
            writer.write("moved", _moved(held, span))
            held = []
        ended = rows.slice(0, len(rows) - len(mine))
        if len(ended):
            writer.write("moved", _moved([*held, ended], span))
            held = []
        held.append(mine)
    if held:
        writer.write("moved", _moved(held, span))
    yield from writer.report()


def _moved(held: Sequence[pa.Table], span: tuple[int, int] | None) -> pa.Table:
    rows = pa.concat_tables(held).combine_chunks()
    made = settle(rows, span)
    return made.filter(pc.not_equal(made["at"], rows["at"]))
