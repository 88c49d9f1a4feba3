"""Request logs through Spark: split, packed, rotated, oddly named, cut off: the same rows."""

from __future__ import annotations

import bz2
import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rebal.inspectors.fleet.schemas import REQUESTS
from rebal.inspectors.fleet.sources import request_files
from rebal.inspectors.fleet.sources.request_rows import COUNTS
from tests.fleet.conftest import REQUEST_LOG, read_tables
from tests.fleet.timeline_input import request_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live
WHERE = ("source", "position")


def said(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows without where they stood, and without the first steady heartbeat of each batch."""
    return Counter(
        repr({n: v for n, v in row.items() if n not in WHERE}) for row in rows if not steady(row)
    )


def steady(row: dict[str, Any]) -> bool:
    heartbeat = row["api"] == "CONSUMER_GROUP_HEARTBEAT" and row["subscribed_topics"] is None
    return bool(heartbeat and row["generation"] == row["member_epoch"] and row["generation"] > 0)


def read(spark: SparkSession, *paths: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    from rebal.inspectors.fleet.intake.read import read_requests

    rows, _ = read_requests(spark, [str(path) for path in paths])
    return split_off_counts(rows.toArrow())


def split_off_counts(found: pa.Table) -> tuple[list[dict[str, Any]], dict[str, int]]:
    rows = found.filter(pc.is_null(found["lines"])).select(REQUESTS.names).cast(REQUESTS)
    return rows.to_pylist(), {name: pc.sum(found[name]).as_py() or 0 for name in COUNTS}


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    with gzip.open(REQUEST_LOG, "rb") as packed:
        return packed.readlines()


@pytest.fixture(scope="module")
def expected(lines: list[bytes]) -> Counter[str]:
    rows = request_rows((line, "", n) for n, line in enumerate(lines)).to_pylist()
    assert len(rows) > 500
    return said(rows)


def test_a_plain_file_that_is_split_among_tasks(
    spark: SparkSession,
    lines: list[bytes],
    expected: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"".join(lines))
    monkeypatch.setattr(request_files, "_LEAST", 1)
    assert len(request_files.share_out([str(log)], 4)[0]) == 4
    rows, counts = read(spark, log)
    assert said(rows) == expected
    assert counts["lines"] == counts["requests"] == len(lines)
    # A line's place orders the lines of the whole file.
    ordered = sorted(rows, key=lambda row: row["position"])
    assert len({row["position"] for row in rows}) == len(rows)
    joins = [row["at"] for row in ordered if row["api"] == "JOIN_GROUP"]
    unsplit = request_rows((line, "", n) for n, line in enumerate(lines)).to_pylist()
    assert joins == [row["at"] for row in unsplit if row["api"] == "JOIN_GROUP"]


def test_rotated_and_packed_files_of_several_brokers(
    spark: SparkSession, lines: list[bytes], expected: Counter[str], tmp_path: Path
) -> None:
    third = len(lines) // 3
    broker = tmp_path / "broker 1 [east]"
    broker.mkdir()
    (broker / "kafka-request.log.2026-11-21-02.gz").write_bytes(
        gzip.compress(b"".join(lines[:third]))
    )
    (broker / "kafka-request.log").write_bytes(b"".join(lines[third : 2 * third]))
    other = tmp_path / "broker*2{a,b}.log.bz2"
    other.write_bytes(bz2.compress(b"".join(lines[2 * third :])))
    rows, counts = read(spark, other, broker)
    assert said(rows) == expected
    assert counts["lines"] == len(lines)
    assert {row["source"] for row in rows} == {
        "kafka-request.log.2026-11-21-02.gz",
        "kafka-request.log",
        "broker*2{a,b}.log.bz2",
    }


def test_noise_and_cut_off_lines_are_counted(
    spark: SparkSession, lines: list[bytes], tmp_path: Path
) -> None:
    join = next(line for line in lines if b'"JOIN_GROUP"' in line)
    log = tmp_path / "noisy.log"
    log.write_bytes(
        b"java.io.IOException: Connection reset by peer\n\tat sun.nio.ch.Something\n"
        + join
        + join[: len(join) // 2]
        + b'\n[2026-11-21 02:06:10,290] DEBUG Completed request:{"isForwarded":fa\n\xff\xfe\n'
    )
    rows, counts = read(spark, log)
    assert [row["problem"] for row in sorted(rows, key=lambda row: row["position"])] == [
        None,
        "the line is cut off, or is no valid JSON",
    ]
    assert (counts["lines"], counts["requests"], counts["cut_off"]) == (6, 3, 1)


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
