"""Ways that are not two bounces of one family, carried out on real groups as the plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.kafka.service import answer

pytestmark = pytest.mark.live
RANGE = ["range"]
Said = pytest.CaptureFixture[str]


# Both coordinators: that of 3.9.1 (Scala) only where every path is driven.
BOTH = pytest.mark.parametrize(
    "shared",
    [
        pytest.param("kafka41", marks=pytest.mark.story),
        pytest.param("kafka39", marks=pytest.mark.full),
    ],
    indirect=True,
)


@pytest.fixture
def shared(request: pytest.FixtureRequest) -> Broker:
    """The broker that all tests share, by the name of its fixture."""
    broker: Broker = request.getfixturevalue(request.param)
    return broker


@BOTH
def test_librdkafka_members_stop_alone_in_a_group_of_java_members(
    shared: Broker, members: Members, group_id: str, topic_name: str, capsys: Said
) -> None:
    service = Rolling(shared, members, group_id, topic_name)
    java, other = ("java-2.8.2-0", "java-2.8.2-1"), "confluent-kafka-0"
    log = ["--request-log", str(shared.request_log_path), "--expect-members", "3", "--probe"]

    def plan() -> dict[str, Any]:
        return answer(shared, capsys, "plan-upgrade", group_id, *log)

    with service.logged():
        service.begin([*java, other], RANGE)
        for name in java:
            body = plan()
            assert (body["path"], body["next_step"], body["exit_code"]) == ("mixed_families", 1, 0)
            service.restart(name, body["steps"][0]["target_list"])
        body = plan()
        assert (body["path"], body["next_step"], body["exit_code"]) == ("mixed_families", 2, 0)
        service.stop(other)
        service.settle()
        assert plan()["exit_code"] == 3, "a member is away: nobody may drop range yet"
        service.begin([other], body["steps"][1]["target_list"])
        for name in java:
            body = plan()
            assert (body["next_step"], body["exit_code"]) == (2, 0), body["summary"]
            service.restart(name, body["steps"][1]["target_list"])
        body = plan()
        assert (body["verdict"], body["from"]) == ("done", "COOPERATIVE")
    assert service.errors() == {}


@BOTH
def test_static_members_whose_new_list_lies_unused_until_it_is_seen(
    shared: Broker,
    members: Members,
    group_id: str,
    topic_name: str,
    *,
    tmp_path: Path,
    capsys: Said,
) -> None:
    service = Rolling(shared, members, group_id, topic_name, software="java-3.9.1")
    file = tmp_path / "plan.yaml"
    log = ["--request-log", str(shared.request_log_path), "--expect-members", "2", "--probe"]

    def plan(*more: str) -> dict[str, Any]:
        return answer(shared, capsys, "plan-upgrade", group_id, *log, *more)

    with service.logged():
        for name in ("s-0", "s-1"):
            service.place(name, RANGE, instance_id=name, session_timeout_ms=30_000)
        service.settle()
        plan("--out", str(file))
        for step in (1, 2):
            for number, name in enumerate(("s-0", "s-1")):
                body = plan()
                assert (body["next_step"], body["exit_code"]) == (step, 0), body["summary"]
                now = body["steps"][step - 1]
                assert len(now["done"]) == number
                assert any("rebalances only if" in line for line in now["order"])
                service.restart(name, now["target_list"])
                told = answer(shared, capsys, "verify", str(file), *log)
                assert (told["step"], told["exit_code"]) == (step, 0 if number else 4), told["why"]
        body = plan()
        assert (body["verdict"], body["exit_code"]) == ("done", 0), body["summary"]
    assert service.errors() == {}
