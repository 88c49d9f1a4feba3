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
def test_java_and_franz_go_members_of_one_group_move_in_two_bounces(service: Service) -> None:
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
def test_franz_go_members_turn_eager_again_when_the_vote_elects_range(service: Service) -> None:
    go = ["franz-go-0", "franz-go-1"]
    service.begin(go, BOTH)
    assert service.runs() == dict.fromkeys(go, "COOPERATIVE")
    # A Java group of these lists would be EAGER already; here a late [range] turns it EAGER.
    given = service.given_up("java-2.8.2-0", OLD)
    assert service.runs() == dict.fromkeys([*go, "java-2.8.2-0"], "EAGER")
    assert all(owned <= revoked for owned, revoked in given.values())
    plan = service.plan()
    assert (plan["from"], plan["next_step"], plan["exit_code"]) == ("EAGER", 1, 0)
    assert plan["steps"][0]["to_do"] == [service.running["java-2.8.2-0"].member_id]


@ON_BOTH
@pytest.mark.full
def test_sarama_and_java_members_of_one_group_move_in_two_bounces(service: Service) -> None:
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
    # Its bytes equal those of an old Java member; without a log it is not reported as one.
    unlogged = {m["client_id"]: m["software"] for m in service.inspect(log=False)["members"]}
    assert unlogged[java]["family"] == "java"
    assert unlogged[go]["family"] is None
    assert unlogged[go]["version_range"] == "java >= 2.4, < 3.4 or sarama"
    service.is_over()


@ON_BOTH
@pytest.mark.parametrize("software", ["kafkajs", "aiokafka", "segmentio"])
def test_clients_without_cooperative_support_block_the_plan_and_cause_rejected_joins(
    software: str, service: Service
) -> None:
    names = [f"{software}-0", f"{software}-1"]
    service.begin(names, [])
    plan = service.plan()
    # None of the three says its name: kafka-go's bytes leave one more client, which cannot either,
    # aiokafka shows by its client id, kafkajs by the elected assignor.
    assert (rule(plan, "RB105"), plan["exit_code"]) == ("cannot tell", 4)
    assumed = service.plan("--assume-family", software)
    assert (rule(assumed, "RB105"), assumed["exit_code"]) == ("yes", 3)
    for client in ("java-4.1.1", "franz-go"):
        joiner = service.start(f"{client}-9", FINAL)
        joiner.wait_for("error")
        assert "inconsistent" in str(joiner.error).lower()
        joiner.stop()
    service.settle()
    refused = {(one["client_id"], *one["list"]) for one in service.inspect()["refusals"]}
    assert refused == {(f"{client}-9", *FINAL) for client in ("java-4.1.1", "franz-go")}
    errors = [event for member in service.running.values() for event in member.said("error")]
    assert not [event for event in errors if event.data["kind"] == "refused"]


@ON_BOTH
def test_aiokafka_and_java_members_move_between_two_eager_assignors(service: Service) -> None:
    names = ["java-2.8.2-0", "aiokafka-0"]
    service.begin(names, OLD)
    cooperative = service.plan()
    assert (cooperative["path"], cooperative["exit_code"]) == ("none", 4)
    assert "aiokafka-0 seems to run aiokafka" in cooperative["summary"]
    assert "RB105" in cooperative["summary"]
    options = ("--to", "roundrobin", "--assume-family", "aiokafka-0=aiokafka")
    first, second = service.steps_of("two_bounces", *options)
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
def test_a_plan_is_blocked_if_a_possible_leader_cannot_read_kafka_go_subscriptions(
    strict: str, service: Service
) -> None:
    """RB119: such a group works only while a third client is its leader."""
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
    warning, leader_now = UNREADABLE[strict], service.running[other]
    host = leader_now.host
    host.wait(f"{other} to say {warning!r}", lambda: warning in leader_now.log(), 20)
    # What it gave up reaches the test by another way than its log does.
    nothing = (0, PARTITIONS)
    host.wait(f"{other} to share nothing out", lambda: len(leader_now.owned) in nothing, 5)


@ON_BOTH
@pytest.mark.full
@pytest.mark.parametrize(("leader", "needless"), [("java-2.8.2", True), ("java-3.9.1", False)])
def test_an_old_java_leader_needlessly_moves_partitions_of_franz_go_members(
    leader: str, needless: bool, service: Service
) -> None:
    """RB117: it reads the length of franz-go's topic list as the generation."""
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
def test_a_kafka_python_group_moves_to_cooperative_only_by_a_cut_over(service: Service) -> None:
    """kafka-python 3 rejects lists of eager and cooperative assignors; 2 has only eager ones."""
    service.begin(["kafka-python-2-0", "kafka-python-2-1"], OLD)
    # kafka-python 2 does not say its name where it joins: nobody is told to stop a group for a
    # client id.
    assumed = ("--assume-family", "kafka-python")
    unproven = service.plan()
    assert (unproven["path"], unproven["exit_code"]) == ("none", 4)
    assert "--assume-family kafka-python --ignore RB104" in str(unproven["findings"])
    plan = service.plan(*assumed, "--out", str(service.file))
    (step,) = plan["steps"]
    assert (plan["path"], plan["verdict"], plan["exit_code"]) == ("cut_over", "blocked", 3)
    assert "RB104" in plan["summary"]
    agreed = service.plan(*assumed, "--ignore", "RB104", "--reason", "the night of the change")
    assert (agreed["verdict"], agreed["next_step"], agreed["exit_code"]) == ("ready", 1, 0)
    needs = "needs kafka-python 3.0 or later; not every version is known"
    assert needs in texts(step, "kafka-python")
    # Neither the list of the documentation for Java nor the last one lives in this group.
    service.refuses("kafka-python-9", [*FINAL, *OLD], "common RebalanceProtocol")
    service.refuses("kafka-python-9", FINAL, "InconsistentGroupProtocol")
    service.plan(*assumed, "--out", str(service.file))

    for name in list(service.running):
        service.stop(name)
        if service.running:
            service.settle()
        answer = service.verify()
        assert (answer["exit_code"], answer["dangers"]) == (4, []), answer
        assert (named(answer, "yes"), named(answer, "no")) == (set(), set(service.running))
    assert service.inspect()["state"] == "Empty"
    for name, gate in (("kafka-python-0", 4), ("kafka-python-1", 0)):
        service.start_as(name, step)
        service.settle()
        answer = service.check(gate, set(service.running))
        assert answer["dangers"] == []
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
def test_kafkajs_is_replaced_by_librdkafka_via_both_roundrobin_names(service: Service) -> None:
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
def test_librdkafka_is_replaced_by_franz_go_after_a_stop(service: Service, tmp_path: Path) -> None:
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
