"""Inputs sorted into buckets: each row is in one range, and comes in its group's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebal.inspectors.fleet import buckets
from rebal.inspectors.fleet.buckets import (
    BucketWriter,
    Piece,
    Range,
    Shape,
    bucket_of,
    find_pieces,
    in_order,
    make_ranges,
    read_range,
)
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.parts import PartWriter
from rebal.inspectors.fleet.schemas import INPUTS
from tests.examples import examples
from tests.fleet.tablefiles import files_in, target_in

ORDER = ("group_id", "at", "position")
GROUPS = [f"group-{n}" for n in range(40)]
AS_IS = {"requests": Shape(["group_id", "at", "position"], lambda rows: rows)}


def a_row(group: str, at: int, position: int) -> dict[str, Any]:
    row = dict.fromkeys(INPUTS["requests"].names)
    row |= {"group_id": group, "position": position, "reason": f"{group} {at} {position}"}
    return row | {"at": at, "bucket": bucket_of(group.encode())}


def written(folder: Path, tasks: list[list[dict[str, Any]]]) -> list[Piece]:
    target = target_in(folder)
    for rows in tasks:
        writer = PartWriter(target)
        held = BucketWriter(writer, "requests")
        for row in rows:
            held.add(pa.Table.from_pylist([row], INPUTS["requests"]))
        held.finish()
        list(writer.report())
    return find_pieces("requests", target.place, files_in(folder, "requests"))


def sort_key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["group_id"], row["at"], row["position"]


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tasks=st.lists(
        st.lists(
            st.builds(
                a_row,
                st.sampled_from(GROUPS) | st.just("one"),
                st.integers(0, 20),
                st.integers(0, 99),
            ),
            max_size=60,
        ),
        max_size=4,
    ),
    least=st.integers(1, 5),
    limits=st.sampled_from([{}, {"_READ": 1, "_ROWS": 7, "_HELD": 2000}, {"_RUN": 10_000}]),
)
def test_each_row_comes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    tasks: list[list[dict[str, Any]]],
    least: int,
    limits: dict[str, int],
) -> None:
    expected = sorted((row for rows in tasks for row in rows), key=sort_key)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(buckets, name, value)
        folder = tmp_path_factory.mktemp("inputs")
        place = find_place(str(folder))
        pieces = written(folder, tasks)
        ranges = make_ranges(pieces, least)
        assert ranges[0].first == 0
        assert ranges[-1].end == 1 << 32
        assert [one.end for one in ranges[:-1]] == [one.first for one in ranges[1:]]
        found: list[dict[str, Any]] = []
        for one in ranges:
            rows = [
                row for batch in in_order(place, one, AS_IS, ORDER) for row in batch.to_pylist()
            ]
            assert [row["reason"] for row in rows] == [
                row["reason"] for row in sorted(rows, key=sort_key)
            ]
            same = pa.concat_tables(
                [INPUTS["requests"].empty_table(), *read_range(place, one, "requests")]
            )
            assert sorted(same["reason"].to_pylist()) == sorted(row["reason"] for row in rows)
            found += rows
    assert sorted(row["reason"] for row in found) == sorted(row["reason"] for row in expected)


def test_a_group_is_in_one_range_whatever_file_it_comes_from(tmp_path: Path) -> None:
    tasks = [[a_row(group, at, task) for group in GROUPS] for task, at in enumerate((3, 1, 2))]
    ranges = make_ranges(written(tmp_path, tasks), 4)
    place = find_place(str(tmp_path))
    assert len(ranges) == 4
    told = [
        [
            row["group_id"]
            for batch in in_order(place, one, AS_IS, ORDER)
            for row in batch.to_pylist()
        ]
        for one in ranges
    ]
    assert all(told)
    assert all(groups == sorted(groups) for groups in told)
    assert sorted(group for groups in told for group in set(groups)) == sorted(GROUPS)


def test_ranges_are_of_about_the_same_size() -> None:
    part = (1 << 32) // 64
    pieces = [Piece("records", "a", n, n * part, n * part + 1, 10 << 20) for n in range(64)]
    ranges = make_ranges(pieces, 2)
    sizes = [sum(piece.size for piece in one.pieces) for one in ranges]
    assert sum(sizes) == 64 * (10 << 20)
    assert len(ranges) == 4
    assert max(sizes) == min(sizes)
    assert make_ranges([], 3)[-1] == Range(0, 1 << 32, ())


def test_batches_are_bounded_by_what_their_rows_really_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [a_row(GROUPS[0], at, at) for at in range(500)]
    large = [a_row(GROUPS[0], 500 + at, at) | {"reason": "x" * 10_000} for at in range(100)]
    shapes = {"requests": Shape(["group_id", "at", "position"], lambda rows: rows, "reason")}
    monkeypatch.setattr(buckets, "_BATCH", 50_000)
    for least in (1, 256 << 20):
        monkeypatch.setattr(buckets, "_READ", least)
        place = find_place(str(tmp_path / str(least)))
        ranges = make_ranges(written(tmp_path / str(least), [small + large]), 1)
        (only,) = (one for one in ranges if one.pieces)
        sizes = [
            sum(map(len, batch["reason"].to_pylist()))
            for batch in in_order(place, only, shapes, ORDER)
        ]
        assert sum(sizes) == sum(len(row["reason"]) for row in small + large)
        assert 20 <= len(sizes) <= 24
        assert max(sizes) <= 50_000 + 10_000
