"""Times: waits that messages tell are those that passed, and the brokers' clock is measured."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rebal.inspectors import clock as our_clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError
from rebal.inspectors.kafka import cluster, wire
from rebal.inspectors.kafka.cluster import RawCluster, retry
from rebal.inspectors.kafka.session import ahead_of_brokers
from rebal.inspectors.kafka.snapshots import _noted
from rebal.inspectors.kafka.wire import Deadline
from tests.groups.observed import NOW, stable_group


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
def test_a_deadline_says_how_long_it_was_waited_for(clock: Clock, spent: float, said: str) -> None:
    deadline = Deadline(10_000)
    clock.sleep(spent)
    assert deadline.waited() == said


def test_a_share_of_the_time_counts_from_its_own_start(clock: Clock) -> None:
    deadline = Deadline(10_000)
    clock.sleep(4)
    share = deadline.share(3)
    clock.sleep(2)
    assert not share.left()
    assert (share.waited(), deadline.waited()) == ("2 s", "6 s")


def test_a_refused_connection_says_the_tries_and_not_the_timeout(clock: Clock) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    raw = RawCluster(ClusterConfig(bootstrap=f"127.0.0.1:{port}", timeout_ms=10_000))
    with pytest.raises(ConnectError, match=r"\(connection refused; 3 tries in 0\.6 s\)\. Check -b"):
        raw.any(Deadline(10_000))
    assert clock.now == pytest.approx(100.6)


def test_a_coordinator_that_keeps_loading_is_waited_for_to_the_end(clock: Clock) -> None:
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


def test_a_coordinator_that_falls_silent_is_searched_for_again(
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
def test_the_offset_is_that_of_the_leaders_present_time(
    said: Any, seconds: float, ahead: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(our_clock, "now", Mock(side_effect=[NOW, NOW + timedelta(seconds=seconds)]))
    raw = Mock()
    raw.any().send.side_effect = [said]
    assert ahead_of_brokers(raw, Mock()) == ahead


def test_records_that_are_later_than_their_look_show_a_clock_that_is_behind() -> None:
    made = stable_group()
    assert _noted(made, None, made.captured_at + timedelta(seconds=1)) is made
    seen = _noted(made, made.captured_at + timedelta(minutes=30), None)
    assert (seen.captured_at, seen.clock_compared) == (made.captured_at, False)
    assert seen.notes == (
        "this machine's clock is at least 30 min behind the brokers': the times of looks are its "
        "own",
    )
