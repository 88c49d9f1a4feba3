"""A plan carried out on a real group: after every restart the plan's word is held to the truth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rebal.cli import app
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned

pytestmark = pytest.mark.live
PARTITIONS = 6
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]


class Rollout:
    """Three Java members, restarted one by one with the lists that the plan names."""

    def __init__(self, broker: Broker, members: Members, group: str, topic: str) -> None:
        self.broker = broker
        self.members = members
        self.group = group
        self.topic = topic
        self.running: list[Member] = []

    def start(self, number: int, assignors: list[str], software: str = "java-2.8.2") -> Member:
        return self.members.start(
            software, self.broker, f"app-{number}", self.group, topics=[self.topic],
            assignors=assignors,
        )  # fmt: skip

    def restart(self, number: int, assignors: list[str]) -> None:
        self.running[number].stop()
        self.running[number] = self.start(number, assignors)
        wait_assigned(self.running, PARTITIONS)
        self.broker.wait_stable(self.group, len(self.running))

    def plan(self, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
        words = ["plan-upgrade", self.group, "-b", self.broker.bootstrap, "-o", "json", *more]
        code = app.run(words)
        told = capsys.readouterr()
        assert told.out, told.err
        body: dict[str, Any] = json.loads(told.out)
        assert body["exit_code"] == code
        return body


@pytest.fixture
def rollout(kafka41: Broker, members: Members, group_id: str, topic_name: str) -> Rollout:
    kafka41.create_topic(topic_name, PARTITIONS)
    return Rollout(kafka41, members, group_id, topic_name)


def test_two_bounces_from_end_to_end(rollout: Rollout, capsys: pytest.CaptureFixture[str]) -> None:
    log = ["--request-log", str(rollout.broker.request_log_path), "--expect-members", "3"]
    rollout.running = [rollout.start(number, ["range"]) for number in range(3)]
    wait_assigned(rollout.running, PARTITIONS)
    rollout.broker.wait_stable(rollout.group, 3)
    rollout.broker.log_requests(True)
    try:
        for done in range(3):
            body = rollout.plan(capsys, *log)
            assert (body["path"], body["next_step"], body["exit_code"]) == ("two_bounces", 1, 0)
            first, second = body["steps"]
            assert first["target_list"] == MIXED
            assert len(first["done"]) == done
            assert second["exit_code"] in (3, 4)
            # The first restart is also the measurement: from then on every list is known.
            assert len(first["unknown"]) == (3 if done == 0 else 0)
            rollout.restart(done, first["target_list"])
        for done in range(3):
            body = rollout.plan(capsys, *log, "--probe")
            assert (body["next_step"], body["exit_code"]) == (2, 0)
            assert body["assignor"] == "cooperative-sticky"
            assert len(body["steps"][1]["done"]) == done
            assert body["from"] == ("EAGER" if done == 0 else "mixed")
            rollout.restart(done, body["steps"][1]["target_list"])
        body = rollout.plan(capsys, *log)
        assert (body["verdict"], body["next_step"], body["exit_code"]) == ("done", None, 0)
        assert body["from"] == "COOPERATIVE"
        blind = rollout.plan(capsys)
        assert (blind["verdict"], blind["exit_code"]) == ("unproven", 4)
    finally:
        rollout.broker.log_requests(False)
    assert all(member.error is None for member in rollout.running)


def test_one_bounce_and_what_the_probe_opens(
    rollout: Rollout, capsys: pytest.CaptureFixture[str]
) -> None:
    default = ["range", "cooperative-sticky"]
    rollout.running = [rollout.start(number, default, "java-4.1.1") for number in range(2)]
    wait_assigned(rollout.running, PARTITIONS)
    rollout.broker.wait_stable(rollout.group, 2)
    body = rollout.plan(capsys, "--probe", "--assume-family", "java")
    assert (body["path"], body["next_step"], body["exit_code"]) == ("one_bounce", 1, 0)
    for number in range(2):
        rollout.running[number].stop()
        rollout.running[number] = rollout.start(
            number, body["steps"][0]["target_list"], "java-4.1.1"
        )
        wait_assigned(rollout.running, PARTITIONS)
        rollout.broker.wait_stable(rollout.group, 2)
    assert all(member.error is None for member in rollout.running)


def test_librdkafka_members_are_blocked_without_any_log(
    rollout: Rollout, capsys: pytest.CaptureFixture[str]
) -> None:
    rollout.running = [rollout.start(0, ["range"], "confluent-kafka")]
    wait_assigned(rollout.running, PARTITIONS)
    rollout.broker.wait_stable(rollout.group, 1)
    body = rollout.plan(capsys)
    assert (body["path"], body["verdict"], body["exit_code"]) == ("cut_over", "blocked", 3)
    assert "RB104" in {finding["rule"] for finding in body["findings"]}
