"""The logs of clients other than Java against what the broker's request log shows of them."""

from pathlib import Path

import pytest

from rebal.groups.clients import proven_family
from rebal.groups.evidence.merge import merge
from rebal.groups.model import Knowledge, Source
from rebal.inspectors.logs.client.reader import read_client_logs
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.live_support import read_group

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
    service = Rolling(kafka41, members, group_id, topic_name, software=software)
    with service.logged():
        service.begin(["app-1"], [], settings=settings, instance_id=instance_id)
        described = read_group(kafka41, group_id)
        log = tmp_path / "app-1.log"
        log.write_text(service.running["app-1"].log())
        own = merge(described, (reading := read_client_logs([log])).observations + reading.logs)
        sent = merge(described, read_request_log([kafka41.request_log_path]).observations)
    (shown,), (truth,) = own.members, sent.members
    assert proven_family(shown.software) == family
    assert (shown.client_id, shown.instance_id) == ("app-1", instance_id)
    assert truth.assignors.knowledge is Knowledge.EXACT
    assert shown.assignors.list == (truth.assignors.list if listed else ())
    if listed:
        assert {e.source for e in shown.assignors.evidence} == {Source.CLIENT_LOG}
    assert not own.contradictions
