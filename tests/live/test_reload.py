"""What a reload of the coordinator does to the probe's answers, on brokers that really restart."""

from collections.abc import Iterator

import pytest

from rebal.groups.model import GroupSnapshot, GroupState, Tri
from rebal.inspectors.errors import ConnectError
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.read import read_groups
from rebal.inspectors.kafka.reload import Reading, rebalanced_since_load
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.processes import wait_for
from tests.kafka.rolling import Rolling
from tests.live_support import config_of, last_generation, read_group, stored_generations

MIXED = ["range", "cooperative-sticky"]


@pytest.fixture(scope="module")
def own41() -> Iterator[Broker]:
    """A broker of its own: it is restarted here."""
    with Broker(jars.EARLY, secure=False) as broker:
        yield broker


@pytest.fixture(scope="module")
def own39() -> Iterator[Broker]:
    with Broker(jars.SCALA, secure=False) as broker:
        yield broker


def started(broker: Broker, members: Members, group: str, topic: str) -> Rolling:
    """Two members whose sessions outlive the restart: they are still the same ones afterwards."""
    service = Rolling(broker, members, group, topic, partitions=4, software="java-3.9.1")
    for name in ("m-0", "m-1"):
        service.place(name, MIXED, instance_id=name, session_timeout_ms=45_000)
    service.settle()
    return service


def rebalance(service: Rolling, before: GroupSnapshot) -> None:
    """The one rebalance since `before`."""
    wanted = (before.group.generation or 0) + 1
    service.running["m-0"].rebalance()
    wait_for(
        "the next generation",
        lambda: last_generation(service.broker, service.group) == wanted,
        timeout=20,
    )
    service.broker.wait_stable(service.group, 2)


def read(broker: Broker, group_id: str) -> GroupSnapshot:
    found = read_group(broker, group_id, probe=True)
    assert found.probe is not None
    assert found.probe.refused is None, found.probe.refused
    return found


def is_back(broker: Broker, group_id: str) -> bool:
    """Asked anew each time: a client of before the kill may wait long before it tries again."""
    try:
        (found,) = read_groups(config_of(broker), [group_id])
    except ConnectError:
        return False
    return isinstance(found, GroupSnapshot) and found.group.state is GroupState.STABLE


def answers(snapshot: GroupSnapshot) -> dict[str, Tri]:
    assert snapshot.probe is not None
    return {each.assignor: each.supported for each in snapshot.probe.answers}


def reading(snapshot: GroupSnapshot) -> tuple[Tri, str]:
    assert snapshot.group.coordinator is not None
    coordinator = snapshot.group.coordinator
    return coordinator.rebalanced_since_load, coordinator.rebalanced_why


def generation(found: Reading) -> int | None:
    return found.stored.generation if found.stored is not None else None


def epoch(snapshot: GroupSnapshot) -> int:
    assert snapshot.group.coordinator is not None
    found = snapshot.group.coordinator.leader_epoch
    assert found is not None
    return found


def ids(snapshot: GroupSnapshot) -> set[str]:
    return {member.member_id for member in snapshot.members}


def test_the_answer_flips_with_the_reload_and_one_rebalance_cures_it(
    own41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = started(own41, members, group_id, topic_name)
    first = read(own41, group_id)
    assert answers(first)["cooperative-sticky"] is Tri.YES
    assert reading(first)[0] is Tri.YES

    own41.restart()
    own41.wait_stable(group_id, 2)
    flipped = read(own41, group_id)
    assert ids(flipped) == ids(first)
    assert answers(flipped)["range"] is Tri.YES
    assert answers(flipped)["cooperative-sticky"] is Tri.NO, "every list became just [range]"
    assert reading(flipped)[0] is Tri.NO, reading(flipped)
    assert flipped.group.generation == first.group.generation
    assert epoch(flipped) > epoch(first) >= 0

    # A static restart stores a record at the same generation: that is no rebalance.
    records = len(stored_generations(own41, group_id))
    service.restart("m-1", MIXED)
    wait_for(
        "the record of the static restart",
        lambda: len(stored_generations(own41, group_id)) > records,
        timeout=20,
    )
    replaced = read(own41, group_id)
    assert ids(replaced) != ids(first)
    assert reading(replaced)[0] is Tri.NO, reading(replaced)
    assert "static" in reading(replaced)[1]
    coordinator = replaced.group.coordinator
    assert coordinator is not None
    assert coordinator.loaded_at is not None
    assert first.captured_at < coordinator.loaded_at < replaced.captured_at
    assert replaced.group.generation == first.group.generation

    rebalance(service, first)
    cured = read(own41, group_id)
    assert answers(cured)["cooperative-sticky"] is Tri.YES
    assert reading(cured)[0] is Tri.YES, reading(cured)


def test_a_rebalance_since_the_load_is_read_from_the_topic_alone(
    own41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = started(own41, members, group_id, topic_name)
    with RawCluster(config_of(own41)) as cluster:
        before = rebalanced_since_load(cluster, group_id)
    assert before.rebalanced is Tri.YES
    own41.kill()
    own41.start()
    own41.wait_stable(group_id, 2)
    with RawCluster(config_of(own41)) as cluster:
        after_kill = rebalanced_since_load(cluster, group_id)
        assert after_kill.rebalanced is Tri.NO, after_kill
        assert generation(after_kill) == generation(before)
        service.running["m-0"].rebalance()
        wait_for(
            "the rebalance to be read",
            lambda: rebalanced_since_load(cluster, group_id).rebalanced is Tri.YES,
            timeout=20,
        )
        assert generation(rebalanced_since_load(cluster, group_id)) != generation(before)


@pytest.mark.full
def test_the_scala_coordinator_forgets_as_well_and_a_kill_cannot_be_told(
    own39: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = started(own39, members, group_id, topic_name)
    first = read(own39, group_id)
    assert reading(first) == (
        Tri.YES,
        "every list in the coordinator's memory contains cooperative-sticky besides range",
    )
    own39.restart()
    own39.wait_stable(group_id, 2)
    flipped = read(own39, group_id)
    assert answers(flipped)["cooperative-sticky"] is Tri.NO
    assert reading(flipped)[0] is Tri.NO
    rebalance(service, first)
    assert reading(read(own39, group_id))[0] is Tri.YES

    # Its leader epoch does not rise here, so a "yes" from the topic would be a lie.
    own39.kill()
    own39.start()
    wait_for("the group to be back", lambda: is_back(own39, group_id), timeout=40, every=0.5)
    killed = read(own39, group_id)
    assert answers(killed)["cooperative-sticky"] is Tri.NO
    assert reading(killed)[0] is not Tri.YES, reading(killed)
