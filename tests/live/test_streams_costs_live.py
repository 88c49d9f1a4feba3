"""How long a Kafka Streams program's partitions stand still in a restart, foretold and real."""

import time

import pytest

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Event, Members, Rolling, answer
from tests.live_support import measured, standstill

PARTITIONS = 4
SESSION, HEARTBEAT, RESTART = 6.0, 1.0, 2.0


@pytest.mark.full
def test_partitions_of_a_stopped_streams_program_are_down_until_its_session_expires(
    kafka41: Broker,
    members: Members,
    group_id: str,
    topic_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka41.wait_coordinator(group_id)
    names = (group_id, topic_name)
    software = f"streams-{jars.SCALA}"
    service = Rolling(kafka41, members, *names, partitions=PARTITIONS, software=software)
    service.quiet = 1.0
    own = {
        "session.timeout.ms": str(int(1000 * SESSION)),
        "heartbeat.interval.ms": str(int(1000 * HEARTBEAT)),
    }
    with service.logged():
        service.begin("ab", [], settings={**own, "upgrade.from": "2.3"})
        words = ["--restart-seconds", f"{RESTART:g}"]
        log = ["--request-log", str(kafka41.request_log_path)]
        body = answer(kafka41, capsys, "plan-upgrade", group_id, *words, *log)
        cost = body["steps"][body["next_step"] - 1]["cost"]
        assert [pace["name"] for pace in cost["paces"]] == ["one by one", "all at once"]
        assert f"session timeout {SESSION:g} s" in cost["text"]
        began = time.time() * 1000
        events = []
        for name in "ab":
            # A program that is closed says nothing of what it owned.
            stopped = service.running[name]
            owned = {"partitions": {topic_name: [number for _, number in stopped.owned]}}
            events.append((Event(round(time.time() * 1000), stopped.id, "revoked", owned), name))
            stopped.stop()
            time.sleep(RESTART)
            service.begin([name], [], settings=own)
    events += [(event, name) for name, member in service.ever for event in member.events]
    _, real, _ = standstill(events, began, PARTITIONS)
    # A session ends so long after the last heartbeat, not after the stop.
    low = PARTITIONS * (SESSION - HEARTBEAT - 0.5)
    # Each of the two may have sent its last heartbeat just before it stopped; and it starts a JVM.
    high = cost["partition_seconds"] + 2 * PARTITIONS * (HEARTBEAT + 1)
    measured("restart of a Streams program", low, real, high)
