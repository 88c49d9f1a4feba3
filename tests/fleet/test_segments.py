"""Log segments, and the lines of request logs."""

import gzip
import itertools
import json
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka.record import default_records
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c
from msgspec.structs import replace

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.manifest import ReadLog
from rebal.inspectors.fleet.sources import source as request_files
from rebal.inspectors.fleet.sources.requests import read_parts
from rebal.inspectors.fleet.sources.segments import (
    ABORTED,
    CONTROL,
    CUT_OFF,
    OPEN,
    find_cluster_id_of,
    find_segments,
    read_partition,
)
from rebal.inspectors.fleet.sources.source import SOURCE, FilePart, TextBlock, blocks, share_out
from rebal.inspectors.fleet.timeline.facts import unpack_request
from rebal.inspectors.logs.requests.lines import Request
from tests.fleet.conftest import REQUEST_LOG, lines_in
from tests.fleet.timeline_input import request_rows

SEGMENT = f"{0:020}.log"


HEAD = DefaultRecordBatch.HEADER_STRUCT


Pair = tuple[bytes | None, bytes | None]


PAIRS: list[Pair] = [(b"k%d" % n, b"v" * n if n % 3 else None) for n in range(40)]


def batch(
    offset: int, pairs: Sequence[Pair], *, producer: int = -1, attributes: int = 0, codec: int = 0
) -> bytes:
    """One record batch v2 as a broker stores it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        batch_size=1 << 20,
    )
    for number, (key, value) in enumerate(pairs):
        builder.append(number, 1_000 + offset + number, key, value, [])
    made = bytearray(builder.build())
    struct.pack_into(">q", made, 0, offset)
    made[22] |= attributes
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
    return bytes(made)


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    key = struct.pack(">hh", 0, 1 if commit else 0)
    return batch(offset, [(key, b"\x00" * 6)], producer=producer, attributes=0x20)


def rows(tmp_path: Path, *segments: bytes) -> list[dict[str, object]]:
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    for number, data in enumerate(segments):
        (folder / f"{number * 100:020}.log").write_bytes(data)
    (share,) = find_segments([str(folder)])
    assert share[0] == 7
    made: list[dict[str, object]] = []
    for each in read_partition(share):
        assert each.schema == SOURCE
        made += each.to_pylist()
    return made


def records(found: list[dict[str, object]]) -> dict[object, Pair]:
    return {row["offset"]: (row["key"], row["value"]) for row in found if row["problem"] is None}  # type: ignore[misc]


def problems(found: list[dict[str, object]]) -> Counter[object]:
    return Counter(row["problem"] for row in found if row["problem"] is not None)


@pytest.mark.parametrize("codec", [0, 1], ids=["none", "gzip"])
def test_segment_records_are_read_with_partition_and_offset(tmp_path: Path, codec: int) -> None:
    found = rows(tmp_path, batch(3, PAIRS, codec=codec), batch(50, PAIRS[:2], codec=codec))
    expected = {3 + n: pair for n, pair in enumerate(PAIRS)}
    expected |= {50: PAIRS[0], 51: PAIRS[1]}
    assert records(found) == expected
    assert not problems(found)
    assert {row["partition"] for row in found} == {7}
    assert found[0]["source"] == f"{0:020}.log"
    assert found[0]["timestamp"].timestamp() == 1.003  # type: ignore[attr-defined]


def test_a_compression_codec_without_its_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_records.codecs, "has_zstd", lambda: False)
    with pytest.raises(DocumentError, match=r"0+\.log: .* zstd compression .*: pip install "):
        rows(tmp_path, batch(0, PAIRS, attributes=4))


def test_record_batches_of_message_formats_v0_and_v1_are_read(tmp_path: Path) -> None:
    parts = []
    for magic in (0, 1):
        builder = MemoryRecordsBuilder(magic, 0, 1 << 16, offset=magic * 10)
        builder.append(1_000, b"k", b"v")
        builder.close()
        parts.append(bytes(builder.buffer()))
    assert records(rows(tmp_path, b"".join(parts))) == {0: (b"k", b"v"), 10: (b"k", b"v")}


@pytest.mark.parametrize(
    ("segments", "offsets", "wrong"),
    [
        pytest.param(
            [
                batch(0, PAIRS[:1], producer=1)
                + batch(1, PAIRS[1:3], producer=2)
                + batch(3, PAIRS[3:4]),
                marker(4, 2, commit=False)
                + batch(5, PAIRS[5:6], producer=1)
                + marker(6, 1, commit=True)
                + batch(7, PAIRS[7:8], producer=2),
            ],
            [0, 3, 5],
            {CONTROL: 2, ABORTED: 2, OPEN: 1},
            id="transactions count when they are committed",
        ),
        pytest.param(
            [
                batch(0, PAIRS[:2], producer=1)
                + batch(2, PAIRS[2:3], producer=2)
                + batch(3, PAIRS[3:5])
                + marker(5, 1, commit=True)
            ],
            [0, 1],
            {OPEN: 4},
            id="an open transaction holds back what comes after",
        ),
        pytest.param(
            [
                batch(0, PAIRS[:1], producer=1) + marker(1, 1, commit=False),
                batch(2, PAIRS[2:3], producer=1) + marker(3, 1, commit=True),
            ],
            [2],
            {CONTROL: 2, ABORTED: 1},
            id="each of a producer's transactions ends on its own",
        ),
        pytest.param(
            [batch(0, PAIRS[:2]) + batch(2, PAIRS)[:-5]], [0, 1], {CUT_OFF: 1}, id="cut-off records"
        ),
        pytest.param(
            [batch(0, PAIRS[:2]) + batch(2, PAIRS)[:9]], [0, 1], {CUT_OFF: 1}, id="a cut-off head"
        ),
        pytest.param(
            [batch(0, PAIRS) + bytes(4096), b""], range(40), {}, id="preallocated, and empty"
        ),
    ],
)
def test_only_records_of_complete_batches_and_committed_transactions_count(
    tmp_path: Path, segments: list[bytes], offsets: Sequence[int], wrong: dict[str, int]
) -> None:
    found = rows(tmp_path, *segments)
    assert records(found) == {offset: PAIRS[offset] for offset in offsets}
    assert problems(found) == wrong
    assert {row["offset"] for row in found if row["problem"] == OPEN} <= {None}


def test_a_record_batch_with_a_bad_crc_is_reported_and_later_ones_are_read(tmp_path: Path) -> None:
    bad = bytearray(batch(2, PAIRS[:2]))
    bad[-3] ^= 1
    found = rows(tmp_path, batch(0, PAIRS[:2]) + bytes(bad) + batch(4, PAIRS[:1]))
    assert set(records(found)) == {0, 1, 4}
    (row,) = [row for row in found if row["problem"] is not None]
    assert row["problem"] == "the record batch fails its CRC"
    assert (row["offset"], row["value"]) == (2, bytes(bad))


def test_a_batch_that_cannot_be_decompressed_is_reported_and_skipped(tmp_path: Path) -> None:
    raw = bytearray(batch(0, PAIRS, codec=1))
    raw[HEAD.size :] = bytes(len(raw) - HEAD.size)
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
    found = rows(tmp_path, bytes(raw) + batch(50, PAIRS[:1]))
    assert set(records(found)) == {50}
    (problem,) = problems(found)
    assert "cannot be unpacked" in str(problem)


def test_a_file_that_is_no_log_segment_is_reported(tmp_path: Path) -> None:
    found = rows(tmp_path, b"not a segment at all, but long enough for a head" * 3)
    (problem,) = problems(found)
    assert "not a record batch at byte 0" in str(problem)


def test_segments_of_the_offsets_topic_are_found_by_folder_and_file_name(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-3", "__consumer_offsets-12", "orders-0"):
        (tmp_path / name).mkdir()
        for file in (f"{0:020}.log", f"{0:020}.index", f"{0:020}.log.deleted", "leader-epoch"):
            (tmp_path / name / file).touch()
    found = find_segments([str(tmp_path)])
    assert [(number, len(files)) for number, files in found] == [(3, 1), (12, 1)]
    one = tmp_path / "__consumer_offsets-3" / f"{0:020}.log"
    assert find_segments([str(one), str(tmp_path)]) == found


def test_the_cluster_id_of_log_segments_is_read_from_meta_properties(tmp_path: Path) -> None:
    folders = []
    for name in ("one", "two", "bare"):
        folder = tmp_path / name / "logs" / "__consumer_offsets-7"
        folder.mkdir(parents=True)
        (folder / SEGMENT).touch()
        folders.append(str(folder))
        if name != "bare":
            properties = f"version=1\ncluster.id={name}\nnode.id=1\n"
            (folder.parent / "meta.properties").write_text(properties)
    one, two, bare = folders
    for path in (one, str(Path(one).parent), str(Path(one) / SEGMENT)):
        assert find_cluster_id_of(find_segments([path])) == "one"
    assert find_cluster_id_of(find_segments([bare])) is None
    with pytest.raises(DocumentError, match=r"segments are of 2 clusters: .*scan one at a time"):
        find_cluster_id_of(find_segments([one, two]))


def said(rows: pa.Table) -> list[Request]:
    """The requests in these rows, with their times."""
    found = zip(rows["value"].to_pylist(), rows["at"].to_pylist(), strict=True)
    return [replace(unpack_request(value), at=at) for value, at in found]


def rows_of(*lines: str) -> pa.Table:
    return request_rows((line.encode(), "log", n) for n, line in enumerate(lines))


def line(api: str, request: dict[str, Any], response: dict[str, Any], **more: Any) -> str:
    body = {
        "requestHeader": {
            "requestApiVersion": more.pop("version", 9),
            "clientId": "c-1",
            "requestApiKeyName": api,
        },
        "request": {"groupId": "g", **request},
        "response": response,
        "connection": "10.0.0.1:9092-10.0.0.7:48174-0-38",
        "totalTimeMs": 12.5,
        **more,
    }
    return f"[2026-11-21 02:06:10,290] DEBUG Completed request:{json.dumps(body)} (x)"


def test_only_heartbeats_with_errors_and_fenced_commits_are_kept_from_request_logs():
    """A heartbeat that was answered with an error, and a commit of a fenced member."""
    who = {"memberId": "m-1", "groupInstanceId": "i", "generationId": 4}

    def answer(error: int) -> dict[str, object]:
        partitions = [{"partitionIndex": 0, "errorCode": error}]
        return {"topics": [{"name": "orders", "partitions": partitions}]}

    kept = rows_of(
        *(line("HEARTBEAT", who, {"errorCode": error}) for error in (0, 27)),
        *(line("OFFSET_COMMIT", who, answer(error)) for error in (0, 82, 25)),
    )
    found = [(one.api, one.error, one.member_id, one.instance_id) for one in said(kept)]
    assert found == [("HEARTBEAT", 27, "m-1", "i"), ("OFFSET_COMMIT", 82, "m-1", "i")]
    assert kept["position"].to_pylist() == [1, 3]


def test_repeated_kip_848_heartbeats_without_changes_are_kept_once():
    def beat(epoch: int, answered: int, topics: list[str] | None = None) -> str:
        request = {"memberId": "m-1", "memberEpoch": epoch, "subscribedTopicNames": topics}
        response = {"errorCode": 0, "memberId": "m-1", "memberEpoch": answered}
        return line("CONSUMER_GROUP_HEARTBEAT", request, response)

    steady = (beat(5, 5), beat(5, 5), beat(5, 6), beat(6, 6))
    rows = rows_of(beat(0, 5, ["orders"]), *steady, beat(6, 6, ["orders", "clicks"]), beat(-1, -1))
    assert rows["position"].to_pylist() == [0, 1, 3, 5, 6]
    assert [(one.generation, one.member_epoch) for one in said(rows)] == [
        (0, 5), (5, 5), (5, 6), (6, 6), (-1, -1),
    ]  # fmt: skip


def read(path: Path) -> tuple[pa.Table, dict[str, int]]:
    counts = Counter[str]()
    tables = [*read_parts(parts_of(path)[0], None, counts)]
    return pa.concat_tables(tables), counts


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return lines_in(REQUEST_LOG)


def test_unreadable_request_log_lines_become_error_rows_and_other_lines_are_counted(
    lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_files, "_BLOCK", 100)
    join = next(line for line in lines if b'"JOIN_GROUP"' in line)
    no_base64 = line("SYNC_GROUP", {"assignments": [{"assignment": "%%"}]}, {"errorCode": 0})
    log = tmp_path / "noisy.log"
    log.write_bytes(
        b"java.io.IOException: Connection reset by peer\n\tat sun.nio.ch.Something\n"
        + join
        + join[: len(join) // 2]
        + f"\n{no_base64}\n".encode()
        + b"[t] Completed request:RequestHeader(apiKey=JOIN_GROUP, apiVersion=5) -- {\n"
        + b'[2026-11-21 02:06:10,290] DEBUG Completed request:{"isForwarded":fa\n\xff\xfe\n'
    )
    rows, counts = read(log)
    cut_off = "the line is cut off, or is no valid JSON"
    old = "a broker before 2.8 wrote this line: it holds no JSON (KIP-673)"
    assert rows["problem"].to_pylist() == [None, cut_off, cut_off, old]
    assert rows["group_id"].null_count == 3
    begins = list(itertools.accumulate(map(len, log.read_bytes().splitlines(keepends=True))))
    assert set(rows["source"].to_pylist()) == {log.name}
    assert rows["position"].to_pylist() == [begins[n] for n in (1, 2, 3, 4)]
    assert (counts["lines"], counts["requests"], counts["cut_off"]) == (8, 5, 1)


def test_a_half_written_last_line_of_a_request_log_is_left_to_the_next_scan(
    lines: list[bytes], tmp_path: Path
) -> None:
    join, other = [line for line in lines if b'"JOIN_GROUP"' in line][:2]
    log, packed = tmp_path / "kafka-request.log", tmp_path / "cut.log.gz"
    half = join + other[: len(other) // 2]
    log.write_bytes(half)
    rows, counts = read(log)
    assert rows["problem"].to_pylist() == [None]
    assert counts["cut_off"] == 1
    log.write_bytes(half + b"\n")
    packed.write_bytes(gzip.compress(half))
    for written in (log, packed):
        rows, counts = read(written)
        assert rows["problem"].to_pylist()[1] == "the line is cut off, or is no valid JSON"
        assert counts["cut_off"] == 0
    log.write_bytes(join + other.rstrip(b"\n"))
    assert read(log)[0]["problem"].to_pylist() == [None, None]


TEXT = b"first\n\nthird, which is longer\r\n" + b"x" * 50 + b"\nno end of line"


WHOLE = TEXT + b"\n"


def lines_of(found: list[TextBlock]) -> list[tuple[int, bytes]]:
    """Each line with where it begins."""
    lines = []
    for position, text, problem in found:
        assert problem is None
        begin = position
        for line in text.splitlines(keepends=True):
            lines.append((begin, line))
            begin += len(line)
    return lines


def parts_of(*paths: object, known: Sequence[ReadLog] = ()) -> tuple[list[FilePart], list[ReadLog]]:
    """The parts of all tasks, and the logs as the next scan is to know them."""
    shares, logs = share_out([str(path) for path in paths], 1, known)
    return [part for share in shares for part in share], logs


def read_all(*paths: object) -> list[TextBlock]:
    return [block for part in parts_of(*paths)[0] for block in blocks(part)]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_each_log_line_belongs_to_the_file_part_in_which_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    log = tmp_path / "log"
    log.write_bytes(TEXT)
    monkeypatch.setattr(request_files, "_BLOCK", block)
    monkeypatch.setattr(request_files, "_LEAST", 1)
    for size in range(1, len(TEXT) + 2):
        monkeypatch.setattr(request_files, "_MOST", size)
        assert len(share_out([str(log)], 1)[0]) == -(-len(TEXT) // size)
        assert lines_of(read_all(log)) == lines_of([TextBlock(0, TEXT)]), size


def test_gzip_logs_are_recognized_by_their_first_bytes_and_may_have_several_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_files, "_BLOCK", 11)
    log = tmp_path / "log.1"
    log.write_bytes(gzip.compress(TEXT[:20]) + gzip.compress(TEXT[20:]) + b"\0" * 30)
    assert lines_of(read_all(log)) == lines_of([TextBlock(0, TEXT)])
    # What is unpacked in small pieces comes in whole blocks.
    monkeypatch.setattr(request_files, "_BLOCK", 1 << 20)
    lines = "".join(f"{number:x}-{number * number:x}\n" for number in range(200_000)).encode()
    log.write_bytes(gzip.compress(lines))
    assert lines_of(read_all(log)) == lines_of([TextBlock(0, lines)])
    assert len(read_all(log)) == len(lines) // (1 << 20) + 1


@pytest.mark.parametrize("damage", ["cut off", "damaged"])
def test_a_damaged_gzip_log_is_read_up_to_the_damage_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(request_files, "_BLOCK", 11)
    log = tmp_path / "log"
    packed = gzip.compress(WHOLE)
    log.write_bytes(packed + (packed[: len(packed) // 2] if damage == "cut off" else b"XX" * 9))
    *whole, last = read_all(log)
    assert b"".join(block.text for block in whole).startswith(WHOLE)
    assert last.problem == "the packed file is cut off or damaged from here on; fetch it again"
    assert last.position == sum(len(block.text) for block in whole)


def test_a_log_file_truncated_while_it_is_read_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(TEXT)
    parts = [FilePart(str(log), 0, 40), FilePart(str(log), 40, len(TEXT))]
    log.write_bytes(TEXT[:6])
    first, *rest = [block for part in parts for block in blocks(part)]
    assert first == TextBlock(0, TEXT[:6])
    assert [block.problem for block in rest] == [
        "the file became shorter while it was read, from here on; scan it again"
    ] * 2


def test_small_log_files_share_a_spark_task_and_gzip_files_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_files, "_LEAST", 100)
    for name, size in (("a", 40), ("b", 50), ("c", 150), (".hidden", 10), ("empty", 0)):
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "packed").write_bytes(gzip.compress(TEXT))
    shares, _ = share_out([str(tmp_path), str(tmp_path / "a")], 1000)
    ranges = [[(Path(one.path).name, one.begin, one.end) for one in share] for share in shares]
    assert ranges[0][0][0] == "packed"
    assert ranges[1:] == [[("a", 0, 40), ("b", 0, 50)], [("c", 0, 100)], [("c", 100, 150)]]
    assert parts_of(tmp_path / "c")[0] == [FilePart(str(tmp_path / "c"), 0, 150)]


def test_a_very_long_line_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_files, "LONGEST_LINE", 30)
    monkeypatch.setattr(request_files, "_BLOCK", 10)
    for name, data in (("plain", TEXT), ("packed", gzip.compress(TEXT))):
        (tmp_path / name).write_bytes(data)
        found = read_all(tmp_path / name)
        assert b"".join(block.text for block in found) == TEXT
        assert max(len(block.text) for block in found) <= len(TEXT)


def test_the_next_scan_reads_only_appended_bytes_even_after_log_rotation(tmp_path: Path) -> None:
    log, rotated = tmp_path / "kafka-request.log", tmp_path / "kafka-request.log.1"
    log.write_bytes(WHOLE + b"a line that is being writ")
    parts, logs = parts_of(log)
    assert parts == [FilePart(str(log), 0, len(WHOLE) + 25)]
    assert [one.until for one in logs] == [len(WHOLE)]
    with log.open("ab") as out:
        out.write(b"ten\nanother\n")
    log.rename(rotated)
    log.write_bytes(b"of the new file\n")
    parts, logs = parts_of(log, rotated, known=logs)
    grown = FilePart(str(rotated), len(WHOLE), len(WHOLE) + 37)
    assert set(parts) == {grown, FilePart(str(log), 0, 16)}
    assert parts_of(log, rotated, known=logs) == ([], logs)


def test_a_log_file_replaced_under_the_same_name_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(WHOLE)
    _, logs = parts_of(log)
    log.write_bytes(b"!" + WHOLE + WHOLE)
    assert parts_of(log, known=logs)[0] == [FilePart(str(log), 0, 2 * len(WHOLE) + 1)]
    log.write_bytes(WHOLE[: len(WHOLE) // 2])
    assert parts_of(log, known=logs)[0] == [FilePart(str(log), 0, len(WHOLE) // 2)]


def test_an_unchanged_gzip_log_is_read_only_once_even_after_a_rename(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log.gz"
    log.write_bytes(gzip.compress(WHOLE))
    _, logs = parts_of(log)
    log = log.rename(tmp_path / "moved.gz")
    assert parts_of(log, known=logs)[0] == []
    log.write_bytes(gzip.compress(WHOLE) + gzip.compress(WHOLE))
    assert [part.path for part in parts_of(log, known=logs)[0]] == [str(log)]


def test_log_files_at_a_url_are_read_like_those_at_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "broker*1{a,b} [east]"
    folder.mkdir()
    (folder / "kafka-request.log.gz").write_bytes(gzip.compress(WHOLE))
    (folder / "kafka-request.log").write_bytes(TEXT)
    (folder / ".hidden").write_bytes(TEXT)
    url = f"file://{folder}"
    for name in ("", "/kafka-request.log"):
        parts, logs = parts_of(f"{url}{name}")
        assert logs == parts_of(f"{folder}{name}")[1]
        assert all(part.path.startswith(f"{url}/") for part in parts)
        assert read_all(f"{url}{name}") == read_all(f"{folder}{name}")
    with pytest.raises(DocumentError, match=r"^file:.*: the store says: .*No such file"):
        share_out([f"{url}/none"], 1)
    with pytest.raises(DocumentError, match=r"^dbfs:/logs: .* begins with s3://"):
        share_out(["dbfs:/logs/a"], 1)
