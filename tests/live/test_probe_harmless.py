"""The probe disturbs nothing: 200 in a row, on every kind of group that may be asked.

While a group is converted to KIP-848 and back nobody is ever admitted.
"""

import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rebal.groups.model import GroupSnapshot, GroupState, GroupType, Tri
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import RequestError
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.describe import describe
from rebal.inspectors.kafka.probe import join_request, probe_group
from rebal.inspectors.kafka.read import read_groups
from rebal.inspectors.kafka.wire import error_name, request_class
from tests.kafka.broker import Broker, wait_for
from tests.kafka.members import Member, Members, Rolling, wait_assigned
from tests.live_support import config_of, read_group, stored_generations

ASKED = ("range", "cooperative-sticky", "sticky", "roundrobin")


def started(
    broker: Broker, members: Members, group: str, topic: str, *, static: bool, lists: list[str]
) -> list[Member]:
    service = Rolling(broker, members, group, topic, software="java-3.9.1")
    for n in range(2):
        instance_id = f"i-{n}" if static else None
        name = f"{group[-6:]}-{n}"
        service.place(name, lists, instance_id=instance_id, session_timeout_ms=20_000)
    service.settle()
    return list(service.running.values())


def coordinator_lines(broker: Broker, group: str) -> list[str]:
    return [line for line in broker.coordinator_log().splitlines() if group in line]


KINDS = {
    "eager-dynamic": (["range"], False),
    "eager-static": (["range", "cooperative-sticky"], True),
    "cooperative-dynamic": (["cooperative-sticky"], False),
    "cooperative-static": (["cooperative-sticky"], True),
}
PROBED = [
    *(("kafka41", kind) for kind in KINDS),
    ("kafka39", "eager-static"),
    ("newest", "eager-static"),
    *(pytest.param("kafka39", k, marks=pytest.mark.full) for k in KINDS if k != "eager-static"),
]


@pytest.mark.parametrize(("site", "kind"), PROBED)
def test_200_probes_leave_a_group_unchanged(
    site: str, kind: str, request: pytest.FixtureRequest, members: Members, group_id: str,
    *, topic_name: str, joins_sent: Callable[[], int],
) -> None:  # fmt: skip
    broker, group = request.getfixturevalue(site), group_id
    lists, static = KINDS[kind]
    own = started(broker, members, group, topic_name, static=static, lists=lists)
    snapshot = read_group(broker, group)
    records = stored_generations(broker, group)
    events = [member.events for member in own]
    lines = coordinator_lines(broker, group)
    expected = {name: Tri.YES if name in lists else Tri.NO for name in ASKED}
    with RawCluster(config_of(broker)) as cluster:
        before = describe(cluster, group, cluster.deadline())
        sent = 0
        while sent < 200:
            probe = probe_group(cluster, snapshot, ASKED)
            assert probe.refused is None, probe.refused
            assert {each.assignor: each.supported for each in probe.answers} == expected
            sent += len(probe.answers)
        # A rebalance would show by the next heartbeat, half a second later.
        time.sleep(1.2)
        after = describe(cluster, group, cluster.deadline())
    assert sent == joins_sent() == 200
    assert (after.state, after.type) == (GroupState.STABLE, GroupType.CLASSIC)
    assert after.members == before.members
    assert [member.events for member in own] == events
    assert coordinator_lines(broker, group) == lines
    assert stored_generations(broker, group) == records
    assert [member.member_id for member in own] == [
        next(m.member_id for m in after.members if m.client_id == member.client_id)
        for member in own
    ]


@pytest.fixture
def joins_sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the JoinGroup requests that leave this process."""
    from rebal.inspectors.kafka.wire import BrokerConnection

    sent = 0
    exchange_all = BrokerConnection.exchange_all

    def counting(self: BrokerConnection, requests: Sequence[object], deadline: Any) -> object:
        nonlocal sent
        sent += sum(isinstance(one, request_class("JoinGroup")) for one in requests)
        return exchange_all(self, requests, deadline)

    monkeypatch.setattr(BrokerConnection, "exchange_all", counting)
    return lambda: sent


def test_the_probe_never_joins_a_kip_848_group_which_keeps_its_offsets_when_empty(
    kafka41: Broker, members: Members, group_id: str, topic_name: str, joins_sent: Callable[[], int]
) -> None:
    kafka41.create_topic(topic_name, 2)
    kafka41.produce(topic_name, {0: 7, 1: 5})
    own = members.start(
        "java-4.1.1", kafka41, "k", group_id, topics=[topic_name], protocol="consumer"
    )
    wait_assigned([own], 2)
    kafka41.wait_stable(group_id, 1)
    wait_for(
        "the commits", lambda: committed(read_group(kafka41, group_id)) == {0: 7, 1: 5}, timeout=20
    )

    def refused() -> tuple[GroupState, str]:
        found = read_group(kafka41, group_id, probe=True, assignors=ASKED)
        assert found.group.type is GroupType.CONSUMER
        assert found.probe is not None
        assert found.probe.answers == ()
        return found.group.state, found.probe.refused or ""

    state, why = refused()
    assert state is GroupState.STABLE
    assert "not a classic group" in why
    own.stop()
    for _ in range(3):
        state, why = refused()
        assert state is GroupState.EMPTY
        assert why
    assert joins_sent() == 0
    assert committed(read_group(kafka41, group_id)) == {0: 7, 1: 5}


def committed(snapshot: GroupSnapshot) -> dict[int, int | None]:
    return {each.partition: each.committed for each in snapshot.lag}


def test_the_probe_gives_no_answer_for_a_group_that_changed_or_is_empty(
    kafka41: Broker, members: Members, group_id: str, topic_name: str, joins_sent: Callable[[], int]
) -> None:
    own = started(kafka41, members, group_id, topic_name, static=False, lists=["range"])
    old = read_group(kafka41, group_id)
    own[1].stop()
    wait_assigned(own[:1], 6)
    kafka41.wait_stable(group_id, 1)
    with RawCluster(config_of(kafka41)) as cluster:
        probe = probe_group(cluster, old, ASKED)
    assert probe.answers == ()
    assert "members changed since it was read" in (probe.refused or "")
    own[0].stop()
    found = read_group(kafka41, group_id, probe=True)
    assert found.group.state is GroupState.EMPTY
    assert found.probe is not None
    assert "Empty, not Stable" in (found.probe.refused or "")
    assert joins_sent() == 0


ASKED_FOR = ("cooperative-sticky", "range")
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
        (found,) = read_groups(self._config, [self._group_id], probe=True, assignors=ASKED_FOR)
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
def test_no_probe_is_admitted_as_a_member_during_kip_848_conversions(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    broker, topic = kafka41, topic_name
    broker.create_topic(topic, 4)
    classic = members.start(
        "java-4.1.1", broker, "stays", group_id, topics=[topic], assignors=ASKED_FOR,
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
