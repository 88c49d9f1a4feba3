"""How long a coordinator counts a static member that was closed: the rehearsal engine's rule."""

from __future__ import annotations

import time

import pytest

from rebal.groups.model import GroupSnapshot
from rebal.inspectors.kafka.read import read_groups
from tests.kafka import jars
from tests.kafka.members import Members, wait_assigned
from tests.live_support import config_of

pytestmark = pytest.mark.full
SESSION, BEAT, CLOSED = 14.0, 12.0, 9.0
"""Seconds of the session, between two heartbeats, and from the join to the close."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("broker", jars.SITES)
@pytest.mark.parametrize(("commits", "counted"), [(True, CLOSED + SESSION), (False, SESSION)])
def test_commit_of_close_begins_the_session_of_a_static_member_anew(
    broker: str,
    request: pytest.FixtureRequest,
    members: Members,
    group_id: str,
    topic_name: str,
    *,
    commits: bool,
    counted: float,
) -> None:
    kafka = request.getfixturevalue(broker)
    kafka.create_topic(topic_name, 2)
    member = members.start(
        "java-4.1.1", kafka, "app-0", group_id, topics=[topic_name], assignors=["range"],
        instance_id="app-0",
        session_timeout_ms=round(SESSION * 1000),
        settings={
            "heartbeat.interval.ms": str(round(BEAT * 1000)),
            "enable.auto.commit": str(commits).lower(),
            "auto.commit.interval.ms": "600000",
        },
    )  # fmt: skip
    wait_assigned([member], 2, quiet=0.0)
    joined = time.monotonic()
    time.sleep(CLOSED)
    member.stop()
    while time.monotonic() < joined + counted + 10:
        (seen,) = read_groups(config_of(kafka), [group_id])
        assert isinstance(seen, GroupSnapshot)
        if not seen.members:
            break
        time.sleep(0.3)
    # Heartbeats come every 12 s: without the commit the join itself was the last word.
    assert time.monotonic() - joined == pytest.approx(counted, abs=3.5)
