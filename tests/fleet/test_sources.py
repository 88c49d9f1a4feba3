"""What `fleet scan` is given to read: captured files, and what is none; ranges of a topic.

Ranges are read to their ends, or an error says why not; no broker is there.
"""

from __future__ import annotations

import bz2
import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, TopicPartition

from rebal.groups.errors import DocumentError
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.settings import Pem
from rebal.inspectors.errors import ConnectError, RequestError, SettingError
from rebal.inspectors.fleet.intake import check_records, check_request_logs
from rebal.inspectors.fleet.job import ScanOrder, run_scan
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.sources import captured as captured_source
from rebal.inspectors.fleet.sources import kafka
from rebal.inspectors.fleet.sources import source as files
from rebal.inspectors.fleet.sources.captured import (
    find_files,
    read_files,
    read_lines,
    read_parts,
    shaped,
)
from rebal.inspectors.fleet.sources.kafka import (
    PartitionRange,
    carried,
    read_partitions,
    share_ranges,
)
from rebal.inspectors.fleet.sources.segments import find_segments
from rebal.inspectors.fleet.sources.source import SKIPPED, SOURCE, TOPIC, FilePart, share_out

LINE = b'{"key":"AAI=","value":null,"partition":0,"offset":1,"timestamp":1}\n'
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
AT = datetime(2026, 11, 20, 9, 30, 0, 125000, tzinfo=UTC)
MILLIS = int(AT.timestamp() * 1000)
REQUEST = b'[2026-11-21 02:04:39,628] DEBUG Completed request:{"isForwarded":false} (kafka)\n'


def test_captured_files_are_found_by_folder_glob_and_url(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "in" / "b.jsonl.gz"
    packed.parent.mkdir()
    plain.write_bytes(LINE)
    packed.write_bytes(gzip.compress(LINE))
    pq.write_table(pa.Table.from_batches([parquet_row()]), tmp_path / "c.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.jsonl.crc").write_bytes(b"crc")
    assert find_files([str(tmp_path)]) == [*map(str, (plain, tmp_path / "c.parquet", packed))]
    assert find_files([str(tmp_path / "*" / "*.gz")]) == [str(packed)]
    there = find_files([f"file://{tmp_path}"])
    assert there == [f"file://{path}" for path in find_files([str(tmp_path)])]


find_logs = partial(share_out, tasks=1)
SEGMENT = f"{0:020}.log"


@pytest.mark.parametrize(
    ("find", "name", "expected"),
    [
        *(
            (find, name, "pipe|no such file|no file can|too long")
            for find in (find_files, find_segments, find_logs)
            for name in ("missing", "pipe", "g\ud800", "n" * 300)
        ),
        (find_files, ".", r"no \.jsonl, \.jsonl\.gz or \.parquet"),
        (find_segments, ".", "no segment of __consumer_offsets is there"),
        (find_segments, SEGMENT, "keep the name that the folder has on the broker"),
        (find_logs, "folder", "holds no file"),
    ],
)
def test_an_input_path_without_readable_files_is_rejected(
    find: Callable[..., object],
    name: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also a pipe without a writer, an impossible file name, and one that is too long."""
    monkeypatch.setattr("rebal.inspectors.files._PATIENCE", 0.01)
    (tmp_path / "folder").mkdir()
    for file in ("empty", SEGMENT):
        (tmp_path / file).touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match=expected):
        find([str(tmp_path / name)])


def test_a_request_log_that_cannot_be_read_ends_a_scan_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rebal.inspectors.fleet.job.require", lambda *_, **__: None)
    monkeypatch.setattr("rebal.inspectors.fleet.job.spark_session", None)
    order = ScanOrder(out=find_place(str(tmp_path / "out")), request_logs=(str(tmp_path / "no"),))
    with pytest.raises(DocumentError, match="no: no such file"):
        run_scan(order, print)
    (tmp_path / "no").write_bytes(bz2.compress(REQUEST))
    with pytest.raises(DocumentError, match=r"no: is compressed \(bz2\); unpack it"):
        run_scan(order, print)


def captured(path: Path, data: bytes) -> list[int | None]:
    """The offsets of a captured file's rows; None: no record."""
    path.write_bytes(data)
    shares = read_files([str(path)]).share(1, {})
    rows = [row for one in shares for batch in read_parts(one) for row in batch.to_pylist()]
    return [None if row["problem"] else row["offset"] for row in rows]


@pytest.mark.parametrize(
    ("data", "last"),
    [
        pytest.param(LINE, 1, id="a line"),
        pytest.param(b"not json\n" + LINE, 1, id="after a broken one"),
        pytest.param(LINE.strip(), 1, id="without an end"),
        pytest.param(b"\n\n" + LINE, 1, id="after empty ones"),
        pytest.param(PNG, None, id="PNG"),
        pytest.param(b'{"partition":"0","offset":1}\n[1]\nnull\n', None, id="other JSON"),
        pytest.param(b"[" * 60_000, None, id="nested JSON"),
        pytest.param(REQUEST, None, id="request log"),
    ],
)
def test_captured_records_are_recognized_by_content_and_other_files_yield_none(
    tmp_path: Path, data: bytes, last: int | None
) -> None:
    """`check_records` rejects files without records."""
    for written in (data, gzip.compress(data)):
        offsets = captured(tmp_path / "a", written)
        assert offsets[-1] == last
        assert set(offsets) <= {None, last}


def test_any_captured_line_becomes_a_record_or_an_error_with_its_text(tmp_path: Path) -> None:
    odd = (None, 1.5, 2**70, "", "AAI=", "%%", [], "9999-12-31T23:59:59+00:00", "\ud800", True)
    file = tmp_path / "odd.jsonl"
    lines = [
        json.dumps({**json.loads(LINE), name: value}).encode()
        for name in ("key", "value", "partition", "offset", "timestamp", "topic")
        for value in odd
    ]
    file.write_bytes(b"\n".join([*lines, b"\xff{", b"[" * 60_000, b"  "]))
    (batch,) = read_lines(FilePart(str(file), 0, file.stat().st_size))
    rows = batch.select(["value", "partition", "offset", "problem"]).to_pylist()
    assert len(rows) == len(lines) + 2
    for line, row in zip([*lines, b"\xff{", b"[" * 60_000], rows, strict=True):
        if row["problem"] is None:
            assert (row["partition"], row["offset"]) == (0, json.loads(line)["offset"])
        else:
            assert row["value"] == line or row["problem"].startswith(SKIPPED)


@pytest.mark.parametrize(
    ("ended", "before", "wrong"),
    [
        ({}, False, True),
        ({"UNREADABLE": 300}, False, True),
        ({"UNREADABLE": 95, "OFFSET_COMMIT": 5}, False, True),
        ({"UNKNOWN_KIND_24930": 9_999, "GROUP_METADATA": 1}, True, True),
        ({"UNREADABLE": 9, "GROUP_METADATA": 1}, False, False),
        ({"UNREADABLE": 3}, True, False),
        ({"OFFSET_COMMIT": 3}, False, False),
    ],
)
def test_a_capture_with_almost_no_offsets_topic_record_is_an_error(
    ended: dict[str, int], before: bool, wrong: bool
) -> None:
    rejection = pytest.raises(DocumentError, match=r"it seems to be something else|no record of")
    with rejection if wrong else nullcontext():
        check_records(["file"], ended, before)


def test_a_request_log_without_a_request_is_an_error() -> None:
    check_request_logs(["a.log"], {"lines": 0, "requests": 0})
    check_request_logs(["a.log"], {"lines": 9, "requests": 1})
    with pytest.raises(DocumentError, match="none of 1,200 lines is a request log's"):
        check_request_logs(["a.png"], {"lines": 1200, "requests": 0})


def parquet_row(**columns: Any) -> pa.RecordBatch:
    given = {
        "key": pa.array([b"k"], pa.binary()),
        "value": pa.array([b"v"], pa.binary()),
        "partition": pa.array([7], pa.int32()),
        "offset": pa.array([42], pa.int64()),
        "timestamp": pa.array([AT], pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(given | columns)


def test_every_timestamp_format_of_captures_is_parsed_and_others_become_null() -> None:
    for timestamp in (
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
    ):
        (row,) = shaped(parquet_row(timestamp=timestamp), "f").to_pylist()
        assert row["timestamp"] == AT, timestamp.type
    no_times = [None], ["soon"], [str(2**70)], ["1e5"]
    for empty in (pa.array([None], pa.int64()), *(pa.array(one, pa.string()) for one in no_times)):
        assert shaped(parquet_row(timestamp=empty), "f").to_pylist()[0]["timestamp"] is None


WIDE = {
    "key": pa.array([b"k"], pa.large_binary()),
    "partition": pa.array([7], pa.int64()),
    "offset": pa.array([42], pa.uint32()),
}
NO_PLACE = "no record: without partition or offset"


@pytest.mark.parametrize(
    ("columns", "partition", "offset", "problem"),
    [
        (WIDE, 7, 42, None),
        ({"topic": pa.array(["__consumer_offsets"])}, 7, 42, None),
        ({"topic": pa.array(["orders"])}, None, None, f"{SKIPPED}records of other topics"),
        ({"offset": pa.array([None], pa.int64())}, 7, None, NO_PLACE),
    ],
    ids=["other widths", "its topic", "another topic", "no offset"],
)
def test_parquet_rows_keep_partition_and_offset_or_state_why_they_are_no_record(
    columns: dict[str, pa.Array], partition: int | None, offset: int | None, problem: str | None
) -> None:
    made = shaped(parquet_row(**columns), "f")
    assert made.schema == SOURCE
    (row,) = made.to_pylist()
    assert (row["key"], row["partition"], row["offset"]) == (b"k", partition, offset)
    assert (row["source"], row["problem"]) == ("f", problem)


@pytest.mark.parametrize("size", [1, 300, 1000, 1 << 20])
def test_each_parquet_row_group_is_read_by_exactly_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = tmp_path / "a b+c.parquet"
    whole = pa.Table.from_batches([parquet_row(offset=pa.array([n])) for n in range(40)])
    pq.write_table(whole, path, row_group_size=5)
    monkeypatch.setattr(files, "_MOST", size)
    tasks = read_files([str(path)]).share(1, {})
    assert len(tasks) == -(-path.stat().st_size // size)
    rows = [row for one in tasks for batch in read_parts(one) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(40))
    assert {row["source"] for row in rows} == {"a b+c.parquet"}
    monkeypatch.setattr(captured_source, "_BYTES", 1)
    assert [batch.num_rows for one in tasks for batch in read_parts(one)] == [1] * 40


def test_spark_tasks_get_the_absolute_path_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text("{}")
    (((part,),), _) = share_out(["a.jsonl"], 1)
    assert part.path == str(tmp_path / "a.jsonl")


def test_truncated_or_mistyped_parquet_captures_are_rejected(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.parquet", tmp_path / "cut.parquet"
    pq.write_table(pa.Table.from_batches([parquet_row()]), whole)
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DocumentError, match=r"cut.parquet: is no whole Parquet file; capture"):
        find_files([str(cut)])
    pq.write_table(pa.table({"key": [b"k"], "value": [b"v"]}), whole)
    with pytest.raises(DocumentError, match="partition, offset, timestamp: missing, or "):
        find_files([str(whole)])
    named = parquet_row(key=pa.array(["k"]))
    pq.write_table(pa.Table.from_batches([named]), whole)
    with pytest.raises(DocumentError, match=": key: missing, or of another type; expected"):
        find_files([str(whole)])


CONFIG = ClusterConfig(bootstrap="b:9092")


def message(number: int, offset: int, error: int | None = None, topic: Any = TOPIC) -> Mock:
    """A record, the end of a partition, or an error."""
    said = {
        "error": None if error is None else KafkaError(error),
        "topic": topic,
        "partition": number,
        "offset": offset,
        "key": b"k",
        "value": None,
        "timestamp": (TIMESTAMP_CREATE_TIME, 1000),
    }
    return Mock(**{f"{name}.return_value": value for name, value in said.items()})


def end(number: int, offset: int) -> Mock:
    return message(number, offset, KafkaError._PARTITION_EOF)


class Broker:
    """What a consumer is given, one batch after another; then nothing."""

    def __init__(self, *batches: list[Mock]) -> None:
        self._batches = [list(batch) for batch in batches]
        self.assigned: list[tuple[int, int]] = []
        self.settings: dict[str, Any] = {}
        self.closed = False

    def __call__(self, settings: dict[str, Any]) -> Broker:
        self.settings = settings
        return self

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = [(place.partition, place.offset) for place in places]

    def poll(self, _: float) -> Mock | None:
        if not self._batches:
            self.settings["error_cb"](KafkaError(KafkaError._TRANSPORT, "b:9092: connection lost"))
            return None
        return self._batches[0].pop(0)

    def consume(self, *_: object) -> list[Mock]:
        return self._batches.pop(0)

    def pause(self, places: list[TopicPartition]) -> None:
        assert len(places) == 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read 3 up to 6 of partition 0 and 0 up to 2 of partition 9; gives the offsets."""

    def offsets(broker: Broker) -> Iterator[tuple[int, int]]:
        monkeypatch.setattr(kafka, "Consumer", broker)
        ranges = [PartitionRange(0, 3, 6), PartitionRange(9, 0, 2)]
        for batch in read_partitions(ranges, CONFIG):
            for row in batch.to_pylist():
                assert (row["key"], row["value"], row["problem"]) == (b"k", None, None)
                yield row["partition"], row["offset"]

    return offsets


def test_an_offset_range_ends_at_a_later_record_or_the_end_of_the_partition(read: Any) -> None:
    """The first end of partition 9 comes from a lagging broker: more records follow."""
    broker = Broker(
        [message(0, 3), message(9, 0), end(9, 1)],
        [message(0, 5), message(0, 6), message(0, 7)],
        [message(9, 1), end(9, 2)],
    )
    assert list(read(broker)) == [(0, 3), (9, 0), (0, 5), (9, 1)]
    assert broker.assigned == [(0, 3), (9, 0)]
    assert broker.settings["isolation.level"] == "read_committed"
    assert broker.closed


def test_deleted_records_and_group_authorization_errors_do_not_fail_a_scan(read: Any) -> None:
    denied = message(-1, -1, KafkaError.GROUP_AUTHORIZATION_FAILED, topic=None)
    assert list(read(Broker([end(0, 8)], [end(9, 2)]))) == []
    assert list(read(Broker([denied], [message(0, 4), end(0, 6), end(9, 2)]))) == [(0, 4)]


def test_a_broker_that_denies_the_topic_or_stops_answering_fails_the_scan(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker([message(0, 3), message(9, 0, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(RequestError, match="TOPIC_AUTHORIZATION_FAILED"):
        list(read(broker))
    assert broker.closed
    with pytest.raises(ConnectError, match=r"no answer within 60 s: .*connection lost"):
        list(read(Broker([message(0, 3)])))
    times = iter(range(0, 1000, 40))
    monkeypatch.setattr(kafka, "time", SimpleNamespace(monotonic=lambda: next(times)))
    down = [[message(-1, -1, KafkaError._ALL_BROKERS_DOWN, topic=None)] for _ in range(5)]
    with pytest.raises(ConnectError, match=r"no answer within 60 s: .*[Bb]roker"):
        list(read(Broker(*down)))


def test_offset_ranges_are_split_across_tasks_that_need_no_pem_file(tmp_path: Any) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("PEM")
    config = ClusterConfig(bootstrap="b:9093", protocol="SSL", ca=Pem(file=str(pem)))
    ranges = [PartitionRange(n, 0, 100_000) for n in range(8)]
    edges = dict.fromkeys(range(8), (0, 100000, 100007))
    assert share_ranges(edges, 1, {}) == [ranges[n : n + 2] for n in range(0, 8, 2)]
    assert share_ranges(edges, 4, dict.fromkeys(edges, 99_999)) == []
    assert share_ranges(edges, 4, {**dict.fromkeys(edges, 99_999), 3: 99_989}) == [
        [PartitionRange(3, 99_990, 100_000)]
    ]
    with pytest.raises(RequestError, match=r"3 ends at 100007, before the 100009 that .* --full"):
        share_ranges(edges, 4, {3: 100_008})
    assert carried(config).ca == Pem(inline="PEM")
    pem.unlink()
    with pytest.raises(SettingError, match="is not a PEM file that can be read"):
        carried(config)
