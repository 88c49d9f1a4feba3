"""Records that show a rebalance since the load, and times that messages tell."""

import base64
import socket
import struct
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka.protocol.metadata import MetadataResponse
from kafka.record.memory_records import MemoryRecordsBuilder

from rebal.groups.model import Tri
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataKey,
    GroupMetadataMember,
    decode_key,
)
from rebal.inspectors import clock as our_clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka import cluster, wire
from rebal.inspectors.kafka.cluster import RawCluster, retry
from rebal.inspectors.kafka.reload import (
    Earlier,
    Fetches,
    OffsetsLog,
    Reading,
    StoredGroup,
    _records,
    _split,
    group_metadata_key,
    judge,
    offsets_partition,
    proven_by_probe,
)
from rebal.inspectors.kafka.session import ahead_of_brokers
from rebal.inspectors.kafka.snapshots import _noted
from rebal.inspectors.kafka.wire import Deadline, _reject_null, message
from tests.groups.observed import NOW, stable_group
from tests.planner.captured import BUNDLED
from tests.planner.rehearsal.captures.capture import stored

MEMBER = GroupMetadataMember(
    member_id="m", client_id="c", client_host="/h", session_timeout_ms=6000,
    subscription=b"", assignment=b"",
)  # fmt: skip


def test_every_captured_group_has_the_offsets_partition_of_the_broker() -> None:
    placed: dict[str, int] = {}
    keys: set[bytes] = set()
    for record in stored(BUNDLED):
        raw = base64.b64decode(record["key"])
        key = decode_key(raw)
        if isinstance(key, GroupMetadataKey):
            placed[key.group_id] = record["partition"]
            keys.add(raw)
    assert len(placed) > 10
    assert {group: offsets_partition(group, 8) for group in placed} == placed
    assert keys == {group_metadata_key(group) for group in placed}


@pytest.mark.parametrize("length", [-12, -1, 0, 48])
def test_a_record_batch_of_impossible_length_is_an_error(length: int) -> None:
    head = struct.pack(">qiib", 0, length, 0, 2)
    with pytest.raises(RequestError, match="a record batch of"):
        _split(head + bytes(100), 0)


@pytest.mark.parametrize("attributes", [0, 1, 2, 3, 4, 7])
def test_a_damaged_batch_is_an_error_of_the_request(attributes: int) -> None:
    with pytest.raises(RequestError, match="a record batch is damaged"):
        list(_records(struct.pack(">qiibiH34xi", 0, 56, 0, 2, 0, attributes, 1) + b"no gzip"))


@pytest.mark.parametrize("brokers", [None, [{"node_id": 1, "host": None, "port": 1}]])
def test_a_response_with_null_in_a_non_nullable_field_is_rejected(brokers: Any) -> None:
    """kafka-python accepts null everywhere; Java's client does not."""
    made = message(MetadataResponse, 5, brokers=brokers, topics=[])
    answer = MetadataResponse.decode(made.encode(version=5), version=5)
    with pytest.raises(ValueError, match=r"brokers|host"):
        _reject_null(answer, 5)


@pytest.mark.parametrize(
    ("group_id", "partition"),
    # From the log of a Kafka 3.9.1 broker with four partitions, and Java's lowest int hash.
    [("g-test-the-scala-coordinator-forgets-as-we-07e252", 3), ("polygenelubricants", 0)],
)
def test_a_group_id_of_negative_hash_gets_javas_partition(group_id: str, partition: int) -> None:
    assert offsets_partition(group_id, 4) == partition


def batch(*keys: bytes, compression: int = 0) -> bytes:
    made = MemoryRecordsBuilder(magic=2, compression_type=compression, batch_size=10_000)
    for key in keys:
        made.append(timestamp=7, key=key, value=b"value")
    made.close()
    return bytes(made.buffer())


def test_only_record_batches_that_may_hold_the_groups_key_are_parsed() -> None:
    key = group_metadata_key("checkout")
    others, own = batch(b"a", b"b"), batch(b"c", key)
    packed = batch(b"d" * 500, compression=1)
    fetched = _split(others + own + others + packed + own[:-1], 0)
    assert list(fetched.batches_with(key)) == [own, packed]
    assert (fetched.counted, fetched.first_timestamp_ms) == (7, 7)


def test_a_fetch_that_found_nothing_is_sent_again() -> None:
    fetches = Fetches()
    answers = iter([b"", batch(b"a"), batch(b"b")])
    found = [fetches.once((0, 0, 0), lambda: _split(next(answers), 0)) for _ in range(3)]
    assert [each.counted for each in found] == [0, 1, 1]
    assert found[1] is found[2]


def test_a_partition_leader_without_an_end_offset_is_asked_again() -> None:
    def answered(code: int, offset: int) -> Any:
        part = SimpleNamespace(error_code=code, offset=offset)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])

    leader = Mock()
    leader.send.side_effect = [answered(78, -1), answered(0, 42)]
    assert OffsetsLog(leader, 0, 1, Deadline(5_000), Fetches()).end() == 42
    leader.send.side_effect = [answered(78, -1)] * 9
    with pytest.raises(RequestError, match="OFFSET_NOT_AVAILABLE"):
        OffsetsLog(leader, 0, 1, Deadline(200), Fetches()).end()


def record(offset: int, generation: int | None, *, members: int = 1) -> StoredGroup:
    if generation is None:
        return StoredGroup(offset, None)
    value = GroupMetadata(
        version=3, protocol_type="consumer", generation=generation, members=(MEMBER,) * members
    )
    return StoredGroup(offset, value)


@pytest.mark.parametrize(
    ("earlier", "since", "rebalanced", "generation"),
    [
        ([record(1, 5)], [], Tri.NO, 5),
        ([record(1, 5)], [record(2, 5)], Tri.NO, 5),
        ([record(1, 5)], [record(2, 5), record(3, 5)], Tri.NO, 5),
        ([record(1, 5)], [record(2, 6)], Tri.YES, 6),
        ([record(1, 5)], [record(2, 5), record(3, 7)], Tri.YES, 7),
        ([record(1, 5)], [record(2, 6, members=0)], Tri.NO, 6),
        ([record(1, 5)], [record(2, 6, members=0), record(3, 7)], Tri.YES, 7),
        ([record(1, 5)], [record(2, 7), record(3, 7)], Tri.YES, 7),
        ([record(1, 1)], [record(2, None), record(3, 1)], Tri.YES, 1),
        ([record(1, 1), record(2, None)], [record(3, 1)], Tri.YES, 1),
        ([], [record(3, 1)], Tri.YES, 1),
        ([], [], Tri.NO, None),
    ],
)
def test_only_a_new_generation_with_members_is_a_rebalance_since_the_reload(
    earlier: list[StoredGroup], since: list[StoredGroup], rebalanced: Tri, generation: int | None
) -> None:
    found = judge(since, None, lambda: Earlier(earlier, whole=True), "leader epoch 3")
    assert found.rebalanced is rebalanced
    assert (found.stored and found.stored.generation) == generation


@pytest.mark.parametrize(
    ("state_ms", "began_ms", "whole", "rebalanced"),
    [
        (2000, 1000, False, Tri.YES),
        (900, 1000, False, Tri.CANNOT_TELL),
        (1000, 1000, False, Tri.CANNOT_TELL),
        (None, 1000, False, Tri.CANNOT_TELL),
        (2000, None, False, Tri.CANNOT_TELL),
        (900, 1000, True, Tri.YES),
    ],
)
def test_a_lone_record_proves_a_rebalance_only_if_newer_than_the_reload_or_the_groups_first(
    state_ms: int | None, began_ms: int | None, whole: bool, rebalanced: Tri
) -> None:
    value = GroupMetadata(
        version=3, protocol_type="consumer", generation=4, members=(MEMBER,),
        state_timestamp_ms=state_ms,
    )  # fmt: skip
    found = judge([StoredGroup(9, value)], began_ms, lambda: Earlier([], whole=whole), "epoch 3")
    assert (found.rebalanced, found.stored) == (rebalanced, value)


def test_a_probe_that_finds_a_second_common_assignor_proves_a_rebalance_since_the_reload() -> None:
    unproven = Reading(Tri.CANNOT_TELL, "no right", record(1, 4).value)
    assert proven_by_probe(unproven, "range", ["range"]) == unproven
    assert proven_by_probe(unproven, None, ["range"]) == unproven
    proven = proven_by_probe(unproven, "range", ["range", "cooperative-sticky"])
    assert (proven.rebalanced, proven.stored) == (Tri.YES, unproven.stored)
    assert "cooperative-sticky besides range" in proven.why


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (wire, cluster):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.mark.parametrize(
    ("spent", "said"),
    [(0.01, "0.1 s"), (0.62, "0.6 s"), (5, "5 s"), (9.99, "10 s"), (10.2, "10 s")],
)
def test_a_deadline_reports_the_time_waited(clock: Clock, spent: float, said: str) -> None:
    deadline = Deadline(10_000)
    clock.sleep(spent)
    assert deadline.waited() == said


def test_a_share_of_a_deadline_counts_from_its_own_start(clock: Clock) -> None:
    deadline = Deadline(10_000)
    clock.sleep(4)
    share = deadline.share(3)
    clock.sleep(2)
    assert not share.left()
    assert (share.waited(), deadline.waited()) == ("2 s", "6 s")


def test_a_refused_connection_reports_its_tries_and_not_the_timeout(clock: Clock) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    raw = RawCluster(ClusterConfig(bootstrap=f"127.0.0.1:{port}", timeout_ms=10_000))
    with pytest.raises(ConnectError, match=r"\(connection refused; 3 tries in 0\.6 s\)\. Check -b"):
        raw.any(Deadline(10_000))
    assert clock.now == pytest.approx(100.6)


def test_a_coordinator_that_keeps_loading_is_asked_until_the_deadline(clock: Clock) -> None:
    deadline = Deadline(1_000)

    def ask() -> Any:
        clock.sleep(0.01)
        raise RequestError("COORDINATOR_LOAD_IN_PROGRESS", "loading")

    with pytest.raises(RequestError, match="loading"):
        retry(ask, deadline)
    assert deadline.waited() == "1 s"
    assert clock.now == pytest.approx(101, abs=0.1)


def test_a_broker_that_allows_one_connection_is_asked_over_the_busy_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = RawCluster(ClusterConfig(bootstrap="127.0.0.1:1"))
    raw.brokers[1] = ("127.0.0.1", 1, None)
    first = SimpleNamespace(closed=False, busy=False)
    monkeypatch.setattr(raw, "any", lambda _: None)
    made = Mock(side_effect=[first, ConnectionResetError])
    monkeypatch.setattr(cluster, "BrokerConnection", made)
    assert raw.node(1, Deadline(1_000)) is first
    first.busy = True
    assert raw.node(1, Deadline(1_000)) is first


def test_an_unreachable_coordinator_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = RawCluster(ClusterConfig(bootstrap="127.0.0.1:1"))
    found = [
        SimpleNamespace(coordinators=(), error_code=0, node_id=node, host="127.0.0.1", port=1)
        for node in (1, 2)
    ]
    monkeypatch.setattr(raw, "ask_any", Mock(side_effect=found))
    monkeypatch.setattr(raw, "node", lambda *_: None)
    silent = RequestError("UNREACHABLE", "broker 1 cannot be reached")
    ask = Mock(side_effect=[None, silent, None, None])
    for _ in range(3):
        raw.on_coordinator("checkout", Deadline(1_000), ask)
    assert [broker for _, broker in (call.args for call in ask.call_args_list)] == [1, 1, 2, 2]


def answer(at: datetime, error: int = 0, leader: int = 1) -> SimpleNamespace:
    voters = [
        SimpleNamespace(replica_id=n, last_caught_up_timestamp=round(at.timestamp() * 1000) - n + 1)
        for n in (1, 2)
    ]
    part = SimpleNamespace(leader_id=leader, current_voters=voters)
    return SimpleNamespace(error_code=error, topics=[SimpleNamespace(partitions=[part])])


@pytest.mark.parametrize(
    ("said", "seconds", "ahead"),
    [
        (answer(NOW - timedelta(hours=1)), 0.2, timedelta(hours=1, seconds=0.1)),
        (answer(NOW + timedelta(hours=1)), 0, timedelta(hours=-1)),
        (answer(NOW + timedelta(seconds=1)), 0, timedelta()),
        (answer(NOW - timedelta(seconds=5)), 20, timedelta()),
        (answer(NOW - timedelta(hours=1), error=31), 0, None),
        (answer(NOW - timedelta(hours=1), leader=3), 0, None),
        (RequestError("TIMED_OUT", "no answer"), 0, None),
    ],
    ids=["ahead", "behind", "not material", "a slow answer", "no right", "no leader", "no answer"],
)
def test_the_clock_difference_is_measured_with_the_partition_leaders_time(
    said: Any, seconds: float, ahead: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(our_clock, "now", Mock(side_effect=[NOW, NOW + timedelta(seconds=seconds)]))
    raw = Mock()
    raw.any().send.side_effect = [said]
    assert ahead_of_brokers(raw, Mock()) == ahead


def test_records_newer_than_the_look_show_that_rebals_clock_is_behind() -> None:
    made = stable_group()
    assert _noted(made, None, made.captured_at + timedelta(seconds=1)) is made
    seen = _noted(made, made.captured_at + timedelta(minutes=30), None)
    assert (seen.captured_at, seen.clock_compared) == (made.captured_at, False)
    assert seen.notes == (
        "this machine's clock is at least 30 min behind the brokers': the times of looks are its "
        "own",
    )
