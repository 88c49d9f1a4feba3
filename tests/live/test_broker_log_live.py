"""The broker's own log against the records of the offsets topic and the members themselves."""

import pytest

from rebal.groups.evidence.merge import merge
from rebal.groups.model import Source, Tri
from rebal.inspectors.logs.broker.reader import read_broker_log
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.rolling import Rolling
from tests.live_support import read_group


@pytest.mark.parametrize(
    "version", [jars.SCALA, pytest.param(jars.EARLY, marks=pytest.mark.full), jars.NEWEST]
)
def test_the_log_shows_loads_joins_and_leaves(
    version: str, members: Members, group_id: str, topic_name: str
) -> None:
    with Broker(version, secure=False) as broker:
        names = (group_id, topic_name)
        service = Rolling(broker, members, *names, partitions=4, software="java-3.9.1")

        def known() -> tuple[Tri, set[str], dict[str, bool], list[str]]:
            described = read_group(broker, group_id)
            reading = read_broker_log([broker.coordinator_log_path])
            found = merge(described, (*reading.observations, *reading.logs))
            coordinator = found.group.coordinator
            assert coordinator is not None
            assert not found.contradictions
            assert all(not member.assignors.list for member in found.members)
            return (
                coordinator.rebalanced_since_load,
                {m.client_id for m in found.members if m.first_joined_at is not None},
                {one.client_id: one.left for one in found.departed},
                [e.source for m in found.members for e in m.assignors.evidence],
            )

        service.begin(["a", "b", "c"], ["range"])
        assert known()[:3] == (Tri.YES, {"a", "b", "c"}, {})
        service.stop("b")
        service.running.pop("c").crash()
        service.settle()
        since, ids, departed, sources = known()
        assert (since, ids, departed) == (Tri.YES, {"a"}, {"b": True, "c": False})
        assert Source.BROKER_LOG not in sources
        broker.restart()
        broker.wait_stable(group_id, 1)
        loaded = broker.coordinator_log().rpartition(f"roup {group_id} with 1 members")[2]
        if broker.is_scala_coordinator:
            loaded = broker.coordinator_log().rpartition(f"metadata for {group_id} with gen")[2]
        again = f"Stabilized group {group_id} " in loaded
        assert known()[0] is (Tri.YES if again else Tri.NO)
        service.begin(["d"], ["range"])
        assert known()[:2] == (Tri.YES, {"a", "d"})
        members.end()
