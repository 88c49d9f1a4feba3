"""Real members whose `onPartitionsAssigned` takes long, beside what the rehearsal foretells."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.script import Deed, Event
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned
from tests.planner.rehearsal.scenes import play, scene
from tests.planner.rehearsal.test_kip848 import LATE, kip848

TOPICS = ("orders",)
POLL_TIMEOUT = 10.0


def process(name: str, list_: tuple[str, ...], slow: float) -> Process:
    return Process(
        name=name, assignors=list_, topics=TOPICS, on_assigned=slow, rebalance=POLL_TIMEOUT,
        heartbeat=0.5, poll=0.1,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("slow", [8.0, 14.0], ids=["within", "past"])
def test_rebalance_during_a_long_assigned_callback_is_as_rehearsed(
    slow: float, assignor: str, kafka41: Broker, members: Members, group_id: str
) -> None:
    list_, topic_name = (assignor,), group_id.replace("g-", "t-", 1)
    topic = kafka41.create_topic(topic_name, 12)

    def begin(name: str, **settings: str) -> Member:
        return members.start(
            "java-4.1.1", kafka41, name, group_id, topics=[topic], assignors=list(list_),
            settings={"max.poll.interval.ms": str(int(POLL_TIMEOUT * 1000)), **settings},
        )  # fmt: skip

    first = begin("m0")
    wait_assigned([first], 12)
    begun = time.monotonic()
    begin("slow", **{"slow.assigned": str(int(slow * 1000))}).wait_for("assigned", timeout=60)
    joined = time.monotonic() - begun
    last = begin("late")
    last.wait_for("assigned", timeout=60)
    took = time.monotonic() - begun - joined

    run = play(
        scene(list_, rebalance=POLL_TIMEOUT, heartbeat=0.5, poll=0.1),
        Event(do=Deed.START, at=10.0, processes=(process("slow", list_, slow),)),
        Event(do=Deed.START, at=10.0 + joined, processes=(process("late", list_, 0.0),)),
    )
    foretold = next(each.ended for each in run.rebalances if each.ended > 11.0 + joined)
    assert took == pytest.approx(foretold - 10.0 - joined, abs=1.0)


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize("slow", [8.0, 14.0], ids=["within", "past"])
def test_kip848_member_in_a_long_assigned_callback_leaves_as_rehearsed(
    slow: float, kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    topic = kafka41.create_topic(topic_name, 12)
    poll_timeout = {"max.poll.interval.ms": str(int(POLL_TIMEOUT * 1000))}
    first, late = (
        members.start(
            "java-4.1.1", kafka41, name, group_id, topics=[topic], protocol="consumer",
            settings=settings,
        )
        for name, settings in (
            ("m0", {}),
            ("late", {**poll_timeout, "slow.assigned": str(int(slow * 1000))}),
        )
    )  # fmt: skip
    wait_assigned([first], 6, timeout=60)
    late.wait_for("assigned", timeout=60)
    time.sleep(slow + 3)

    process = replace(LATE, on_assigned=slow, rebalance=POLL_TIMEOUT)
    run = play(kip848(1), Event(do=Deed.START, at=10.0, processes=(process,)))
    past = [note for note in run.notes if note.what == "past its poll timeout"]
    lines = [line for line in late.log().splitlines() if "clientId=late" in line]
    left = any("poll timeout has expired" in line for line in lines)
    assert left is bool(past) is (slow > POLL_TIMEOUT)
