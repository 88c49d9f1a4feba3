"""To KIP-848 over a stop, and what shuts the way online, on real brokers.

After every restart the plan's word is held to what the broker does to whoever joins.
"""

from __future__ import annotations

import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members
from tests.kafka.processes import wait_for
from tests.kafka.rolling import Rolling
from tests.kafka.service import answer

pytestmark = pytest.mark.live
PARTITIONS = 6
JAVA = "java-4.1.1"
RANGE = ["range"]
APPS = ("app-0", "app-1")
Said = pytest.CaptureFixture[str]


class Group(Rolling):
    """Members of one group that are started as a plan's text says, and what the plan says of it."""

    def start_as(self, name: str, text: str, **options: Any) -> Member:
        """With the literal configuration text of a plan's step."""
        return self.start(name, [], **options_of(text), **options)

    def place_as(self, name: str, text: str, **options: Any) -> None:
        """The same in the place of whoever was there."""
        if name in self.running:
            self.running[name].stop()
        self.place(name, [], **options_of(text), **options)

    def consumed(self, *names: str) -> int:
        """How many records these have read by their end, which is now."""
        stopped = [self.running[name] for name in names]
        for name in names:
            self.stop(name)
        assert [member.error for member in stopped] == [None] * len(stopped)
        return sum(int(member.wait_for("closed").data["records"]) for member in stopped)

    def plan(self, capsys: Said, *more: str) -> dict[str, Any]:
        return answer(self.broker, capsys, "plan-upgrade", self.group, *more)

    def gate(self, capsys: Said, plan: Path, *more: str) -> int:
        """What `verify` says of the one step of a plan's file: 0 holds, 4 not yet, 3 a danger."""
        return int(answer(self.broker, capsys, "verify", str(plan), *more)["exit_code"])

    def agree(self, capsys: Said, body: dict[str, Any], plan: Path) -> None:
        """Record the interruption with the command that the plan prints; verify prints it too."""
        asked = plan.with_name(f"asked-{plan.name}")
        shutil.copy(plan, asked)
        told = answer(self.broker, capsys, "verify", str(asked))
        assert (told["exit_code"], told["advice"]["action"]) == (3, "stop")
        assert told["advice"]["text"] == body["advice"]["text"]
        assert "--ignore RB413" in told["advice"]["command"]
        words = shlex.split(body["advice"]["command"])[1:]
        agreed = answer(self.broker, capsys, *words)
        assert (agreed["exit_code"], agreed["advice"]["action"]) == (0, "cut-over")
        told = answer(self.broker, capsys, "verify", str(plan))
        assert (told["exit_code"], told["advice"]["action"]) == (4, "cut-over")

    def committed(self) -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(self.group)]
        (future,) = self.broker.admin().list_consumer_group_offsets(asked).values()
        return {each.partition: each.offset for each in future.result(10).topic_partitions}

    def wait_committed(self, each: int) -> None:
        expected = dict.fromkeys(range(PARTITIONS), each)
        wait_for(f"offset {each} everywhere", lambda: self.committed() == expected, timeout=15)


Make = Callable[[Broker], Group]


@pytest.fixture
def group(members: Members, group_id: str, topic_name: str) -> Make:
    def make(broker: Broker) -> Group:
        broker.wait_coordinator(group_id)
        return Group(broker, members, group_id, topic_name, software=JAVA)

    return make


@pytest.fixture
def closed41() -> Iterator[Broker]:
    """A broker that converts no group while it has members."""
    settings = {"group.consumer.migration.policy": "disabled"}
    with Broker("4.1.1", secure=False, settings=settings, request_log=True) as broker:
        yield broker


@pytest.fixture
def small41() -> Iterator[Broker]:
    """A broker whose KIP-848 groups have two members at most."""
    settings = {"group.consumer.max.size": "2"}
    with Broker("4.1.1", secure=False, settings=settings) as broker:
        yield broker


def java_text(body: dict[str, Any]) -> str:
    step = body["steps"][0]
    return str(next(s["text"] for s in step["config"] if s["format"] == "Java properties"))


def options_of(text: str) -> dict[str, Any]:
    """A member's options from a step's configuration text."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines)
    protocol = settings["group.protocol"]
    # The harness leaves out what the text says must be removed.
    assert protocol != "consumer" or "; remove partition.assignment.strategy, session" in text
    return {"protocol": protocol, "settings": settings}


def rules(body: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in body["findings"]}


def is_refused(member: Member, because: str) -> None:
    assert because in str(member.wait_for("error").data["message"])


def test_a_group_is_converted_through_a_stop_where_the_policy_forbids_online(
    closed41: Broker, group: Make, tmp_path: Path, capsys: Said
) -> None:
    it = group(closed41)

    def gate(name: str) -> int:
        return it.gate(capsys, tmp_path / name, *log[:2])

    log = ["--request-log", str(closed41.request_log_path), "--expect-members", "2"]
    closed41.produce(it.topic, dict.fromkeys(range(PARTITIONS), 5))
    it.begin(APPS, RANGE)
    it.wait_committed(5)

    # While a classic member is there, the gate does not hold and a newcomer is refused.
    body = it.plan(capsys, "--to", "consumer", *log, "--out", str(tmp_path / "up.yaml"))
    assert (body["path"], body["verdict"], body["exit_code"]) == ("kip848_offline", "blocked", 3)
    assert not {"RB401", "RB402", "RB403"} & rules(body)
    it.agree(capsys, body, tmp_path / "up.yaml")
    assert "group.consumer.migration.policy is disabled" in body["steps"][0]["why"][0]
    # A restart of 30 s, then the other waits for what the first has for 300 s at most, from the
    # heartbeat on (every 3 s) at which the first learns of it.
    assert 30 + 300 - 3 <= body["steps"][0]["cost"]["worst_seconds"] <= 30 + 300
    text = java_text(body)
    assert "\ngroup.remote.assignor=range" in text
    read = 0
    for number, name in enumerate(APPS):
        closed41.wait_stable(it.group, 2 - number)
        body = it.plan(capsys, "--to", "consumer", *log)
        assert (body["path"], body["exit_code"]) == ("kip848_offline", 3)
        is_refused(it.start_as("early", text), "online upgrade is disabled")
        assert gate("up.yaml") == 4
        read += it.consumed(name)
    assert read == 5 * PARTITIONS
    body = it.plan(capsys, "--to", "consumer", *log)
    assert (body["path"], body["verdict"], body["exit_code"]) == ("kip848_offline", "ready", 0)
    assert gate("up.yaml") == 4
    closed41.produce(it.topic, dict.fromkeys(range(PARTITIONS), 2))
    for number, name in enumerate(APPS):
        it.place_as(name, text)
        it.settle()
        body = it.plan(capsys, "--to", "consumer", *log)
        assert body["exit_code"] == (3, 0)[number], body["summary"]
        assert gate("up.yaml") == (4, 0)[number]
        assert body["verdict"] == ("blocked", "done")[number]
        assert body["assignor"] == "range"
    it.wait_committed(7)
    assert it.consumed(*APPS) == 2 * PARTITIONS, "nothing is read twice, and nothing is left out"


def test_a_group_that_is_exactly_full_and_one_that_is_too_large(
    small41: Broker, members: Members, group: Make, capsys: Said
) -> None:
    it = group(small41)
    it.begin(APPS, RANGE)
    family = ("--to", "consumer", "--assume-family", "java")
    body = it.plan(capsys, *family)
    assert (body["path"], body["exit_code"]) == ("kip848_online", 4)
    assert {f["result"] for f in body["findings"] if f["rule"] == "RB402"} == {"cannot tell"}
    text = java_text(body)
    is_refused(it.start_as("surge", text), "maximum capacity of 2 members")
    for number, name in enumerate(APPS):
        it.place_as(name, text)
        it.settle()
        body = it.plan(capsys, *family)
        assert body["exit_code"] == (4, 0)[number], body["summary"]
    assert body["verdict"] == "done"
    for name in APPS:
        it.stop(name)

    crowd = Group(small41, members, f"{it.group}-large", f"{it.topic}-large", software=JAVA)
    crowd.begin(("c-0", "c-1", "c-2"), RANGE)
    body = crowd.plan(capsys, *family)
    assert (body["path"], body["exit_code"]) == ("kip848_online", 3)
    assert "RB402" in body["summary"]
    crowd.stop("c-0")
    is_refused(crowd.start_as("c-0", text), "maximum capacity of 2 members")
    for name in ("c-1", "c-2"):
        crowd.stop(name)
    for name in ("c-0", "c-1"):
        crowd.place_as(name, text)
    crowd.settle()
    is_refused(crowd.start_as("c-2", text), "maximum capacity of 2 members")


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
    kafka41: Broker, group: Make, capsys: Said
) -> None:
    it = group(kafka41)
    ending, owning = threading.Event(), threading.Event()

    def poll() -> None:
        consumer = KafkaConsumer(
            it.topic, bootstrap_servers=kafka41.bootstrap, group_id=it.group, client_id="tags",
            partition_assignment_strategy=[Tagged], session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )  # fmt: skip
        # As in tests/kafka/pymember.py: a first join without the topic's metadata may never end.
        consumer.partitions_for_topic(it.topic)
        while not ending.is_set():
            consumer.poll(timeout_ms=100)
            if consumer.assignment():
                owning.set()
        consumer.close()

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        assert owning.wait(30)
        kafka41.wait_stable(it.group, 1)
        family = ("--to", "consumer", "--assume-family", "java")
        body = it.plan(capsys, *family)
        assert (body["path"], body["exit_code"]) == ("kip848_offline", 3)
        assert "user data of tagged" in body["steps"][0]["why"][0]
        assert "RB403" not in rules(body)
        text = java_text(body)
        is_refused(it.start_as("app", text), "unsupported custom assignor")
    finally:
        ending.set()
        polling.join(20)
    assert it.plan(capsys, *family)["exit_code"] == 0
    it.place_as("app", text)
    it.settle()
    assert it.plan(capsys, *family)["verdict"] == "done"
