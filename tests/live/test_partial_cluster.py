"""Two brokers of which one cannot be reached: the other's groups are read all the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from rebal.cli import app
from rebal.inspectors.kafka.read import GroupFailure, read_groups, select_groups
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.processes import freeze, wait_for
from tests.live_support import config_of

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


def test_groups_of_the_reachable_broker_are_shown_and_the_others_named(
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
        gone = f"broker 2 at {second.bootstrap} cannot be reached (no answer)"
        check_partial(code, body, err, here, f"{gone}: the groups that it coordinates")
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
