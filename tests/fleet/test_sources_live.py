"""Scans of brokers, captured files and segments on a real Spark."""

import base64
import gzip
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from pyspark.sql import SparkSession

from rebal.groups.model import Cluster
from rebal.inspectors.clock import micros
from rebal.inspectors.fleet.sources import captured as captured_source
from rebal.inspectors.fleet.sources.source import RecordSource
from rebal.inspectors.fleet.spark.tasks import in_tasks
from rebal.inspectors.kafka.brokers import ClusterReading
from rebal.inspectors.tables.reader import open_tables, read_history
from tests.fleet.conftest import OFFSETS, REQUEST_LOG, Tables, read_tables, without_sources
from tests.fleet.synthetic import last_scan
from tests.kafka.broker import Broker

# The first test of a run starts Spark, which takes its time on a busy machine.
pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


TOPIC = "__consumer_offsets"


Scan = Callable[..., str]


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    places = [TopicPartition(topic, 0, offset)]
    asked = [ConsumerGroupTopicPartitions(group, places)]
    broker.admin().alter_consumer_group_offsets(asked)[group].result(20)


@contextmanager
def open_transaction(broker: Broker, group: str, topic: str, offset: int) -> Iterator[Producer]:
    """Commit an offset in a transaction; whoever asks for it ends it."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{group}"})
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    places = [TopicPartition(topic, 0, offset)]
    producer.send_offsets_to_transaction(places, reader.consumer_group_metadata(), 30)
    yield producer
    reader.close()


def in_transaction(broker: Broker, group: str, topic: str, offset: int, *, end: bool) -> None:
    """Commit an offset in a transaction that ends well, or is aborted."""
    with open_transaction(broker, group, topic, offset) as producer:
        if end:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """A broker of this module: a scan reads what every group of its broker has written."""
    with Broker("4.1.1") as broker:
        yield broker


@pytest.fixture(scope="module")
def busy(own: Broker, _shared_jvms: None) -> Broker:
    """A broker with members that came and went, commits, transactions and a deleted group."""
    from tests.kafka.members import Members, wait_assigned

    topic = own.create_topic("fleet-sources", 2)
    started = Members()
    try:
        for name, assignors in (("fleet-a", ["range"]), ("fleet-b", ["cooperative-sticky"])):
            member = started.start(
                "java-3.9.1", own, f"m-{name}", name, topics=[topic], assignors=assignors
            )
            wait_assigned([member], 2)
            own.wait_stable(name, 1)
    finally:
        started.end()
    for offset in range(1, 6):
        commit(own, "fleet-c", topic, offset)
    commit(own, "fleet-d", topic, 7)
    own.admin().delete_consumer_groups(["fleet-d"])["fleet-d"].result(20)
    in_transaction(own, "fleet-e", topic, 11, end=True)
    in_transaction(own, "fleet-e", topic, 99, end=False)
    return own


@pytest.fixture(scope="module")
def live(busy: Broker, new_scan: Callable[..., Path]) -> Path:
    """A scan of the broker over PLAINTEXT."""
    return new_scan("-b", busy.bootstrap)


def commits_of(out: Path, group: str) -> list[tuple[int | None, int, bool]]:
    return [
        (row["committed_offset"], row["commits"], row["tombstone"])
        for row in read_tables(out)["commits"]
        if row["group_id"] == group
    ]


def test_a_scan_of_a_broker_has_rebalances_commits_and_deletions(busy: Broker, live: Path) -> None:
    rebalances = read_tables(live)["rebalances"]
    seen = {(row["group_id"], row["assignor"]) for row in rebalances}
    assert seen >= {("fleet-a", "range"), ("fleet-b", "cooperative-sticky")}
    assert commits_of(live, "fleet-c") == [(5, 5, False)]
    assert commits_of(live, "fleet-d") == [(None, 1, True)]
    assert commits_of(live, "fleet-e") == [(11, 1, False)]
    listed = busy.admin().list_consumer_groups(request_timeout=10).result(20).valid
    assert not [group.group_id for group in listed if group.group_id.startswith("rebal")]


def test_a_scan_of_log_segments_gives_the_same_tables_as_a_scan_of_the_broker(
    busy: Broker, live: Path, scan: Scan, tmp_path: Path
) -> None:
    indexes = shutil.ignore_patterns("*.index", "*.timeindex")  # Each is 10 MB of zeros.
    folder = shutil.copytree(busy.folder / "data", tmp_path / "broker-1", ignore=indexes)
    output = scan("--segments", folder, "--out", tmp_path / "segments")
    assert "control records" in output
    assert "records of aborted transactions" in output
    read, found = last_scan(live), last_scan(tmp_path / "segments")
    assert (read.read, read.records) == (found.read, found.records)
    assert found.skipped["records of aborted transactions"] >= 1
    expected = without_sources(read_tables(live))
    assert without_sources(read_tables(tmp_path / "segments")) == expected


def test_the_next_scan_of_a_broker_reads_only_new_records(
    busy: Broker, live: Path, scan: Scan, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(live, tmp_path / "out", symlinks=True))
    commit(busy, "fleet-c", "fleet-sources", 8)
    scan("-b", busy.bootstrap, "--out", out)
    before, after = last_scan(live), last_scan(out)
    assert after.read == before.read + 1
    assert commits_of(out, "fleet-c") == [(8, 6, False)]
    scan("-b", busy.bootstrap, "--out", out)
    assert last_scan(out).read == after.read
    scan("-b", busy.bootstrap, "--out", tmp_path / "full")
    assert without_sources(read_tables(out)) == without_sources(read_tables(tmp_path / "full"))


def test_a_scan_names_each_acl_that_its_user_lacks(
    busy: Broker, scan: Scan, tmp_path: Path
) -> None:
    def as_user(name: str, password: str | None = None) -> Path:
        properties = busy.client_properties("SCRAM-SHA-256", name, password)
        return busy.write_properties(f"{name}.properties", properties)

    out = tmp_path / "out"
    output = scan("--command-config", as_user("limited", "hunter2"), "--out", out, code=1)
    assert "rejected the login with SCRAM-SHA-256" in output
    assert "limited" not in output.replace("limited.properties", "")
    assert "hunter2" not in output
    output = scan("--command-config", as_user("limited"), "--out", out, code=1)
    assert "--operation READ --topic __consumer_offsets" in output
    busy.allow("limited", "topic", TOPIC, "DESCRIBE")
    output = scan("--command-config", as_user("limited"), "--out", out, code=1)
    assert "this user may not read the records of __consumer_offsets: grant READ on it" in output
    busy.allow("limited", "topic", TOPIC, "READ")
    output = scan("--command-config", as_user("limited"), "--out", out)
    assert "broker settings were not read: allow DESCRIBE_CONFIGS on the cluster" in output
    assert last_scan(out).read > 0


def test_an_open_transaction_is_reported_and_read_by_a_later_scan(
    busy: Broker, live: Path, scan: Scan, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(live, tmp_path / "out", symlinks=True))
    with open_transaction(busy, "fleet-open", "fleet-sources", 21) as producer:
        try:
            output = scan("-b", busy.bootstrap, "--out", out)
            assert "a transaction is open since offset" in output
            assert commits_of(out, "fleet-open") == []
        finally:
            producer.commit_transaction(30)
    scan("-b", busy.bootstrap, "--out", out)
    assert commits_of(out, "fleet-open") == [(21, 1, False)]


Line = dict[str, Any]


def line(offset: int, key: bytes | None, value: bytes | None, topic: str = "") -> Line:
    def text(raw: bytes | None) -> str | None:
        return None if raw is None else base64.b64encode(raw).decode()

    return {
        "key": text(key),
        "value": text(value),
        "topic": topic or "__consumer_offsets",
        "partition": 0,
        "offset": offset,
        "timestamp": 1_795_226_703_189 + offset,
    }


@pytest.mark.parametrize("words", [(), ("--log-timezone", "-05:00")])
def test_the_time_zone_of_a_request_log_is_detected_or_taken_from_the_option(
    words: tuple[str, ...], scan: Scan, local_tables: Tables, tmp_path: Path
) -> None:
    def behind(found: re.Match[bytes]) -> bytes:
        at = datetime.fromisoformat(found[1].decode()) - timedelta(hours=5)
        return b"[%s," % str(at).encode()

    log, out = tmp_path / "kafka-request.log", tmp_path / "out"
    log.write_bytes(
        re.sub(rb"(?m)^\[([-\d]+ [:\d]+),", behind, gzip.decompress(REQUEST_LOG.read_bytes()))
    )
    scan("--offsets", OFFSETS, "--request-log", log, *words, "--out", out)
    assert without_sources(read_tables(out)) == without_sources(local_tables)
    assert last_scan(out).log_ahead_ms == (None if words else -5 * 3_600_000)
    # No rebalance is in what the next scan reads: it goes on with the zone that was found.
    left = next(line for line in log.read_bytes().splitlines(keepends=True) if b"LEAVE_G" in line)
    with log.open("ab") as grown:
        grown.write(b"[2026-11-20 23:00:00," + left.partition(b",")[2])
    scan("--request-log", log, *words, "--out", out)
    assert last_scan(out).observed_until == datetime(2026, 11, 21, 4, 0, tzinfo=UTC).replace(
        microsecond=int(left.partition(b",")[2][:3]) * 1000
    )


def rows_at(*paths: object) -> pa.Table:
    """The records at these paths."""
    source = captured_source.read_files([str(path) for path in paths])
    shares = source.share(1, {})
    return pa.Table.from_batches(batch for share in shares for batch in source.read(share))


def test_duplicate_records_in_a_parquet_capture_are_counted_once(
    scan: Scan, local_tables: Tables, tmp_path: Path
) -> None:
    rows, file = rows_at(OFFSETS), tmp_path / "captured.parquet"
    again = rows.slice(0, len(rows) // 2)
    pq.write_table(pa.concat_tables([again, rows]), file)
    out = tmp_path / "lake"
    scan("--offsets", file, "--request-log", REQUEST_LOG, "--out", out)
    assert last_scan(out).records["REPEATED"] == len(again)
    assert without_sources(read_tables(out)) == without_sources(local_tables)


def test_broken_and_unknown_records_are_counted_and_reported(scan: Scan, tmp_path: Path) -> None:
    group = b"\x00\x02\x00\x03abc"
    commit = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
    value = b"\x00\x03" + bytes(7) + b"\x05\xff\xff\xff\xff\x00\x00" + bytes(8)
    lines = [
        line(0, commit, value),
        line(1, commit, value[:-1]),
        line(2, commit, b"\x00\x09" + value[2:]),
        line(3, b"\x00\x01\x00\x05g", value),
        line(4, group, b"\x00\x03\x00\x08consum"),
        line(5, b"\x00\x02\x7f\xffabc", None),
        line(6, b"\x00\x63anything", b"x"),
        line(7, b"\x00\x0b\x00\x01s", b"x"),
        line(8, b"\x00", b"x"),
        line(9, None, b"x"),
        line(10, commit, None) | {"key": "%%%"},
        line(11, commit, value, topic="other"),
        line(12, group, b"\x00\x03") | {"timestamp": None},
    ]
    file = tmp_path / "hard.jsonl"
    text = "".join(json.dumps(each) + "\n" for each in lines)
    file.write_text(text + '{"key": "AAE\n\nnot json at all\n')
    out = tmp_path / "out"
    output = scan("--offsets", file, "--out", out)
    manifest = last_scan(out)
    assert manifest.records == {
        "GROUP_METADATA": 1,
        "OFFSET_COMMIT": 1,
        "SHARE_GROUP_METADATA": 1,
        "UNKNOWN_KIND_99": 1,
        "UNREADABLE": 10,
    }
    assert manifest.read == 14
    assert manifest.skipped == {"records of other topics": 1}
    assert "10 unreadable" in output
    assert "UNKNOWN_KIND_99" in output
    found = read_tables(out)["errors"]
    errors = {row["offset"]: row for row in found if row["offset"] is not None}
    assert set(errors) == {1, 2, 3, 4, 5, 8, 9, 12}
    assert "version 9 is not one of 0 to 4" in errors[2]["error"]
    assert (errors[1]["key"], errors[1]["value"]) == (commit, value[:-1])
    assert errors[3]["what"] == "OFFSET_COMMIT"
    assert errors[4]["group_id"] == "abc"
    assert errors[12]["error"] == "The record has no time."
    lost = [row["value"] for row in found if row["offset"] is None]
    no_base64 = json.dumps(lines[10]).encode()
    assert sorted(lost) == [b"not json at all", no_base64, b'{"key": "AAE']
    scan("--offsets", file, "--out", out)
    assert last_scan(out).records == manifest.records


def test_a_damaged_gzip_capture_is_reported_and_leaves_the_tables_unchanged(
    scanned: Path, local_tables: Tables, scan: Scan, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(scanned, tmp_path / "out", symlinks=True))
    cut = tmp_path / "cut off.jsonl.gz"
    cut.write_bytes(OFFSETS.read_bytes()[:-20_000])
    output = scan("--offsets", cut, "--out", out, "--full", code=1)
    assert f"{cut}: the packed file is cut off or damaged from here on; fetch it again." in output
    assert read_tables(out) == local_tables


def test_records_scanned_after_the_request_log_give_the_tables_of_one_scan(
    scan: Scan, local_tables: Tables, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    output = scan("--request-log", REQUEST_LOG, "--out", out)
    log = last_scan(out)
    seen = {one.observed_from for one in read_history(open_tables(str(out))).values()}
    assert seen == {micros(log.observed_from)}
    assert "4,052 lines of request logs" in output
    assert last_scan(out).read == 0
    assert len(read_tables(out)["assignor_lists"]) > 50
    wanted = without_sources(local_tables)
    scan("--offsets", OFFSETS, "--out", out)
    assert without_sources(read_tables(out)) == wanted
    counts = last_scan(out)
    scan("--offsets", OFFSETS, "--request-log", REQUEST_LOG, "--out", out)
    assert without_sources(read_tables(out)) == wanted
    assert (last_scan(out).read, last_scan(out).offsets) == (counts.read, counts.offsets)


def test_log_end_offsets_of_each_kept_scan_are_in_a_table_and_not_in_its_manifest(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, read = tmp_path / "out", captured_source.read_files
    at = datetime(2026, 11, 25, tzinfo=UTC)
    for ends in ((100, None), (200, 5)):
        brokers = ClusterReading(at=at, cluster=Cluster(), ends={"orders": ends})

        def with_brokers(*words: Any, reading: ClusterReading = brokers) -> RecordSource:
            return replace(read(*words), brokers=reading)

        monkeypatch.setattr(captured_source, "read_files", with_brokers)
        scan("--offsets", OFFSETS, "--out", out)
    monkeypatch.undo()
    scan("--request-log", REQUEST_LOG, "--out", out, "--retain", "9d")
    last = open_tables(str(out))
    for number, ends in ((2, [200, 5]), (3, [200, 5])):
        tables = last.of_scan(number)
        rows = tables.read("log_ends", ["topic", "log_end_offset", "at"]).to_pylist()
        assert rows == [{"topic": "orders", "log_end_offset": end, "at": at} for end in ends]
        assert tables.manifest.brokers == ClusterReading(at=at, cluster=Cluster())


def test_local_spark_tasks_import_no_pandas_and_use_the_installed_pyspark(
    spark: SparkSession,
) -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch(
                [[pyspark.__file__, *(sys.modules.keys() & {"pandas"})]], ["name"]
            )

    assert [row["name"] for row in in_tasks(spark.range(1), look, "name string").collect()] == [
        pyspark.__file__
    ]
