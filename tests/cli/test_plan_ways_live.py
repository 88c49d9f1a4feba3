"""Ways that are not two bounces of one family, carried out on real groups as the plan says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rebal.cli import app
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned

pytestmark = pytest.mark.live
PARTITIONS = 6
Said = pytest.CaptureFixture[str]


def plan(broker: Broker, capsys: Said, group: str, *more: str) -> dict[str, Any]:
    words = ["plan-upgrade", group, "-b", broker.bootstrap, "-o", "json", *more]
    code = app.run(words)
    told = capsys.readouterr()
    assert told.out, told.err
    body: dict[str, Any] = json.loads(told.out)
    assert body["exit_code"] == code
    return body


def settle(broker: Broker, group: str, running: list[Member]) -> None:
    wait_assigned(running, PARTITIONS)
    broker.wait_stable(group, len(running))


def test_librdkafka_members_stop_alone_in_a_group_of_java_members(
    kafka41: Broker, members: Members, group_id: str, topic_name: str, capsys: Said
) -> None:
    kafka41.create_topic(topic_name, PARTITIONS)
    log = ["--request-log", str(kafka41.request_log_path), "--expect-members", "3", "--probe"]

    def start(software: str, name: str, names: list[str]) -> Member:
        return members.start(
            software, kafka41, name, group_id, topics=[topic_name], assignors=names
        )

    kafka41.log_requests(True)
    try:
        java = [start("java-2.8.2", f"j-{n}", ["range"]) for n in range(2)]
        other = start("confluent-kafka", "rd-0", ["range"])
        settle(kafka41, group_id, [*java, other])
        for number in range(2):
            body = plan(kafka41, capsys, group_id, *log)
            assert (body["path"], body["next_step"], body["exit_code"]) == ("mixed_families", 1, 0)
            java[number].stop()
            java[number] = start("java-2.8.2", f"j-{number}", body["steps"][0]["target_list"])
            settle(kafka41, group_id, [*java, other])
        body = plan(kafka41, capsys, group_id, *log)
        assert (body["path"], body["next_step"], body["exit_code"]) == ("mixed_families", 2, 0)
        other.stop()
        settle(kafka41, group_id, java)
        away = plan(kafka41, capsys, group_id, *log)
        assert away["exit_code"] == 3, "a member is away: nobody may drop range yet"
        other = start("confluent-kafka", "rd-0", body["steps"][1]["target_list"])
        settle(kafka41, group_id, [*java, other])
        for number in range(2):
            body = plan(kafka41, capsys, group_id, *log)
            assert (body["next_step"], body["exit_code"]) == (2, 0), body["summary"]
            java[number].stop()
            java[number] = start("java-2.8.2", f"j-{number}", body["steps"][1]["target_list"])
            settle(kafka41, group_id, [*java, other])
        body = plan(kafka41, capsys, group_id, *log)
        assert (body["verdict"], body["from"]) == ("done", "COOPERATIVE")
    finally:
        kafka41.log_requests(False)
    assert all(member.error is None for member in [*java, other])


def test_to_kip_848_and_back(
    kafka41: Broker, members: Members, group_id: str, topic_name: str, capsys: Said
) -> None:
    kafka41.create_topic(topic_name, PARTITIONS)
    log = ["--request-log", str(kafka41.request_log_path)]

    def start(number: int, **options: Any) -> Member:
        return members.start(
            "java-4.1.1", kafka41, f"app-{number}", group_id, topics=[topic_name], **options
        )

    kafka41.log_requests(True)
    try:
        running = [start(number, assignors=["range"]) for number in range(2)]
        settle(kafka41, group_id, running)
        for number in range(2):
            body = plan(kafka41, capsys, group_id, "--to", "consumer", *log)
            assert (body["path"], body["next_step"], body["exit_code"]) == ("kip848_online", 1, 0)
            assert len(body["steps"][0]["done"]) == number
            running[number].stop()
            running[number] = start(number, protocol="consumer")
            wait_assigned(running, PARTITIONS)
        body = plan(kafka41, capsys, group_id, "--to", "consumer", *log)
        assert (body["verdict"], body["exit_code"]) == ("done", 0)
        for number in range(2):
            body = plan(kafka41, capsys, group_id, "--to", "cooperative-sticky", *log)
            assert (body["path"], body["exit_code"]) == ("kip848_back", 0), body["summary"]
            running[number].stop()
            running[number] = start(number, assignors=body["steps"][0]["target_list"])
            wait_assigned(running, PARTITIONS)
        kafka41.wait_stable(group_id, 2)
        body = plan(kafka41, capsys, group_id, "--to", "cooperative-sticky", *log)
        assert (body["verdict"], body["from"]) == ("done", "COOPERATIVE")
    finally:
        kafka41.log_requests(False)
    assert all(member.error is None for member in running)
