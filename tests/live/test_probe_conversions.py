"""Probing while a group is converted to KIP-848 and back: nobody is ever admitted."""

import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from rebal.groups.model import GroupSnapshot, GroupType
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import RequestError
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.describe import describe
from rebal.inspectors.kafka.probe import join_request
from rebal.inspectors.kafka.read import read_groups
from rebal.inspectors.kafka.wire import error_name
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.processes import wait_for
from tests.live_support import config_of

ASKED = ("cooperative-sticky", "range")
TIMES = 20 if os.environ.get("REBAL_FULL") == "1" else 8


def keep_on(probe: Callable[[], None], over: threading.Event) -> None:
    """Probe until it is over."""
    while not over.is_set():
        probe()


class Answers:
    """Probes of one group: their answers, of bare requests by the group's type as well."""

    def __init__(self, config: ClusterConfig, cluster: RawCluster, group_id: str) -> None:
        self._config = config
        self._cluster = cluster
        self._group_id = group_id
        self.bare: Counter[tuple[str, str]] = Counter()
        self.guarded = 0
        self.seen_members: set[str] = set()

    def as_rebal_does(self) -> None:
        (found,) = read_groups(self._config, [self._group_id], probe=True, assignors=ASKED)
        # Between its two descriptions the group may just have changed its type.
        if isinstance(found, GroupSnapshot):
            self.seen_members |= {member.member_id for member in found.members}
            assert found.probe is not None
            self.guarded += found.probe.refused is None

    def without_looking_first(self) -> None:
        """So that it falls on the KIP-848 group too (which always has a member here)."""
        deadline = self._cluster.deadline()
        try:
            before = describe(self._cluster, self._group_id, deadline)
            connection = self._cluster.node(before.coordinator_id, deadline)
            request = join_request(
                self._group_id,
                "range",
                member_id=f"rebal-probe-{secrets.token_hex(16)}",
                instance_id=f"rebal-probe-{secrets.token_hex(32)}",
                session_timeout_ms=10_000,
                version=9,
            )
            response = connection.exchange(request, deadline)
            after = describe(self._cluster, self._group_id, deadline)
        except RequestError:
            return
        self.seen_members |= {member.member_id for one in (before, after) for member in one.members}
        kind = before.type.value if before.type is after.type else "in between"
        self.bare[kind, error_name(response.error_code)] += 1


@pytest.mark.timeout(240)
def test_nobody_is_admitted_during_conversions_each_way(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    broker, topic = kafka41, topic_name
    broker.create_topic(topic, 4)
    classic = members.start(
        "java-4.1.1", broker, "stays", group_id, topics=[topic], assignors=ASKED,
        session_timeout_ms=20_000,
    )  # fmt: skip
    classic.wait_for("assigned")
    broker.wait_stable(group_id, 1)
    own_ids: set[str] = set()
    config, over = config_of(broker), threading.Event()
    with RawCluster(config) as cluster, RawCluster(config) as another, ThreadPoolExecutor() as pool:
        answers = Answers(config, another, group_id)

        def type_is(kind: GroupType, count: int) -> bool:
            try:
                found = describe(cluster, group_id, cluster.deadline())
            except RequestError:
                return False
            own_ids.update(member.member_id for member in found.members)
            return found.type is kind and len(found.members) == count

        assert type_is(GroupType.CLASSIC, 1)
        ways = (answers.as_rebal_does, answers.without_looking_first)
        probing = [pool.submit(keep_on, way, over) for way in ways]
        try:
            for turn in range(TIMES):
                guest = members.start(
                    "java-4.1.1", broker, f"guest-{turn}", group_id, topics=[topic],
                    protocol="consumer",
                )  # fmt: skip
                wait_for(f"conversion {turn}", lambda: type_is(GroupType.CONSUMER, 2), timeout=20)
                time.sleep(0.3)
                guest.stop()
                wait_for(f"way back {turn}", lambda: type_is(GroupType.CLASSIC, 1), timeout=20)
                time.sleep(0.3)
        finally:
            over.set()
        for each in probing:
            each.result(20)
        assert type_is(GroupType.CLASSIC, 1)
    print(answers.bare)
    inside = sum(count for (kind, _), count in answers.bare.items() if kind != "classic")
    assert inside > TIMES, "too few probes fell into the KIP-848 group to prove anything"
    assert answers.guarded > 0
    assert not [name for (_, name) in answers.bare if name == "NONE"]
    assert not [member for member in answers.seen_members | own_ids if "rebal" in member]
    assert not classic.error
