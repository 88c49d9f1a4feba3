"""Probing while a group is converted to KIP-848 and back: nobody is ever admitted."""

import os
import secrets
import threading
import time
from collections import Counter

import pytest

from rebal.groups.model import Group, GroupSnapshot, GroupType
from rebal.inspectors.errors import RequestError
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.describe import Described, describe
from rebal.inspectors.kafka.probe import join_request, probe_group
from rebal.inspectors.kafka.wire import error_name
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.processes import wait_for
from tests.live_support import config_of

ASKED = ("cooperative-sticky", "range")
TIMES = 20 if os.environ.get("REBAL_FULL") == "1" else 8


class Prober(threading.Thread):
    """Sends until told to stop; counts the answers, of bare requests by the group's type as well.

    `guarded` sends as rebal does, by `probe_group`. Otherwise the bare request is sent without
    looking first, so that it falls on the KIP-848 group too (which always has a member here).
    """

    def __init__(self, broker: Broker, group_id: str, *, guarded: bool) -> None:
        super().__init__(daemon=True)
        self._cluster = RawCluster(config_of(broker))
        self._group_id = group_id
        self._guarded = guarded
        self._over = threading.Event()
        self.answers: Counter[tuple[str, str]] = Counter()
        self.answered = 0
        self.seen_members: set[str] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._once()
        except BaseException as error:
            self.failure = error
        finally:
            self._cluster.close()

    def end(self) -> None:
        self._over.set()
        self.join(20)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive()

    def _once(self) -> None:
        deadline = self._cluster.deadline()
        try:
            before = describe(self._cluster, self._group_id, deadline)
        except RequestError:
            # Between its two descriptions the group may just have changed its type.
            return
        self.seen_members |= {member.member_id for member in before.members}
        if self._guarded:
            self._as_rebal_does(before)
        else:
            self._bare(before)

    def _as_rebal_does(self, before: Described) -> None:
        described = GroupSnapshot(
            group=Group(
                group_id=before.group_id,
                type=before.type,
                state=before.state,
                protocol_type=before.protocol_type or "",
            ),
            captured_at=before.at,
            members=before.members,
        )
        self.answered += probe_group(self._cluster, described, ASKED).refused is None

    def _bare(self, before: Described) -> None:
        deadline = self._cluster.deadline()
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
        try:
            after = describe(self._cluster, self._group_id, deadline)
        except RequestError:
            return
        self.seen_members |= {member.member_id for member in after.members}
        kind = before.type.value if before.type is after.type else "in between"
        self.answers[kind, error_name(response.error_code)] += 1


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
    probers = [Prober(broker, group_id, guarded=guarded) for guarded in (True, False)]
    own_ids: set[str] = set()
    with RawCluster(config_of(broker)) as cluster:

        def type_is(kind: GroupType, count: int) -> bool:
            try:
                found = describe(cluster, group_id, cluster.deadline())
            except RequestError:
                return False
            own_ids.update(member.member_id for member in found.members)
            return found.type is kind and len(found.members) == count

        assert type_is(GroupType.CLASSIC, 1)
        for prober in probers:
            prober.start()
        for turn in range(TIMES):
            guest = members.start(
                "java-4.1.1", broker, f"guest-{turn}", group_id, topics=[topic], protocol="consumer"
            )
            wait_for(f"conversion {turn}", lambda: type_is(GroupType.CONSUMER, 2), timeout=20)
            time.sleep(0.3)
            guest.stop()
            wait_for(f"way back {turn}", lambda: type_is(GroupType.CLASSIC, 1), timeout=20)
            time.sleep(0.3)
        for prober in probers:
            prober.end()
        assert type_is(GroupType.CLASSIC, 1)
    guarded, bare = probers
    print(bare.answers)
    inside = sum(count for (kind, _), count in bare.answers.items() if kind != "classic")
    assert inside > TIMES, "too few probes fell into the KIP-848 group to prove anything"
    assert guarded.answered > 0
    assert not [name for (_, name) in bare.answers if name == "NONE"]
    seen = guarded.seen_members | bare.seen_members | own_ids
    assert not [member for member in seen if "rebal" in member]
    assert not classic.error
