"""Ways that are not two bounces of one family, carried out on real groups as the plan says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.processes import wait_for
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
    names = ("app-0", "app-1", "app-2")
    service = Rolling(broker, members, group_id, topic_name, software="java-3.9.1")
    early, late = tmp_path / "early.yaml", tmp_path / "late.yaml"
    log = ("--probe", "--request-log", str(broker.request_log_path))

    def plan(file: Path) -> dict[str, Any]:
        more = (*log, "--expect-members", "3", "--out", str(file))
        return answer(broker, capsys, "plan-upgrade", group_id, *more)

    def verify(file: Path) -> dict[str, Any]:
        return answer(broker, capsys, "verify", str(file), *log)

    for name in names:
        service.place(name, default, instance_id=name, session_timeout_ms=60_000)
    service.settle()
    body = plan(early)
    assert (body["path"], body["exit_code"]) == ("one_bounce", 0)
    assert [step["target_list"] for step in body["steps"]] == [final]
    before = {member.member_id for member in service.running.values()}

    broker.restart()
    service.settle()
    # The plan of before the restart is held back, and the new one begins with the refresh.
    told = verify(early)
    assert {member["member_id"] for member in told["members"]} == before, "nobody rejoined"
    assert told["exit_code"] == 3
    assert [f["rule"] for f in told["findings"] if f["severity"] == "block"] == ["RB113"]
    body = plan(late)
    assert (body["next_step"], body["exit_code"]) == (1, 0), body["summary"]
    assert [step["target_list"] for step in body["steps"]] == [[], final]
    assert verify(late)["exit_code"] == 4

    # Without the refresh: refused and dead, though every member's list holds both.
    service.running["app-0"].stop()
    hasty = service.start("app-0", final, instance_id="app-0", session_timeout_ms=60_000)
    hasty.wait_for("error")
    assert "InconsistentGroupProtocol" in str(hasty.error)
    service.restart("app-0", default)
    # That static restart shows only itself: the coordinator still knows nothing of the others.
    assert verify(late)["gate"] != "yes"

    # With it: nobody dies.
    service.running["app-1"].rebalance()
    wait_for(
        "the refresh step's gate",
        lambda: (seen := verify(late))["step"] == 1 and seen["gate"] == "yes",
        timeout=30,
    )
    for name in names:
        service.restart(name, final)
    assert service.errors() == {}
    told = verify(late)
    assert (told["step"], told["gate"]) == (2, "yes")
    # The hasty one's refusal is not a minute old; nobody else was refused.
    assert [danger["kind"] for danger in told["dangers"]] == ["rejected"]
    assert told["notes"] == []
