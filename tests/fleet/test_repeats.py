"""Whether a source may hold a record twice, as tasks report of the offsets that they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from rebal.inspectors.fleet.intake import take_in
from rebal.inspectors.fleet.lake.place import Place
from rebal.inspectors.fleet.sources.source import SOURCE
from rebal.inspectors.fleet.writer import Target, Totals

Places = Sequence[tuple[int | None, int | None]]


def reported(folder: Path, tasks: Sequence[Places], rows: int) -> Totals:
    """The reports of tasks that read records at these places."""
    target = Target(Place(str(folder)), "scan", 1)
    found = Totals()
    for places in tasks:
        for batch in take_in(batches(places, rows), target, iter, 0):
            found.take(batch.to_pylist())
    return found


def batches(places: Places, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(places), rows):
        part = [
            {"partition": partition, "offset": offset, "problem": "broken"}
            for partition, offset in places[start : start + rows]
        ]
        yield pa.RecordBatch.from_pylist(part, SOURCE)


@pytest.mark.parametrize("rows", [1, 2, 1 << 17])
@pytest.mark.parametrize(
    ("tasks", "may_repeat"),
    [
        ([[(0, 5), (1, 5), (0, 6), (1, 7), (0, 9)]], False),
        ([[(0, 7), (0, 8)], [(0, 5), (0, 6)]], False),
        ([[(0, 7), (0, 8), (0, 5), (0, 6)]], False),
        ([[(0, 5), (1, 90)], [(0, 6), (1, 80)], [(2, 5)]], False),
        ([[(0, 5), (None, None), (None, 5), (0, None), (0, 6)], [(None, None)]], False),
        ([[(0, 5), (0, 6), (1, 1), (0, 5), (0, 6)]], True),
        ([[(0, 5), (0, 9)], [(0, 6), (0, 7)]], True),
        ([[(0, 5), (0, 6)], [(1, 5)], [(0, 5), (0, 6)]], True),
    ],
    ids=str,
)
def test_offsets_that_come_again_may_be_copies_and_no_others(
    tmp_path: Path, tasks: Sequence[Places], rows: int, may_repeat: bool
) -> None:
    found = reported(tmp_path, tasks, rows)
    assert found.may_repeat is may_repeat
    read = [place for places in tasks for place in places if None not in place]
    assert found.last == {
        partition: max(offset or 0 for number, offset in read if number == partition)
        for partition, _ in read
    }
