"""Stories on real brokers with real members, beside what the rehearsal engine foretells of them.

Generations, partitions that stop and move, rejections and what each owns at the end must be equal.
More stories on 4.1.1 are replayed from captures (tests/planner/rehearsal/test_captures.py). The
targets of `uniform` and `range` on 4.1 are foretold member by member, by the what-if that an
operator types (tests/assignors/test_server_oracle.py has more groups).
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupSnapshot, GroupType
from rebal.inspectors.kafka.read import read_groups
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.scripts import Deed, ScriptEvent
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Member, Members, wait_assigned
from tests.kafka.processes import wait_for
from tests.live_support import config_of
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


PARTITIONS = 12
COUNT = 5


def settled(broker: Broker, group_id: str, members: int) -> GroupSnapshot:
    """The group with so many members, once all have the newest target, which gives each partition.

    The first target of a new topic's group may be made before the coordinator knows the topic.
    """
    found: list[GroupSnapshot] = []

    def at_rest() -> bool:
        (seen,) = read_groups(config_of(broker), [group_id])
        if not isinstance(seen, GroupSnapshot) or len(seen.members) != members:
            return False
        found[:] = [seen]
        epochs = {seen.group.group_epoch, seen.group.assignment_epoch}
        epochs |= {member.member_epoch for member in seen.members}
        there = all(member.target_assignment == member.assignment for member in seen.members)
        given = sum(map(len, targets(seen).values()))
        return len(epochs) == 1 and there and given == PARTITIONS

    wait_for(f"{group_id} to settle with {members} members", at_rest, timeout=30)
    return found[0]


def targets(snapshot: GroupSnapshot) -> dict[str, set[tuple[str, int]]]:
    return {
        member.member_id: {
            (topic, p) for topic, numbers in member.target_assignment.items() for p in numbers
        }
        for member in snapshot.members
    }


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_brokers_targets_are_foretold(
    assignor: str, kafka41: Broker, members: Members, group_id: str, topic_name: str
) -> None:
    kafka41.create_topic(topic_name, PARTITIONS)
    running = [
        members.start(
            "java-4.1.1", kafka41, f"c-{n}", group_id, topics=[topic_name], protocol="consumer",
            instance_id=f"pod-{9 - n}" if n % 2 else None,
            settings={"group.remote.assignor": assignor},
        )
        for n in range(COUNT)
    ]  # fmt: skip
    before = settled(kafka41, group_id, COUNT)
    assert (before.group.type, before.group.assignor) == (GroupType.CONSUMER, assignor)
    for count, n in enumerate((2, 0, 4), 1):
        gone = next(m.member_id for m in before.members if m.client_id == f"c-{n}")
        made = simulate(before, assignor, Changes(remove_members=(gone,)))
        running[n].stop()
        before = settled(kafka41, group_id, COUNT - count)
        assert targets(before) == {
            shift.member_id: {(t, p) for t, numbers in shift.then.items() for p in numbers}
            for shift in made.members
            if shift.change != "leaves"
        }
