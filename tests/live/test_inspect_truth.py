"""`rebal inspect -o json` against what the members themselves printed, for every kind of client.

Each case starts real members, waits until they have settled, and runs inspect three times: alone
with the probe, with the broker's request log, and (Java) with the members' own logs. What inspect
says must never differ from the members' account, and with a log it must be complete. The last tests
are of coordinators, brokers' settings, several groups at once, and odd members.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

import confluent_kafka
import pytest

from rebal.groups.evidence.merge import merge
from rebal.groups.model import CoordinatorKind, GroupSnapshot, GroupType, RebalanceProtocol
from rebal.groups.protocol import group_protocol
from rebal.inspectors.errors import SelectionError
from rebal.inspectors.kafka.read import GroupFailure, read_groups, select_groups
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members, Rolling, inspect, wait_assigned
from tests.live_support import config_of, read_group
from tests.live_support.rollout import BOTH_COORDINATORS

PARTITIONS = 6
COOP = "cooperative-sticky"
COMMIT = ("java", "kafka-python")
NEWEST = f"java-{jars.NEWEST}"
SUBSCRIPTION_VERSION = {
    "java-2.3.1": 0, "java-2.8.2": 1, "java-3.9.1": 3, "java-4.1.1": 3, NEWEST: 3,
}  # fmt: skip
# KIP-511 names and versions as each client sends them; Java before 2.4 sends none.
WIRE_SOFTWARE = {
    "java-2.8.2": ("apache-kafka-java", "2.8.2"),
    "java-3.9.1": ("apache-kafka-java", "3.9.1"),
    "java-4.1.1": ("apache-kafka-java", "4.1.1"),
    NEWEST: ("apache-kafka-java", jars.NEWEST),
    "confluent-kafka": (
        "confluent-kafka-python",
        f"{version('confluent-kafka')}-rdkafka-{confluent_kafka.libversion()[0]}",
    ),
    "kafka-python": ("kafka-python", version("kafka-python")),
    # kafka-python 2 says its name at its first connection only, not at the one that it joins with.
    "franz-go": ("kgo", "v1.22.2"),
    "sarama": ("sarama", "v1.61.1"),
}
# What describing the group alone tells: a family, or the clients that the bytes leave.
BY_BYTES = {
    "franz-go": ("franz-go", None),
    "sarama": (None, "java >= 2.4, < 3.4, franz-go or sarama"),
    "segmentio": (None, "segmentio or sarama-cluster"),
    "kafkajs": ("kafkajs", None),
    "aiokafka": (None, None),
    "kafka-python-2": (None, None),
}

# The clients' documented defaults, for members that leave the list unset.
DEFAULTS = {
    "java-2.3.1": ("range",),
    "java-2.8.2": ("range",),
    "java-3.9.1": ("range", "cooperative-sticky"),
    "java-4.1.1": ("range", "cooperative-sticky"),
    "confluent-kafka": ("range", "roundrobin"),
    "kafka-python": ("range", "roundrobin"),
    "franz-go": (COOP,),
    "sarama": ("range",),
    "segmentio": ("range", "roundrobin"),
    "kafkajs": ("RoundRobinAssigner",),
    "aiokafka": ("roundrobin",),
    "kafka-python-2": ("range", "roundrobin"),
}


@dataclass(frozen=True)
class One:
    """One member to start."""

    software: str
    assignors: tuple[str, ...] | None = None
    instance_id: str | None = None
    protocol: str | None = None

    @property
    def running(self) -> tuple[str, ...]:
        """The list the member runs with; none when the broker assigns (KIP-848)."""
        if self.protocol == "consumer":
            return ()
        return self.assignors or DEFAULTS[self.software]


@dataclass(frozen=True)
class Case:
    """Members, and the rebalance protocol that they follow together."""

    members: tuple[One, ...]
    runs: str
    elected: str | None
    kind: str = "classic"


def two(software: str, assignors: tuple[str, ...] | None = None) -> tuple[One, One]:
    return One(software, assignors), One(software, assignors)


CASES = {
    "java 2.3.1 range": Case(two("java-2.3.1"), "EAGER", "range"),
    "java 2.8.2 roundrobin": Case(two("java-2.8.2", ("roundrobin",)), "EAGER", "roundrobin"),
    "java 2.8.2 mixed": Case(two("java-2.8.2", (COOP, "range")), "EAGER", COOP),
    "java 3.9.1 default": Case(two("java-3.9.1"), "EAGER", "range"),
    "java 3.9.1 sticky": Case(two("java-3.9.1", ("sticky",)), "EAGER", "sticky"),
    "java 3.9.1 cooperative": Case(two("java-3.9.1", (COOP,)), "COOPERATIVE", COOP),
    "java 3.9.1 static": Case(
        (One("java-3.9.1", ("range",), "pod-0"), One("java-3.9.1", ("range",), "pod-1")),
        "EAGER", "range",
    ),
    "java 4.1.1 in bounce 2": Case(
        (One("java-4.1.1", (COOP, "range")), One("java-4.1.1", (COOP,))), "mixed", COOP
    ),
    "newest java mixed": Case(two(NEWEST, (COOP, "range")), "EAGER", COOP),
    "a forgotten java 2.3.1": Case(
        (
            One("java-2.3.1", ("range",)), One("java-2.8.2", (COOP, "range")),
            One("java-3.9.1", (COOP, "range")), One("java-4.1.1"),
        ),
        "EAGER", "range",
    ),
    "librdkafka default": Case(two("confluent-kafka"), "EAGER", "range"),
    "librdkafka cooperative": Case(two("confluent-kafka", (COOP,)), "COOPERATIVE", COOP),
    "kafka-python default": Case(two("kafka-python"), "EAGER", "range"),
    "kafka-python cooperative": Case(two("kafka-python", (COOP,)), "COOPERATIVE", COOP),
}  # fmt: skip
NEXT_PROTOCOL = {
    "KIP-848": Case(
        (One("java-4.1.1", protocol="consumer"), One("confluent-kafka", protocol="consumer")),
        "COOPERATIVE", None, "consumer",
    ),
    "KIP-848 with a classic member": Case(
        (One("java-4.1.1", (COOP,)), One("java-4.1.1", protocol="consumer")),
        "COOPERATIVE", None, "consumer",
    ),
}  # fmt: skip


class Group(Rolling):
    """A group and what inspect says of it; the request log holds this test's lines alone."""

    def inspect(self, *options):
        return inspect(self.broker, self.group, *options)

    @property
    def log(self):
        return ("--request-log", str(self.broker.request_log_path))

    def begin_case(self, case):
        """Start the case's members one after the other, each when those before have settled."""
        for number, one in enumerate(case.members):
            self.begin(
                [f"client-{number}"], list(one.assignors or ()), software=one.software,
                instance_id=one.instance_id, protocol=one.protocol,
            )  # fmt: skip
            if one.software == "kafka-python":
                # A leader of kafka-python may rebalance once more by itself, which the others hear
                # of with their next heartbeat, half a second later.
                wait_assigned(list(self.running.values()), PARTITIONS, quiet=1.0)
        return list(self.running.values())


@pytest.fixture
def group(request, members, group_id, topic_name):
    broker = request.getfixturevalue(getattr(request, "param", "kafka41"))
    broker.request_log_path.write_bytes(b"")
    made = Group(broker, members, group_id, topic_name, partitions=PARTITIONS)
    with made.logged():
        yield made


def partitions(by_topic):
    return {(entry["topic"], number) for entry in by_topic for number in entry["partitions"]}


def check_facts(told, case, real, topic):
    """What the cluster itself knows must be right and complete, whatever else was given."""
    assert (told["state"], told["type"]) == ("Stable", case.kind)
    assert told["protocol_type"] == "consumer"
    # Others commit nothing before they have read something: their lag is then not known.
    assert told["lag"] == 0 or not all(one.software.startswith(COMMIT) for one in case.members)
    if case.kind == "classic":
        assert told["assignor"] == case.elected
    by_client = {member["client_id"]: member for member in told["members"]}
    assert len(told["members"]) == len(real)
    for one, member in zip(case.members, real, strict=True):
        seen = by_client[member.client_id]
        assert partitions(seen["assignment"]) == member.owned
        assert seen["instance_id"] == one.instance_id
        assert seen["host"] == "/127.0.0.1"
        assert seen["subscribed_topics"] == [topic]
        if member.member_id is not None:
            assert seen["member_id"] == member.member_id
        if case.kind == "classic" and one.software in SUBSCRIPTION_VERSION:
            assert seen["subscription"]["version"] == SUBSCRIPTION_VERSION[one.software]
        if case.kind == "classic" and member.generation is not None:
            assert told["generation"] in (None, member.generation)


def check_lists(told, case, real, complete):
    """Lists are never wrong; with `complete` they are exactly what each member runs with."""
    by_client = {member["client_id"]: member for member in told["members"]}
    for one, member in zip(case.members, real, strict=True):
        known = by_client[member.client_id]["assignors"]
        if not one.running:
            assert known["list"] == []
            continue
        assert set(known["at_least"]) <= set(one.running)
        assert not set(known["lacks"]) & set(one.running)
        if known["knowledge"] == "exact" or complete:
            assert (known["knowledge"], tuple(known["list"])) == ("exact", one.running)
            assert known["evidence"]


def check_protocol(told, case, complete):
    value = told["rebalance_protocol"]["value"]
    assert value in ({case.runs} if complete else {case.runs, "cannot tell"})
    assert told["rebalance_protocol"]["evidence"] or value == "cannot tell"


def check_common(told, case):
    """Every probed name: supported by all, or not by all, or in doubt after a possible reload."""
    probed = {"range", "roundrobin", "sticky", COOP}
    common = probed.intersection(*(one.running for one in case.members))
    answer = told["common_assignors"]
    assert set(answer["supported"]) & probed == common
    assert not {*answer["unsupported"], *answer["doubtful"]} & common
    # A "no" counts only when a rebalance has completed since the coordinator was loaded.
    certain = told["coordinator"]["rebalanced_since_load"] == "yes"
    assert probed - common <= set(answer["unsupported"] if certain else answer["doubtful"])


def check_software(told, case, real):
    """With the request log, the names and versions of KIP-511 that each client sends."""
    by_client = {member["client_id"]: member for member in told["members"]}
    for one, member in zip(case.members, real, strict=True):
        software = by_client[member.client_id]["software"]
        sent = WIRE_SOFTWARE.get(one.software, (None, None))
        assert (software["name"], software["version"]) == sent


@pytest.mark.parametrize("group", BOTH_COORDINATORS, indirect=True)
@pytest.mark.parametrize("name", CASES)
def test_inspect_agrees_with_the_members_of_a_classic_group(name, group):
    is_told_truly(group, CASES[name])


@pytest.mark.usefixtures("other_clients")
@pytest.mark.parametrize("name", BY_BYTES)
def test_inspect_agrees_with_the_members_of_a_group_of_other_clients(name, group):
    runs = "COOPERATIVE" if name == "franz-go" else "EAGER"
    shown = is_told_truly(group, Case(two(name), runs, DEFAULTS[name][0]))
    for seen in shown["members"]:
        assert (seen["software"]["family"], seen["software"]["version_range"]) == BY_BYTES[name]


def is_told_truly(group, case):
    """What inspect says by each kind of evidence is so; what it says by the probe."""
    real = group.begin_case(case)
    said = [len(member.events) for member in real]

    probed = group.inspect("--probe")
    check_facts(probed, case, real, group.topic)
    check_lists(probed, case, real, complete=False)
    check_protocol(probed, case, complete=False)
    check_common(probed, case)

    logged = group.inspect(*group.log)
    check_facts(logged, case, real, group.topic)
    check_lists(logged, case, real, complete=True)
    check_protocol(logged, case, complete=True)
    check_software(logged, case, real)

    logs = dict.fromkeys(
        member.host.log_path
        for one, member in zip(case.members, real, strict=True)
        if one.software.startswith("java")
    )
    if logs:
        told = group.inspect(*(word for log in logs for word in ("--client-log", str(log))))
        check_facts(told, case, real, group.topic)
        # The log of Java 2.3 has no member id: what it says can be tied to nobody.
        complete = all(one.software != "java-2.3.1" for one in case.members)
        check_lists(told, case, real, complete=complete)
        check_protocol(told, case, complete=complete)

    assert [len(member.events) for member in real] == said, "a member noticed that it was read"
    return probed


@pytest.mark.parametrize("name", NEXT_PROTOCOL)
def test_inspect_agrees_with_the_members_of_a_kip_848_group(name, group):
    case = NEXT_PROTOCOL[name]
    real = group.begin_case(case)
    shown = group.inspect()
    check_facts(shown, case, real, group.topic)
    check_protocol(shown, case, complete=False)
    by_client = {member["client_id"]: member for member in shown["members"]}
    for one, member in zip(case.members, real, strict=True):
        seen = by_client[member.client_id]
        assert partitions(seen["target_assignment"]) == member.owned
        assert seen["protocol_type"] == (one.protocol or "classic")
        if one.protocol == "consumer" and member.generation is not None:
            assert seen["member_epoch"] == member.generation == shown["group_epoch"]
    logged = group.inspect(*group.log)
    check_facts(logged, case, real, group.topic)
    check_lists(logged, case, real, complete=True)


def test_the_reported_lag_is_the_number_of_records_that_members_have_not_read(group):
    group.broker.produce(group.topic, {0: 3, 5: 2})
    real = group.begin_case(Case(two("java-3.9.1"), "EAGER", "range"))
    wait_for_lag(group, 0)
    for member in real:
        member.hold(6000)
    time.sleep(0.5)  # the poll that each is in must end before there is more to read
    unread = {0: 4, 1: 1, 5: 3}
    group.broker.produce(group.topic, unread)
    shown = wait_for_lag(group, 8)
    for member in real:
        lag = sum(
            count for number, count in unread.items() if (group.topic, number) in member.owned
        )
        (seen,) = (each for each in shown["members"] if each["client_id"] == member.client_id)
        assert seen["lag"] == lag


def wait_for_lag(group, lag):
    for _ in range(10):
        told = group.inspect()
        if told["lag"] == lag:
            return told
    raise AssertionError(f"lag stayed {told['lag']}, not {lag}")


def ids(told):
    return {member["client_id"]: member["member_id"] for member in told["members"]}


@pytest.mark.parametrize("group", jars.ENDS, indirect=True)
def test_a_static_restart_changes_the_member_id_and_shows_the_new_subscription(group):
    """Owned partitions under a new member id never come from the previous process.

    So a list of owned partitions proves COOPERATIVE of the process that runs now.
    """
    options = {"software": "java-3.9.1", "session_timeout_ms": 20000}
    group.begin(["killed"], [COOP], instance_id="pod-1", own=True, **options)
    group.begin(["keeper"], [COOP], instance_id="pod-0", **options)
    keeper = group.running["keeper"]
    before, events = group.inspect(), len(keeper.events)
    assert owned(before)["killed"] > 0
    group.running["killed"].kill()
    # A killed static member is a member until its session expires, with its old id.
    assert ids(group.inspect()) == ids(before)
    group.begin(["killed"], [COOP, "range"], instance_id="pod-1", **options)
    after = group.inspect(*group.log)
    assert len(keeper.events) == events
    again = group.running["killed"].member_id
    assert ids(after) == {"keeper": keeper.member_id, "killed": again}
    assert again != ids(before)["killed"]
    assert owned(after)["killed"] == 0
    assert after["generation"] in (None, keeper.generation)
    lists = {member["client_id"]: member["assignors"]["list"] for member in after["members"]}
    assert lists == {"keeper": [COOP], "killed": [COOP, "range"]}


def owned(told):
    """How many partitions each member named as its own when it joined."""
    return {
        member["client_id"]: len(partitions(member["subscription"]["owned_partitions"]))
        for member in told["members"]
    }


def test_a_group_is_read_with_its_coordinator_and_the_settings_of_its_cluster(
    broker: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = Rolling(broker, members, group_id, topic_name, software="java-4.1.1")
    service.begin(["c-0"], [])
    found = read_group(broker, group_id)
    coordinator, scala = found.group.coordinator, broker.is_scala_coordinator
    assert coordinator is not None
    assert coordinator.kind is (CoordinatorKind.SCALA if scala else CoordinatorKind.JAVA)
    assert f"{coordinator.host}:{coordinator.port}" == broker.bootstrap
    assert found.cluster.version == broker.version.rpartition(".")[0]
    if not scala:
        assert found.cluster.features["group.version"] == 1
        assert found.cluster.settings["group.consumer.migration.policy"] == "bidirectional"
    assert found.notes == ()


def test_group_configuration_overrides_the_broker_configuration_in_a_reading(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = Rolling(kafka41, members, group_id, topic_name, software="java-4.1.1")
    service.begin(["new"], [], protocol="consumer")
    found = read_group(kafka41, group_id)
    session = "consumer.session.timeout.ms"
    kafka41.set_group(group_id, {session: "50000"})
    settings = read_group(kafka41, group_id).cluster.settings
    assert found.cluster.settings[f"group.{session}"] != "50000"
    assert settings[f"group.{session}"] == "50000"


def test_several_groups_are_read_at_once_and_a_missing_group_is_reported(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    kafka41.create_topic(topic_name, 2)
    ids = [f"{group_id}-{letter}" for letter in "abc"]
    own = [members.start("java-3.9.1", kafka41, each, each, topics=[topic_name]) for each in ids]
    for each in own:
        wait_assigned([each], 2)
    config = config_of(kafka41)
    first, missing, *others = read_groups(config, [ids[0], "not/there", ids[1], ids[2]])
    assert all(isinstance(answer, GroupSnapshot) for answer in (first, *others))
    assert missing == GroupFailure(
        group_id="not/there", message="not/there: no such group.", kind="not-found"
    )
    assert select_groups(config, [], match=f"{re.escape(group_id)}-[ab]").group_ids == (*ids[:2],)
    every = select_groups(config, [], all_groups=True)
    assert set(ids) <= set(every.group_ids)
    assert every.unlisted == ()
    assert select_groups(config, ["x", ids[2], "x"]).group_ids == ("x", ids[2])
    with pytest.raises(SelectionError, match="no group matches 'nothing-like-it'; it lists"):
        select_groups(config, [], match="nothing-like-it")
    with pytest.raises(SelectionError, match="not a regular expression"):
        select_groups(config, [], match="(")


@pytest.fixture
def upgrade_only() -> Iterator[Broker]:
    """A broker whose groups stay of type consumer when the members that speak it have left."""
    settings = {"group.consumer.migration.policy": "upgrade"}
    with Broker(jars.EARLY, secure=False, settings=settings, request_log=True) as broker:
        yield broker


def test_classic_members_left_alone_in_a_kip_848_group_keep_the_classic_protocol(
    upgrade_only: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    broker = upgrade_only
    broker.wait_coordinator(group_id)
    service = Rolling(broker, members, group_id, topic_name, software="java-4.1.1")
    service.begin(["old"], ["range"])
    service.begin(["guest"], [], protocol="consumer")
    service.stop("guest")
    broker.wait_stable(group_id, 1)
    found = read_group(broker, group_id)
    assert found.group.type is GroupType.CONSUMER
    assert {member.protocol_type for member in found.members} == {"classic"}
    assert group_protocol(found).value is RebalanceProtocol.CANNOT_TELL
    log = read_request_log([broker.request_log_path])
    answer = group_protocol(merge(found, log.observations))
    assert answer.value is RebalanceProtocol.EAGER
    assert "every member speaks the classic protocol: its list is [range]" in answer.why
