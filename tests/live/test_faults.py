"""Everything that can be wrong on the way to a group: one sentence each, within its timeout.

Of two brokers one may be out of reach: the other's groups are read all the same.
"""

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from kafka.protocol.admin.groups import DescribeGroupsRequest

from rebal.cli import app
from rebal.inspectors.connection.config import ClusterConfig, resolve
from rebal.inspectors.errors import ConnectError
from rebal.inspectors.kafka import read as live_group
from rebal.inspectors.kafka.read import GroupFailure, read_groups, select_groups
from rebal.inspectors.kafka.wire import BrokerConnection, Deadline
from tests.kafka import jars
from tests.kafka.broker import Broker, freeze, wait_for
from tests.kafka.members import Members, Rolling
from tests.live_support import config_of, read

SECOND = 1000


def config(bootstrap: str, *settings: str, timeout_ms: int = 30 * SECOND) -> ClusterConfig:
    """Return the settings of a connection; an answer that comes ends it long before the time."""
    return resolve(bootstrap, settings, None, None, {}, timeout_ms)


@contextmanager
def within(timeout_ms: int) -> Iterator[None]:
    """Every wait of the block ends with one of at most two deadlines, each of its timeout.

    The first is that of the connection, the second that of the group. A wait that has no deadline
    ends with the time limit of the test.
    """
    made: list[int] = []
    start = Deadline.__init__

    def noted(self: Deadline, timeout_ms: int) -> None:
        made.append(timeout_ms)
        start(self, timeout_ms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deadline, "__init__", noted)
        yield
    assert set(made) == {timeout_ms}
    assert len(made) <= 2


def refused(config: ClusterConfig, kind: str) -> str:
    with within(config.timeout_ms), pytest.raises(ConnectError) as error:
        read_groups(config, ["any"])
    assert error.value.kind == kind
    text = str(error.value)
    assert text.count("\n") == 0
    assert text.endswith(".")
    return text


def test_a_broker_host_name_that_does_not_exist_is_reported_as_unreachable() -> None:
    text = refused(config("no-such-host.invalid:9092", timeout_ms=5 * SECOND), "unreachable")
    assert "the name cannot be resolved" in text


def test_a_port_that_accepts_connections_and_never_answers_is_reported_as_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = refused(config(f"127.0.0.1:{port}", timeout_ms=SECOND), "timeout")
    assert "within 1 s (no answer)" in text
    assert "security.protocol is PLAINTEXT" in text


def speaks_http(peer: socket.socket) -> None:
    peer.recv(100)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def answers_nonsense(peer: socket.socket) -> None:
    """Send a frame of the right length to the right request, and nothing to be read in it."""
    correlation = peer.recv(1000)[8:12]
    peer.sendall((12).to_bytes(4, "big") + correlation + b"\0\0\x7f" + b"\1" * 5)
    peer.recv(1)


@pytest.mark.parametrize("answer", [speaks_http, answers_nonsense])
def test_a_port_that_speaks_no_kafka_is_reported(answer: Callable[[socket.socket], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    answer(peer)

        threading.Thread(target=serve, daemon=True).start()
        text = refused(config(f"127.0.0.1:{server.getsockname()[1]}"), "unreachable")
        server.shutdown(socket.SHUT_RDWR)
    assert "does not answer in Kafka's protocol" in text


def test_a_mismatch_of_tls_and_plaintext_with_the_port_is_reported(kafka41: Broker) -> None:
    text = refused(config(kafka41.bootstrap_sasl), "unreachable")
    assert "security.protocol is PLAINTEXT" in text
    ca = f"ssl.ca.location={kafka41.certificates.ca}"
    text = refused(config(kafka41.bootstrap, "security.protocol=SSL", ca), "tls")
    assert "does not speak TLS" in text


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_reported_without_showing_it(
    kafka41: Broker, mechanism: str, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = config_of(kafka41, mechanism, sasl_password="wrong-s3cret", timeout_ms=30 * SECOND)
    text = refused(wrong, "authentication")
    assert f"rejected the login with {mechanism}" in text
    assert "s3cret" not in text
    assert capfd.readouterr() == ("", "")


def test_an_unsupported_sasl_mechanism_is_reported_with_the_offered_ones(
    kafka41: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = config_of(kafka41, "PLAIN", timeout_ms=30 * SECOND)
    sent = BrokerConnection.send

    def other(self: BrokerConnection, request: type, deadline: Any, **fields: Any) -> Any:
        if "mechanism" in fields:
            fields["mechanism"] = "SCRAM-SHA-1"
        return sent(self, request, deadline, **fields)

    monkeypatch.setattr(BrokerConnection, "send", other)
    text = refused(wrong, "authentication")
    assert re.search(r"does not offer SASL PLAIN, it offers .*SCRAM-SHA-512", text)


def test_reading_a_group_leaves_no_thread_or_connection_even_after_a_failure(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    """A watch reads for hours: no thread and no connection may wait for the garbage collector."""
    Rolling(kafka41, members, group_id, topic_name, software="java-3.9.1").begin(["m"], [])
    right = config_of(kafka41, "SCRAM-SHA-256")
    wrong = config_of(kafka41, "SCRAM-SHA-256", sasl_password="wrong", timeout_ms=30 * SECOND)

    def left() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    read(right, group_id)
    gc.collect()
    gc.disable()
    try:
        before = left()
        for _ in range(3):
            read_groups(right, [group_id], probe=True)
            refused(wrong, "authentication")
        wait_for("all to be let go", lambda: left() <= before, timeout=5)
    finally:
        gc.enable()


def test_an_untrusted_broker_certificate_is_reported(
    kafka41: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    other_ca = str(kafka41.certificates.untrusted_ca)
    wrong = config_of(kafka41, "SCRAM-SHA-256", ssl_truststore_location=other_ca)
    text = refused(wrong, "tls")
    assert "its certificate is not trusted" in text
    assert "ssl.ca.location" in text
    assert capfd.readouterr() == ("", "")


def test_a_missing_client_certificate_is_reported(kafka41: Broker) -> None:
    ca = f"ssl.ca.location={kafka41.certificates.ca}"
    bare = config(kafka41.bootstrap_tls, "security.protocol=SSL", ca, timeout_ms=30 * SECOND)
    with within(bare.timeout_ms), pytest.raises(ConnectError) as error:
        read_groups(bare, ["any"])
    assert error.value.kind in ("tls", "unreachable")
    assert "\n" not in str(error.value)


def test_a_loading_coordinator_times_out(kafka41: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real broker's descriptions say that the coordinator is loading (14), as a large one does.

    A real reload of a small broker takes milliseconds, of a large one minutes.
    """
    exchanged = BrokerConnection.exchange

    def exchange(self: BrokerConnection, request: Any, deadline: Any) -> Any:
        response = exchanged(self, request, deadline)
        if isinstance(request, DescribeGroupsRequest):
            response.groups[0].error_code = 14
        return response

    monkeypatch.setattr(BrokerConnection, "exchange", exchange)
    with within(SECOND):
        (failure,) = read_groups(config(kafka41.bootstrap, timeout_ms=SECOND), ["any"])
    assert isinstance(failure, GroupFailure)
    assert failure.kind == "loading"
    assert "still loading after 1 s" in failure.message


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """A broker that is stopped here."""
    with Broker(jars.EARLY, secure=False) as broker:
        yield broker


INTERRUPTED = """
import os, signal, sys
from rebal.inspectors.kafka import read as live_group
from rebal.inspectors.connection.config import resolve
from rebal.inspectors.kafka.read import read_groups

look_at = live_group.look_at

def hangs(*arguments):
    os.kill(int(sys.argv[2]), signal.SIGSTOP)
    os.write(1, b"waiting\\n")  # at once, for each group is asked for in its own thread
    return look_at(*arguments)

live_group.look_at = hangs
read_groups(resolve(sys.argv[1], (), None, None, {}, 60_000), ["a", "b"])
"""


def test_ctrl_c_does_not_wait_for_a_broker_that_hangs(own: Broker) -> None:
    pid = own.process.pid
    command = [sys.executable, "-c", INTERRUPTED, own.bootstrap, str(pid)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        # Half of its own timeout: it does not wait for the answer.
        _, errors = child.communicate(timeout=30)
    finally:
        os.kill(pid, signal.SIGCONT)
        child.kill()
    assert child.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_broker_that_hangs_or_is_killed_during_a_reading_is_reported(
    own: Broker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It hangs, then it is killed, each time between two requests of one reading."""
    own.create_topic("t", 1)
    look_at = live_group.look_at
    pid = own.process.pid

    def hangs(*arguments: Any, **options: Any) -> Any:
        freeze(pid)
        return look_at(*arguments, **options)

    monkeypatch.setattr(live_group, "look_at", hangs)
    with within(2 * SECOND):
        (failure,) = read_groups(config(own.bootstrap, timeout_ms=2 * SECOND), ["any"])
    os.kill(pid, signal.SIGCONT)
    assert isinstance(failure, GroupFailure)
    assert failure.kind == "timeout"
    assert failure.message == "any: no answer within 2 s: is the broker up? (--timeout)."

    def is_killed(*arguments: Any, **options: Any) -> Any:
        own.kill()
        return look_at(*arguments, **options)

    monkeypatch.setattr(live_group, "look_at", is_killed)
    (failure,) = read_groups(config(own.bootstrap), ["any"])
    assert isinstance(failure, GroupFailure)
    assert failure.kind == "network"
    assert "\n" not in failure.message
    assert capfd.readouterr().out == ""


GROUPS = tuple(f"pay-{number}" for number in range(8))
Said = pytest.CaptureFixture[str]


class Second(Broker):
    """A broker without a controller, which joins the cluster of `first`."""

    def __init__(self, first: Broker) -> None:
        super().__init__(jars.EARLY, secure=False)
        address = f"PLAINTEXT://{self.bootstrap}"
        self._settings = {
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": f"1@127.0.0.1:{first.ports['CONTROLLER']}",
            "listeners": address,
            "advertised.listeners": address,
        }


@pytest.fixture
def pair() -> Iterator[tuple[Broker, Broker]]:
    """Two brokers; each coordinates some of `GROUPS`, which have committed and have no members."""
    # The controller keeps a silent broker for as long as the test asks it.
    patient = {"broker.session.timeout.ms": "60000"}
    with Broker(jars.EARLY, secure=False, settings=patient) as first, Second(first) as second:

        def both() -> bool:
            return len(first.admin().list_topics(timeout=10).brokers) == 2

        wait_for("both brokers", both, timeout=30)
        first.wait_coordinator("any")
        # Each broker leads one of its partitions.
        first.create_topic("orders", 2)
        for group in GROUPS:
            places = ConsumerGroupTopicPartitions(
                group, [TopicPartition("orders", n, 3) for n in (0, 1)]
            )
            wait_for(
                f"the commit of {group}", lambda places=places: commit(first, places), timeout=20
            )
        yield first, second


def commit(broker: Broker, places: ConsumerGroupTopicPartitions) -> bool:
    """Whether the offsets are kept: a broker may not know the new topic yet."""
    future = broker.admin().alter_consumer_group_offsets([places])[places.group_id]
    if future.exception(20) is not None:
        return False
    return all(each.error is None for each in future.result().topic_partitions)


def coordinators(broker: Broker) -> dict[str, int]:
    found = broker.admin().describe_consumer_groups(list(GROUPS), request_timeout=10)
    return {group: found[group].result(15).coordinator.id for group in GROUPS}


def inspect(capsys: Said, *words: str) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    code = app.run(["inspect", *words, "-o", "json"])
    out, err = capsys.readouterr()
    assert out, err
    return code, json.loads(out), err


def test_groups_of_a_reachable_broker_are_shown_and_unreachable_brokers_are_named(
    pair: tuple[Broker, Broker], capsys: Said
) -> None:
    first, second = pair
    where = coordinators(first)
    here = [group for group in GROUPS if where[group] == 1]
    there = [group for group in GROUPS if where[group] == 2]
    assert here
    assert there
    words = ["--all", "-b", f"{second.bootstrap},{first.bootstrap}", "--timeout", "10"]
    code, body, err = inspect(capsys, *words)
    assert (code, body["failures"], err) == (0, [], "")
    assert [group["group_id"] for group in body["groups"]] == list(GROUPS)

    # It accepts connections and is silent, as behind a firewall that drops packets.
    freeze(second.process.pid)
    try:
        code, body, err = inspect(capsys, *words)
        unreachable = f"broker 2 at {second.bootstrap} cannot be reached (no answer)"
        check_partial(code, body, err, here, f"{unreachable}: the groups that it coordinates")
        answers = read_groups(config_of(first, timeout_ms=6000), [*there, *here])
        failed = [answer for answer in answers if isinstance(answer, GroupFailure)]
        assert {answer.group_id for answer in failed} == set(there)
    finally:
        os.kill(second.process.pid, signal.SIGCONT)

    second.stop()
    wait_for("no leader", lambda: leaders(first) == {1, -1}, timeout=30)
    code, body, err = inspect(capsys, *words)
    check_partial(code, body, err, here, "2 of 4 partitions of __consumer_offsets have no leader")
    selected = select_groups(config_of(first), [there[0]], match="pay-.*")
    assert selected.group_ids == (there[0], *here)
    (failure,) = read_groups(config_of(first, timeout_ms=1000), [there[0]])
    assert isinstance(failure, GroupFailure)
    assert failure.message.startswith(f"{there[0]}: no coordinator within 1 s")


def leaders(broker: Broker) -> set[int]:
    topic = (
        broker.admin().list_topics("__consumer_offsets", timeout=10).topics["__consumer_offsets"]
    )
    return {part.leader for part in topic.partitions.values()}


def check_partial(code: int, body: dict[str, Any], err: str, here: list[str], why: str) -> None:
    assert code == 1
    assert [group["group_id"] for group in body["groups"]] == here
    assert all(group["state"] == "Empty" for group in body["groups"])
    failures = body["failures"]
    assert {failure["group_id"] for failure in failures} == {None}
    assert [failure["message"].startswith(why) for failure in failures] == [True]
    assert err == "".join(f"rebal: {failure['message']}\n" for failure in failures)
