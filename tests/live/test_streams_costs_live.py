"""How long a Kafka Streams program's partitions stand still in a restart, foretold and real."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebal.cli import app
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Member, wait_assigned
from tests.kafka.streams import StreamsHost
from tests.live_support import measured

PARTITIONS = 4
SESSION, HEARTBEAT, RESTART = 6.0, 1.0, 2.0


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[StreamsHost]:
    host = StreamsHost(jars.SCALA, tmp_path)
    yield host
    host.close()


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
    streams: StreamsHost,
    group_id: str,
    topic_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka41.create_topic(topic_name, PARTITIONS)
    kafka41.wait_coordinator(group_id)
    own = {
        "session.timeout.ms": str(int(1000 * SESSION)),
        "heartbeat.interval.ms": str(int(1000 * HEARTBEAT)),
    }
    kafka41.log_requests(True)
    try:
        eager = {**own, "upgrade.from": "2.3"}
        running = [streams.launch(kafka41, n, group_id, [topic_name], eager) for n in "ab"]
        wait_assigned(running, PARTITIONS, quiet=1)
        log = ["--request-log", str(kafka41.request_log_path)]
        words = [group_id, "-b", kafka41.bootstrap, "--restart-seconds", f"{RESTART:g}", *log]
        app.run(["plan-upgrade", *words, "-o", "json"])
        body = json.loads(capsys.readouterr().out)
        step = next(s for s in body["steps"] if s["id"] == body["next_step"])
        cost = step["cost"]
        assert [pace["name"] for pace in cost["paces"]] == ["one by one", "all at once"]
        assert f"session timeout {SESSION:g} s" in cost["text"]
        ever, began = list(running), time.time() * 1000
        stops: dict[str, float] = {}
        for place, name in enumerate("ab"):
            stops[running[place].id] = time.time() * 1000
            running[place].stop()
            time.sleep(RESTART)
            running[place] = streams.launch(kafka41, name, group_id, [topic_name], own)
            ever.append(running[place])
            wait_assigned(running, PARTITIONS, quiet=1)
    finally:
        kafka41.log_requests(False)
        for member in running:
            member.stop()
    real = standstill(ever, stops, began)
    # A session ends so long after the last heartbeat, not after the stop.
    low = PARTITIONS * (SESSION - HEARTBEAT - 0.5)
    # Each of the two may have sent its last heartbeat just before it stopped; and it starts a JVM.
    high = cost["partition_seconds"] + 2 * PARTITIONS * (HEARTBEAT + 1)
    measured("restart of a Streams program", low, real, high)
