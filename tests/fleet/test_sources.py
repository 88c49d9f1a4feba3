"""What `fleet scan` is given to read, before Spark starts: one sentence for each wrong thing."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rebal.cli.app import run
from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.intake import check_records, check_request_logs
from rebal.inspectors.fleet.job import ScanOrder, run_scan
from rebal.inspectors.fleet.lake.place import find_place
from rebal.inspectors.fleet.sources.captured import find_files, read_lines
from rebal.inspectors.fleet.sources.files import Part, share_out
from rebal.inspectors.fleet.sources.segments import find_segments
from rebal.inspectors.fleet.sources.source import SKIPPED, TOPIC

LINE = b'{"key":"AAI=","value":null,"partition":0,"offset":1,"timestamp":1}\n'
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
REQUEST = b'[2026-11-21 02:04:39,628] DEBUG Completed request:{"isForwarded":false} (kafka)\n'


def test_files_and_folders(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "in" / "b.jsonl.gz"
    packed.parent.mkdir()
    plain.write_bytes(LINE)
    packed.write_bytes(gzip.compress(LINE))
    (tmp_path / "c.parquet").write_bytes(b"PAR1....PAR1")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.jsonl.crc").write_bytes(b"crc")
    assert find_files([str(tmp_path)]) == [
        (str(plain), "text"),
        (str(tmp_path / "c.parquet"), "parquet"),
        (str(packed), "text"),
    ]
    assert find_files([str(tmp_path / "*" / "*.gz")]) == [(str(packed), "text")]
    assert find_files([f"file://{tmp_path}"]) == [
        (f"file://{path}", form) for path, form in find_files([str(tmp_path)])
    ]


@pytest.mark.parametrize(
    ("name", "data", "says"), [("missing", None, "no such file"), ("empty", b"", "is empty")]
)
def test_files_that_hold_nothing(tmp_path: Path, name: str, data: bytes | None, says: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DocumentError, match=says):
        find_files([str(tmp_path / name)])


@pytest.mark.parametrize("find", [find_files, find_segments, partial(share_out, tasks=1)])
@pytest.mark.parametrize("name", ["pipe", "g\ud800", "n" * 300])
def test_what_is_no_file_ends_before_spark_starts(
    find: Callable[..., object], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe without a writer, a name that no file can have, a name that is too long."""
    monkeypatch.setattr("rebal.inspectors.files._PATIENCE", 0.01)
    (folder := tmp_path / f"{TOPIC}-7").mkdir()
    os.mkfifo(folder / "pipe")
    path = str(folder / name)
    with pytest.raises(DocumentError, match=r"pipe|no such file|no file can|too long"):
        find([path])


def test_a_folder_without_a_captured_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DocumentError, match=r"no \.jsonl, \.jsonl\.gz or \.parquet"):
        find_files([str(tmp_path)])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--offsets", "a", "--segments", "b"], "a scan reads records from one source"),
        (["--offsets", "a", "-b", "127.0.0.1:1"], "a scan reads records from one source"),
        (["--offsets", "a", "--spark-conf", "x"], "expected KEY=VALUE"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "scan", *words, "--out", str(tmp_path)]) == 2
    assert says in capsys.readouterr().err


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


def test_no_source_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "scan", "--out", str(tmp_path)]) == 1
    assert "no bootstrap server" in capsys.readouterr().err


def captured(path: Path, data: bytes) -> list[int | None]:
    """The offsets of a captured file's rows; None: no record."""
    path.write_bytes(data)
    assert find_files([str(path)]) == [(str(path), "text")]
    shares, _ = share_out([str(path)], tasks=1)
    batches = [batch for share in shares for part in share for batch in read_lines(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [None if row["problem"] else row["offset"] for row in rows]


@pytest.mark.parametrize(
    "data",
    [LINE, b"not json\n" + LINE, LINE.strip(), b"\n\n" + LINE],
    ids=["a line", "after a broken one", "without an end", "after empty ones"],
)
def test_a_record_is_read_whatever_the_file_is_called(tmp_path: Path, data: bytes) -> None:
    for written in (data, gzip.compress(data)):
        assert captured(tmp_path / "a", written)[-1] == 1


@pytest.mark.parametrize(
    "data",
    [PNG, b'{"partition":"0","offset":1}\n[1]\nnull\n', b"[" * 60_000, REQUEST],
    ids=["PNG", "other JSON", "nested JSON", "request log"],
)
def test_no_line_of_another_file_is_a_record(tmp_path: Path, data: bytes) -> None:
    """So `check_records` refuses it."""
    for written in (data, gzip.compress(data)):
        assert set(captured(tmp_path / "a", written)) == {None}


def test_a_line_whatever_it_holds_is_a_row_with_its_place_or_its_text(tmp_path: Path) -> None:
    odd = (None, 1.5, 2**70, "", "AAI=", "%%", [], "9999-12-31T23:59:59+00:00", "\ud800", True)
    file = tmp_path / "odd.jsonl"
    lines = [
        json.dumps({**json.loads(LINE), name: value}).encode()
        for name in ("key", "value", "partition", "offset", "timestamp", "topic")
        for value in odd
    ]
    file.write_bytes(b"\n".join([*lines, b"\xff{", b"[" * 60_000, b"  "]))
    (batch,) = read_lines(Part(str(file), 0, file.stat().st_size))
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
        ({"UNREADABLE": 300}, False, True),
        ({"UNREADABLE": 95, "OFFSET_COMMIT": 5}, False, True),
        ({"UNKNOWN_KIND_24930": 9_999, "GROUP_METADATA": 1}, True, True),
        ({"UNREADABLE": 9, "GROUP_METADATA": 1}, False, False),
        ({"UNREADABLE": 3}, True, False),
        ({"OFFSET_COMMIT": 3}, False, False),
    ],
)
def test_almost_no_record_of_the_topic_is_an_error(
    ended: dict[str, int], before: bool, wrong: bool
) -> None:
    if not wrong:
        check_records(["file"], ended, before)
        return
    with pytest.raises(DocumentError, match="it seems to be something else"):
        check_records(["file"], ended, before)


def test_a_request_log_without_a_request_is_an_error() -> None:
    check_request_logs(["a.log"], {"lines": 0, "requests": 0})
    check_request_logs(["a.log"], {"lines": 9, "requests": 1})
    with pytest.raises(DocumentError, match="none of 1,200 lines is a request log's"):
        check_request_logs(["a.png"], {"lines": 1200, "requests": 0})
