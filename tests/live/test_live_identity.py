"""What a new member id does not prove: an expired session gives one without a restart."""

import os
import signal

from tests.kafka.broker import Broker
from tests.kafka.members import Members, wait_assigned
from tests.kafka.processes import freeze, wait_for
from tests.live_support import read_group


def ids(broker: Broker, group_id: str) -> dict[str, str]:
    """Client id to member id, as read."""
    found = read_group(broker, group_id)
    return {member.client_id: member.member_id for member in found.members}


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
    wait_for("it to come back", lambda: bool(ids(kafka41, group_id)), timeout=20)
    assert own.host.process.pid == pid
    assert own.host.process.alive
    assert ids(kafka41, group_id)["sleepy"] != first["sleepy"]
