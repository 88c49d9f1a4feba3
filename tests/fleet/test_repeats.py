"""Whether captured Parquet may hold a record twice, as partitions and offsets alone tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rebal.inspectors.fleet.sources import repeats
from rebal.inspectors.fleet.sources.repeats import find_spans, may_repeat

Places = Sequence[tuple[int | None, int | None]]


@pytest.fixture(params=[1, 2, 1 << 17], autouse=True)
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read batches of so many rows."""
    monkeypatch.setattr(repeats, "_ROWS", request.param)


def written(folder: Path, *files: Places) -> list[str]:
    made = []
    for number, places in enumerate(files):
        partitions, offsets = zip(*places, strict=True)
        table = pa.table(
            {"partition": pa.array(partitions, pa.int32()), "offset": pa.array(offsets, pa.int64())}
        )
        made.append(str(folder / f"{number}.parquet"))
        pq.write_table(table, made[-1])
    return made


@pytest.mark.parametrize(
    "files",
    [
        [[(0, 5), (0, 6), (0, 9)]],
        [[(0, 5), (1, 5), (0, 6), (1, 7)]],
        [[(1, 5), (0, 5), (1, 6)]],
        [[(0, 5), (0, 6)], [(0, 7), (0, 8)]],
        [[(0, 7), (0, 8)], [(0, 5), (0, 6)]],
        [[(0, 5), (1, 90)], [(0, 6), (1, 80)], [(2, 5)]],
        [[(0, 5), (None, None), (None, 5), (0, None), (0, 6)]],
        [[(None, None)], [(0, 5)]],
    ],
    ids=str,
)
def test_offsets_that_grow_rule_it_out(tmp_path: Path, files: Sequence[Places]) -> None:
    assert not may_repeat(written(tmp_path, *files))


@pytest.mark.parametrize(
    "files",
    [
        [[(0, 5), (0, 5)]],
        [[(0, 5), (0, 6), (1, 1), (0, 5), (0, 6)]],
        [[(0, 6), (0, 5)]],
        [[(0, 5), (0, 6)], [(0, 6), (0, 7)]],
        [[(0, 5), (0, 9)], [(0, 6), (0, 7)]],
        [[(0, 5), (0, 6)], [(1, 5)], [(0, 5), (0, 6)]],
    ],
    ids=str,
)
def test_offsets_that_come_again_may_be_copies(tmp_path: Path, files: Sequence[Places]) -> None:
    assert may_repeat(written(tmp_path, *files))


def test_damage_is_left_to_the_tasks(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [(0, number) for number in range(1000)])
    data = bytearray(Path(path).read_bytes())
    data[4:400] = b"\xff" * 396
    Path(path).write_bytes(data)
    assert find_spans(path) is None
