"""The request log of real brokers, both coordinators, against what the members were given."""

from rebal.groups.evidence.observations import Joined, Left, Rebalanced, Refused
from rebal.inspectors.logs.requests.lines import MARK, Request, parse
from rebal.inspectors.logs.requests.reader import read_request_log
from tests.kafka.processes import wait_for
from tests.live_support import read_group

LISTS = {
    "java-2.3.1": ("roundrobin", "range"),
    "java-2.8.2": ("cooperative-sticky", "range"),
    "java-4.1.1": ("range", "cooperative-sticky"),
    "confluent-kafka": ("range", "roundrobin"),
    "kafka-python": ("range",),
}
SOFTWARE = {
    "java-2.3.1": None,
    "java-2.8.2": ("java", "2.8.2"),
    "java-4.1.1": ("java", "4.1.1"),
    "confluent-kafka": ("librdkafka", None),
    "kafka-python": ("kafka-python", None),
}


def test_every_list_by_member_id_the_refusal_and_the_probe(service):
    broker, group_id = service.broker, service.group
    for software, names in LISTS.items():
        static = {"instance_id": "i-0"} if software == "java-4.1.1" else {}
        service.begin([f"c-{software}"], names, software=software, **static)
    described = broker.admin().describe_consumer_groups([group_id])[group_id].result(10)
    by_id = {m.member_id: m.client_id.removeprefix("c-") for m in described.members}

    snapshot = read_group(broker, group_id, probe=True, assignors=("sticky",))
    asked = len(snapshot.probe.answers)
    assert asked

    service.refuses("refused", ["sticky"], "Inconsistent", software="java-2.8.2")
    service.stop("c-java-2.8.2")
    gone = next(i for i, software in by_id.items() if software == "java-2.8.2")
    wait_for(
        "the LEAVE_GROUP in the request log",
        lambda: gone in {o.member_id for o in _seen(broker, group_id) if isinstance(o, Left)},
        timeout=10,
    )

    seen = _seen(broker, group_id)
    joins = [o for o in seen if isinstance(o, Joined)]
    last = {o.member_id: o for o in joins if o.member_id in by_id}
    assert {by_id[i]: o.list for i, o in last.items()} == LISTS
    for member_id, join in last.items():
        told = SOFTWARE[by_id[member_id]]
        assert (join.software is None) == (told is None)
        if told is not None:
            assert join.software.family == told[0]
            assert told[1] in (None, join.software.version)
        assert join.host == "127.0.0.1"
    statics = {o.instance_id for o in last.values()}
    assert statics == {None, "i-0"}
    refusals = [o for o in seen if isinstance(o, Refused)]
    assert [(o.client_id, o.list) for o in refusals] == [("refused", ("sticky",))]
    lines = broker.request_log_path.read_bytes().splitlines()
    requests = [parse(raw, "", 0, None) for raw in lines if MARK in raw]
    own = [one for one in requests if isinstance(one, Request) and one.group_id == group_id]
    assert sum(one.is_probe for one in own) == asked
    generations = [o.generation_id for o in seen if isinstance(o, Rebalanced)]
    assert len(generations) >= len(LISTS)
    assert generations == sorted(set(generations))


def _seen(broker, group_id):
    reading = read_request_log([broker.request_log_path])
    return [one for one in reading.observations if one.group_id == group_id]
