"""Stories on real brokers with real members, beside what the rehearsal engine foretells of them.

Generations, partitions that stop and move, rejections and what each owns at the end must be equal.
More stories on 4.1.1 are replayed from captures (tests/planner/rehearsal/test_captures.py). The
targets of `uniform` and `range` on 4.1 are foretold member by member, by the what-if that an
operator types (tests/assignors/test_server_oracle.py has more groups).
"""

import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import GroupSnapshot, GroupType, Knowledge
from rebal.inspectors.files import files_in
from rebal.inspectors.kafka.read import read_groups
from rebal.inspectors.logs.requests.reader import read_request_log
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of, with_parameters
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import simulate
from rebal.planner.timeouts import Speed
from tests.kafka import jars
from tests.kafka.broker import Broker, wait_for
from tests.kafka.members import Member, Members, Rolling, wait_assigned
from tests.live_support import config_of, read_group
from tests.planner.rehearsal.scenes import play, told
from tests.planner.rehearsal.test_kip848 import LATE, failing, kip848

HEARTBEAT = 0.3
POLL = 0.0
"""Member.java does nothing between two polls, and a poll joins again at once when it must."""
RESTART = 1.5
"""Seconds from the stop of a process until the next one is started: the group is at rest before."""
_FOUND = 2.0
_JOINS = re.compile(
    r"^\[(?P<at>[^]]+)\].*\[Consumer (?:instanceId=[^,]+, )?clientId=(?P<client>[^,]+), "
    r"groupId=(?P<group>[^],]+)\] \(Re-\)joining group",
    re.MULTILINE,
)
_TOO_LATE = re.compile(r'"requestApiKeyName":"SYNC_GROUP".*"response":\{[^{]*"errorCode":27').search
_REJECTED = "InconsistentGroupProtocol"
_OWNERSHIP = ("assigned", "revoked", "lost")
Place = tuple[str, int]


class Seed(NamedTuple):
    """One member to begin with: its name, client and list."""

    name: str
    software: str
    assignors: tuple[str, ...]
    static: bool = False


class Course(NamedTuple):
    """What a story has cost, as members report it or as the engine foretells it.

    `generations` are those that members joined; `stopped` counts each time that a partition lost
    its owner, `moved` each time that it got another one; `owned` is how much each running member
    has at the end, the most first.
    """

    generations: int
    stopped: int
    moved: int
    rejected: int
    owned: tuple[int, ...]


class RealGroup(Rolling):
    """A group of real members by name, whose stories are told as the engine's scripts tell them."""

    def __init__(self, *names: Any, session: float = 6.0) -> None:
        super().__init__(*names, partitions=12)
        self._session = session
        self._began, self._log_from = 0.0, 0

    def form(self, seeds: Sequence[Seed]) -> Scene:
        """Start these one after another, and return the group as the real readers see it."""
        for seed in seeds:
            self.place(
                seed.name, list(seed.assignors), software=seed.software,
                instance_id=seed.name if seed.static else None,
                session_timeout_ms=int(1000 * self._session),
                settings={"heartbeat.interval.ms": str(int(1000 * HEARTBEAT))},
            )  # fmt: skip
            self.settle()
        return self.scene()

    def scene(self) -> Scene:
        """Return the group of this moment as a scene, by the brokers' answers and request log."""
        made, assumed = scene_of(self.snapshot(), speed=Speed(restart=RESTART))
        assert assumed == (), assumed
        return with_parameters(made, {"heartbeat": HEARTBEAT, "poll": POLL})

    def snapshot(self) -> GroupSnapshot:
        """Return what the brokers answer, with the lists of the request log, all of them exact."""
        found: list[GroupSnapshot] = []

        def known() -> bool:
            seen = read_group(self.broker, self.group)
            log = read_request_log(files_in([self.broker.request_log_path]), tz_offset=UTC)
            found[:] = [merge(seen, (*log.observations, *log.logs))]
            return all(one.assignors.knowledge is Knowledge.EXACT for one in found[0].members)

        wait_for("every list to be in the request log", known, timeout=20, every=0.5)
        return found[0]

    def play(self, events: Sequence[ScriptEvent]) -> tuple[ScriptEvent, ...]:
        """Make all this happen, each when the group is at rest; end once a SyncGroup is too late.

        Returns the events with the seconds that restarts have really taken, from the stop until the
        JoinGroup, and loads of the group.
        """
        self._began = time.time()
        self._log_from = self.broker.request_log_path.stat().st_size
        made = []
        for event in events:
            deed = self._reload if event.do is Deed.COORDINATOR else self._restart
            made.append(deed(event))
            self.settle()
            if self.overtaken():
                break
        return tuple(made)

    def settle(self) -> None:
        """Wait until the group is at rest: members own all, and the broker calls it Stable."""
        for name, member in list(self.running.items()):
            if member.error:
                assert _REJECTED in member.error, member.error
                del self.running[name]
        running = list(self.running.values())
        if not running:
            return
        patience = 40 + 3 * self._session
        self.broker.wait_stable(self.group, len(running), timeout=patience)
        wait_assigned(running, self.partitions, each=0, quiet=0.9, timeout=patience)
        self.broker.wait_stable(self.group, len(running))

    def course(self) -> Course:
        """Return what has happened since the story began, by the members' own account."""
        last: dict[Place, str] = {}
        owners: dict[Place, set[str]] = {}
        joined: dict[bool, set[int]] = {False: set(), True: set()}
        moved = stopped = rejected = 0
        said = [
            (event.t_ms / 1000, name, event)
            for name, member in self.ever
            for event in member.said(*_OWNERSHIP, "joined", "error")
        ]
        for at, name, event in sorted(said, key=lambda one: one[0]):
            counts = at >= self._began
            if event.kind == "joined":
                joined[counts].add(event.data["generation"])
            elif event.kind == "error":
                rejected += counts and _REJECTED in str(event.data)
            elif event.kind == "assigned":
                for place in event.partitions:
                    moved += counts and last.get(place, name) != name
                    last[place] = name
                    owners.setdefault(place, set()).add(name)
            else:
                for place in event.partitions & {p for p, who in owners.items() if name in who}:
                    owners[place].discard(name)
                    stopped += counts and not owners[place]
        owned = sorted((len(one.owned) for one in self.running.values()), reverse=True)
        return Course(len(joined[True] - joined[False]), stopped, moved, rejected, tuple(owned))

    def overtaken(self) -> int:
        """Return how many SyncGroups came too late, by the request log.

        Another member had its partitions, and had begun the next rebalance, before this one asked:
        it never learns what it was assigned. How fast each process runs decides that.
        """
        with self.broker.request_log_path.open(encoding="utf-8") as log:
            log.seek(self._log_from)
            return sum(f'"groupId":"{self.group}"' in line for line in filter(_TOO_LATE, log))

    def end(self) -> None:
        """Stop all members."""
        for name in list(self.running):
            self.running.pop(name).stop()

    # Deeds

    def _restart(self, event: ScriptEvent) -> ScriptEvent:
        (name,) = event.members
        member = self.running.pop(name)
        member.stop()
        gone = _end_of(member)
        time.sleep(max(0.0, gone + RESTART - time.time()))
        self.place(name, list(event.assignors), **self._options[name])
        again = self.running[name]
        wait_for(f"{name} to join", lambda: bool(again.said("joined", "error")), timeout=60)
        return replace(event, seconds=self._joined_at(again, gone) - gone)

    def _reload(self, event: ScriptEvent) -> ScriptEvent:
        began = time.time()
        self.broker.restart()
        return replace(event, seconds=time.time() - began)

    def _joined_at(self, member: Member, after: float) -> float:
        """Return when the member first asked to join, by its own log."""
        times = [
            datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()
            for found in _JOINS.finditer(member.log())
            if (found["client"], found["group"]) == (member.client_id, self.group)
        ]
        return min(at for at in times if at >= after)


def foretold(
    scene: Scene, events: Sequence[ScriptEvent], seed: int = 0
) -> tuple[Course, Rehearsal]:
    """Return what the engine says of the same story."""
    run = rehearse(scene, Script(events=tuple(events)), seed=seed, keep=False)
    of = run.measures
    owned = sorted((one.owned for one in run.members if one.state == "running"), reverse=True)
    return Course(of.rebalances, of.stopped, of.moved, of.rejected, tuple(owned)), run


def _end_of(member: Member) -> float:
    """Return when a member gave up its partitions, or was closed."""
    said = member.said(*_OWNERSHIP, "closed", "error")
    ends = [one for one in said if one.kind != "assigned"]
    last = ends[-1].t_ms
    gave = [one.t_ms for one in ends if one.kind in _OWNERSHIP and last - one.t_ms < 1000 * _FOUND]
    return (gave[-1] if gave else last) / 1000


RANGE = ("range",)
MIXED = ("cooperative-sticky", "range")
BACK = ("range", "cooperative-sticky")
FINAL = ("cooperative-sticky",)
SOFTWARE = {"m-0": "java-3.9.1", "m-1": "java-4.1.1", "m-2": "java-4.1.1"}
SEEDS = range(5)
ATTEMPTS = 8
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


@pytest.mark.timeout(300)
def test_two_bounces_of_real_members_go_as_rehearsed(broker: Broker, teller: Teller) -> None:
    real = teller.same(broker, team(RANGE), bounces(MIXED, FINAL))
    assert (real.rejected, real.owned) == (0, (4, 4, 4))
    # Each restart is a leave and a join; cooperative members join once more to hand over.
    assert real.generations > 12


@pytest.mark.timeout(180)
def test_a_reload_has_a_static_member_rejected_as_rehearsed(own41: Broker, teller: Teller) -> None:
    """After a reload the coordinator knows only the elected assignor of each list: range."""
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
def test_the_target_assignments_of_kip_848_brokers_are_predicted(
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
        stopped = next(m.member_id for m in before.members if m.client_id == f"c-{n}")
        made = simulate(before, assignor, Changes(remove_members=(stopped,)))
        running[n].stop()
        before = settled(kafka41, group_id, COUNT - count)
        # Whose order in the coordinator's table is not known is named, and may get other ones.
        known = {
            shift.member_id
            for shift in made.members
            if shift.change != "leaves"
            and not any(re.search(rf"\b{shift.name}\b", note) for note in made.assumes)
        }
        found = targets(before)
        assert {each: found[each] for each in known} == {
            shift.member_id: {(t, p) for t, numbers in shift.then.items() for p in numbers}
            for shift in made.members
            if shift.member_id in known
        }
