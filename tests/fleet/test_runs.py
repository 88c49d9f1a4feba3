"""Runs of rows: what is packed comes out in order, whatever files and batches it came in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rebal.inspectors.clock import moment
from rebal.inspectors.fleet import runs
from rebal.inspectors.fleet.runs import in_order, pack, unpack
from rebal.inspectors.fleet.schemas import RUNS, TIMELINE
from tests.examples import examples
from tests.fleet import timeline_input
from tests.fleet.timeline_input import Row, record
from tests.fleet.timeline_story import SECOND, START


def row(group: int, at: int | None, offset: int | None, size: int = 10) -> Row:
    time = None if at is None else START + at * SECOND
    if offset is not None:
        return record(f"g{group}", time, offset, b"k", b"v" * size)
    found = {"group_id": f"g{group}", "at": time, "source": "s", "value": b"q", "position": at or 0}
    return dict.fromkeys(TIMELINE.names) | found


def packed_of(rows: list[Row]) -> list[pa.Table]:
    return [pack(in_order([pa.Table.from_pylist(rows, TIMELINE)]))] if rows else []


def through(files: list[list[Row]]) -> list[Row]:
    """What comes out of files that several tasks packed, sorted as Spark sorts: by group."""
    packed = [run for rows in files for batch in packed_of(rows) for run in batch.to_pylist()]
    packed.sort(key=lambda run: run["group_id"])
    return list(rows_of(packed))


def rows_of(packed: list[Row]) -> Iterator[Row]:
    batches = pa.Table.from_pylist(packed, RUNS).to_batches(max_chunksize=3)
    for one in unpack(batches, None):
        yield dict.fromkeys(TIMELINE.names) | one._asdict()


times = st.one_of(st.none(), st.integers(0, 40))


def test_a_run_says_which_offsets_and_times_are_in_it() -> None:
    (packed,) = packed_of([row(0, 5, 9), row(0, 7, 8), row(0, 6, None), row(0, None, None)])
    found = [[run[name] for name in ("kind", "offset", "last_offset", "at", "until", "ordered")]
             for run in packed.to_pylist()]  # fmt: skip
    at = [moment(START + n * SECOND) for n in range(10)]
    assert found == [
        ["records", 9, 9, at[5], at[5], True],
        ["requests", None, None, at[6], at[6], True],
        ["records", 8, 8, at[7], at[7], True],
        ["requests", None, None, None, None, True],
    ]
    (packed,) = packed_of([row(0, 5, 9), row(0, 7, 8)])
    (run,) = packed.to_pylist()
    assert (run["offset"], run["last_offset"], run["ordered"]) == (8, 9, False)


@settings(examples(60))
@given(
    st.lists(
        st.lists(
            st.builds(row, st.integers(0, 3), times, st.one_of(st.none(), st.integers(0, 99))),
            max_size=30,
        ),
        max_size=4,
    ),
    st.integers(1, 8),
)
def test_rows_come_out_in_order_with_effective_times(files: list[list[Row]], run_rows: int) -> None:
    files = [[one for one in rows if one["at"] or one["key"] is None] for rows in files]
    numbers = itertools.count()
    for one in itertools.chain.from_iterable(files):
        if one["offset"] is not None:
            # a place has one record, and times follow the offsets or do not
            one["offset"] = one["offset"] * 1000 + next(numbers)
    before, runs._RUN_ROWS = runs._RUN_ROWS, run_rows
    try:
        made = through(files)
    finally:
        runs._RUN_ROWS = before
    ordered = timeline_input.in_order([one for rows in files for one in rows])
    assert made == ordered


def test_a_state_comes_before_its_groups_rows() -> None:
    state = dict.fromkeys(TIMELINE.names) | {"group_id": "g1", "state": b"x"}
    made = through([[row(1, 3, 3), row(0, 1, 1)], [row(1, 2, 2), row(2, 0, 0)], [state]])
    assert [(one["group_id"], one["state"], one["offset"]) for one in made] == [
        ("g0", None, 1),
        ("g1", b"x", None),
        ("g1", None, 2),
        ("g1", None, 3),
        ("g2", None, 0),
    ]


def test_a_run_is_cut_where_it_is_large_and_packs_what_repeats() -> None:
    rows = [row(1, n, n, size=400_000) for n in range(10)]
    (batch,) = packed_of(rows)
    assert len(batch) == 4
    assert batch.nbytes < 0.01 * sum(batch["size"].to_pylist())
