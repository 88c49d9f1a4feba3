"""Request logs in files: split, packed, rotated, cut off: the same rows, all counted."""

from __future__ import annotations

import bz2
import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rebal.inspectors.fleet.sources import files as request_files
from rebal.inspectors.fleet.sources.files import share_out
from rebal.inspectors.fleet.sources.requests import read_parts
from rebal.inspectors.fleet.timeline.facts import is_steady, unpack_request
from rebal.inspectors.logs.requests.lines import CONSUMER_HEARTBEAT
from tests.fleet.conftest import REQUEST_LOG, read_tables
from tests.fleet.timeline_input import request_rows

Rows = list[dict[str, Any]]


def said(rows: Rows) -> Counter[tuple[Any, ...]]:
    """Times and requests, without the first steady heartbeat of each batch."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        one = unpack_request(row["value"])
        if one.api != CONSUMER_HEARTBEAT or not is_steady(one):
            found[row["at"], row["value"]] += 1
    return found


def read(*paths: Path, tasks: int = 1) -> tuple[Rows, dict[str, int]]:
    counts: dict[str, int] = {}
    shares, _ = share_out([str(path) for path in paths], tasks)
    tables = (rows for parts in shares for rows in read_parts(parts, None, counts))
    return [row for rows in tables for row in rows.to_pylist()], counts


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
    other = tmp_path / "broker*2{a,b}.log.bz2"
    other.write_bytes(bz2.compress(b"".join(lines[2 * third :])))
    monkeypatch.setattr(request_files, "_LEAST", 1)
    assert len(share_out([str(other), str(broker)], 4)[0]) == 6
    rows, counts = read(other, broker, tasks=4)
    assert said(rows) == said(request_rows((line, "", 0) for line in lines).to_pylist())
    assert counts["lines"] == counts["requests"] == len(lines)
    assert len({(row["source"], row["position"]) for row in rows}) == len(rows) > 500
    assert {row["source"] for row in rows} == {packed.name, "kafka-request.log", other.name}


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
    assert [row["problem"] for row in rows] == [None, "the line is cut off, or is no valid JSON"]
    assert (counts["lines"], counts["requests"], counts["cut_off"]) == (6, 3, 1)


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
