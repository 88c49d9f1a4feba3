"""Plans for groups of other clients than Java, and for another client library, on real members.

After every restart verify's word is held to the truth: who was given which list, and who really
gave up its partitions at the next rebalance. A change of library is made with the plan's own text
where the new client reads it: no member is rejected, and nobody reads a partition twice at a time.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.kafka.members import named
from tests.live_support.rollout import (
    BOTH_COORDINATORS,
    PARTITIONS,
    Service,
    Terminal,
    gave_up,
    rule,
    texts,
)

pytestmark = pytest.mark.usefixtures("other_clients")
ON_BOTH = pytest.mark.parametrize("broker", BOTH_COORDINATORS, indirect=True)
OLD = ["range"]
FINAL = ["cooperative-sticky"]
BOTH = [*FINAL, *OLD]
# What leaders say of kafka-go's subscription, in their own logs.
UNREADABLE = {
    "java-2.8.2": "Buffer underflow while parsing consumer protocol's subscription",
    "java-4.1.1": "Buffer underflow while parsing consumer protocol's subscription",
    "confluent-kafka": "Protocol read buffer underflow",
    "kafka-python": "unpack requires a buffer of 4 bytes",
}


@ON_BOTH
def test_java_and_franz_go_in_one_group(service: Service) -> None:
    java, go = ["java-2.8.2-0", "java-2.8.2-1"], ["franz-go-0"]
    service.begin([*java, *go], OLD)
    first, second = service.steps_of("two_bounces")
    assert first["target_list"] == BOTH
    assert "CooperativeStickyAssignor,org.apache.kafka.clients.consumer.RangeAssignor" in texts(
        first, "java"
    )
    assert "kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.RangeBalancer())" in texts(
        first, "franz-go"
    )
    assert "kgo.Balancers(kgo.CooperativeStickyBalancer())" in texts(second, "franz-go")

    service.carry_out(first, [*go, *java])
    # Java members run EAGER for as long as range is in their list; franz-go follows the vote.
    assert service.runs() == {java[0]: "EAGER", java[1]: "EAGER", go[0]: "COOPERATIVE"}
    before = {name: (member.owned, len(member.events)) for name, member in service.running.items()}
    service.restart(java[0], second["target_list"])
    owned, since = before[java[1]]
    assert owned <= gave_up(service.running[java[1]], since)
    owned, since = before[go[0]]
    assert not owned <= gave_up(service.running[go[0]], since)
    assert service.runs() == {java[0]: "COOPERATIVE", java[1]: "EAGER", go[0]: "COOPERATIVE"}

    service.carry_out(second, [java[1], *go])
    assert set(service.runs().values()) == {"COOPERATIVE"}
    service.is_over()


@ON_BOTH
def test_franz_go_flips_back_with_the_vote(service: Service) -> None:
    go = ["franz-go-0", "franz-go-1"]
    service.begin(go, BOTH)
    assert service.runs() == dict.fromkeys(go, "COOPERATIVE")
    # A Java group of these lists would be EAGER already; here a late [range] brings it back.
    given = service.given_up("java-2.8.2-0", OLD)
    assert service.runs() == dict.fromkeys([*go, "java-2.8.2-0"], "EAGER")
    assert all(owned <= gone for owned, gone in given.values())
    told = service.plan()
    assert (told["from"], told["next_step"], told["exit_code"]) == ("EAGER", 1, 0)
    assert told["steps"][0]["to_do"] == [service.running["java-2.8.2-0"].member_id]


@ON_BOTH
@pytest.mark.full
def test_sarama_and_java_in_one_group(service: Service) -> None:
    java, go = "java-4.1.1-0", "sarama-0"
    service.begin([java, go], OLD)
    first, second = service.steps_of("two_bounces")
    assert (
        "{sarama.NewBalanceStrategyCooperativeSticky(), sarama.NewBalanceStrategyRange()}"
        in texts(first, "sarama")
    )
    service.carry_out(first, [go, java])
    # As Java does, sarama runs EAGER while range is in its list, whatever is elected.
    assert service.runs() == {java: "EAGER", go: "EAGER"}
    owned, since = service.running[go].owned, len(service.running[go].events)
    service.restart(java, FINAL)
    assert owned <= gave_up(service.running[go], since)
    service.carry_out(second, [go])
    assert service.runs() == {java: "COOPERATIVE", go: "COOPERATIVE"}
    # Its bytes are those of an old Java member: without a log it is not taken for one.
    unlogged = {m["client_id"]: m["software"] for m in service.inspect(log=False)["members"]}
    assert unlogged[java]["family"] == "java"
    assert unlogged[go]["family"] is None
    assert unlogged[go]["version_range"] == "java >= 2.4, < 3.4 or sarama"
    service.is_over()


@ON_BOTH
@pytest.mark.parametrize("software", ["kafkajs", "aiokafka", "segmentio"])
def test_clients_that_cannot_block_the_plan_and_would_have_refused_the_others(
    software: str, service: Service
) -> None:
    names = [f"{software}-0", f"{software}-1"]
    service.begin(names, [])
    plan = service.plan()
    # None of the three says its name: kafka-go's bytes leave one more client, which cannot either,
    # aiokafka shows by its client id, kafkajs by the elected assignor.
    assert (rule(plan, "RB105"), plan["exit_code"]) == ("cannot tell", 4)
    said = service.plan("--assume-family", software)
    assert (rule(said, "RB105"), said["exit_code"]) == ("yes", 3)
    for client in ("java-4.1.1", "franz-go"):
        joiner = service.start(f"{client}-9", FINAL)
        joiner.wait_for("error")
        assert "inconsistent" in str(joiner.error).lower()
        joiner.stop()
    service.settle()
    refused = {(one["client_id"], *one["list"]) for one in service.inspect()["refusals"]}
    assert refused == {(f"{client}-9", *FINAL) for client in ("java-4.1.1", "franz-go")}
    said = [event for member in service.running.values() for event in member.said("error")]
    assert not [event for event in said if event.data["kind"] == "refused"]


@ON_BOTH
def test_aiokafka_goes_with_java_from_one_assignor_to_another(service: Service) -> None:
    names = ["java-2.8.2-0", "aiokafka-0"]
    service.begin(names, OLD)
    cooperative = service.plan()
    assert (cooperative["path"], cooperative["exit_code"]) == ("none", 4)
    assert "aiokafka-0 seems to run aiokafka" in cooperative["summary"]
    assert "RB105" in cooperative["summary"]
    said = ("--to", "roundrobin", "--assume-family", "aiokafka-0=aiokafka")
    first, second = service.steps_of("two_bounces", *said)
    service.carry_out(first, names[::-1])
    assert service.inspect()["assignor"] == "roundrobin"
    service.carry_out(second, names)
    assert set(service.runs().values()) == {"EAGER"}
    service.is_over("--to", "roundrobin")


@ON_BOTH
@pytest.mark.parametrize(
    "strict",
    [
        "java-4.1.1",
        "confluent-kafka",
        pytest.param("java-2.8.2", marks=pytest.mark.full),
        pytest.param("kafka-python", marks=pytest.mark.full),
    ],
)
def test_kafka_go_beside_a_client_whose_leader_cannot_read_it(
    strict: str, service: Service
) -> None:
    """RB119: such a group lives only while a third client leads it."""
    leader, other, go = "aiokafka-0", f"{strict}-0", "segmentio-0"
    for name in (leader, other, go):
        service.begin([name], OLD)
    plan = service.plan("--to", "roundrobin", "--assume-family", "segmentio-0=segmentio")
    assert (plan["verdict"], plan["exit_code"]) == ("blocked", 3)
    (finding,) = (one for one in plan["findings"] if one["rule"] == "RB119")
    assert finding["result"] == "yes"
    assert set(finding["members"]) == {service.running[name].member_id for name in (other, go)}
    # The truth: two restarts of a roll-out make the other one the leader, and it cannot read.
    service.running[go].stop()
    service.running[leader].stop()
    service.start(go, OLD)
    said, leader_now = UNREADABLE[strict], service.running[other]
    host = leader_now.host
    host.wait(f"{other} to say {said!r}", lambda: said in leader_now.log(), 20)
    # What it gave up reaches the test by another way than its log does.
    nothing = (0, PARTITIONS)
    host.wait(f"{other} to share nothing out", lambda: len(leader_now.owned) in nothing, 5)


@ON_BOTH
@pytest.mark.full
@pytest.mark.parametrize(("leader", "needless"), [("java-2.8.2", True), ("java-3.9.1", False)])
def test_an_old_java_leader_moves_what_franz_go_could_keep(
    leader: str, needless: bool, service: Service
) -> None:
    """RB117: it takes the length of franz-go's list of topics for the generation."""
    # Who comes first leads, for as long as it stays.
    for name in (f"{leader}-0", "franz-go-0"):
        service.begin([name], FINAL)
    before = {name: member.owned for name, member in service.running.items()}
    assert [*map(len, before.values())] == [3, 3]
    service.begin(["franz-go-1"], [])
    assert len(service.running["franz-go-1"].owned) == 2
    moved = [len(owned - service.running[name].owned) for name, owned in before.items()]
    assert (sum(moved) > 2) is needless


@ON_BOTH
def test_a_cut_over_of_kafka_python_alone(service: Service) -> None:
    """kafka-python 3 refuses eager ones beside cooperative-sticky, 2 has eager ones alone."""
    service.begin(["kafka-python-2-0", "kafka-python-2-1"], OLD)
    # kafka-python 2 does not say its name where it joins: nobody is told to stop a group for a
    # client id.
    said = ("--assume-family", "kafka-python")
    unproven = service.plan()
    assert (unproven["path"], unproven["exit_code"]) == ("none", 4)
    assert "--assume-family kafka-python --ignore RB104" in str(unproven["findings"])
    plan = service.plan(*said, "--out", str(service.file))
    (step,) = plan["steps"]
    assert (plan["path"], plan["verdict"], plan["exit_code"]) == ("cut_over", "blocked", 3)
    assert "RB104" in plan["summary"]
    agreed = service.plan(*said, "--ignore", "RB104", "--reason", "the night of the change")
    assert (agreed["verdict"], agreed["next_step"], agreed["exit_code"]) == ("ready", 1, 0)
    needs = "needs kafka-python 3.0 or later; not every version is known"
    assert needs in texts(step, "kafka-python")
    # Neither the list of the documentation for Java nor the last one lives in this group.
    service.refuses("kafka-python-9", [*FINAL, *OLD], "common RebalanceProtocol")
    service.refuses("kafka-python-9", FINAL, "InconsistentGroupProtocol")
    service.plan(*said, "--out", str(service.file))

    for name in list(service.running):
        service.stop(name)
        if service.running:
            service.settle()
        told = service.verify()
        assert (told["exit_code"], told["dangers"]) == (4, []), told
        assert (named(told, "yes"), named(told, "no")) == (set(), set(service.running))
    assert service.inspect()["state"] == "Empty"
    for name, gate in (("kafka-python-0", 4), ("kafka-python-1", 0)):
        service.start_as(name, step)
        service.settle()
        told = service.check(gate, set(service.running))
        assert told["dangers"] == []
    service.is_over()
    assert set(service.runs().values()) == {"COOPERATIVE"}
    # The truth of it: one more member comes, and those that are there keep what they keep.
    for owned, given in service.given_up("kafka-python-2", FINAL).values():
        assert given < owned


# The newest broker: a swap asks no more of the coordinator than any join does.
ON_NEWEST = pytest.mark.parametrize("broker", ["newest"], indirect=True)


def swap(service: Service, old: str, new: str, step: dict[str, Any], *words: str) -> dict[str, Any]:
    """Replace the member `old` by one of the client `new`, and return what verify says then."""
    service.stop(old)
    name = f"{new}-{old.rpartition('-')[2]}"
    service.start_as(name, step)
    service.settle()
    told = service.verify(*words)
    assert (told["step"], told["dangers"]) == (step["id"], []), told
    return told


def begin(
    service: Service, names: list[str], assignors: list[str], client: str
) -> list[dict[str, Any]]:
    service.begin(names, assignors)
    return service.steps_of("library", "--to-client", client)


def is_over(service: Service, client: str) -> None:
    assert not service.errors()
    assert service.inspect()["refusals"] == []
    done = service.plan("--to-client", client)
    assert (done["verdict"], done["exit_code"]) == ("done", 0)


@ON_NEWEST
def test_kafkajs_to_librdkafka_over_a_renamed_assigner(service: Service) -> None:
    names = ["kafkajs-0", "kafkajs-1"]
    wide, step = begin(service, names, ["RoundRobinAssigner"], "librdkafka")
    assert (wide["target_list"], step["target_list"]) == (
        ["roundrobin", "RoundRobinAssigner"], ["roundrobin"],
    )  # fmt: skip
    service.carry_out(wide, names)
    assert service.inspect()["assignor"] == "roundrobin"
    half = swap(service, "kafkajs-0", "confluent-kafka", step)
    assert (named(half, "yes"), half["exit_code"]) == ({"confluent-kafka-0"}, 4)
    end = swap(service, "kafkajs-1", "confluent-kafka", step)
    assert (end["finished"], end["exit_code"]) == (True, 0)
    is_over(service, "librdkafka")


def copy_offsets(service: Service, lines: dict[str, str], folder: Path) -> None:
    """Carry out the way without a stop, with Kafka's own tool as the plan prints it."""
    terminal = Terminal(folder, service.broker)

    def offsets(use: str) -> list[tuple[str, list[str]]]:
        rows = terminal.run(lines[f"without a stop: {use}"]).stdout.splitlines()
        return [(words[0], words[1:4]) for words in map(str.split, rows) if len(words) > 8]

    committed = [row for _, row in offsets("see the offsets to copy")[1:]]
    assert sorted(committed) == [[service.topic, str(n), str(n + 1)] for n in range(PARTITIONS)]
    text = "".join(",".join(row) + "\n" for row in committed)
    (folder / "offsets.csv").write_text(text)
    new = f"{service.group}-franz-go"
    for use in ("try the copy", "copy them"):
        # The dry run has copied nothing.
        assert new not in dict(offsets("watch both lags"))
        said = terminal.run(lines[f"without a stop: {use}"]).stdout
        assert said.count(new) == PARTITIONS
    both = offsets("watch both lags")
    assert sorted(row for group, row in both if group == new) == sorted(committed)
    assert sorted(row for group, row in both if group == service.group) == sorted(committed)


@ON_NEWEST
def test_librdkafka_to_franz_go_over_a_stop(service: Service, tmp_path: Path) -> None:
    names = ["confluent-kafka-0", "confluent-kafka-1"]
    service.broker.produce(service.topic, {number: number + 1 for number in range(PARTITIONS)})
    goal = ("--to-client", "franz-go")
    service.begin(names, ["cooperative-sticky"])
    blocked = service.plan(*goal, "--out", str(service.file))
    assert (blocked["path"], blocked["exit_code"]) == ("library_stop", 3)
    plan = service.plan(
        *goal, "--ignore", "RB123", "--reason", "agreed", "--out", str(service.file)
    )
    assert (plan["next_step"], plan["exit_code"]) == (1, 0)
    (step,) = plan["steps"]
    copy_offsets(service, {one["use"]: one["line"] for one in step["commands"]}, tmp_path)
    for name in names:
        service.stop(name)
    empty = service.verify()
    brings = "with [cooperative-sticky] and franz-go in place of the old library"
    assert empty["next"].startswith(f"start {', '.join(names)} {brings}")
    for name in ("franz-go-0", "franz-go-1"):
        service.start_as(name, step)
    service.settle()
    end = service.verify()
    assert (end["finished"], end["exit_code"]) == (True, 0), end
    is_over(service, "franz-go")
