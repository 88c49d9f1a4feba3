"""To KIP-848 over a stop, and what shuts the way online or half-way, on real brokers.

After every restart the plan's word is held to what the broker does to whoever joins. With
group.consumer.migration.policy=disabled, brokers 4.2.2, 4.3.1 and 4.4.0 reject every classic join
to a KIP-848 group, those of its own members too (KAFKA-20640). Since 4.4.0 a static member returns
to a full KIP-848 group (KAFKA-20601).
"""

import shlex
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.kafka import jars
from tests.kafka.broker import Broker, wait_for
from tests.live_support.rollout import PARTITIONS, GroupOn, PlannedGroup, settings_of

RANGE = ["range"]
APPS = ("java-0", "java-1")
FAMILY = ("--to", "consumer", "--assume-family", "java")
FINAL = ["cooperative-sticky"]
TEAM = ("java-1", "java-2", "java-3")
POLICY = "group.consumer.migration.policy"
NEW = [
    (jars.NEWEST, {}),
    *(pytest.param((each, {}), marks=pytest.mark.full) for each in jars.RARE_BROKER_VERSIONS),
]


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of its own of this version with these settings."""
    version, settings = request.param
    with Broker(version, secure=False, settings=settings, request_log=True) as started:
        yield started


@pytest.fixture
def team(broker: Broker, group_on: GroupOn, group_id: str) -> PlannedGroup:
    """Java members, which read the configuration text of a plan's step."""
    broker.wait_coordinator(group_id)
    made: PlannedGroup = group_on(broker, software="java-4.1.1")
    return made


def moved(body: dict[str, Any]) -> dict[str, Any]:
    """The options of a member that is started with the text of the plan's step."""
    settings = settings_of(body["steps"][0], APPS[0])
    return {"settings": settings, "protocol": settings["group.protocol"]}


def rules(body: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in body["findings"]}


def agree(team: PlannedGroup) -> None:
    """Record the interruption with the command that the plan prints; verify prints it too."""
    asked = team.file.with_name("asked.yaml")
    shutil.copy(team.file, asked)
    told = team.ask("verify", str(asked))
    assert (told["exit_code"], told["advice"]["action"]) == (3, "stop")
    assert told["advice"]["text"] == team.body["advice"]["text"]
    assert "--ignore RB413" in told["advice"]["command"]
    _, *words = shlex.split(team.body["advice"]["command"])
    agreed = team.ask(*words)
    assert (agreed["exit_code"], agreed["advice"]["action"]) == (0, "cut-over")
    told = team.verify()
    assert (told["exit_code"], told["advice"]["action"]) == (4, "cut-over")


def wait_committed(team: PlannedGroup, offset: int) -> None:
    def committed() -> list[int]:
        asked = [ConsumerGroupTopicPartitions(team.group)]
        (future,) = team.broker.admin().list_consumer_group_offsets(asked).values()
        return [each.offset for each in future.result(10).topic_partitions]

    everywhere = [offset] * PARTITIONS
    wait_for(f"offset {offset} everywhere", lambda: committed() == everywhere, timeout=15)


def consumed(team: PlannedGroup, *names: str) -> int:
    """How many records these have read by their end, which is now."""
    stopped = [team.running[name] for name in names]
    for name in names:
        team.stop(name)
    assert [member.error for member in stopped] == [None] * len(stopped)
    return sum(int(member.wait_for("closed").data["records"]) for member in stopped)


@pytest.mark.parametrize("broker", [(jars.EARLY, {POLICY: "disabled"})], indirect=True)
def test_a_group_moves_to_kip_848_through_a_full_stop_if_the_policy_forbids_online_upgrade(
    broker: Broker, team: PlannedGroup
) -> None:
    team.evidence = team.logs()
    up = ("--to", "consumer", "--expect-members", "2")
    broker.produce(team.topic, dict.fromkeys(range(PARTITIONS), 5))
    team.begin(APPS, RANGE)
    wait_committed(team, 5)

    # While a classic member is there, the gate does not hold and a new member is rejected.
    body = team.make(*up)
    assert (body["path"], body["verdict"], body["exit_code"]) == ("kip848_offline", "blocked", 3)
    assert not {"RB401", "RB402", "RB403"} & rules(body)
    agree(team)
    (step,) = body["steps"]
    assert f"{POLICY} is disabled" in step["why"][0]
    # Killed members count for their session (6 s), then they start (30 s), and the other waits for
    # what the first has for 300 s at most, from its heartbeat on (every 3 s) that tells it so.
    assert 6 + 30 + 300 - 3 <= step["cost"]["worst_seconds"] <= 6 + 30 + 300
    new = moved(body)
    assert new["settings"]["group.remote.assignor"] == "range"
    read = 0
    for name in APPS:
        team.settle()
        body = team.look(*up)
        assert (body["path"], body["exit_code"]) == ("kip848_offline", 3)
        team.refuses("java-9", [], "online upgrade is disabled", **new)
        assert team.verify()["exit_code"] == 4
        read += consumed(team, name)
    assert read == 5 * PARTITIONS
    body = team.look(*up)
    assert (body["path"], body["verdict"], body["exit_code"]) == ("kip848_offline", "ready", 0)
    assert team.verify()["exit_code"] == 4
    broker.produce(team.topic, dict.fromkeys(range(PARTITIONS), 2))
    for name, verdict, code, gate in ((APPS[0], "blocked", 3, 4), (APPS[1], "done", 0, 0)):
        team.begin([name], [], **new)
        body = team.look(*up)
        assert (body["verdict"], body["exit_code"]) == (verdict, code), body["summary"]
        assert body["assignor"] == "range"
        assert team.verify()["exit_code"] == gate
    wait_committed(team, 7)
    read = consumed(team, *APPS)
    assert read == 2 * PARTITIONS, "nothing is read twice, and nothing is left out"


@pytest.mark.parametrize("broker", [(jars.EARLY, {"group.consumer.max.size": "2"})], indirect=True)
def test_a_full_group_moves_to_kip_848_and_a_too_large_one_is_blocked(team: PlannedGroup) -> None:
    full = "maximum capacity of 2 members"
    team.begin(APPS, RANGE)
    body = team.look(*FAMILY)
    assert (body["path"], body["exit_code"]) == ("kip848_online", 4)
    assert {f["result"] for f in body["findings"] if f["rule"] == "RB402"} == {"cannot tell"}
    new = moved(body)
    team.refuses("java-9", [], full, **new)
    for name, code in zip(APPS, (4, 0), strict=True):
        team.stop(name)
        team.begin([name], [], **new)
        body = team.look(*FAMILY)
        assert body["exit_code"] == code, body["summary"]
    assert body["verdict"] == "done"
    for name in APPS:
        team.stop(name)

    team.group += "-large"
    team.begin((*APPS, "java-2"), RANGE)
    body = team.look(*FAMILY)
    assert (body["path"], body["exit_code"]) == ("kip848_online", 3)
    assert "RB402" in body["summary"]
    team.stop("java-2")
    team.refuses("java-2", [], full, **new)
    for name in APPS:
        team.stop(name)
    for name in APPS:
        team.place(name, [], **new)
    team.settle()
    team.refuses("java-2", [], full, **new)


class Tagged(RangePartitionAssignor):  # type: ignore[misc]
    """range, with a word of its own in each assignment, as custom assignors have."""

    name = "tagged"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        made = RangePartitionAssignor.assign.__func__(RangePartitionAssignor, cluster, members)
        for assignment in made.values():
            assignment.user_data = b"shard"
        return made


@pytest.mark.story
def test_user_data_in_assignments_blocks_the_online_conversion_but_not_the_offline_move(
    kafka41: Broker, group_on: GroupOn, group_id: str
) -> None:
    kafka41.wait_coordinator(group_id)
    team: PlannedGroup = group_on(kafka41, software="java-4.1.1")
    ending, owning = threading.Event(), threading.Event()

    def poll() -> None:
        consumer = KafkaConsumer(
            team.topic, bootstrap_servers=kafka41.bootstrap, group_id=team.group, client_id="tags",
            partition_assignment_strategy=[Tagged], session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )  # fmt: skip
        # As in tests/kafka/pymember.py: a first join without the topic's metadata may never end.
        consumer.partitions_for_topic(team.topic)
        while not ending.is_set():
            consumer.poll(timeout_ms=100)
            if consumer.assignment():
                owning.set()
        consumer.close()

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        assert owning.wait(30)
        kafka41.wait_stable(team.group, 1)
        body = team.look(*FAMILY)
        assert (body["path"], body["exit_code"]) == ("kip848_offline", 3)
        assert "user data of tagged" in body["steps"][0]["why"][0]
        assert "RB403" not in rules(body)
        refused = team.start("java-0", [], **moved(body))
        assert "unsupported custom assignor" in refused.wait_for("error").data["message"]
    finally:
        ending.set()
        polling.join(20)
    assert team.look(*FAMILY)["exit_code"] == 0
    team.begin(["java-0"], [], **moved(body))
    assert team.look(*FAMILY)["verdict"] == "done"


def move(team: PlannedGroup, name: str, **options: Any) -> None:
    """Restart a member with the configuration text of the plan's step."""
    if name in team.running:
        team.running[name].stop()
    team.begin([name], [], **moved(team.body), **options)


def blocking(body: dict[str, Any]) -> str:
    """The messages and fixes of the findings that stop the roll-out."""
    found = [each for each in body["findings"] if each["severity"] == "block"]
    return " ".join(f"{each['rule']} {each['message']} {each['fix']}" for each in found)


@pytest.mark.parametrize("broker", NEW, indirect=True)
def test_a_migration_policy_disabled_mid_way_permits_only_an_offline_rollback(
    broker: Broker, team: PlannedGroup
) -> None:
    team.evidence = team.logs()
    team.begin(TEAM, FINAL)
    plan = team.make("--to", "consumer")
    assert (plan["path"], plan["exit_code"]) == ("kip848_online", 0), plan["summary"]
    move(team, "java-1")
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
    # One is stopped nevertheless: the rebalance ends the remaining classic member.
    team.stop("java-3")
    ended = team.running.pop("java-2")
    assert "InconsistentGroupProtocolException" in str(ended.wait_for("error").data)
    assert "the group migration is disabled" in broker.coordinator_log()
    ended.stop()
    broker.wait_stable(team.group, 1)
    for name in ("java-2", "java-3"):
        answer = team.verify()
        advice = (answer["advice"]["action"], answer["advice"]["verdict"])
        assert advice == ("start", "yes"), answer["next"]
        assert answer["advice"]["change"].startswith("group.protocol=consumer and without ")
        assert name in answer["advice"]["names"]
        assert answer["exit_code"] in (3, 4)
        move(team, name)
    done = team.verify()
    assert (done["exit_code"], done["finished"]) == (0, True), done["next"]
    assert team.errors() == {}

    rollback = team.look("--to", "cooperative-sticky")
    assert (rollback["path"], rollback["exit_code"]) == ("kip848_back_offline", 3)
    rejects = "these brokers reject every classic join to a KIP-848 group"
    assert rejects in rollback["steps"][0]["why"][0]
    team.refuses("java-4", FINAL, "incompatible with those of existing members")


@pytest.mark.parametrize(
    "broker",
    [(jars.NEWEST, {"group.consumer.max.size": "2", "group.max.size": "2"})],
    indirect=True,
)
def test_static_members_can_restart_in_a_full_kip_848_group_but_not_in_a_full_classic_group(
    team: PlannedGroup,
) -> None:
    team.evidence = team.logs()
    names = TEAM[:2]
    for name in names:
        team.place(name, FINAL, instance_id=name, session_timeout_ms=30_000)
    team.settle()
    plan = team.make("--to", "consumer", "--restart-seconds", "2")
    assert (plan["path"], plan["exit_code"]) == ("kip848_online", 0), plan["summary"]
    for name in names:
        assert team.verify()["advice"]["names"] == [name]
        move(team, name, instance_id=name)
    done = team.verify()
    assert (done["exit_code"], done["finished"]) == (0, True), done["next"]
    # A restart within its session, under the new protocol.
    move(team, "java-1", instance_id="java-1")
    for name in names:
        team.stop(name)

    team.group = f"{team.group}-classic"
    for name in names:
        team.place(name, FINAL, instance_id=name, session_timeout_ms=30_000)
    team.settle()
    team.running["java-1"].stop()
    again = team.start("java-1", FINAL, instance_id="java-1", session_timeout_ms=30_000)
    assert "GroupMaxSizeReachedException" in str(again.wait_for("error").data)
