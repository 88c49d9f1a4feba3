"""Kafka Streams to the streams protocol (KIP-1071) and back, on real brokers and members."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.processes import wait_for
from tests.kafka.rolling import Rolling
from tests.kafka.service import inspect, named
from tests.live_support import wait_state
from tests.live_support.rollout import Plan

Said = pytest.CaptureFixture[str]
GROUP, TOPIC = "totals", "orders"
AGREED = ("--ignore", "RB413", "--reason", "night shift agrees")
JOINS = ("JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "HEARTBEAT", "OFFSET_COMMIT", "ALTER")


class Program(Rolling):
    """Two instances of one application, which a plan stops and starts."""

    def run(self, *names: str, **settings: str) -> None:
        """Start instances, and wait until as many members as run are Stable."""
        self.begin(names, [], settings=settings)

    def settle(self) -> None:
        self.wait("Stable", len(self.running))

    def wait(self, state: str, members: int) -> None:
        wait_state(self.broker, self.group, state, members)

    def fails(self, name: str, **settings: str) -> None:
        """An instance that starts beside the others stops with an error."""
        member = self.start(name, [], settings=settings)

        def failed() -> bool:
            return any(event.data["state"] == "ERROR" for event in member.said("state"))

        wait_for(f"{name} to fail", failed, timeout=30)
        member.stop()

    def stop_all(self) -> None:
        for name in list(self.running):
            self.stop(name)


@pytest.fixture(params=[jars.NEWEST, pytest.param("4.3.1", marks=pytest.mark.full)])
def program(request: pytest.FixtureRequest, members: Members) -> Iterator[Program]:
    settings = {"group.streams.initial.rebalance.delay.ms": "0"}
    with Broker(request.param, secure=False, settings=settings) as broker:
        made = Program(broker, members, GROUP, TOPIC, software=f"streams-{jars.NEWEST}")
        broker.produce(TOPIC, {0: 3})
        broker.wait_coordinator(GROUP)
        with made.logged():
            yield made
        made.stop_all()


def kind(broker: Broker) -> tuple[str, str]:
    seen = inspect(broker, GROUP)
    return seen["type"], seen["state"]


def kept(broker: Broker) -> dict[str, str]:
    """The group's own configuration, as the broker keeps it."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        (answer,) = admin.describe_configs([ConfigResource("GROUP", GROUP)])["group"].values()
    finally:
        admin.close()
    own = {name: one for name, one in answer.items() if "DYNAMIC_GROUP" in one["config_source"]}
    return {name: one["value"] for name, one in own.items()}


def own_requests(broker: Broker) -> list[str]:
    """The lines of the request log on what rebal itself sent."""
    lines = broker.request_log_path.read_text().splitlines()
    return [line for line in lines if '"clientId":"rebal"' in line]


def test_a_program_moves_to_the_streams_protocol_over_a_stop_and_back(
    program: Program, tmp_path: Path, capsys: Said
) -> None:
    broker = program.broker
    log = ("--request-log", str(broker.request_log_path))
    program.run("a", "b")
    assert kind(broker) == ("classic", "Stable")

    blind = Plan(broker, GROUP, tmp_path, capsys, name="blind")
    unproven = blind.look("--to", "streams", *AGREED)
    assert unproven["exit_code"] == 4
    assert "RB509" in unproven["summary"], "its bytes do not show the version"

    up = Plan(broker, GROUP, tmp_path, capsys, name="up", evidence=log)
    asked = up.look("--to", "streams", "--expect-members", "2")
    assert (asked["path"], asked["exit_code"]) == ("kip1071", 3)
    assert {one["rule"] for one in asked["findings"]} == {"RB413", "RB510"}
    body = up.make("--to", "streams", "--expect-members", "2", *AGREED)
    assert (body["to"], body["verdict"]) == ("KIP-1071", "ready")
    assert body["advice"]["action"] == "cut-over"
    assert up.settings(1) == {"group.protocol": "streams"}

    added = [one["line"].partition("--add-config ")[2] for one in body["steps"][0]["commands"]]
    own = dict(each.split("=") for each in added if each)
    broker.set_group(GROUP, own)
    assert kept(broker) == own, "the broker takes what the plan prints"

    told = up.verify()
    assert (told["step"], told["exit_code"], named(told, "no")) == (1, 4, clients("a", "b"))
    program.stop_all()
    assert kind(broker) != ("classic", "Empty"), "Streams sends no leave when it stops"
    program.wait("Empty", 0)
    told = up.verify()
    assert (told["exit_code"], told["advice"]["action"]) == (4, "start")
    assert "the configuration of step 1" in told["next"]

    change = up.settings(1)
    # One that forgot its new configuration keeps the others out.
    program.run("a")
    program.fails("b", **change)
    told = up.verify()
    assert (told["exit_code"], named(told, "no"), told["finished"]) == (4, clients("a"), False)
    assert told["next"].startswith("stop a-StreamThread-1-consumer, check that the group is Empty")
    program.stop_all()
    program.wait("Empty", 0)

    program.run("a", **change)
    assert kind(broker) == ("streams", "Stable")
    half = up.verify()
    assert (half["exit_code"], named(half, "yes")) == (4, clients("a"))
    assert "with group.protocol=streams" in half["next"]
    program.run("b", **change)
    done = up.verify()
    assert (done["finished"], done["exit_code"]) == (True, 0)
    assert named(done, "yes") == clients("a", "b")
    assert up.look("--to", "streams")["verdict"] == "done"
    program.fails("late")

    back = Plan(broker, GROUP, tmp_path, capsys, name="back")
    body = back.make("--to", "classic", "--expect-members", "2", *AGREED)
    said = (body["path"], body["to"], body["verdict"])
    assert said == ("kip1071_back", "classic", "ready"), body["summary"]
    program.stop_all()
    program.wait("Empty", 0)
    assert kind(broker) == ("streams", "Empty")
    assert back.verify()["advice"]["action"] == "start"
    change = back.settings(1)
    program.run("a", "b", **change)
    # An instance may join once more after the group was Stable.
    wait_for("the way back to be carried out", lambda: back.verify()["finished"], timeout=30)
    assert back.verify()["exit_code"] == 0
    assert kind(broker) == ("classic", "Stable")

    sent = own_requests(broker)
    assert sent, "the request log shows what rebal asks"
    assert not [line for line in sent if any(f'"{each}' in line for each in JOINS)]


def clients(*names: str) -> set[str]:
    return {f"{name}-StreamThread-1-consumer" for name in names}
