"""The logs of clients other than Java against what the broker's request log shows of them."""

from pathlib import Path

import pytest

from rebal.groups.clients import proven_family
from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, Knowledge, Source
from rebal.inspectors.kafka.read import read_groups
from rebal.inspectors.logs.client.reader import read_client_logs
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.kafka.broker import Broker
from tests.kafka.members import Members, wait_assigned
from tests.live_support import config_of

pytestmark = pytest.mark.usefixtures("other_clients")
LISTED = {"log.level": "DEBUG"}


@pytest.mark.parametrize(
    ("software", "family", "settings", "listed"),
    [
        ("confluent-kafka", "librdkafka", {**LISTED, "debug": "conf,cgrp"}, True),
        ("confluent-kafka", "librdkafka", {**LISTED, "debug": "cgrp"}, False),
        ("kafka-python", "kafka-python", LISTED, True),
        ("kafka-python", "kafka-python", {}, False),
        ("kafka-python-2", "kafka-python", LISTED, True),
        ("aiokafka", "aiokafka", LISTED, True),
        ("franz-go", "franz-go", {}, False),
    ],
)
@pytest.mark.parametrize("instance_id", [None, "one"], ids=["dynamic", "static"])
def test_a_client_s_log_agrees_with_the_request_log(
    software: str,
    family: str,
    settings: dict[str, str],
    listed: bool,
    instance_id: str | None,
    *,
    kafka41: Broker,
    members: Members,
    group_id: str,
    topic_name: str,
    tmp_path: Path,
) -> None:
    # A static member sends its first list without a member id, which Python's clients print there.
    listed = listed and (instance_id is None or family == "librdkafka")
    topic = kafka41.create_topic(topic_name, 4)
    kafka41.log_requests(True)
    member = members.start(
        *(software, kafka41, "app-1", group_id),
        topics=[topic],
        settings=settings,
        instance_id=instance_id,
    )
    wait_assigned([member], 4)
    kafka41.wait_stable(group_id, 1)
    (described,) = read_groups(config_of(kafka41), [group_id])
    assert isinstance(described, GroupSnapshot)
    log = tmp_path / "app-1.log"
    log.write_text(member.log())
    own = merge(described, (reading := read_client_logs([log])).observations + reading.logs)
    sent = merge(described, read_request_log([kafka41.request_log_path]).observations)
    kafka41.log_requests(False)
    (shown,), (truth,) = own.members, sent.members
    assert proven_family(shown.software) == family
    assert (shown.client_id, shown.instance_id) == ("app-1", instance_id)
    assert truth.assignors.knowledge is Knowledge.EXACT
    assert shown.assignors.list == (truth.assignors.list if listed else ())
    if listed:
        assert {e.source for e in shown.assignors.evidence} == {Source.CLIENT_LOG}
    assert not own.contradictions
