"""Runs of rows: what is packed comes out in order, whatever files and batches it came in."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rebal.inspectors.fleet import runs
from rebal.inspectors.fleet.runs import SORTED_BY, Packer, unpack
from rebal.inspectors.fleet.schemas import TIMELINE
from rebal.inspectors.fleet.timeline.timeline import ORDER
from tests.examples import examples

START = datetime(2026, 11, 20, tzinfo=UTC)
Row = dict[str, Any]


def row(group: int, at: int | None, offset: int | None, size: int = 10) -> Row:
    found: Row = dict.fromkeys(TIMELINE.names)
    found |= {
        "group_id": f"g{group}",
        "at": None if at is None else START + timedelta(seconds=at),
        "source": "s",
    }
    if offset is None:
        return found | {"api": "JOIN_GROUP", "position": at or 0}
    return found | {"key": b"k", "value": b"v" * size, "partition": 0, "offset": offset}


def place(one: Row) -> tuple[Any, ...]:
    values = (one[name] for name in ORDER[1:])
    return one["group_id"], one["state"] is None, *((v is None, v or 0) for v in values if v != "s")


def through(files: list[list[Row]]) -> list[Row]:
    """What comes out of files that several tasks packed, sorted as Spark sorts."""
    packed: list[Row] = []
    for rows in files:
        packer = Packer()
        batches = list(packer.add(pa.Table.from_pylist(rows, TIMELINE))) if rows else []
        for batch in (*batches, *packer.rest()):
            packed += batch.to_pylist()
    packed.sort(key=lambda one: [(one[name] is None, one[name] or 0) for name in SORTED_BY])
    return list(rows_of(packed))


def rows_of(packed: list[Row]) -> Iterator[Row]:
    batches = pa.Table.from_pylist(packed, runs.PACKED).to_batches(max_chunksize=3)
    for batch in unpack(batches):
        for one in batch.to_pylist():
            yield dict.fromkeys(TIMELINE.names) | one


times = st.one_of(st.none(), st.integers(0, 40))


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
def test_rows_come_out_in_order(files: list[list[Row]], run_rows: int) -> None:
    files = [[one for one in rows if one["at"] or one["api"]] for rows in files]
    before, runs._RUN_ROWS = runs._RUN_ROWS, run_rows
    try:
        made = through(files)
    finally:
        runs._RUN_ROWS = before
    wanted = sorted((one for rows in files for one in rows), key=place)
    assert [place(one) for one in made] == [place(one) for one in wanted]
    assert sorted(made, key=place) == wanted


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
    packer = Packer()
    (batch,) = [*packer.add(pa.Table.from_pylist(rows, TIMELINE)), *packer.rest()]
    assert len(batch) == 4
    assert batch.nbytes < 0.01 * sum(batch["size"].to_pylist())
