"""The same records from a live broker and from its segments: the same tables."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from tests.fleet.conftest import read_tables, without_sources
from tests.fleet.tablefiles import last_scan
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


def test_the_broker_gives_what_happened_there(busy: Broker, live: Path) -> None:
    rebalances = read_tables(live)["rebalances"]
    seen = {(row["group_id"], row["assignor"]) for row in rebalances}
    assert seen >= {("fleet-a", "range"), ("fleet-b", "cooperative-sticky")}
    assert commits_of(live, "fleet-c") == [(5, 5, False)]
    assert commits_of(live, "fleet-d") == [(None, 1, True)]
    assert commits_of(live, "fleet-e") == [(11, 1, False)]
    listed = busy.admin().list_consumer_groups(request_timeout=10).result(20).valid
    assert not [group.group_id for group in listed if group.group_id.startswith("rebal")]


def test_the_segments_give_the_same_tables(
    busy: Broker, live: Path, scan: Scan, tmp_path: Path
) -> None:
    indexes = shutil.ignore_patterns("*.index", "*.timeindex")  # Each is 10 MB of zeros.
    folder = shutil.copytree(busy.folder / "data", tmp_path / "broker-1", ignore=indexes)
    said = scan("--segments", folder, "--out", tmp_path / "segments")
    assert "control records" in said
    assert "records of aborted transactions" in said
    read, found = last_scan(live), last_scan(tmp_path / "segments")
    assert (read.read, read.records) == (found.read, found.records)
    assert found.skipped["records of aborted transactions"] >= 1
    expected = without_sources(read_tables(live))
    assert without_sources(read_tables(tmp_path / "segments")) == expected


def test_the_next_scan_reads_only_what_is_new(
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


def test_what_a_user_needs_and_what_is_said_without(
    busy: Broker, scan: Scan, tmp_path: Path
) -> None:
    def as_user(name: str, password: str | None = None) -> Path:
        properties = busy.client_properties("SCRAM-SHA-256", name, password)
        return busy.write_properties(f"{name}.properties", properties)

    out = tmp_path / "out"
    said = scan("--command-config", as_user("limited", "hunter2"), "--out", out, code=1)
    assert "rejected the login with SCRAM-SHA-256" in said
    assert "limited" not in said.replace("limited.properties", "")
    assert "hunter2" not in said
    said = scan("--command-config", as_user("limited"), "--out", out, code=1)
    assert "--operation READ --topic __consumer_offsets" in said
    busy.allow("limited", "topic", TOPIC, "DESCRIBE")
    said = scan("--command-config", as_user("limited"), "--out", out, code=1)
    assert "this user may not read the records of __consumer_offsets: grant READ on it" in said
    busy.allow("limited", "topic", TOPIC, "READ")
    said = scan("--command-config", as_user("limited"), "--out", out)
    assert "broker settings were not read: allow DESCRIBE_CONFIGS on the cluster" in said
    assert last_scan(out).read > 0


def test_an_open_transaction_is_said_and_read_later(
    busy: Broker, live: Path, scan: Scan, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(live, tmp_path / "out", symlinks=True))
    with open_transaction(busy, "fleet-open", "fleet-sources", 21) as producer:
        try:
            said = scan("-b", busy.bootstrap, "--out", out)
            assert "a transaction is open since offset" in said
            assert commits_of(out, "fleet-open") == []
        finally:
            producer.commit_transaction(30)
    scan("-b", busy.bootstrap, "--out", out)
    assert commits_of(out, "fleet-open") == [(21, 1, False)]
