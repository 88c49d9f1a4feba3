"""Request logs as rows: the same joins as the reader of one group finds, in any files."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from rebal.inspectors.fleet.sources import files as request_files
from rebal.inspectors.fleet.sources.files import share_out
from rebal.inspectors.fleet.sources.requests import read_parts
from rebal.inspectors.fleet.timeline.facts import is_steady, unpack_request
from rebal.inspectors.logs.requests.lines import CONSUMER_HEARTBEAT, Request
from tests.fleet.conftest import REQUEST_LOG, read_tables
from tests.fleet.timeline_input import request_rows


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


def test_heartbeats_are_kept_where_they_say_something():
    beat = {"memberId": "m-1", "generationId": 4}
    kept = rows_of(
        line("HEARTBEAT", beat, {"errorCode": 0}), line("HEARTBEAT", beat, {"errorCode": 27})
    )
    assert [(one.error, one.generation) for one in said(kept)] == [(27, 4)]
    assert kept["position"].to_pylist() == [1]


def test_only_commits_of_fenced_members_are_kept():
    request = {"memberId": "m-1", "groupInstanceId": "i", "generationIdOrMemberEpoch": 4}

    def answer(error: int) -> dict[str, object]:
        partitions = [{"partitionIndex": 0, "errorCode": error}]
        return {"topics": [{"name": "orders", "partitions": partitions}]}

    kept = rows_of(*(line("OFFSET_COMMIT", request, answer(error)) for error in (0, 82, 25)))
    found = [(one.api, one.error, one.member_id, one.instance_id) for one in said(kept)]
    assert found == [("OFFSET_COMMIT", 82, "m-1", "i")]


def consumer_heartbeat(epoch: int, answered: int, topics: list[str] | None = None) -> str:
    request = {"memberId": "m-1", "memberEpoch": epoch, "subscribedTopicNames": topics}
    return line(
        "CONSUMER_GROUP_HEARTBEAT",
        request,
        {"errorCode": 0, "memberId": "m-1", "memberEpoch": answered},
    )


def test_kip_848_heartbeats_that_change_nothing_are_kept_once():
    rows = rows_of(
        consumer_heartbeat(0, 5, ["orders"]),
        consumer_heartbeat(5, 5),
        consumer_heartbeat(5, 5),
        consumer_heartbeat(5, 6),
        consumer_heartbeat(6, 6),
        consumer_heartbeat(6, 6, ["orders", "clicks"]),
        consumer_heartbeat(-1, -1),
    )
    assert rows["position"].to_pylist() == [0, 1, 3, 5, 6]
    assert [(one.generation, one.member_epoch) for one in said(rows)] == [
        (0, 5), (5, 5), (5, 6), (6, 6), (-1, -1),
    ]  # fmt: skip


def test_lines_that_cannot_be_read_are_rows_that_say_so():
    whole = line("JOIN_GROUP", {"protocols": []}, {"errorCode": 0})
    no_base64 = line("SYNC_GROUP", {"assignments": [{"assignment": "%%"}]}, {"errorCode": 0})
    before_2_8 = "[t] Completed request:RequestHeader(apiKey=JOIN_GROUP, apiVersion=5) -- {"
    rows = rows_of(whole[: len(whole) // 2], no_base64, before_2_8, "no request at all")
    found = zip(rows["position"].to_pylist(), rows["problem"].to_pylist(), strict=True)
    assert list(found) == [
        (0, "the line is cut off, or is no valid JSON"),
        (1, "the line is cut off, or is no valid JSON"),
        (2, "a broker before 2.8 wrote this line: it holds no JSON (KIP-673)"),
    ]
    assert rows["group_id"].null_count == 3


def news(rows: pa.Table) -> Counter[Request]:
    """The requests, without the first steady heartbeat of each batch."""
    beats = CONSUMER_HEARTBEAT
    return Counter(one for one in said(rows) if one.api != beats or not is_steady(one))


def read(*paths: Path, tasks: int = 1) -> tuple[pa.Table, dict[str, int]]:
    counts = Counter[str]()
    shares, _ = share_out([str(path) for path in paths], tasks)
    tables = [rows for parts in shares for rows in read_parts(parts, None, counts)]
    return pa.concat_tables(tables), counts


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    with gzip.open(REQUEST_LOG, "rb") as packed:
        return packed.readlines()


def test_split_rotated_and_packed_files_of_several_brokers(
    lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = len(lines) // 3
    broker = tmp_path / "broker 1 [east]"
    broker.mkdir()
    packed = broker / "kafka-request.log.2026-11-21-02.gz"
    packed.write_bytes(gzip.compress(b"".join(lines[:third])))
    (broker / "kafka-request.log").write_bytes(b"".join(lines[third : 2 * third]))
    other = tmp_path / "broker*2{a,b}.log.gz"
    other.write_bytes(gzip.compress(b"".join(lines[2 * third :])))
    monkeypatch.setattr(request_files, "_LEAST", 1)
    assert len(share_out([str(other), str(broker)], 4)[0]) == 6
    rows, counts = read(other, broker, tasks=4)
    assert news(rows) == news(request_rows((line, "", 0) for line in lines))
    assert counts["lines"] == counts["requests"] == len(lines)
    places = set(zip(*(rows[name].to_pylist() for name in ("source", "position")), strict=True))
    assert len(places) == len(rows) > 500
    assert {source for source, _ in places} == {packed.name, "kafka-request.log", other.name}


def test_noise_and_cut_off_lines_are_counted(lines: list[bytes], tmp_path: Path) -> None:
    join = next(line for line in lines if b'"JOIN_GROUP"' in line)
    log = tmp_path / "noisy.log"
    log.write_bytes(
        b"java.io.IOException: Connection reset by peer\n\tat sun.nio.ch.Something\n"
        + join
        + join[: len(join) // 2]
        + b'\n[2026-11-21 02:06:10,290] DEBUG Completed request:{"isForwarded":fa\n\xff\xfe\n'
    )
    rows, counts = read(log)
    assert rows["problem"].to_pylist() == [None, "the line is cut off, or is no valid JSON"]
    assert (counts["lines"], counts["requests"], counts["cut_off"]) == (6, 3, 1)


def test_a_last_line_that_is_half_written_is_left_to_the_next_scan(
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


@pytest.mark.live
def test_lines_that_cannot_be_read_are_errors_once(
    scan: Callable[..., str], lines: list[bytes], tmp_path: Path
) -> None:
    joins = [line for line in lines if b'"JOIN_GROUP"' in line]
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"".join(line[:400] + b"\n" for line in joins[:2]) + joins[2])
    place = ["offset", "what", "error"]
    for _ in range(2):
        scan("--request-log", log, "--out", tmp_path / "out")
        found = sorted(read_tables(tmp_path / "out")["errors"], key=lambda row: row["offset"])
        assert [[row[name] for name in place] for row in found] == [
            [at, "request log line", "the line is cut off, or is no valid JSON"] for at in (0, 401)
        ]
        assert {row["source"] for row in found} == {log.name}
