"""To KIP-848 over a stop, and what shuts the way online, on real brokers.

After every restart the plan's word is held to what the broker does to whoever joins.
"""

from __future__ import annotations

import shlex
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.processes import wait_for
from tests.live_support.rollout import PARTITIONS, GroupOn, PlannedGroup
from tests.live_support.services import settings_of

RANGE = ["range"]
APPS = ("java-0", "java-1")
FAMILY = ("--to", "consumer", "--assume-family", "java")


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of its own with these settings."""
    with Broker(jars.EARLY, secure=False, settings=request.param, request_log=True) as started:
        yield started


@pytest.fixture
def team(broker: Broker, group_on: GroupOn, group_id: str) -> PlannedGroup:
    """Java members, which read the configuration text of a plan's step."""
    broker.wait_coordinator(group_id)
    made: PlannedGroup = group_on(broker, software="java-4.1.1")
    return made


def moved(body: dict[str, Any]) -> dict[str, Any]:
    """The options of a member that is started with the text of the plan's step."""
    settings = settings_of(body["steps"][0], APPS[0])
    return {"settings": settings, "protocol": settings["group.protocol"]}


def rules(body: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in body["findings"]}


def agree(team: PlannedGroup) -> None:
    """Record the interruption with the command that the plan prints; verify prints it too."""
    asked = team.file.with_name("asked.yaml")
    shutil.copy(team.file, asked)
    told = team.ask("verify", str(asked))
    assert (told["exit_code"], told["advice"]["action"]) == (3, "stop")
    assert told["advice"]["text"] == team.body["advice"]["text"]
    assert "--ignore RB413" in told["advice"]["command"]
    _, *words = shlex.split(team.body["advice"]["command"])
    agreed = team.ask(*words)
    assert (agreed["exit_code"], agreed["advice"]["action"]) == (0, "cut-over")
    told = team.verify()
    assert (told["exit_code"], told["advice"]["action"]) == (4, "cut-over")


def wait_committed(team: PlannedGroup, offset: int) -> None:
    def committed() -> list[int]:
        asked = [ConsumerGroupTopicPartitions(team.group)]
        (future,) = team.broker.admin().list_consumer_group_offsets(asked).values()
        return [each.offset for each in future.result(10).topic_partitions]

    everywhere = [offset] * PARTITIONS
    wait_for(f"offset {offset} everywhere", lambda: committed() == everywhere, timeout=15)


def consumed(team: PlannedGroup, *names: str) -> int:
    """How many records these have read by their end, which is now."""
    stopped = [team.running[name] for name in names]
    for name in names:
        team.stop(name)
    assert [member.error for member in stopped] == [None] * len(stopped)
    return sum(int(member.wait_for("closed").data["records"]) for member in stopped)


@pytest.mark.parametrize("broker", [{"group.consumer.migration.policy": "disabled"}], indirect=True)
def test_a_group_is_converted_through_a_stop_where_the_policy_forbids_online(
    broker: Broker, team: PlannedGroup
) -> None:
    team.evidence = team.logs()
    up = ("--to", "consumer", "--expect-members", "2")
    broker.produce(team.topic, dict.fromkeys(range(PARTITIONS), 5))
    team.begin(APPS, RANGE)
    wait_committed(team, 5)

    # While a classic member is there, the gate does not hold and a newcomer is refused.
    body = team.make(*up)
    assert (body["path"], body["verdict"], body["exit_code"]) == ("kip848_offline", "blocked", 3)
    assert not {"RB401", "RB402", "RB403"} & rules(body)
    agree(team)
    (step,) = body["steps"]
    assert "group.consumer.migration.policy is disabled" in step["why"][0]
    # A restart of 30 s, then the other waits for what the first has for 300 s at most, from the
    # heartbeat on (every 3 s) at which the first learns of it.
    assert 30 + 300 - 3 <= step["cost"]["worst_seconds"] <= 30 + 300
    new = moved(body)
    assert new["settings"]["group.remote.assignor"] == "range"
    read = 0
    for name in APPS:
        team.settle()
        body = team.look(*up)
        assert (body["path"], body["exit_code"]) == ("kip848_offline", 3)
        team.refuses("java-9", [], "online upgrade is disabled", **new)
        assert team.verify()["exit_code"] == 4
        read += consumed(team, name)
    assert read == 5 * PARTITIONS
    body = team.look(*up)
    assert (body["path"], body["verdict"], body["exit_code"]) == ("kip848_offline", "ready", 0)
    assert team.verify()["exit_code"] == 4
    broker.produce(team.topic, dict.fromkeys(range(PARTITIONS), 2))
    for name, verdict, code, gate in ((APPS[0], "blocked", 3, 4), (APPS[1], "done", 0, 0)):
        team.begin([name], [], **new)
        body = team.look(*up)
        assert (body["verdict"], body["exit_code"]) == (verdict, code), body["summary"]
        assert body["assignor"] == "range"
        assert team.verify()["exit_code"] == gate
    wait_committed(team, 7)
    read = consumed(team, *APPS)
    assert read == 2 * PARTITIONS, "nothing is read twice, and nothing is left out"


@pytest.mark.parametrize("broker", [{"group.consumer.max.size": "2"}], indirect=True)
def test_a_group_that_is_exactly_full_and_one_that_is_too_large(team: PlannedGroup) -> None:
    full = "maximum capacity of 2 members"
    team.begin(APPS, RANGE)
    body = team.look(*FAMILY)
    assert (body["path"], body["exit_code"]) == ("kip848_online", 4)
    assert {f["result"] for f in body["findings"] if f["rule"] == "RB402"} == {"cannot tell"}
    new = moved(body)
    team.refuses("java-9", [], full, **new)
    for name, code in zip(APPS, (4, 0), strict=True):
        team.stop(name)
        team.begin([name], [], **new)
        body = team.look(*FAMILY)
        assert body["exit_code"] == code, body["summary"]
    assert body["verdict"] == "done"
    for name in APPS:
        team.stop(name)

    team.group += "-large"
    team.begin((*APPS, "java-2"), RANGE)
    body = team.look(*FAMILY)
    assert (body["path"], body["exit_code"]) == ("kip848_online", 3)
    assert "RB402" in body["summary"]
    team.stop("java-2")
    team.refuses("java-2", [], full, **new)
    for name in APPS:
        team.stop(name)
    for name in APPS:
        team.place(name, [], **new)
    team.settle()
    team.refuses("java-2", [], full, **new)


class Tagged(RangePartitionAssignor):  # type: ignore[misc]
    """range, with a word of its own in each assignment, as custom assignors have."""

    name = "tagged"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        made = RangePartitionAssignor.assign.__func__(RangePartitionAssignor, cluster, members)
        for assignment in made.values():
            assignment.user_data = b"shard"
        return made


@pytest.mark.story
def test_user_data_in_assignments_keeps_a_group_from_being_converted_not_from_being_replaced(
    kafka41: Broker, group_on: GroupOn, group_id: str
) -> None:
    kafka41.wait_coordinator(group_id)
    team: PlannedGroup = group_on(kafka41, software="java-4.1.1")
    ending, owning = threading.Event(), threading.Event()

    def poll() -> None:
        consumer = KafkaConsumer(
            team.topic, bootstrap_servers=kafka41.bootstrap, group_id=team.group, client_id="tags",
            partition_assignment_strategy=[Tagged], session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )  # fmt: skip
        # As in tests/kafka/pymember.py: a first join without the topic's metadata may never end.
        consumer.partitions_for_topic(team.topic)
        while not ending.is_set():
            consumer.poll(timeout_ms=100)
            if consumer.assignment():
                owning.set()
        consumer.close()

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        assert owning.wait(30)
        kafka41.wait_stable(team.group, 1)
        body = team.look(*FAMILY)
        assert (body["path"], body["exit_code"]) == ("kip848_offline", 3)
        assert "user data of tagged" in body["steps"][0]["why"][0]
        assert "RB403" not in rules(body)
        refused = team.start("java-0", [], **moved(body))
        assert "unsupported custom assignor" in refused.wait_for("error").data["message"]
    finally:
        ending.set()
        polling.join(20)
    assert team.look(*FAMILY)["exit_code"] == 0
    team.begin(["java-0"], [], **moved(body))
    assert team.look(*FAMILY)["verdict"] == "done"
