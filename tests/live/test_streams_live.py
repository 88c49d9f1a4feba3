"""Kafka Streams on real brokers: what rebal sees of it, and its ways carried out to the end.

The last way is that to the streams protocol (KIP-1071) and back.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from tests.kafka import jars
from tests.kafka.broker import Broker, wait_for
from tests.kafka.members import Member, Members, Rolling, inspect, named
from tests.live_support import wait_state
from tests.live_support.rollout import BOTH_COORDINATORS, LISTS, Plan

PARTITIONS = 6
OLD, NEW, NEWEST = "2.3.1", jars.SCALA, jars.EARLY
Said = pytest.CaptureFixture[str]
Told = dict[str, Any]


def client(name: str) -> str:
    """What the one stream thread of a program calls its consumer."""
    return f"{name}-StreamThread-1-consumer"


def kept_something(member: Member) -> bool:
    """Was it ever given partitions while it still owned some: what only COOPERATIVE does."""
    owned: set[tuple[str, int]] = set()
    for event in member.said("assigned", "revoked", "lost"):
        if event.kind == "assigned" and owned:
            return True
        owned = event.leaves(owned)
    return False


class Group(Rolling):
    """Two instances of one application, restarted one after the other as a plan says."""

    quiet = 0.5

    def run(self, version: str, name: str, settings: dict[str, str] | None = None) -> None:
        """Start an instance on this version, or restart it."""
        if name in self.running:
            self.running[name].stop()
        self.begin([name], [], software=f"streams-{version}", settings=settings)

    def printed(self, version: str) -> tuple[str, str]:
        """The option that gives what the programs of a version have printed."""
        return ("--client-log", str(self._members.streams(version).log_path))

    def bounce(self, version: str, plan: Plan, step: int, *evidence: str) -> Iterator[Told]:
        """Restart both with the text of this step: what verify says after each, which is true."""
        for count, name in enumerate(("a", "b"), 1):
            self.run(version, name, plan.settings(step))
            told = plan.verify(*evidence)
            assert named(told, "yes") == {client(each) for each in ("a", "b")[:count]}, told
            assert told["exit_code"] == (0 if count == 2 else 4), told
            yield told


@pytest.fixture(params=BOTH_COORDINATORS)
def group(
    request: pytest.FixtureRequest, members: Members, group_id: str, topic_name: str
) -> Iterator[Group]:
    broker: Broker = request.getfixturevalue(request.param)
    broker.wait_coordinator(group_id)
    made = Group(broker, members, group_id, topic_name, partitions=PARTITIONS)
    with made.logged():
        yield made


@pytest.mark.story
def test_streams_moves_from_2_3_to_cooperative_in_two_bounces_and_back(
    group: Group, tmp_path: Path, capsys: Said
) -> None:
    log = ("--request-log", str(group.broker.request_log_path))
    for name in ("a", "b"):
        group.run(OLD, name)
    seen = inspect(group.broker, group.group)
    assert (seen["assignor"], seen["rebalance_protocol"]["value"]) == ("stream", "EAGER")
    for member in seen["members"]:
        assert member["software"]["family"] == "streams"
        assert member["software"]["version_range"] == ">= 2.1, < 2.4"

    up = Plan(group.broker, group.group, tmp_path, capsys, name="up", evidence=log)
    body = up.make("--expect-members", "2")
    assert (body["path"], body["next_step"], body["exit_code"]) == ("streams_two_bounces", 1, 0)
    assert LISTS not in up.texts()
    assert up.settings(1) == {"upgrade.from": "2.3"}
    assert up.settings(2) == {}
    assert (up.verify()["step"], up.verify()["exit_code"]) == (1, 4)
    for answer in group.bounce(NEW, up, 1):
        assert named(answer, "no") == {client("a"), client("b")} - named(answer, "yes")
        assert not answer["dangers"], answer["dangers"]
    assert answer["next"].startswith("begin step 2")
    assert up.look()["path"] == "streams_one_bounce", "what is left of it"
    unlogged = inspect(group.broker, group.group)
    assert unlogged["rebalance_protocol"]["value"] == "cannot tell"
    assert "its own log shows that" in unlogged["rebalance_protocol"]["why"]
    assert {m["software"]["version_range"] for m in unlogged["members"]} == {">= 3.4"}

    printed = group.printed(NEW)
    for count, name in enumerate(("a", "b"), 1):
        group.run(NEW, name, up.settings(2))
        # Without the program's own log nothing is called done that is not.
        bare = up.verify("--journal", str(tmp_path / "bare.jsonl"), "--step", "2")
        right = {client(each) for each in ("a", "b")[:count]}
        assert named(bare, "yes") <= right
        assert not named(bare, "no") & right
        # The request log shows what a kept when b went, and nothing of b yet.
        assert count == 1 or named(bare, "yes") == {client("a")}
        answer = up.verify(*printed)
        assert (answer["step"], named(answer, "yes")) == (2, right)
        assert answer["exit_code"] == (0 if count == 2 else 4)
    assert answer["finished"]
    assert up.look()["verdict"] in ("ready", "done"), "one look without the program's log"
    assert up.look(*printed)["verdict"] == "done"
    assert inspect(group.broker, group.group, *log, *printed)["rebalance_protocol"]["value"] == (
        "COOPERATIVE"
    )

    down = Plan(group.broker, group.group, tmp_path, capsys, name="down", evidence=log + printed)
    body = down.make("--to", "eager", "--expect-members", "2")
    assert (body["path"], body["next_step"], body["exit_code"]) == ("streams_down", 1, 0)
    assert down.settings(1) == {"upgrade.from": "2.3"}
    # The plan keeps the programs' own log as its means; an empty one takes its place.
    (tmp_path / "empty.log").write_text("")
    no_log = (*log, "--client-log", str(tmp_path / "empty.log"))
    logged = Plan(group.broker, group.group, tmp_path, capsys, name="down", evidence=no_log)
    cooperative = dict(group.running)
    for count, name in enumerate(("a", "b"), 1):
        group.run(NEW, name, down.settings(1))
        bare = logged.verify("--journal", str(tmp_path / "logged.jsonl"))
        assert named(bare, "yes") == (set() if count == 1 else {client("a")})
        assert bare["exit_code"] == 4
        answer = down.verify()
        assert named(answer, "yes") == {client(each) for each in ("a", "b")[:count]}
        assert answer["exit_code"] == (0 if count == 2 else 4)
    assert down.look("--to", "eager")["verdict"] == "done"
    eager = dict(group.running)
    *_, answer = group.bounce(OLD, down, 2)
    assert answer["finished"]

    # The programs' own events agree with what verify reported.
    assert all(map(kept_something, cooperative.values()))
    assert not any(map(kept_something, eager.values()))
    assert all(member.error is None for member in (*cooperative.values(), *eager.values()))


def test_streams_4_0_and_later_do_not_start_with_upgrade_from_2_3(
    group: Group, tmp_path: Path, capsys: Said
) -> None:
    log = ("--request-log", str(group.broker.request_log_path))
    group.run(NEWEST, "a")
    plan = Plan(group.broker, group.group, tmp_path, capsys, evidence=log)
    body = plan.make()
    assert (body["verdict"], body["from"]) == ("done", "COOPERATIVE"), "4.1.1 knows nothing else"
    down = plan.make("--to", "eager")
    assert (down["path"], down["next_step"], down["exit_code"]) == ("streams_down", 1, 0)
    assert "goes back to 3.9" in down["steps"][0]["title"]
    assert down["steps"][1]["exit_code"] == 3
    blind = Plan(group.broker, group.group, tmp_path, capsys, name="blind")
    assert blind.make("--to", "eager")["exit_code"] == 4, "its bytes do not tell 3.9 from 4.1"

    files = tmp_path / "app.properties"
    files.write_text(
        f"application.id={group.group}\nclient.id=a\nbootstrap.servers=x\nupgrade.from=2.3\n"
    )
    doomed = plan.look("--inventory", str(files))
    assert doomed["exit_code"] == 3
    assert "RB506" in {finding["rule"] for finding in doomed["findings"]}
    old = {"upgrade.from": "2.3"}
    died = group.start("b", [], software=f"streams-{NEWEST}", settings=old)
    error = died.wait_for("error").data
    assert "no longer supported in 4.0" in error["message"]


@pytest.mark.full
def test_streams_4_1_goes_back_to_eager_via_3_9(group: Group, tmp_path: Path, capsys: Said) -> None:
    log = ("--request-log", str(group.broker.request_log_path))
    for name in ("a", "b"):
        group.run(NEWEST, name)
    down = Plan(group.broker, group.group, tmp_path, capsys, evidence=log)
    down.make("--to", "eager", "--expect-members", "2")
    printed = group.printed(NEW)
    for step, version in ((1, NEW), (2, NEW), (3, OLD)):
        *_, answer = group.bounce(version, down, step, *printed)
    assert answer["finished"]


@pytest.mark.full
@pytest.mark.parametrize("upgrade_from", ["", "2.3"])
def test_an_old_streams_leader_assigns_partitions_that_a_cooperative_member_still_owns(
    upgrade_from: str, group: Group, tmp_path: Path, capsys: Said
) -> None:
    """RB505 on real members: two owners at once without upgrade.from, never with it."""
    new = {"revoke.ms": "800", **({"upgrade.from": upgrade_from} if upgrade_from else {})}
    group.run(OLD, "old")
    for name in ("new-0", "new-1"):
        group.run(NEW, name, new)
    printed = group.printed(NEW)
    plan = Plan(group.broker, group.group, tmp_path, capsys, evidence=printed)
    body = plan.look()
    rules = {finding["rule"] for finding in body["findings"]}
    assert ("RB505" in rules, body["exit_code"]) == ((False, 0) if upgrade_from else (True, 3))
    group.run(OLD, "old-1")
    both = owners_at_once(list(group.running.values()))
    assert bool(both) is not bool(upgrade_from), both


def owners_at_once(members: list[Member]) -> set[tuple[str, int]]:
    """Partitions that two members owned at one time, by their own events in the order of time."""
    events = sorted(
        (event for m in members for event in m.said("assigned", "revoked", "lost")),
        key=lambda event: event.t_ms,
    )
    owned: dict[str, set[tuple[str, int]]] = {member.id: set() for member in members}
    twice: set[tuple[str, int]] = set()
    for event in events:
        owned[event.member] = event.leaves(owned[event.member])
        for other, theirs in owned.items():
            if other != event.member:
                twice |= owned[event.member] & theirs
    return twice


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


def test_a_program_moves_to_the_streams_protocol_through_a_stop_and_back(
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

    shown = up.verify()
    assert (shown["step"], shown["exit_code"], named(shown, "no")) == (1, 4, clients("a", "b"))
    program.stop_all()
    assert kind(broker) != ("classic", "Empty"), "Streams sends no leave when it stops"
    program.wait("Empty", 0)
    shown = up.verify()
    assert (shown["exit_code"], shown["advice"]["action"]) == (4, "start")
    assert "the configuration of step 1" in shown["next"]

    change = up.settings(1)
    # One that forgot its new configuration keeps the others out.
    program.run("a")
    program.fails("b", **change)
    shown = up.verify()
    assert (shown["exit_code"], named(shown, "no"), shown["finished"]) == (4, clients("a"), False)
    assert shown["next"].startswith("stop a-StreamThread-1-consumer, check that the group is Empty")
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

    rollback = Plan(broker, GROUP, tmp_path, capsys, name="back")
    body = rollback.make("--to", "classic", "--expect-members", "2", *AGREED)
    summary = (body["path"], body["to"], body["verdict"])
    assert summary == ("kip1071_back", "classic", "ready"), body["summary"]
    program.stop_all()
    program.wait("Empty", 0)
    assert kind(broker) == ("streams", "Empty")
    assert rollback.verify()["advice"]["action"] == "start"
    change = rollback.settings(1)
    program.run("a", "b", **change)
    # An instance may join once more after the group was Stable.
    wait_for("the way back to be carried out", lambda: rollback.verify()["finished"], timeout=30)
    assert rollback.verify()["exit_code"] == 0
    assert kind(broker) == ("classic", "Stable")

    sent = own_requests(broker)
    assert sent, "the request log shows what rebal asks"
    assert not [line for line in sent if any(f'"{each}' in line for each in JOINS)]


def clients(*names: str) -> set[str]:
    return {f"{name}-StreamThread-1-consumer" for name in names}
