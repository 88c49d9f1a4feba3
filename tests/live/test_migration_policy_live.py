"""A migration policy that is disabled half-way to KIP-848, and KIP-848 groups that are full.

With group.consumer.migration.policy=disabled, brokers 4.2.2, 4.3.1 and 4.4.0 reject every classic
join to a KIP-848 group, those of its own members too (KAFKA-20640). Since 4.4.0 a static member
returns to a full KIP-848 group (KAFKA-20601).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.live_support.rollout import GroupOn, PlannedGroup
from tests.live_support.services import settings_of

OLDER: Final = tuple(
    pytest.param(each, marks=pytest.mark.full) for each in jars.RARE_BROKER_VERSIONS
)
POLICY: Final = "group.consumer.migration.policy"
FINAL: Final = ["cooperative-sticky"]
TEAM: Final = ("java-1", "java-2", "java-3")


@pytest.fixture(params=[jars.NEWEST, *OLDER])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(request.param, secure=False, request_log=True) as started:
        yield started


@pytest.fixture
def team(broker: Broker, group_on: GroupOn, group_id: str) -> PlannedGroup:
    """Java members, and a plan whose evidence is the request log."""
    broker.wait_coordinator(group_id)
    made: PlannedGroup = group_on(broker, software=f"java-{jars.NEWEST}")
    made.evidence = made.logs()
    return made


def move(team: PlannedGroup, name: str, step: dict[str, Any], **options: Any) -> None:
    """Restart a member with the configuration text of the plan's step."""
    if name in team.running:
        team.running[name].stop()
    settings = settings_of(step, name)
    team.place(name, [], settings=settings, protocol=settings["group.protocol"], **options)
    team.settle()


def blocking(body: dict[str, Any]) -> str:
    """The messages and fixes of the findings that stop the roll-out."""
    found = [each for each in body["findings"] if each["severity"] == "block"]
    return " ".join(f"{each['rule']} {each['message']} {each['fix']}" for each in found)


def test_under_a_disabled_policy_only_members_that_it_has_ended_start_and_only_a_stop_leads_back(
    broker: Broker, team: PlannedGroup
) -> None:
    team.begin(TEAM, FINAL)
    plan = team.make("--to", "consumer")
    assert (plan["path"], plan["exit_code"]) == ("kip848_online", 0), plan["summary"]
    (step,) = plan["steps"]
    move(team, "java-1", step)
    assert team.verify()["advice"]["names"] == ["java-2"]
    broker.restart_with({POLICY: "disabled"})
    team.settle()
    stopped = team.verify()
    assert (stopped["exit_code"], stopped["advice"]["action"]) == (3, "stop"), stopped["next"]
    assert f"{POLICY} is disabled" in blocking(stopped)
    assert f"{POLICY}=bidirectional" in blocking(stopped)
    again = team.look("--to", "consumer")
    assert (again["path"], again["exit_code"]) == ("kip848_online", 3)
    assert team.errors() == {}
    # Somebody stops one all the same: the rebalance ends the classic member that stays.
    team.stop("java-3")
    ended = team.running.pop("java-2")
    assert "InconsistentGroupProtocolException" in str(ended.wait_for("error").data)
    assert "the group migration is disabled" in broker.coordinator_log()
    ended.stop()
    broker.wait_stable(team.group, 1)
    for name in ("java-2", "java-3"):
        told = team.verify()
        said = (told["advice"]["action"], told["advice"]["verdict"])
        assert said == ("start", "yes"), told["next"]
        assert told["advice"]["change"].startswith("group.protocol=consumer and without ")
        assert name in told["advice"]["names"]
        assert told["exit_code"] in (3, 4)
        move(team, name, step)
    done = team.verify()
    assert (done["exit_code"], done["finished"]) == (0, True), done["next"]
    assert team.errors() == {}

    back = team.look("--to", "cooperative-sticky")
    assert (back["path"], back["exit_code"]) == ("kip848_back_offline", 3)
    rejects = "these brokers reject every classic join to a KIP-848 group"
    assert rejects in back["steps"][0]["why"][0]
    team.refuses("java-4", FINAL, "incompatible with those of existing members")


@pytest.mark.parametrize("broker", [jars.NEWEST], indirect=True)
def test_static_members_move_to_a_full_kip848_group_and_no_static_one_restarts_in_a_classic_one(
    broker: Broker, team: PlannedGroup
) -> None:
    broker.restart_with({"group.consumer.max.size": "2", "group.max.size": "2"})
    names = TEAM[:2]
    for name in names:
        team.place(name, FINAL, instance_id=name, session_timeout_ms=30_000)
    team.settle()
    plan = team.make("--to", "consumer", "--restart-seconds", "2")
    assert (plan["path"], plan["exit_code"]) == ("kip848_online", 0), plan["summary"]
    (step,) = plan["steps"]
    for name in names:
        assert team.verify()["advice"]["names"] == [name]
        move(team, name, step, instance_id=name)
    done = team.verify()
    assert (done["exit_code"], done["finished"]) == (0, True), done["next"]
    # A restart within its session, under the new protocol.
    move(team, "java-1", step, instance_id="java-1")
    for name in names:
        team.stop(name)

    team.group = f"{team.group}-classic"
    for name in names:
        team.place(name, FINAL, instance_id=name, session_timeout_ms=30_000)
    team.settle()
    team.running["java-1"].stop()
    again = team.start("java-1", FINAL, instance_id="java-1", session_timeout_ms=30_000)
    assert "GroupMaxSizeReachedException" in str(again.wait_for("error").data)
