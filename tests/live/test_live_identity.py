"""What a member id proves: dynamic, static, and after an expired session."""

import os
import signal
import time

from rebal.groups.model import GroupSnapshot
from rebal.inspectors.kafka.read import read_groups
from tests.kafka.broker import Broker
from tests.kafka.members import Members, wait_assigned
from tests.kafka.processes import freeze, wait_for
from tests.kafka.rolling import Rolling
from tests.live_support import config_of


def ids(broker: Broker, group_id: str) -> dict[str, str]:
    """Client id to member id, as read."""
    (found,) = read_groups(config_of(broker), [group_id])
    assert isinstance(found, GroupSnapshot), found
    return {member.client_id: member.member_id for member in found.members}


def test_a_dynamic_id_stays_until_the_member_is_restarted(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = Rolling(kafka41, members, group_id, topic_name, software="java-3.9.1")
    service.begin(["stays", "restarts"], [])
    first, generation = ids(kafka41, group_id), service.running["stays"].generation
    service.restart("restarts", [])
    second, then = ids(kafka41, group_id), service.running["stays"].generation
    # Rebalances have gone over it, and it is the same member: it was not restarted.
    assert generation is not None
    assert then is not None
    assert then > generation
    assert second["stays"] == first["stays"]
    assert second["restarts"] != first["restarts"]


def test_an_expired_session_gives_a_new_id_without_a_new_process(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    kafka41.create_topic(topic_name, 2)
    own = members.start(
        "confluent-kafka", kafka41, "sleepy", group_id, topics=[topic_name],
        session_timeout_ms=1500,
    )  # fmt: skip
    wait_assigned([own], 2)
    first = ids(kafka41, group_id)
    pid = own.host.process.pid
    freeze(pid)
    try:
        wait_for("the session to expire", lambda: not ids(kafka41, group_id), timeout=20)
    finally:
        os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 20
    while not (second := ids(kafka41, group_id)):
        assert time.monotonic() < deadline, "it did not come back"
        time.sleep(0.1)
    assert own.host.process.pid == pid
    assert own.host.process.alive
    assert second["sleepy"] != first["sleepy"]
