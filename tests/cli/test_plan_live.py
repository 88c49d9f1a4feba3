"""A plan carried out on a real group: after every restart the plan's word is held to the truth.

On both coordinators: Kafka 4.1.1's, and that of 3.9.1 (Scala).
"""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.kafka.service import answer

pytestmark = pytest.mark.live
OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
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


def kafka_configs(broker: Broker, command: str) -> None:
    """Kafka's own tool, with the words of a plan's command."""
    java = jars.tool("java")
    assert java is not None
    words = shlex.split(command)
    assert words[0] == "kafka-configs.sh"
    classpath = jars.classpath(f"broker-{broker.version}")
    memory = ("-Xmx96m", "-XX:TieredStopAtLevel=1")
    subprocess.run(
        [java, *memory, "-cp", classpath, "kafka.admin.ConfigCommand", *words[1:]],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip


# Kafka's own ConfigCommand, which it runs, is in no jar of a 4.4 broker: it moved to kafka-tools.
@pytest.mark.parametrize("broker", [STORY, "kafka39"], indirect=True)
def test_the_first_restart_is_the_measurement_that_names_the_forgotten_member(
    rollout: Rollout, capsys: Said
) -> None:
    """Nothing is known but the probe; then the log is switched on, as the plan says, for once."""
    renewed, forgotten = "app-0", "app-2"
    rollout.place(forgotten, OLD)
    rollout.begin(APPS[:2], MIXED)
    body = rollout.plan(capsys, "--probe", "--assume-family", "java", "--expect-members", "3")
    first, second = body["steps"]
    # A lone broker before 4.0 may have been killed unnoticed, which makes the probe's no worthless.
    doubtful = rollout.broker.is_scala_coordinator
    assert (body["next_step"], first["exit_code"]) == (1, 0)
    assert second["exit_code"] == (4 if doubtful else 3)
    assert len(first["unknown"]) == 3
    (finding,) = (f for f in body["findings"] if f["rule"] == "RB102")
    assert finding["result"] == ("cannot tell" if doubtful else "yes")
    assert len(finding["members"]) == 3, "that somebody lacks it is known, not who"
    lines = {one["use"]: one["line"] for one in first["commands"]}
    assert "--add-config kafka.request.logger=DEBUG" in lines["request log on"]
    # The coordinator's records hold the members' timeouts, and the probe reads them.
    own = "session timeout 6 s, rebalance timeout up to 300 s (offsets topic)"
    assert own in first["cost"]["text"]
    kafka_configs(rollout.broker, lines["request log on"])
    try:
        rollout.restart(renewed, first["target_list"])
        body = rollout.plan(capsys, "--probe", *rollout.log)
        first, second = body["steps"]
        assert first["unknown"] == []
        assert [*first["to_do"]] == [rollout.running[forgotten].member_id]
        (finding,) = (f for f in body["findings"] if f["rule"] == "RB102")
        assert f"because {forgotten} ([range]) does not support it" in finding["message"]
        assert (finding["result"], finding["before_step"]) == ("yes", 2)
        assert second["exit_code"] == 3
        # The truth: whoever took step 2 for ready would die of it, and app-2 would not.
        rollout.refuses("app-9", FINAL, "InconsistentGroupProtocol")
        rollout.restart(forgotten, first["target_list"])
        body = rollout.plan(capsys, "--probe", *rollout.log)
        assert (body["next_step"], body["exit_code"]) == (2, 0)
        assert body["assignor"] == "cooperative-sticky"
    finally:
        kafka_configs(rollout.broker, lines["request log off"])
    size = rollout.broker.request_log_path.stat().st_size
    rollout.restart(renewed, FINAL)
    assert rollout.broker.request_log_path.stat().st_size == size
    assert rollout.errors() == {}


@LONG
def test_two_bounces_from_end_to_end(rollout: Rollout, capsys: Said) -> None:
    rollout.begin(APPS, OLD)
    with rollout.logged():
        for done, name in enumerate(APPS):
            body = rollout.plan(capsys, *rollout.log)
            assert (body["path"], body["next_step"], body["exit_code"]) == ("two_bounces", 1, 0)
            first, second = body["steps"]
            assert first["target_list"] == MIXED
            assert len(first["done"]) == done
            assert second["exit_code"] in (3, 4)
            # The first restart is also the measurement: from then on every list is known.
            assert len(first["unknown"]) == (3 if done == 0 else 0)
            rollout.restart(name, first["target_list"])
        for done, name in enumerate(APPS):
            body = rollout.plan(capsys, *rollout.log, "--probe")
            assert (body["next_step"], body["exit_code"]) == (2, 0)
            assert body["assignor"] == "cooperative-sticky"
            assert len(body["steps"][1]["done"]) == done
            assert body["from"] == ("EAGER" if done == 0 else "mixed")
            rollout.restart(name, body["steps"][1]["target_list"])
        body = rollout.plan(capsys, *rollout.log)
        assert (body["verdict"], body["next_step"], body["exit_code"]) == ("done", None, 0)
        assert body["from"] == "COOPERATIVE"
        blind = rollout.plan(capsys)
        assert (blind["verdict"], blind["exit_code"]) == ("unproven", 4)
    assert rollout.errors() == {}


@LONG
def test_the_downgrade_works_and_an_eager_only_member_is_rejected(
    rollout: Rollout, capsys: Said
) -> None:
    with rollout.logged():
        rollout.begin(APPS[:2], FINAL, software="java-3.9.1")
        # The trap: an eager-only member, as an automatic rollback starts it.
        rollout.refuses("app-9", OLD, "InconsistentGroupProtocol", software="java-3.9.1")
        back = ("--to", "range")
        for done, name in enumerate(APPS[:2]):
            body = rollout.plan(capsys, *back, *rollout.log)
            assert (body["path"], body["next_step"], body["exit_code"]) == ("two_bounces", 1, 0)
            first = body["steps"][0]
            assert first["target_list"] == ["range", "cooperative-sticky"]
            assert len(first["done"]) == done
            assert any("RB108" in line for line in first["why"])
            rollout.restart(name, first["target_list"])
        for done, name in enumerate(APPS[:2]):
            body = rollout.plan(capsys, *back, *rollout.log, "--probe")
            assert (body["next_step"], body["exit_code"]) == (2, 0), body["summary"]
            second = body["steps"][1]
            assert (second["target_list"], len(second["done"])) == (OLD, done)
            rollout.restart(name, second["target_list"])
        body = rollout.plan(capsys, *back, *rollout.log)
        assert (body["verdict"], body["from"], body["assignor"]) == ("done", "EAGER", "range")
    assert rollout.errors() == {}


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
