"""Scans that continue from the previous one: groups to recompute and files to write again.

New records and requests are packed as runs (`schemas.RUNS`). The news of a scan are the bounds of
these runs, summed up by group: once in each task, and once more on the driver. They stay Arrow
columns, for there may be hundreds of thousands of groups.

A group continues from its saved state if all its new rows follow the rows that the state covers.
Records must follow in the order of offsets and of times, and none may be older than the latest
record read. Requests must be later than the time up to which the group's rows are final. Every
other group with news is recomputed from all its records and requests in the lake.

pieces ── gather ──┬─ sorted ── in_tasks(write_timelines)
                   └─ in_tasks(write_group_commits)

Executors read the lake's files with Arrow, so Spark needs no jar of the object store.
`write_timelines` writes rows of the timeline's tables and the states, `write_group_commits` writes
rows of `commits`. `carry` takes over the files of the previous scan without the rows that this scan
replaces. A file that holds no row of a recomputed group is kept as it is. Any other file is written
again without these rows, together with other files of its kind. Small files are also written
together once there are many.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rebal.inspectors.fleet.commits import as_parts, commit_groups, merge_commits, write_commits
from rebal.inspectors.fleet.lake.place import LakePlace
from rebal.inspectors.fleet.lake.run import LakeScan
from rebal.inspectors.fleet.lake.table import DataFile, may_hold, of_groups, read_rows
from rebal.inspectors.fleet.lake.writer import RUN_KINDS, WRITTEN, PartWriter, Target
from rebal.inspectors.fleet.runs import RECORDS, REQUESTS, in_order, pack, unpack
from rebal.inspectors.fleet.schemas import (
    COMMIT_PARTS,
    COMMITS,
    LONG,
    RUNS,
    SCAN,
    STATES,
    TEXT,
    TIMELINE,
    WAITING,
    in_columns,
    with_columns,
)
from rebal.inspectors.fleet.spark.tasks import cores_of, in_shares, shares_of
from rebal.inspectors.fleet.timeline.facts import DISORDER
from rebal.inspectors.fleet.timeline.group import FORM, Options, make_tables

NEWS: Final = pa.schema([one for one in RUNS if one.name not in ("size", "rows")])
ABOUT: Final = pa.schema([one for one in STATES if one.name != "state"])
"""The columns of `STATES` that a scan reads to choose groups: all but the state itself."""
_SERIES: Final = ("group_id", "kind", "partition")


class GroupChoice(NamedTuple):
    """Ids of the groups whose rows a scan writes.

    `groups` are all of them. `anew` are recomputed from all their records and requests, `go_on`
    continue from their saved states, and the rest are new to the lake. `recorded` are those of
    `groups` that have records.
    """

    groups: pa.Array
    anew: pa.Array
    go_on: pa.Array
    recorded: pa.Array


def summed(parts: Sequence[pa.Table]) -> pa.Table:
    """Reduce the runs in these tables to one row of `NEWS` for each group, kind and partition.

    A row holds the lowest and the highest offset and time. `ordered` is true if no time decreases
    in the order of the offsets.
    """
    rows = pa.concat_tables([NEWS.empty_table(), *(one.select(NEWS.names) for one in parts)])
    rows = rows.sort_by([(name, "ascending") for name in (*_SERIES, "offset")]).combine_chunks()
    if len(rows) > 1:
        before, after = rows.slice(0, len(rows) - 1), rows.slice(1)
        same = pc.and_(
            pc.equal(before["group_id"], after["group_id"]),
            pc.equal(before["partition"], after["partition"]),
        )
        overlap = pc.or_(
            pc.less_equal(after["offset"], before["last_offset"]),
            pc.less(after["at"], before["until"]),
        )
        broken = pc.fill_null(pc.and_(same, overlap), False).combine_chunks()
        ordered = pc.and_not(rows["ordered"], pa.concat_arrays([pa.array([False]), broken]))
        rows = with_columns(rows, {"ordered": ordered})
    bounds = [("offset", "min"), ("last_offset", "max"), ("at", "min"), ("until", "max")]
    found = rows.group_by(_SERIES, use_threads=False).aggregate([*bounds, ("ordered", "all")])
    return (
        found.select([*_SERIES, *(f"{name}_{how}" for name, how in bounds), "ordered_all"])
        .rename_columns(NEWS.names)
        .cast(NEWS)
    )


def encoded(news: pa.Table) -> list[bytes]:
    """Return rows of `NEWS` as serialized Arrow batches, for a task's report."""
    return [one.serialize().to_pybytes() for one in news.to_batches()]


def decoded(parts: Iterable[bytes]) -> pa.Table:
    """Return the rows of `NEWS` in the reports of all tasks, reduced by `summed`."""
    return summed([pa.Table.from_batches([pa.ipc.read_record_batch(one, NEWS)]) for one in parts])


def earlier_rows(lake_scan: LakeScan, kind: str, columns: pa.Schema) -> pa.Table:
    """Return all rows of one kind that the previous scan has, in these columns."""
    found = [columns.empty_table()]
    for file in lake_scan.earlier(kind):
        found += read_rows(lake_scan.place, file.path, columns)
    return pa.concat_tables(found).combine_chunks()


def final_until(news: pa.Table) -> int | None:
    """Return the time up to which this scan read both records and requests; None: no limit.

    It is the last time of the records or of the requests, whichever is earlier, less twice
    `DISORDER` (requests are placed `DISORDER` before their time, and lines of another log may be as
    much late), in microseconds since 1970. There is no limit if the scan read records alone or
    requests alone.
    """
    until = news["until"].cast(LONG)
    of_kinds = (until.filter(pc.equal(news["kind"], kind)) for kind in (RECORDS, REQUESTS))
    last = [pc.max(times).as_py() for times in of_kinds]
    return None if None in last else min(last) - 2 * DISORDER


def choose(
    news: pa.Table,
    states: pa.Table,
    span: tuple[int, int] | None,
    named: Collection[str],
) -> GroupChoice:
    """Return the groups of which this scan writes rows, and which of them are recomputed.

    `news` has the bounds of the new rows of each group, `states` describes the saved state of each
    group in the lake (columns `ABOUT`). `span` is the first and last time that all sources cover,
    in microseconds since 1970 (None: not limited). `named` are the ids of topics whose names this
    scan learned: groups whose rows lack these names are recomputed.
    """
    state = states.take(pc.index_in(news["group_id"], states["group_id"]))
    is_record = pc.equal(news["kind"], RECORDS)
    later = pc.greater(pc.subtract(news["at"].cast(LONG), DISORDER), state["told_until"])
    goes_on = pc.and_(
        pc.if_else(is_record, _records_follow(news, state), pc.fill_null(later, True)),
        pc.equal(state["form"], FORM),
    )
    begins = pc.is_null(state["group_id"])
    first, last = (-(2**63), 2**63 - 1) if span is None else span
    # Only times that all sources cover may be believed.
    is_outside = pc.fill_null(
        pc.or_(pc.less(news["at"].cast(LONG), first), pc.greater(news["until"].cast(LONG), last)),
        False,
    )
    sure = pc.and_not(news["ordered"], pc.and_(is_record, is_outside))
    follows = pc.and_(sure, pc.or_(begins, pc.fill_null(goes_on, False)))
    unnamed = states["unnamed"].combine_chunks()
    learned = pc.list_parent_indices(unnamed).filter(
        pc.is_in(pc.list_flatten(unnamed), pa.array(named, pa.string()))
    )
    anew = _names(news.filter(pc.invert(follows)), states.take(learned))
    groups = pc.unique(pa.concat_arrays([_names(news), anew]))
    chosen = states.filter(pc.is_in(states["group_id"], groups))
    recorded = _names(news.filter(is_record), chosen.filter(chosen["recorded"]))
    return GroupChoice(
        groups, anew, _names(chosen.filter(pc.invert(pc.is_in(chosen["group_id"], anew)))), recorded
    )


def _records_follow(news: pa.Table, state: pa.Table) -> pa.ChunkedArray:
    at = news["at"].cast(LONG)
    tests = (
        pc.equal(news["partition"], state["partition"]),
        pc.greater(news["offset"], state["offset"]),
        pc.greater_equal(at, state["told_until"]),
        # A time before the latest is not the effective one (`runs.effective_times`).
        pc.greater_equal(at, state["latest"]),
    )
    follows = state["recorded"]
    for one in tests:
        follows = pc.and_(follows, pc.fill_null(one, True))
    return follows


def _names(*tables: pa.Table) -> pa.Array:
    found = [chunk for one in tables for chunk in one["group_id"].chunks]
    return pc.unique(pa.chunked_array(found, pa.string()))


# Bytes of rows, unpacked, that one task sorts and writes, about.
_SHARE: Final = 64 << 20
# How many times smaller a run is than its rows, at least.
_PACKED_BY: Final = 16
# Bytes of rows that one task writes alone: less than what another would cost.
_LITTLE: Final = 4 << 20


class Piece(NamedTuple):
    """A file of the lake and the condition for its wanted rows (None: all).

    `carry` writes a file again if it holds other rows too, or if `anew` is set. `size` is in bytes.
    """

    kind: str
    path: str
    size: int
    wanted: pc.Expression = None
    anew: bool = False


def pieces_of(
    kind: str,
    files: Iterable[DataFile],
    groups: pa.Array | None = None,
    wanted: pc.Expression | None = None,
) -> list[Piece]:
    """Return the files that may hold rows of these groups (None: of any group), as pieces.

    `wanted` is a further condition for their rows (None: all rows).
    """
    if groups is None:
        return [Piece(kind, one.path, one.size, wanted) for one in files]
    names, of = sorted(groups.to_pylist()), of_groups(groups)
    both = of if wanted is None else of & wanted
    return [
        Piece(kind, one.path, one.size, both) for one in files if may_hold(one.low, one.high, names)
    ]


def gather(
    spark: SparkSession, place: LakePlace, pieces: Sequence[Piece], schema: pa.Schema
) -> DataFrame:
    """Return the rows of the pieces as a data frame in which one task has all rows of a group.

    `schema` is `RUNS` or `COMMIT_PARTS`. The data frame has one task if the pieces are small, else
    a multiple of the number of cores.
    """
    cores = cores_of(spark)
    shares = shares_of([(piece, piece.size) for piece in pieces], cores)
    rows = in_shares(
        spark,
        shares,
        partial(_read, place=place),
        from_arrow_schema(schema, prefer_timestamp_ntz=False),
    )
    size = sum(piece.size * (_PACKED_BY if piece.kind in RUN_KINDS else 1) for piece in pieces)
    many = cores * -(-size // (_SHARE * cores))
    return rows.coalesce(1) if size <= _LITTLE else rows.repartition(many, "group_id")


def _read(pieces: Sequence[Piece], place: LakePlace) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        columns, made = _READ.get(piece.kind, (RUNS, None))
        for rows in read_rows(place, piece.path, columns, piece.wanted):
            yield from (rows if made is None else made(rows)).to_batches()


NO_GROUPS: Final = pa.array([], TEXT)
# The columns in which kinds that are no runs are read, and what is made of them.
_READ: Final[Mapping[str, tuple[pa.Schema, Callable[[pa.Table], pa.Table] | None]]] = {
    "commits": (COMMITS, as_parts),
    "commit_parts": (COMMIT_PARTS, None),
    "states": (
        pa.schema([STATES.field(name) for name in ("group_id", "state")]),
        lambda states: pack(in_columns(states, TIMELINE)),
    ),
}


def write_timelines(
    batches: Iterable[pa.RecordBatch], target: Target, options: Options
) -> Iterator[pa.RecordBatch]:
    """Write table rows and the new state of each group; yield the task's report.

    `batches` hold each group's packed runs and its earlier state, one group after another.
    """
    writer = PartWriter(target)
    for kind, rows in make_tables(unpack(batches, options.span), options):
        if kind == WAITING:
            # Lines without a time wait for ever, and are among the requests.
            timed = pa.Table.from_batches([rows.filter(rows["at"].is_valid())])
            writer.write("waiting", pack(in_order([timed])))
        else:
            writer.write(kind, rows)
    yield from writer.report()


def write_group_commits(
    batches: Iterable[pa.RecordBatch],
    target: Target,
    *,
    known: pa.Array,
    leaving: pa.Array,
    log: bool,
) -> Iterator[pa.RecordBatch]:
    """Merge rows of `COMMIT_PARTS` and write the rows of `commits`; yield the task's report.

    A group that is not in `known` (ids of the groups with a timeline) also gets a row of `groups`.
    Groups in `leaving` (ids) get no rows at all. `log` is whether a request log was read.
    """
    writer = PartWriter(target)
    merged = merge_commits([pa.Table.from_batches([batch]) for batch in batches])
    merged = merged.filter(pc.invert(pc.is_in(merged["group_id"], leaving)))
    writer.write("open_commit_groups", commit_groups(write_commits(merged, writer), known, log=log))
    yield from writer.report()


def carry(pieces: Sequence[Piece], target: Target) -> Iterator[pa.RecordBatch]:
    """Write files of the lake again with the rows that their pieces keep; yield the task's report.

    A file of which all rows are kept stays as it is, unless its piece has `anew`. The report
    names the new files and those that they replace.
    """
    writer = PartWriter(target)
    for kind, path, _, staying, anew in pieces:
        if (
            anew
            or next(read_rows(target.place, path, pa.schema([("group_id", TEXT)]), ~staying), None)
            is not None
        ):
            writer.task_report.replaced.add(path)
            for rows in read_rows(target.place, path, WRITTEN[kind].append(SCAN), staying):
                writer.write(kind, rows)
    yield from writer.report()
