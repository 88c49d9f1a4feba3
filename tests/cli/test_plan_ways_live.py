"""Ways that are not two bounces of one family, carried out on real groups as the plan says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import app
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned
from tests.kafka.processes import wait_for

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


def verify(broker: Broker, capsys: Said, file: Path, *more: str) -> dict[str, Any]:
    """What verify says of the plan in `file`, with a journal beside it."""
    code = app.run(["verify", str(file), "-b", broker.bootstrap, "-o", "json", *more])
    told = capsys.readouterr()
    assert told.out, told.err
    body: dict[str, Any] = json.loads(told.out)
    assert body["exit_code"] == code
    return body


def settle(broker: Broker, group: str, running: list[Member]) -> None:
    wait_assigned(running, PARTITIONS)
    broker.wait_stable(group, len(running))


# Both coordinators: that of 3.9.1 (Scala) only where every path is driven.
BOTH = pytest.mark.parametrize(
    "shared", ["kafka41", pytest.param("kafka39", marks=pytest.mark.full)], indirect=True
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
    shared.create_topic(topic_name, PARTITIONS)
    log = ["--request-log", str(shared.request_log_path), "--expect-members", "3", "--probe"]

    def start(software: str, name: str, names: list[str]) -> Member:
        return members.start(software, shared, name, group_id, topics=[topic_name], assignors=names)

    shared.log_requests(True)
    try:
        java = [start("java-2.8.2", f"j-{n}", ["range"]) for n in range(2)]
        other = start("confluent-kafka", "rd-0", ["range"])
        settle(shared, group_id, [*java, other])
        for number in range(2):
            body = plan(shared, capsys, group_id, *log)
            assert (body["path"], body["next_step"], body["exit_code"]) == ("mixed_families", 1, 0)
            java[number].stop()
            java[number] = start("java-2.8.2", f"j-{number}", body["steps"][0]["target_list"])
            settle(shared, group_id, [*java, other])
        body = plan(shared, capsys, group_id, *log)
        assert (body["path"], body["next_step"], body["exit_code"]) == ("mixed_families", 2, 0)
        other.stop()
        settle(shared, group_id, java)
        away = plan(shared, capsys, group_id, *log)
        assert away["exit_code"] == 3, "a member is away: nobody may drop range yet"
        other = start("confluent-kafka", "rd-0", body["steps"][1]["target_list"])
        settle(shared, group_id, [*java, other])
        for number in range(2):
            body = plan(shared, capsys, group_id, *log)
            assert (body["next_step"], body["exit_code"]) == (2, 0), body["summary"]
            java[number].stop()
            java[number] = start("java-2.8.2", f"j-{number}", body["steps"][1]["target_list"])
            settle(shared, group_id, [*java, other])
        body = plan(shared, capsys, group_id, *log)
        assert (body["verdict"], body["from"]) == ("done", "COOPERATIVE")
    finally:
        shared.log_requests(False)
    assert all(member.error is None for member in [*java, other])


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
    shared.create_topic(topic_name, PARTITIONS)
    log = ["--request-log", str(shared.request_log_path), "--expect-members", "2", "--probe"]

    def start(number: int, names: list[str]) -> Member:
        return members.start(
            "java-3.9.1", shared, f"s-{number}", group_id, topics=[topic_name],
            assignors=names, instance_id=f"i-{number}", session_timeout_ms=30_000,
        )  # fmt: skip

    shared.log_requests(True)
    try:
        running = [start(number, ["range"]) for number in range(2)]
        settle(shared, group_id, running)
        file = tmp_path / "plan.yaml"
        plan(shared, capsys, group_id, *log, "--out", str(file))
        for step in (1, 2):
            for number in range(2):
                body = plan(shared, capsys, group_id, *log)
                assert (body["next_step"], body["exit_code"]) == (step, 0), body["summary"]
                now = body["steps"][step - 1]
                assert len(now["done"]) == number
                assert any("causes no rebalance" in line for line in now["order"])
                running[number].stop()
                running[number] = start(number, now["target_list"])
                settle(shared, group_id, running)
                told = verify(shared, capsys, file, *log)
                assert (told["step"], told["exit_code"]) == (step, 0 if number else 4), told["why"]
        body = plan(shared, capsys, group_id, *log)
        assert (body["verdict"], body["exit_code"]) == ("done", 0), body["summary"]
    finally:
        shared.log_requests(False)
    assert all(member.error is None for member in running)


@pytest.fixture(params=["4.1.1", "3.9.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of its own, of either coordinator: it is restarted here."""
    with Broker(request.param, secure=False, request_log=True) as own:
        yield own


@pytest.mark.full
def test_a_broker_restart_kills_who_leaves_the_refresh_out_and_nobody_who_follows_the_plan(
    broker: Broker,
    members: Members,
    group_id: str,
    topic_name: str,
    *,
    tmp_path: Path,
    capsys: Said,
) -> None:
    """Java's default list, one bounce, and the broker restarts in the middle of it.

    The members are static with sessions that outlive the restart, so none joins again by itself.
    They are of 3.9.1: a 4.x client that loses its only broker starts over from its bootstrap list
    (KIP-899), finds its topics gone for a moment and may rejoin, which refreshes the lists or not.
    """
    default, final = ["range", "cooperative-sticky"], ["cooperative-sticky"]
    broker.create_topic(topic_name, PARTITIONS)

    def start(number: int, names: list[str]) -> Member:
        return members.start(
            "java-3.9.1", broker, f"app-{number}", group_id, topics=[topic_name],
            assignors=names, session_timeout_ms=60_000, instance_id=f"app-{number}",
        )  # fmt: skip

    log = ("--probe", "--request-log", str(broker.request_log_path))
    more = (*log, "--expect-members", "3")
    running = [start(number, default) for number in range(3)]
    settle(broker, group_id, running)
    early = tmp_path / "early.yaml"
    body = plan(broker, capsys, group_id, *more, "--out", str(early))
    assert (body["path"], body["exit_code"]) == ("one_bounce", 0)
    assert [step["target_list"] for step in body["steps"]] == [final]
    before = {member.member_id for member in running}

    broker.restart()
    settle(broker, group_id, running)
    # The plan of before the restart is held back, and the new one begins with the refresh.
    told = verify(broker, capsys, early, *log)
    assert {member["member_id"] for member in told["members"]} == before, "nobody rejoined"
    assert told["exit_code"] == 3
    assert [f["rule"] for f in told["findings"] if f["severity"] == "block"] == ["RB113"]
    late = tmp_path / "late.yaml"
    body = plan(broker, capsys, group_id, *more, "--out", str(late))
    assert (body["next_step"], body["exit_code"]) == (1, 0), body["summary"]
    assert [step["target_list"] for step in body["steps"]] == [[], final]
    assert any("enforceRebalance()" in line for line in body["steps"][0]["order"])
    assert verify(broker, capsys, late, *log)["exit_code"] == 4

    # Without the refresh: refused and dead, though every member's list holds both.
    running[0].stop()
    hasty = start(0, final)
    hasty.wait_for("error")
    assert "InconsistentGroupProtocol" in str(hasty.error)
    running[0] = start(0, default)
    settle(broker, group_id, running)
    # That static restart shows only itself: the coordinator still knows nothing of the others.
    assert verify(broker, capsys, late, *log)["gate"] != "yes"

    # With it: nobody dies.
    running[1].rebalance()
    wait_for(
        "the refresh step's gate",
        lambda: (seen := verify(broker, capsys, late, *log))["step"] == 1 and seen["gate"] == "yes",
        timeout=30,
    )
    for number in range(3):
        running[number].stop()
        running[number] = start(number, final)
        settle(broker, group_id, running)
    assert all(member.error is None for member in running)
    told = verify(broker, capsys, late, *log)
    assert (told["step"], told["gate"]) == (2, "yes")
    # The hasty one's refusal is not a minute old; nobody else was refused.
    assert [danger["kind"] for danger in told["dangers"]] == ["refused"]
    assert told["notes"] == ["joins refused since the plan was made: 1"]
