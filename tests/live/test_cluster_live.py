"""Coordinators that move or reload: what `rebal` and its probe say, held to real members."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from rebal.groups.model import Coordinator, GroupSnapshot, GroupState, Tri
from rebal.inspectors.errors import ConnectError
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.read import read_groups
from rebal.inspectors.kafka.reload import Reading, rebalanced_since_load
from tests.kafka import jars
from tests.kafka.broker import Broker, wait_for
from tests.kafka.cluster import Cluster
from tests.kafka.members import Members, Rolling, inspect, named
from tests.live_support import config_of, last_generation, read_group, stored_generations
from tests.live_support.rollout import GroupOn, PlannedGroup

OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
DEFAULT = ["range", "cooperative-sticky"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


class Moved(PlannedGroup):
    """A group on a cluster, and a plan of it whose evidence are the brokers' request logs."""

    broker: Cluster

    def stands(self, *missing: int, journal: str = "plan") -> dict[str, Any]:
        """What verify says by the probe and the request logs of all but these brokers.

        Each journal is an audience of its own: it knows only what it was shown.
        """
        book = self.file.with_name(f"{journal}.jsonl")
        return self.verify("--probe", "--journal", str(book), *self.logs(*missing))

    def verdict(self) -> tuple[str, str]:
        """The probe's answer for cooperative-sticky, and whether a rebalance followed the load."""
        group = inspect(self.broker, self.group, "--probe")
        assert group["probe"]["refused"] is None, group["probe"]
        words = {one["assignor"]: one["supported"] for one in group["probe"]["answers"]}
        assert words["range"] == "yes"
        return words["cooperative-sticky"], group["coordinator"]["rebalanced_since_load"]


@pytest.fixture
def moved(cluster41: Cluster, group_on: GroupOn) -> Moved:
    made: Moved = group_on(cluster41, Moved)
    return made


def test_verify_reads_the_group_from_the_remaining_brokers_after_a_failover(moved: Moved) -> None:
    moved.begin(APPS, DEFAULT, session_timeout_ms=45_000)
    moved.make("--probe", "--expect-members", "3", *moved.logs())
    killed = moved.broker.coordinator_of(moved.group)
    moved.broker.kill(killed)
    try:
        moved.settle()
        # The new coordinator has loaded [range] alone; the probe may come before it has.
        deadline = time.monotonic() + 30
        while (answer := moved.stands())["exit_code"] != 3 and time.monotonic() < deadline:
            time.sleep(1)
        assert (answer["exit_code"], named(answer, "no")) == (3, set(APPS)), answer
        # The block was right: the very restart that the step asks for would be rejected.
        moved.refuses("app-9", FINAL, "InconsistentGroupProtocol", session_timeout_ms=45_000)
        moved.restart("app-0", DEFAULT)
        assert moved.verdict() == ("yes", "yes")
    finally:
        moved.broker.restart(killed)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", ["cluster41", "cluster39"])
def test_two_bounces_finish_despite_a_rolling_broker_restart_in_each_bounce(
    cluster: str, group_on: GroupOn, request: pytest.FixtureRequest
) -> None:
    moved: Moved = group_on(request.getfixturevalue(cluster), Moved)
    moved.begin(APPS, OLD, session_timeout_ms=45_000)
    moved.make("--probe", "--expect-members", "3", *moved.logs())
    assert [step["target_list"] for step in moved.body["steps"]] == [MIXED, FINAL]
    for step, assignors in ((1, MIXED), (2, FINAL)):
        moved.restart("app-0", assignors)
        assert named(moved.stands(), "yes") == {"app-0"}
        for _ in moved.broker.rolling_restart():
            moved.settle()
        answer = moved.stands()
        assert (answer["step"], answer["exit_code"]) == (step, 4), answer
        assert named(answer, "yes") == {"app-0"}
        moved.restart("app-1", assignors)
        moved.restart("app-2", assignors)
        answer = moved.stands()
        assert named(answer, "yes") == set(APPS)
        assert answer["gate"] == "yes", answer
    assert answer["finished"]


def test_without_the_log_of_one_broker_no_member_is_reported_done_early(moved: Moved) -> None:
    for name in APPS:
        moved.place(name, OLD, instance_id=name, session_timeout_ms=45_000)
    moved.settle()
    moved.make("--probe", "--expect-members", "3", *moved.logs())
    # A static member's restart shows only itself: in the log of the coordinator of that moment.
    first = moved.broker.coordinator_of(moved.group)
    moved.restart("app-0", MIXED)
    moved.broker.move_coordinator(moved.group)
    moved.settle()
    moved.restart("app-1", MIXED)
    assert named(moved.stands(), "yes") == {"app-0", "app-1"}
    answer = moved.stands(first, journal="half")
    assert named(answer, "yes") == {"app-1"}
    assert named(answer, "cannot tell") == {"app-0"}
    assert answer["exit_code"] == 4


@pytest.mark.parametrize("version", ["41", pytest.param("39", marks=pytest.mark.full)])
def test_a_reload_keeps_the_subscription_of_a_restarted_static_member(
    version: str, request: pytest.FixtureRequest, group_on: GroupOn
) -> None:
    """The record of a static restart holds the subscription of the new process.

    So after a load no byte of the old process, which kept its partitions, speaks against the list
    of the new one.
    """
    cluster = request.getfixturevalue(f"cluster{version}")
    group: PlannedGroup = group_on(cluster)
    for name in APPS[:2]:
        # One after the other: the first one joins again and names the partitions that it keeps.
        group.place(name, FINAL, instance_id=name, session_timeout_ms=45_000)
        group.settle()
    group.make("--to", "eager", "--expect-members", "2", *group.logs())
    group.restart("app-0", DEFAULT)
    cluster.move_coordinator(group.group)
    group.settle()
    body = group.verify("--probe", *group.logs())
    seen = inspect(cluster, group.group, "--probe")
    assert seen["coordinator"]["rebalanced_since_load"] == "no"
    assert seen["members"][0]["subscription"]["generation_id"] == -1
    assert seen["members"][0]["subscription"]["owned_partitions"] == []
    (shown,) = [one for one in body["members"] if one["name"] == "app-0"]
    assert shown["done"] == "yes", shown
    assert "RB902" not in {one["rule"] for one in body["findings"]}
    advice = body["advice"]
    assert (advice["verdict"], advice["assignors"]) == ("yes", DEFAULT), advice["text"]


BOTH = ["range", "cooperative-sticky"]


@pytest.fixture(
    scope="module", params=[jars.EARLY, pytest.param(jars.SCALA, marks=pytest.mark.full)]
)
def own(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of its own: it is restarted here."""
    with Broker(request.param, secure=False) as broker:
        yield broker


@pytest.fixture
def service(own: Broker, members: Members, group_id: str, topic_name: str) -> Rolling:
    """Two members whose sessions outlive the restart: they are still the same ones afterwards."""
    made = Rolling(own, members, group_id, topic_name, partitions=4, software="java-3.9.1")
    for name in ("m-0", "m-1"):
        made.place(name, BOTH, instance_id=name, session_timeout_ms=45_000)
    made.settle()
    return made


def look(service: Rolling) -> tuple[GroupSnapshot, Coordinator, Tri]:
    """The group and its coordinator; whether every list holds cooperative-sticky, by the probe."""
    found = read_group(service.broker, service.group, probe=True)
    assert found.probe is not None
    assert found.probe.refused is None, found.probe.refused
    answers = {each.assignor: each.supported for each in found.probe.answers}
    assert answers["range"] is Tri.YES
    assert found.group.coordinator is not None
    return found, found.group.coordinator, answers["cooperative-sticky"]


def is_back(broker: Broker, group_id: str) -> bool:
    """Asked anew each time: a client of before the kill may wait long before it tries again."""
    try:
        (found,) = read_groups(config_of(broker), [group_id])
    except ConnectError:
        return False
    return isinstance(found, GroupSnapshot) and found.group.state is GroupState.STABLE


def generation(found: Reading) -> int | None:
    return found.stored.generation if found.stored is not None else None


def ids(snapshot: GroupSnapshot) -> set[str]:
    return {member.member_id for member in snapshot.members}


def test_the_probe_turns_negative_after_each_reload_until_the_next_rebalance(
    own: Broker, service: Rolling
) -> None:
    first, coordinator, supported = look(service)
    assert (supported, coordinator.rebalanced_since_load) == (Tri.YES, Tri.YES)

    own.restart()
    own.wait_stable(service.group, 2)
    flipped, coordinator, supported = look(service)
    assert ids(flipped) == ids(first)
    assert supported is Tri.NO, "every list became just [range]"
    assert coordinator.rebalanced_since_load is Tri.NO, coordinator.rebalanced_why
    assert flipped.group.generation == first.group.generation

    wanted = (first.group.generation or 0) + 1
    service.running["m-0"].rebalance()
    wait_for(
        "the next generation", lambda: last_generation(own, service.group) == wanted, timeout=20
    )
    own.wait_stable(service.group, 2)
    cured, coordinator, supported = look(service)
    assert (supported, coordinator.rebalanced_since_load) == (Tri.YES, Tri.YES)

    own.kill()
    own.start()
    wait_for("the group to be back", lambda: is_back(own, service.group), timeout=40, every=0.5)
    _, killed, supported = look(service)
    assert supported is Tri.NO
    # On 3.9 its leader epoch does not rise with a kill, so a "yes" from the topic would be a lie.
    assert killed.rebalanced_since_load is not Tri.YES, killed.rebalanced_why
    if not own.is_scala_coordinator:
        assert (killed.leader_epoch or 0) > (coordinator.leader_epoch or 0)
        is_read_from_the_topic_alone(own, service, cured)


def is_read_from_the_topic_alone(own: Broker, service: Rolling, before: GroupSnapshot) -> None:
    """Whether a rebalance followed the load that has just been, without a probe."""
    with RawCluster(config_of(own)) as cluster:
        loaded = rebalanced_since_load(cluster, service.group)
        assert loaded.rebalanced is Tri.NO, loaded

        # A static restart stores a record at the same generation: that is no rebalance.
        records = len(stored_generations(own, service.group))
        service.restart("m-1", BOTH)
        wait_for(
            "the record of the static restart",
            lambda: len(stored_generations(own, service.group)) > records,
            timeout=20,
        )
        replaced, coordinator, _ = look(service)
        assert ids(replaced) != ids(before)
        assert coordinator.rebalanced_since_load is Tri.NO
        assert "static" in coordinator.rebalanced_why
        assert coordinator.loaded_at is not None
        assert before.captured_at < coordinator.loaded_at < replaced.captured_at

        service.running["m-0"].rebalance()
        wait_for(
            "the rebalance to be read",
            lambda: rebalanced_since_load(cluster, service.group).rebalanced is Tri.YES,
            timeout=20,
        )
        assert generation(rebalanced_since_load(cluster, service.group)) != generation(loaded)
