"""What a new member id does not prove, and what a static member's does."""

import os
import signal

from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.kafka.processes import freeze, wait_for
from tests.kafka.rolling import Rolling
from tests.kafka.service import inspect
from tests.live_support import read_group


def ids(broker: Broker, group_id: str) -> dict[str, str]:
    """Client id to member id, as read."""
    found = read_group(broker, group_id)
    return {member.client_id: member.member_id for member in found.members}


def test_an_expired_session_gives_a_new_id_without_a_new_process(
    kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    service = Rolling(kafka41, members, group_id, topic_name, software="confluent-kafka")
    service.begin(["sleepy"], [], session_timeout_ms=1500)
    own = service.running["sleepy"]
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


def test_a_static_restart_shows_what_the_new_process_sent(
    broker: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    """Owned partitions under a new member id are never those of the process before it.

    So a list of owned partitions proves COOPERATIVE of the process that runs now.
    """

    def owned() -> int:
        (sent,) = (one for one in inspect(broker, group_id)["members"] if one["client_id"] == "a")
        return sum(len(each["partitions"]) for each in sent["subscription"]["owned_partitions"])

    service = Rolling(broker, members, group_id, topic_name, software="java-2.8.2")
    for name in ("a", "b"):
        options = {"instance_id": name, "session_timeout_ms": 20_000}
        service.begin([name], ["cooperative-sticky"], **options)
    assert owned() > 0
    service.restart("a", ["cooperative-sticky", "range"])
    assert owned() == 0
