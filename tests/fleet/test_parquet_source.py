"""Captured Parquet: every form of a column that a consumer may have written, and damaged files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.sources import captured as captured_source
from rebal.inspectors.fleet.sources.captured import plan_parquet, read_parts, shaped
from rebal.inspectors.fleet.sources.files import share_out
from rebal.inspectors.fleet.sources.source import SKIPPED, SOURCE

AT = datetime(2026, 11, 20, 9, 30, 0, 125000, tzinfo=UTC)
MILLIS = int(AT.timestamp() * 1000)


def captured(**columns: Any) -> pa.RecordBatch:
    given = {
        "key": pa.array([b"k"], pa.binary()),
        "value": pa.array([b"v"], pa.binary()),
        "partition": pa.array([7], pa.int32()),
        "offset": pa.array([42], pa.int64()),
        "timestamp": pa.array([AT], pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(given | columns)


@pytest.mark.parametrize(
    "timestamp",
    [
        pa.array([AT], pa.timestamp("ms", "UTC")),
        pa.array([AT], pa.timestamp("ns", "UTC")),
        pa.array([AT], pa.timestamp("us", "Europe/Berlin")),
        pa.array([AT.replace(tzinfo=None)], pa.timestamp("us")),
        pa.array([MILLIS], pa.int64()),
        pa.array([MILLIS * 1000], pa.int64()),
        pa.array([MILLIS * 1_000_000], pa.int64()),
        pa.array([str(MILLIS)]),
        pa.array(["2026-11-20T09:30:00.125Z"]),
        pa.array(["2026-11-20 10:30:00.125+01:00"]),
        pa.array(["2026-11-20 09:30:00.125"]),
    ],
    ids=str,
)
def test_each_form_of_a_time(timestamp: pa.Array) -> None:
    (row,) = shaped(captured(timestamp=timestamp), "f").to_pylist()
    assert row["timestamp"] == AT


def test_no_time_at_all() -> None:
    told = [None], ["soon"], [str(2**70)], ["1e5"]
    for empty in (pa.array([None], pa.int64()), *(pa.array(one, pa.string()) for one in told)):
        assert shaped(captured(timestamp=empty), "f").to_pylist()[0]["timestamp"] is None


def test_columns_of_other_widths() -> None:
    batch = captured(
        key=pa.array([b"k"], pa.large_binary()),
        partition=pa.array([7], pa.int64()),
        offset=pa.array([42], pa.uint32()),
    )
    made = shaped(batch, "f")
    assert made.schema == SOURCE
    (row,) = made.to_pylist()
    assert (row["key"], row["partition"], row["offset"], row["source"]) == (b"k", 7, 42, "f")
    assert row["problem"] is None


def test_rows_that_are_no_records_keep_what_they_are() -> None:
    without = shaped(captured(offset=pa.array([None], pa.int64())), "f").to_pylist()[0]
    assert without["problem"] == "no record: without partition or offset"
    assert without["partition"] == 7
    foreign = shaped(captured(topic=pa.array(["orders"])), "f").to_pylist()[0]
    assert foreign["problem"] == f"{SKIPPED}records of other topics"
    assert foreign["partition"] is None
    own = shaped(captured(topic=pa.array(["__consumer_offsets"])), "f").to_pylist()[0]
    assert own["problem"] is None


def test_tasks_share_out_the_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a b+c.parquet"
    whole = pa.Table.from_batches([captured(offset=pa.array([n])) for n in range(40)])
    pq.write_table(whole, path, row_group_size=5)
    for least in (1, 3, 8, 50):
        tasks = plan_parquet([str(path)], least)
        assert min(least, 7) <= len(tasks) <= min(least, 8)
        rows = [row for one in tasks for batch in read_parts(one) for row in batch.to_pylist()]
        assert [row["offset"] for row in rows] == list(range(40))
        assert {row["source"] for row in rows} == {"a b+c.parquet"}
    monkeypatch.setattr(captured_source, "_BYTES", 1)
    assert [batch.num_rows for one in tasks for batch in read_parts(one)] == [1] * 40
    monkeypatch.setattr(captured_source, "_TASK", 1)
    assert len(plan_parquet([str(path)], 1)) == 8


def test_executors_get_the_whole_path_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.Table.from_batches([captured()]), "a.parquet")
    Path("a.jsonl").write_text("{}")
    ((group,),) = plan_parquet(["a.parquet"], 1)
    (((part,),), _) = share_out(["a.jsonl"], 1)
    assert [group.path, part.path] == [str(tmp_path / name) for name in ("a.parquet", "a.jsonl")]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.parquet", tmp_path / "cut.parquet"
    pq.write_table(pa.Table.from_batches([captured()]), whole)
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DocumentError, match=r"cut.parquet: is no whole Parquet file; capture"):
        plan_parquet([str(cut)], 1)
    pq.write_table(pa.table({"key": [b"k"], "value": [b"v"]}), whole)
    with pytest.raises(DocumentError, match="no column partition, offset, timestamp; expected"):
        plan_parquet([str(whole)], 1)
    named = captured(key=pa.array(["k"]))
    pq.write_table(pa.Table.from_batches([named]), whole)
    with pytest.raises(DocumentError, match="key is not binary"):
        plan_parquet([str(whole)], 1)
