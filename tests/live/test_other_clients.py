"""Members of franz-go, sarama, kafka-go, kafkajs and aiokafka, and what inspect says of them."""

from __future__ import annotations

import pytest

from rebal.groups.clients import proven_family
from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, Knowledge, Software
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.kafka import clients
from tests.kafka.broker import Broker
from tests.kafka.members import Members, wait_assigned
from tests.kafka.rolling import Rolling
from tests.live_support import read_group

pytestmark = pytest.mark.usefixtures("other_clients")
DEFAULT_LISTS = {
    "franz-go": ("cooperative-sticky",),
    "sarama": ("range",),
    "segmentio": ("range", "roundrobin"),
    "kafkajs": ("RoundRobinAssigner",),
    "aiokafka": ("roundrobin",),
    "kafka-python-2": ("range", "roundrobin"),
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
# The clients that introduce themselves (KIP-511), with the release that the tests pin.
# kafka-python 2 does so at its first connection only, not at the one that it joins with.
BY_HANDSHAKE = {"franz-go": ("kgo", "v1.22.2"), "sarama": ("sarama", "v1.61.1")}


def look(broker: Broker, group: str, *, log: bool) -> GroupSnapshot:
    seen = read_request_log([broker.request_log_path]).observations if log else ()
    return merge(read_group(broker, group), seen)


@pytest.mark.parametrize("software", clients.OTHER_SOFTWARE)
def test_two_members_share_a_topic_and_are_recognised(
    software: str, kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = Rolling(kafka41, members, group_id, topic_name, software=software)
    with service.logged():
        service.begin(["one"], [])
        service.begin(["two"], [])
    first, second = service.running.values()
    plain, logged = (look(kafka41, group_id, log=log) for log in (False, True))
    seen = {
        member.client_id: (
            member.member_id,
            {(topic, n) for topic, numbers in member.assignment.items() for n in numbers},
        )
        for member in plain.members
    }
    assert seen == {one.client_id: (one.member_id, one.owned) for one in (first, second)}
    for member in plain.members:
        guessed = member.software or Software()
        assert (guessed.family, guessed.version_range) == BY_BYTES[software]
        assert proven_family(member.software) == ("franz-go" if software == "franz-go" else None)
    for member in logged.members:
        assert member.assignors.knowledge is Knowledge.EXACT
        assert member.assignors.list == DEFAULT_LISTS[software]
        named = BY_HANDSHAKE.get(software)
        assert proven_family(member.software) == (software if named else None)
        if named:
            assert member.software is not None
            assert (member.software.name, member.software.version) == named
    first.stop()
    wait_assigned([second], 6)
    assert first.said("closed")


@pytest.mark.full
@pytest.mark.parametrize(("leader", "needless"), [("java-2.8.2", True), ("java-3.9.1", False)])
def test_an_old_java_leader_moves_what_franz_go_could_keep(
    leader: str,
    needless: bool,
    kafka41: Broker,
    members: Members,
    *,
    group_id: str,
    topic_name: str,
) -> None:
    """RB117: it takes the length of franz-go's list of topics for the generation."""
    service = Rolling(kafka41, members, group_id, topic_name, partitions=12)
    # Who comes first leads, for as long as it stays.
    for name in (f"{leader}-0", "franz-go-0", "franz-go-1"):
        service.begin([name], ["cooperative-sticky"])
    running = list(service.running.values())
    before = [member.owned for member in running]
    assert [len(owned) for owned in before] == [4, 4, 4]
    service.begin(["franz-go-2"], [])
    joiner = service.running["franz-go-2"]
    moved = [len(owned - member.owned) for owned, member in zip(before, running, strict=True)]
    assert len(joiner.owned) == 3
    assert (sum(moved) > 3) is needless
