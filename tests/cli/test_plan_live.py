"""A plan carried out on a real group: after every restart the plan's word is held to the truth.

On both coordinators: Kafka 4.1.1's, and that of 3.9.1 (Scala).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.kafka.service import answer

pytestmark = pytest.mark.live
OLD = ["range"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")
Said = pytest.CaptureFixture[str]


class Rollout(Rolling):
    """A group of members that are restarted one by one with the lists that the plan names."""

    def plan(self, capsys: Said, *more: str) -> dict[str, Any]:
        return answer(self.broker, capsys, "plan-upgrade", self.group, *more)

    @property
    def log(self) -> list[str]:
        """The options that bring the request log, and how many members there should be."""
        count = str(len(self.running))
        return ["--request-log", str(self.broker.request_log_path), "--expect-members", count]


STORY = pytest.param("kafka41", marks=pytest.mark.story)
# For what takes long: the other coordinator only where every path is driven.
LONG = pytest.mark.parametrize(
    "broker", [STORY, pytest.param("kafka39", marks=pytest.mark.full)], indirect=True
)
BOTH = pytest.mark.parametrize("broker", [STORY, "kafka39", "newest"], indirect=True)


@pytest.fixture(params=jars.ENDS)
def broker(request: pytest.FixtureRequest) -> Broker:
    """The shared broker of each kind."""
    shared: Broker = request.getfixturevalue(request.param)
    return shared


@pytest.fixture
def rollout(broker: Broker, members: Members, group_id: str, topic_name: str) -> Rollout:
    return Rollout(broker, members, group_id, topic_name, software="java-2.8.2")


@BOTH
def test_a_probe_opens_the_one_bounce_path(rollout: Rollout, capsys: Said) -> None:
    default = ["range", "cooperative-sticky"]
    rollout.begin(APPS[:2], default, software="java-4.1.1")
    body = rollout.plan(capsys, "--probe", "--assume-family", "java")
    assert (body["path"], body["next_step"], body["exit_code"]) == ("one_bounce", 1, 0)
    for name in APPS[:2]:
        rollout.restart(name, body["steps"][0]["target_list"])
    assert rollout.errors() == {}


@LONG
def test_librdkafka_members_alone_are_cut_over(rollout: Rollout, capsys: Said) -> None:
    with rollout.logged():
        rollout.begin(APPS[:2], OLD, software="confluent-kafka")
        body = rollout.plan(capsys, *rollout.log)
        assert (body["path"], body["verdict"], body["exit_code"]) == ("cut_over", "blocked", 3)
        (step,) = body["steps"]
        target = step["target_list"]
        rollout.refuses("app-9", target, "INCONSISTENT", software="confluent-kafka")
        rollout.stop("app-0")
        rollout.settle()
        body = rollout.plan(capsys, *rollout.log)
        assert body["exit_code"] == 3, "the other one is still there with the old list"
        rollout.stop("app-1")
        rollout.begin(APPS[:2], target, software="confluent-kafka")
        body = rollout.plan(capsys, *rollout.log)
        assert (body["verdict"], body["from"]) == ("done", "COOPERATIVE")
    assert rollout.errors() == {}


def test_librdkafka_members_are_known_by_their_bytes(rollout: Rollout, capsys: Said) -> None:
    rollout.begin(["app-0"], OLD, software="confluent-kafka")
    said = rollout.plan(capsys)
    assert (said["path"], said["verdict"], said["exit_code"]) == ("cut_over", "blocked", 3)
    # On the target already: a client that refuses a mixed list has none.
    rollout.stop("app-0")
    rollout.begin(["app-0"], FINAL, software="confluent-kafka")
    said = rollout.plan(capsys)
    assert (said["verdict"], said["exit_code"]) == ("done", 0)
