"""How long a Kafka Streams program's partitions stand still in a restart, foretold and real."""

from __future__ import annotations

import time

import pytest

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members
from tests.kafka.rolling import Rolling
from tests.kafka.service import answer
from tests.live_support import measured

PARTITIONS = 4
SESSION, HEARTBEAT, RESTART = 6.0, 1.0, 2.0


def standstill(members: list[Member], stops: dict[str, float], since: float) -> float:
    """The sum over all partitions of how long nobody was given each, after `since`.

    A program that is closed says nothing of what it owned: `stops` is when each was (by its id).
    """
    said = [(e.t_ms, m, e) for m in members for e in m.said("assigned", "revoked", "lost")]
    said.sort(key=lambda each: each[0])
    owner: dict[tuple[str, int], Member] = {}
    idle: dict[tuple[str, int], float] = {}
    seconds = 0.0
    for at, member, event in said:
        for one in event.partitions:
            if event.kind != "assigned":
                idle.setdefault(one, at)
                continue
            if at > since and one in owner:
                begun = idle.get(one, stops.get(owner[one].id, at))
                seconds += (at - begun) / 1000
            idle.pop(one, None)
            owner[one] = member
    return seconds


@pytest.mark.full
def test_what_a_stopped_program_owned_waits_for_its_session(
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
        ever, began = list(service.running.values()), time.time() * 1000
        stops: dict[str, float] = {}
        for name in "ab":
            stops[service.running[name].id] = time.time() * 1000
            service.running[name].stop()
            time.sleep(RESTART)
            service.begin([name], [], settings=own)
            ever.append(service.running[name])
    real = standstill(ever, stops, began)
    # A session ends so long after the last heartbeat, not after the stop.
    low = PARTITIONS * (SESSION - HEARTBEAT - 0.5)
    # Each of the two may have sent its last heartbeat just before it stopped; and it starts a JVM.
    high = cost["partition_seconds"] + 2 * PARTITIONS * (HEARTBEAT + 1)
    measured("restart of a Streams program", low, real, high)
