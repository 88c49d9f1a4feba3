"""Live groups: their coordinator, their brokers' settings, several at once, and odd members."""

import re
from collections.abc import Iterator

import pytest

from rebal.groups.evidence.merge import merge
from rebal.groups.model import CoordinatorKind, GroupSnapshot, GroupType, RebalanceProtocol
from rebal.groups.protocol import group_protocol
from rebal.inspectors.errors import SelectionError
from rebal.inspectors.kafka.read import GroupFailure, read_groups, select_groups
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members, wait_assigned
from tests.kafka.rolling import Rolling
from tests.live_support import config_of, read_group


def test_a_group_is_read_with_its_coordinator_and_what_its_cluster_is_set_to(
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


def test_the_own_configuration_of_a_group_takes_the_place_of_the_brokers(
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


def test_several_groups_and_one_that_is_not_there(
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


def test_classic_members_that_stay_alone_in_a_kip848_group_do_not_run_kip848(
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
