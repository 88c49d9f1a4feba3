"""Whole roll-outs by what rebal prints, for three teams: with the broker's request log, with client
logs, and with nothing but the probe and their configuration files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned
from tests.kafka.stage import inspect
from tests.live_support.team import Pod, Team

TARGET = "cooperative-sticky"
SMALL = (Pod("app-0", "java-3.9.1"), Pod("app-1", "java-4.1.1", static=True))
Make = Callable[..., Team]


@pytest.fixture
def make(
    kafka41: Broker,
    members: Members,
    group_id: str,
    topic_name: str,
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Make:
    def team(pods: Sequence[Pod], begins: Sequence[str], **more: Any) -> Team:
        return Team(
            kafka41, members, group_id, topic_name, pods=pods, begins=begins,
            folder=tmp_path, capsys=capsys, **more,
        )  # fmt: skip

    return team


def evidence(user: str, team: Team) -> tuple[str, ...]:
    """What this team can give."""
    if user == "request log":
        return "--request-log", str(team.broker.request_log_path)
    if user == "client logs":
        return "--probe", "--client-log", str(team.logs)
    return "--probe", "--inventory", str(team.files)


def roll_out(team: Team, user: str, goal: str, *more: str) -> dict[str, Any]:
    team.broker.log_requests(user == "request log")
    try:
        body = team.roll_out(goal, *evidence(user, team), *more)
    finally:
        team.broker.log_requests(False)
    assert body["finished"], team.report(body)
    return body


def ended(team: Team, user: str, body: dict[str, Any], final: str) -> None:
    """The end is true, and says how it is known."""
    assert team.lists() == {name: [final] for name in team.pods}
    if user == "inventory":
        assert body["unverified"]
        assert body["next"].endswith(f"({', '.join(body['unverified'])})"), body["next"]
        assert set(team.confirmed) >= {m["member_id"] for m in body["members"] if m["vouched"]}
    else:
        assert (body["unverified"], team.confirmed) == ([], []), team.report(body)
        assert body["next"] == "the plan is carried out"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("user", ["request log", "client logs", "inventory"])
def test_two_bounces_with_a_forgotten_member(user: str, make: Make) -> None:
    team = make(SMALL, ["range"], forgets="app-1")
    body = roll_out(team, user, "cooperative")
    ended(team, user, body, TARGET)
    forgotten = team.told.index("forgot app-1")
    assert "restart app-1" in team.told[forgotten + 1], "it is asked for again"
    assert "nothing is confirmed: app-1: not restarted since the step began" in team.refused


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", ["41", "39"])
def test_a_static_restart_shows_what_the_new_process_sent(
    version: str,
    request: pytest.FixtureRequest,
    members: Members,
    group_id: str,
    topic_name: str,
) -> None:
    """Owned partitions under a new member id are never those of the process before it.

    So a list of owned partitions proves COOPERATIVE of the process that runs now.
    """
    broker: Broker = request.getfixturevalue(f"kafka{version}")
    topic = broker.create_topic(topic_name, 6)

    def start(name: str, names: Sequence[str]) -> Member:
        return members.start(
            "java-2.8.2", broker, name, group_id, topics=[topic], assignors=names,
            instance_id=name, session_timeout_ms=20_000,
        )  # fmt: skip

    def owned() -> dict[str, int]:
        found = inspect(broker, group_id)["members"]
        sent = {one["client_id"]: one["subscription"]["owned_partitions"] for one in found}
        return {name: sum(len(each["partitions"]) for each in own) for name, own in sent.items()}

    first = start("a", [TARGET])
    wait_assigned([first], 6)
    second = start("b", [TARGET])
    wait_assigned([first, second], 6)
    broker.wait_stable(group_id, 2)
    assert owned()["a"] > 0
    first.stop()
    again = start("a", [TARGET, "range"])
    again.wait_for("assigned")
    broker.wait_stable(group_id, 2)
    assert owned()["a"] == 0


MATRIX = {
    "2.8": [Pod(f"app-{n}", "java-2.8.2", static=n == 1) for n in range(3)],
    "3.9": [Pod(f"app-{n}", "java-3.9.1", static=True) for n in range(3)],
    "4.1": [Pod(f"app-{n}", "java-4.1.1") for n in range(3)],
    "mixed": [
        Pod("app-0", "java-2.8.2"),
        Pod("app-1", "java-3.9.1", static=True),
        Pod("app-2", "java-4.1.1"),
    ],
}


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.parametrize("user", ["request log", "client logs", "inventory"])
@pytest.mark.parametrize("pods", MATRIX)
def test_two_bounces(user: str, pods: str, make: Make) -> None:
    team = make(MATRIX[pods], ["range"], forgets="app-2")
    body = roll_out(team, user, "cooperative", "--assume-family", "java")
    ended(team, user, body, TARGET)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(SMALL, marks=pytest.mark.story, id="two"),
        *(pytest.param(pods, marks=pytest.mark.full, id=name) for name, pods in MATRIX.items()),
    ],
)
def test_the_downgrade_without_any_log_ends_by_word(pods: Sequence[Pod], make: Make) -> None:
    team = make(pods, [TARGET], forgets="app-2")
    body = roll_out(team, "inventory", "range", "--assume-family", "java")
    ended(team, "inventory", body, "range")


@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_default_of_java_3_needs_one_bounce(make: Make) -> None:
    team = make(MATRIX["4.1"], ["range", TARGET], forgets="app-2")
    body = roll_out(team, "inventory", "cooperative")
    ended(team, "inventory", body, TARGET)
