"""Real members whose callbacks throw, beside what the rehearsal foretells of them."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.script import Deed, ScriptEvent
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned
from tests.planner.rehearsal.scenes import play, told
from tests.planner.rehearsal.test_kip848 import LATE, failing, kip848

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]
# Long enough for members to hear of every epoch: their heartbeats come twice a second.
QUIET = 4.0


def foretold(callback: str) -> Rehearsal:
    """Two members and the same event: one more joins, or m1 does not poll for too long."""
    if callback == "assigned":
        late = replace(LATE, name="m1", fails_in=(callback,))
        return play(kip848(1), ScriptEvent(do=Deed.START, processes=(late,)))
    where = failing(callback, rebalance=6.0)
    if callback == "revoked":
        return play(where, ScriptEvent(do=Deed.START, processes=(LATE,)))
    return play(where, ScriptEvent(do=Deed.BUSY, members=("m1",), seconds=9.0))


@pytest.mark.parametrize("callback", ["revoked", "assigned", "lost"])
def test_kip848_member_whose_callback_throws_leaves_as_rehearsed(
    callback: str, kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    topic = kafka41.create_topic(topic_name, 12)

    def begin(name: str, **settings: str) -> Member:
        return members.start(
            "java-4.1.1", kafka41, name, group_id, topics=[topic], protocol="consumer",
            settings=settings,
        )  # fmt: skip

    good = begin("m0")
    running = [good]
    wait_assigned(running, 12, quiet=QUIET)
    before = good.generation
    bad = begin("m1", fails=callback, **{"max.poll.interval.ms": "6000"})
    if callback != "assigned":
        wait_assigned([good, bad], 12, quiet=QUIET)
        before = good.generation
    if callback == "revoked":
        running.append(begin("late"))
    elif callback == "lost":
        bad.hold(9000)
    failed = bad.wait_for("error", timeout=60)
    assert f"callback {callback}" in str(failed.data)
    # Its session lasts 45 s: the partitions do not wait for that.
    wait_assigned(running, 12, timeout=15)
    time.sleep(QUIET)
    run = foretold(callback)
    assert told(run, "callback failed") == [("m1", callback)]
    assert told(run, "removed") == []
    assert good.generation is not None
    assert before is not None
    assert good.generation - before == len(run.rebalances)
    assert [len(one.owned) for one in running] == [one.owned for one in run.members if one.owned]
