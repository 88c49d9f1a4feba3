"""What a reload of the coordinator does to the probe's answers, on brokers that really restart."""

from collections.abc import Iterator

import pytest

from rebal.groups.model import Coordinator, GroupSnapshot, GroupState, Tri
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
        made.place(name, MIXED, instance_id=name, session_timeout_ms=45_000)
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


def test_the_answer_flips_with_each_reload_and_one_rebalance_cures_it(
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
        service.restart("m-1", MIXED)
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
