"""Replay of a captured group: what the engine says beside what the capture holds."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from rebal.groups.assignors import Assignment
from rebal.groups.clients import version_tuple
from rebal.planner.rehearsal.engine.leaders import FOREIGN, OF_FAMILY
from rebal.planner.rehearsal.engine.member import SimulatedMember
from rebal.planner.rehearsal.engine.memory import Error, JoinRequest
from rebal.planner.rehearsal.engine.world import World
from rebal.planner.rehearsal.scripts import Deed, ScriptEvent
from tests.planner.rehearsal.captures.capture import (
    BEAT,
    Capture,
    OnlineGroup,
    Owned,
    Record,
    folded,
    topic_names,
)
from tests.planner.rehearsal.captures.story import Story

_STICKY = frozenset({"sticky", "cooperative-sticky"})
_CONSTRAINED = (3, 0)
# What happens in a shorter time than this is one move.
_QUIET = 0.6
# A session ends up to a heartbeat earlier or later than in the capture: look before that.
_SHARE = 0.6


class Replayed(World):
    """A world whose leaders with another sticky algorithm assign as they did in the capture.

    Each other family has one of its own, and so have Java's clients before 3.0 (KAFKA-12464). None
    of these is modelled: what the leader gave is taken from the record of a generation of the same
    members, and what follows from it is compared. `taken` is the last generation in which that
    happened.
    """

    taken = -1

    def __init__(self, records: list[Record], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._records = [one for one in records if one.value is not None and one.value.members]

    def assign(
        self, assignor: str, members: Sequence[JoinRequest], leader: SimulatedMember
    ) -> Assignment | str:
        """Return what the leader gave, or what the engine computes."""
        version = version_tuple(leader.process.version)
        modelled = leader.process.family == "java" and (version is None or version >= _CONSTRAINED)
        if assignor in _STICKY and not modelled:
            ids = {member.member_id for member in members}
            same = [one for one in self._records if one.partitions().keys() == ids]
            if same:
                self.taken = leader.generation
                record = min(same, key=lambda one: abs(_generation(one) - leader.generation))
                return {id_: sorted(owned) for id_, owned in record.partitions().items()}
        return super().assign(assignor, members, leader)


@dataclass(frozen=True)
class Difference:
    """One thing that the capture and the engine both say, differently perhaps."""

    group: str
    at: float
    kind: str
    what: str
    capture: object
    engine: object
    reason: str = ""

    def __str__(self) -> str:
        return (
            f"{self.group} at {self.at:.1f} s: {self.kind} {self.what}: "
            f"capture {self.capture}, engine {self.engine}; {self.reason or 'no reason known'}"
        )


@dataclass
class Comparison:
    """Counts of what was compared and what was equal, by kind, and the differences."""

    expected: Counter[str] = field(default_factory=Counter)
    matched: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def add(self, *said: Any) -> None:
        """Compare what both say: the fields of a `Difference`, equal or not."""
        found = Difference(*said)
        self.expected[found.kind] += 1
        if found.capture == found.engine:
            self.matched[found.kind] += 1
        else:
            self.differences.append(found)

    def take(self, other: "Comparison") -> None:
        self.expected += other.expected
        self.matched += other.matched
        self.differences += other.differences

    @property
    def share(self) -> float:
        return self.matched.total() / max(self.expected.total(), 1)

    def __str__(self) -> str:
        kinds = "\n".join(
            f"{kind:12} {self.matched[kind]:6} of {number:6}"
            for kind, number in sorted(self.expected.items())
        )
        told = "".join(f"\n{one}" for one in self.differences)
        return f"{kinds}\nin all {self.share:.2%}{told}"


def settled(story: Story) -> list[float]:
    """The times at which the capture shows a group at rest, each the only one of its rest."""
    group, begin = story.group, story.begin
    moves = {0.0, story.end, *(story.since(event["t_ms"]) for event in group.timeline)}
    moves |= {record.at - begin for record in (*group.records, *group.facts)}
    moves |= {at - begin for at, _ in group.rebalances}
    for one in group.requests:
        if one.api not in ("HEARTBEAT", BEAT) or one.error or one.joins or one.leaves:
            moves |= {one.came - begin, one.done - begin}
    times = sorted(move for move in moves if move <= story.end)
    found = [a + (b - a) * _SHARE for a, b in pairwise(times) if b - a >= _QUIET]
    first = min((story.since(event["t_ms"]) for event in group.timeline), default=0.0)
    return [at for at in found if at > first and not _open(story, at)]


def _open(story: Story, at: float) -> bool:
    """Whether a request waits, or a generation has no record yet."""
    now = at + story.begin
    online = folded(story.group.facts, now)
    came = [one for one in story.group.requests if one.came <= now]
    if any(one.done > now for one in came if one.api != BEAT or one.joins):
        return True
    if online.epoch is not None:
        return not online.at_rest
    written = max((one.at for one in story.group.records if one.at <= now), default=0.0)
    # Whoever was told that a rebalance goes on, got its id or a generation, or left without error.
    moved = [
        one.came
        for one in came
        if (one.api == "HEARTBEAT" and one.error == Error.REBALANCE_IN_PROGRESS)
        or (one.api == "JOIN_GROUP" and one.error in (Error.NONE, Error.MEMBER_ID_REQUIRED))
        or (one.api == "LEAVE_GROUP" and not one.error)
    ]
    begun = [begins for at, begins in story.group.rebalances if at <= now][-1:]
    return begun == [True] or (bool(moved) and max(moved) > written)


def replay(story: Story, capture: Capture, seed: int = 0) -> Comparison:
    """Rehearse the story and compare it at each settled point, start by start."""
    random = Random(seed)
    world = Replayed(
        story.group.records,
        capture.topics,
        capture.brokers,
        random,
        topic_ids=capture.topic_ids,
        chance=story.chance(seed),
    )
    compared, points = Comparison(), settled(story)
    before: tuple[int, int] | None = None
    before_at = 0.0
    events = deque(story.events)

    def run_to(at: float) -> None:
        while events and (events[0].at or 0.0) <= at:
            event = events.popleft()
            world.agenda.run(event.at or 0.0)
            _DEEDS[event.do](world, event)
        world.agenda.run(at)

    for at in points:
        run_to(at)
        record = _record(story, at)
        online = folded(story.group.facts, at + story.begin)
        if online.epoch is None:
            _compare(compared, story, at, record, world)
        else:
            _compare_online(compared, story, at, online, world)
        epoch = _generation(record) if online.epoch is None else online.epoch
        generations = (epoch, world.group.now.number)
        if before is not None:
            name = story.group.name
            risen = [now - then for now, then in zip(generations, before, strict=True)]
            if max(generations):
                why = _again(story, before_at, at, world)
                what = "since the rest before"
                compared.add(name, at, "rebalances", what, *risen, why)
        before, before_at = generations, at
    run_to(story.end)
    _starts(compared, story, world)
    return compared


def _record(story: Story, at: float) -> Record | None:
    now = at + story.begin
    return next((one for one in reversed(story.group.records) if one.at <= now), None)


def _generation(record: Record | None) -> int:
    return record.value.generation if record is not None and record.value is not None else 0


def _compare(
    compared: Comparison, story: Story, at: float, record: Record | None, world: Replayed
) -> None:
    name, group = story.group.name, world.group.now
    value = record.value if record is not None else None
    members = value.members if value is not None else ()
    deleted = record is not None and value is None
    state = "Dead" if deleted else "Stable" if members else "Empty"
    compared.add(name, at, "state", "", state, group.phase)
    if value is None or record is None or not members:
        compared.add(name, at, "members", "", [], sorted(group.lists()))
        return
    compared.add(name, at, "assignor", "", value.protocol, group.assignor)
    compared.add(name, at, "leader", "", value.leader, group.leader)
    ids = sorted(member.member_id for member in members)
    compared.add(name, at, "members", "", ids, sorted(group.lists()))
    taken = world.taken == group.number
    if value.protocol_type != "consumer" or value.protocol in world.opaque or taken:
        return
    given, why = group.partitions(), _own(world)
    # Which ones depends on the order of the leader's metadata.
    own = value.protocol in FOREIGN or (_leads(world), value.protocol) in OF_FAMILY
    shown = _counted if own else _shown
    for id_, owned in sorted(record.partitions().items()):
        mine = frozenset(given.get(id_, ()))
        compared.add(name, at, "partitions", id_, shown(owned), shown(mine), why)


def _compare_online(
    compared: Comparison, story: Story, at: float, online: OnlineGroup, world: World
) -> None:
    name, group = story.group.name, world.group.now
    given = group.partitions()
    state = "Stable" if online.members else "Empty"
    compared.add(name, at, "state", "", state, group.phase)
    ids = sorted(online.members)
    compared.add(name, at, "members", "", ids, sorted(given))
    if not ids:
        return
    compared.add(name, at, "assignor", "", online.assignor, group.assignor)
    names = topic_names(story.group.facts)
    for id_, owned in sorted(online.owned(names).items()) if names else ():
        mine = frozenset(given.get(id_, ()))
        compared.add(name, at, "partitions", id_, _shown(owned), _shown(mine))


def _shown(owned: Owned) -> str:
    return " ".join(f"{topic}-{number}" for topic, number in sorted(owned))


def _own(world: World) -> str:
    """Why partitions may differ: a leader of another family computes them in its own way."""
    family = _leads(world)
    if family == "java":
        return ""
    return f"the leader ({family}) has an assignor of its own of this name"


def _leads(world: World) -> str:
    """Return the leader's family."""
    leads = (one for one in world.consumers.values() if one.member_id == world.group.now.leader)
    leader = next(leads, None)
    return "java" if leader is None else leader.process.family


def _again(story: Story, since: float, at: float, world: World) -> str:
    """Why the number of rebalances may differ, as far as the capture shows it."""
    if world.opaque:
        return "Streams joins again for its tasks, which are not modelled"
    led: str | None = None
    for join in story.group.joins():
        if since <= join.came - story.begin <= at and join.error == Error.NONE:
            alone = [one["memberId"] for one in join.answered["members"]] == [join.member_id]
            if alone and join.member_id == led:
                return "the leader joined again when it had read the topic's metadata"
            led = join.member_id if alone else None
    return ""


def _counted(owned: Owned) -> str:
    return f"{len(owned)} partitions"


def _starts(compared: Comparison, story: Story, world: World) -> None:
    """Each start: whether its client let it start, and with which errors it was rejected."""
    for start in story.starts:
        happened = [
            one
            for one in world.happened
            if one.who == start.process.name and start.at <= one.at <= start.until
        ]
        refused = any(one.what == "did not start" for one in happened)
        errors = sorted(one.detail for one in happened if one.what == "rejected")
        wanted = sorted(Error(code).name for code in start.errors)
        what = f"of {start.client_id}"
        name = story.group.name
        compared.add(name, start.at, "rejections", what, wanted, sorted(set(errors)))
        compared.add(name, start.at, "starts", what, start.reached, not refused)


def _start(world: World, event: ScriptEvent) -> None:
    for process in event.processes:
        world.start(process)


def _each(deed: Callable[[World, str, ScriptEvent], None]) -> Callable[[World, ScriptEvent], None]:
    def do(world: World, event: ScriptEvent) -> None:
        for name in event.members:
            consumer = world.consumers.get(name)
            if consumer is not None and consumer.alive:
                deed(world, name, event)

    return do


_DEEDS: dict[Deed, Callable[[World, ScriptEvent], None]] = {
    Deed.START: _start,
    Deed.STOP: _each(lambda world, name, _: world.stop(name)),
    Deed.KILL: _each(lambda world, name, _: world.kill(name)),
    Deed.BUSY: _each(lambda world, name, event: world.consumers[name].busy(event.seconds or 0.0)),
    Deed.COORDINATOR: lambda world, event: world.move_coordinator(event.seconds or 1.0),
    Deed.DELETE_GROUP: lambda world, _: world.delete_group(),
    Deed.ENFORCE_REBALANCE: _each(lambda world, name, _: world.consumers[name].enforce_rebalance()),
    Deed.PARTITIONS: lambda world, event: world.add_partitions(
        event.topic, event.count, event.seconds or 0.0
    ),
}


def stories(capture: Capture) -> Iterator[Story]:
    """Each group of the capture."""
    for group in capture.groups.values():
        yield Story(group, capture)
