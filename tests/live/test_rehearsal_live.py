"""Stories on real brokers with real members, beside what the rehearsal engine foretells of them.

Generations, partitions that stop and move, rejections and what each owns at the end must be equal.
More stories on 4.1.1 are replayed from captures (tests/planner/rehearsal/test_captures.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.scripts import Deed, ScriptEvent
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned
from tests.live_support.rehearsed import Course, RealGroup, Seed, foretold
from tests.planner.rehearsal.scenes import play, told
from tests.planner.rehearsal.test_kip848 import LATE, failing, kip848

RANGE = ("range",)
MIXED = ("cooperative-sticky", "range")
BACK = ("range", "cooperative-sticky")
FINAL = ("cooperative-sticky",)
SOFTWARE = {"m-0": "java-3.9.1", "m-1": "java-4.1.1", "m-2": "java-4.1.1"}
SEEDS = range(5)
ATTEMPTS = 3
# Long enough for members to hear of every epoch: their heartbeats come twice a second.
QUIET = 4.0


class Teller:
    """Tells stories on groups of its own."""

    def __init__(self, members: Members, group: str, topic: str) -> None:
        self.members, self.name, self.topic = members, group, topic
        self.groups: list[RealGroup] = []

    def same(
        self, broker: Broker, seeds: Sequence[Seed], events: Sequence[ScriptEvent], **more: Any
    ) -> Course:
        """Carry the story out; the engine foretells the same with any seed.

        On a busy machine a member's SyncGroup can come after the next rebalance has begun, which
        the request log shows: the story is then told once more, on a new group.
        """
        for _ in range(ATTEMPTS):
            broker.log_requests(True)
            names = [f"{name}-{len(self.groups)}" for name in (self.name, self.topic)]
            group = RealGroup(broker, self.members, *names, **more)
            self.groups.append(group)
            scene = group.form(seeds)
            done = group.play(events)
            real = group.course()
            if not group.overtaken():
                break
            group.end()
        else:
            pytest.fail(f"a SyncGroup came too late in each of {ATTEMPTS} groups: a busy machine")
        runs = [foretold(scene, done, seed) for seed in SEEDS]
        assert all(run.at_rest for _, run in runs)
        assert {course for course, _ in runs} == {real}, done
        return real


@pytest.fixture
def teller(members: Members, group_id: str, topic_name: str) -> Iterator[Teller]:
    """Tell stories on new groups; request logs are off again afterwards."""
    made = Teller(members, group_id, topic_name)
    yield made
    made.groups[-1].broker.log_requests(False)


@pytest.fixture(scope="module")
def own41() -> Iterator[Broker]:
    """A broker of its own: it is restarted here. It outlives the members."""
    with Broker(jars.EARLY, secure=False, request_log=True) as broker:
        broker.wait_coordinator("any")
        yield broker


def team(list_: tuple[str, ...], *, static: bool = False) -> list[Seed]:
    """Members on both Java clients with this list."""
    return [Seed(name, software, list_, static) for name, software in SOFTWARE.items()]


def restart(name: str, to: tuple[str, ...]) -> ScriptEvent:
    return ScriptEvent(do=Deed.RESTART, members=(name,), assignors=to)


def bounces(*lists: tuple[str, ...]) -> list[ScriptEvent]:
    """All members restart with each of these lists in turn."""
    return [restart(name, list_) for list_ in lists for name in SOFTWARE]


@pytest.mark.timeout(180)
def test_two_bounces(broker: Broker, teller: Teller) -> None:
    real = teller.same(broker, team(RANGE), bounces(MIXED, FINAL))
    assert (real.rejected, real.owned) == (0, (4, 4, 4))
    # Each restart is a leave and a join; cooperative members join once more to hand over.
    assert real.generations > 12


@pytest.mark.timeout(180)
def test_a_reload_has_a_static_member_rejected(own41: Broker, teller: Teller) -> None:
    """The coordinator that loads the group knows of each list only what was elected: range."""
    story = [ScriptEvent(do=Deed.COORDINATOR), restart("m-1", FINAL)]
    real = teller.same(own41, team(BACK, static=True), story, session=8.0)
    assert (real.rejected, real.owned) == (1, (6, 6))


def foretold_of(callback: str) -> Rehearsal:
    """Two members and the same event: one more joins, or m1 does not poll for too long."""
    if callback == "assigned":
        late = replace(LATE, name="m1", fails_in=(callback,))
        return play(kip848(1), ScriptEvent(do=Deed.START, processes=(late,)))
    where = failing(callback, rebalance=6.0)
    if callback == "revoked":
        return play(where, ScriptEvent(do=Deed.START, processes=(LATE,)))
    return play(where, ScriptEvent(do=Deed.BUSY, members=("m1",), seconds=9.0))


@pytest.mark.full
@pytest.mark.timeout(180)
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
    run = foretold_of(callback)
    assert told(run, "callback failed") == [("m1", callback)]
    assert told(run, "removed") == []
    assert good.generation is not None
    assert before is not None
    assert good.generation - before == len(run.rebalances)
    assert [len(one.owned) for one in running] == [one.owned for one in run.members if one.owned]
