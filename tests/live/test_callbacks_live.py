"""Real members whose callbacks throw or take long, beside what the rehearsal foretells of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.script import Deed, Event
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned
from tests.planner.rehearsal.scenes import play, scene, told
from tests.planner.rehearsal.test_kip848 import LATE, kip848

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]
# Long enough for members to hear of every epoch: their heartbeats come twice a second.
QUIET = 4.0
POLL_TIMEOUT = 10.0
SLOW = pytest.mark.parametrize("slow", [8.0, 14.0], ids=["within", "past"])
Begin = Callable[..., Member]


@pytest.fixture
def begin(kafka41: Broker, members: Members, group_id: str, topic_name: str) -> Begin:
    """Start a member by its name, with these settings; of KIP-848 where it has no list."""
    topic = kafka41.create_topic(topic_name, 12)

    def started(name: str, *assignors: str, **settings: str) -> Member:
        return members.start(
            "java-4.1.1", kafka41, name, group_id, topics=[topic], assignors=assignors or None,
            protocol=None if assignors else "consumer", settings=settings,
        )  # fmt: skip

    return started


def milliseconds(seconds: float) -> str:
    return str(int(1000 * seconds))


def foretold(callback: str) -> Rehearsal:
    """Two members and the same event: one more joins, or m1 does not poll for too long."""
    where = kip848(2, rebalance=6.0)
    first, second = where.running
    if callback == "assigned":
        late = replace(LATE, name="m1", fails_in=(callback,))
        return play(kip848(1), Event(do=Deed.START, processes=(late,)))
    failing = replace(second.process, fails_in=(callback,))
    where = replace(where, running=(first, replace(second, process=failing)))
    if callback == "revoked":
        return play(where, Event(do=Deed.START, processes=(LATE,)))
    return play(where, Event(do=Deed.BUSY, members=("m1",), seconds=9.0))


@pytest.mark.parametrize("callback", ["revoked", "assigned", "lost"])
def test_kip848_member_whose_callback_throws_leaves_as_rehearsed(
    callback: str, begin: Begin
) -> None:
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


@SLOW
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_rebalance_during_a_long_assigned_callback_is_as_rehearsed(
    slow: float, assignor: str, begin: Begin
) -> None:
    patient = {"max.poll.interval.ms": milliseconds(POLL_TIMEOUT)}
    wait_assigned([begin("m0", assignor, **patient)], 12)
    begun = time.monotonic()
    waiting = begin("slow", assignor, **patient, **{"slow.assigned": milliseconds(slow)})
    waiting.wait_for("assigned", timeout=60)
    joined = time.monotonic() - begun
    begin("late", assignor, **patient).wait_for("assigned", timeout=60)
    took = time.monotonic() - begun - joined

    def start(name: str, at: float, on_assigned: float) -> Event:
        process = Process(
            name=name, assignors=(assignor,), topics=("orders",), on_assigned=on_assigned,
            rebalance=POLL_TIMEOUT, heartbeat=0.5, poll=0.1,
        )  # fmt: skip
        return Event(do=Deed.START, at=at, processes=(process,))

    run = play(
        scene((assignor,), rebalance=POLL_TIMEOUT, heartbeat=0.5, poll=0.1),
        start("slow", 10.0, slow),
        start("late", 10.0 + joined, 0.0),
    )
    ended = next(each.ended for each in run.rebalances if each.ended > 11.0 + joined)
    assert took == pytest.approx(ended - 10.0 - joined, abs=1.0)


@SLOW
def test_kip848_member_in_a_long_assigned_callback_leaves_as_rehearsed(
    slow: float, begin: Begin
) -> None:
    first = begin("m0")
    limits = {"max.poll.interval.ms": POLL_TIMEOUT, "slow.assigned": slow}
    late = begin("late", **{key: milliseconds(seconds) for key, seconds in limits.items()})
    wait_assigned([first], 6, timeout=60)
    late.wait_for("assigned", timeout=60)
    time.sleep(slow + 3)

    process = replace(LATE, on_assigned=slow, rebalance=POLL_TIMEOUT)
    run = play(kip848(1), Event(do=Deed.START, at=10.0, processes=(process,)))
    past = [note for note in run.notes if note.what == "past its poll timeout"]
    lines = [line for line in late.log().splitlines() if "clientId=late" in line]
    left = any("poll timeout has expired" in line for line in lines)
    assert left is bool(past) is (slow > POLL_TIMEOUT)
