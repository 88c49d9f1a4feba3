"""News of a scan by group, and the choice of groups that go on from where the last scan stopped.

News are what the runs of new rows say of themselves (`schemas.RUNS`), summed up by group: once in
each task, once more here. They stay columns, for there may be hundreds of thousands. A group goes
on from its state if its new rows follow on what was told: its records in the order of offsets and
of times, none before the latest of those that were read, its requests after the time up to which
it was told. The rows of any other group that has news are made anew, from all records and requests
that the lake holds of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rebal.inspectors.fleet.files import read_rows
from rebal.inspectors.fleet.lake.run import Run
from rebal.inspectors.fleet.runs import RECORDS, REQUESTS
from rebal.inspectors.fleet.schemas import LONG, RUNS, SCAN, STATES, with_columns
from rebal.inspectors.fleet.timeline.clock import DISORDER
from rebal.inspectors.fleet.timeline.timeline import FORM

NEWS: Final = pa.schema([one for one in RUNS if one.name not in ("size", "rows")])
NEWEST: Final = ("states", "waiting")
"""Kinds of which a group's newest rows count, whatever else is there."""
_ABOUT: Final = pa.schema([one for one in STATES if one.name != "state"]).append(SCAN)
_SERIES: Final = ("group_id", "kind", "partition")


class Choice(NamedTuple):
    """The groups to be told, and how: those told `anew`, and of those that go on the scan that
    wrote the state of each (`group_id`, `scan_id`). `recorded` are those that have records."""

    groups: pa.Array
    anew: pa.Array
    go_on: pa.Table
    recorded: pa.Array


def summed(parts: Sequence[pa.Table]) -> pa.Table:
    """Return one row of `NEWS` for each group, kind and partition of these."""
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
        first = pa.array([False])
        ordered = pc.and_not(rows["ordered"], pa.concat_arrays([first, broken]))
        rows = with_columns(rows, {"ordered": ordered})
    bounds = [("offset", "min"), ("last_offset", "max"), ("at", "min"), ("until", "max")]
    found = rows.group_by(_SERIES, use_threads=False).aggregate([*bounds, ("ordered", "all")])
    names = [*_SERIES, *(f"{name}_{how}" for name, how in bounds), "ordered_all"]
    return found.select(names).rename_columns(NEWS.names).cast(NEWS)


def encoded(news: pa.Table) -> list[bytes]:
    """Return rows of `NEWS` as a report carries them."""
    return [one.serialize().to_pybytes() for one in news.to_batches()]


def decoded(parts: Iterable[bytes]) -> pa.Table:
    """Return the rows of `NEWS` of all tasks, summed up."""
    return summed([pa.Table.from_batches([pa.ipc.read_record_batch(one, NEWS)]) for one in parts])


def newest_states(run: Run) -> pa.Table:
    """Return what the scan before says of each group's newest state, without the state."""
    found = [_ABOUT.empty_table()]
    for file in run.earlier("states"):
        found += read_rows(run.place, file.path, _ABOUT)
    rows = pa.concat_tables(found).combine_chunks().sort_by([(SCAN.name, "descending")])
    groups = rows["group_id"].combine_chunks()
    first = pc.index_in(groups, groups)
    return rows.filter(pc.equal(first, pa.array(range(len(rows)), first.type)))


def told_until(news: pa.Table) -> int | None:
    """Return up to which time what was read is whole; None: all of it is.

    Where a scan read records and requests, one may go on after the other ends. Requests count
    `DISORDER` early, and lines of another log may come as much late.
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
) -> Choice:
    """Return the groups of which this scan writes rows, and those that go on from a state.

    `states` are the newest ones of the lake (`newest_states`). `span` is the time that all sources
    cover (microseconds since 1970), and `named` are the ids of topics whose names are new.
    """
    state = states.take(pc.index_in(news["group_id"], states["group_id"]))
    is_record = pc.equal(news["kind"], RECORDS)
    goes_on = pc.and_(
        pc.if_else(is_record, _records_follow(news, state), _requests_follow(news, state)),
        pc.equal(state["form"], FORM),
    )
    begins = pc.is_null(state["group_id"])
    sure = pc.and_(news["ordered"], pc.or_(pc.invert(is_record), _within(news, span)))
    follows = pc.and_(sure, pc.or_(begins, pc.fill_null(goes_on, False)))
    unnamed = states["unnamed"].combine_chunks()
    parents = pc.list_parent_indices(unnamed)
    learned = parents.filter(pc.is_in(pc.list_flatten(unnamed), pa.array(named, pa.string())))
    anew = _names(news.filter(pc.invert(follows)), states.take(learned))
    groups = pc.unique(pa.concat_arrays([_names(news), anew]))
    told = states.filter(_is_in(states, groups))
    recorded = _names(news.filter(is_record), told.filter(told["recorded"]))
    go_on = told.filter(pc.invert(_is_in(told, anew)))
    return Choice(groups, anew, go_on.select(["group_id", SCAN.name]), recorded)


def _records_follow(news: pa.Table, state: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether its records come after all those in its group's state."""
    at = news["at"].cast(LONG)
    tests = (
        pc.equal(news["partition"], state["partition"]),
        pc.greater(news["offset"], state["offset"]),
        pc.greater_equal(at, state["told_until"]),
        # A time that is before the latest is not the record's effective one (clock.effective).
        pc.greater_equal(at, state["latest"]),
    )
    follows = state["recorded"]
    for one in tests:
        follows = pc.and_(follows, pc.fill_null(one, True))
    return follows


def _requests_follow(news: pa.Table, state: pa.Table) -> pa.ChunkedArray:
    early = pc.subtract(news["at"].cast(LONG), DISORDER)
    return pc.fill_null(pc.greater(early, state["told_until"]), True)


def _within(news: pa.Table, span: tuple[int, int] | None) -> pa.ChunkedArray:
    """Return for each row whether all sources cover its times: only those may be believed."""
    first, last = (-(2**63), 2**63 - 1) if span is None else span
    inside = pc.and_(
        pc.greater_equal(news["at"].cast(LONG), first),
        pc.less_equal(news["until"].cast(LONG), last),
    )
    return pc.fill_null(inside, True)


def _is_in(rows: pa.Table, groups: pa.Array | Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(rows["group_id"], pa.array(groups, pa.string()))


def _names(*tables: pa.Table) -> pa.Array:
    """Return the groups of these rows, each once."""
    found = [chunk for one in tables for chunk in one["group_id"].chunks]
    return pc.unique(pa.chunked_array(found, pa.string()))
