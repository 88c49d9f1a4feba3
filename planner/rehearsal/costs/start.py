"""The group at the beginning of a plan's step, as the scene in which the step's cost is rehearsed.

Facts that are not known are replaced by stand-ins, and notes name them. A step is priced before the
steps in front of it are done, so members get the assignor lists that those steps would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, TypeVar, cast

from msgspec.structs import replace

from rebal.groups.assignors import (
    NAMES,
    Assignor,
    Spec,
    SpecMember,
    TopicPartition,
    get,
)
from rebal.groups.assignors.connect import eager
from rebal.groups.assignors.server import SERVER_NAMES, server_assignor
from rebal.groups.compact import Partitions
from rebal.groups.coordinator import elect
from rebal.groups.model import (
    CoordinatorKind,
    GroupSnapshot,
    GroupType,
    Knowledge,
    Member,
    RebalanceProtocol,
    Record,
    TopicPartitions,
)
from rebal.planner.facts import names
from rebal.planner.rehearsal.engine.leaders import work_of
from rebal.planner.rehearsal.engine.member import (
    Process,
    RunningProcess,
    client_rejection,
    fixed_protocol,
)
from rebal.planner.rehearsal.engine.memory import Brokers
from rebal.planner.rehearsal.rehearse import new_ids
from rebal.planner.rehearsal.scene import (
    brokers_of,
    connectors_of,
    leader_of,
    list_of,
    process_of,
)
from rebal.planner.rehearsal.scripts import Scene
from rebal.planner.rehearsal.spec import work_by_worker
from rebal.planner.timeouts import Speed, waits

_T = TypeVar("_T")


class Pricing:
    """Ways to compute the costs of a plan's steps: by complete or by rough rehearsals.

    With `rough` one restart of a step is rehearsed for all of them, at one pace and without a worst
    case. Groups that use the same rough `Pricing` share the figures of one rehearsal if their
    roll-outs have the same key (`shape_of`).
    """

    def __init__(self, *, rough: bool = False) -> None:
        self.rough = rough
        self._known: dict[Hashable, object] = {}

    def once(self, shape: Hashable, make: Callable[[], _T]) -> _T:
        """Return the result for the key `shape`: `make()` at the first call, then the kept one."""
        if shape not in self._known:
            self._known[shape] = make()
        return cast(_T, self._known[shape])


FULL: Final = Pricing()
"""Pricing of every pace with its worst case."""


def batches(count: int, asked: int) -> Iterator[tuple[int, str]]:
    """Yield the paces to compare, each as (processes that restart at a time, the pace's name).

    They are one by one; `asked` at a time (the batch size of the plan's `Speed`) if that is neither
    one nor all; and all at once, if there are several. `count` is the number of all processes.
    """
    yield 1, "one by one"
    if 1 < asked < count:
        yield asked, f"{asked} at a time"
    if count > 1:
        yield count, "all at once"


_CONSUMER: Final = "consumer"
_COOPERATIVE: Final = "cooperative-sticky"
_EAGER: Final = "range"
# Seconds from the start of a rebalance until the last member has heard of it, but for a heartbeat.
_NOTICED: Final = 0.7


class Roll(Record, frozen=True, kw_only=True):
    """Restarts of a group's members, to be priced.

    `snapshot` is the group before the restarts; `order` are the ids of the members to restart, in
    order. `target` is the assignor list of a restarted member and `protocol` its group.protocol
    (each empty: unchanged). `server_side` is the coordinator's assignor, if the group is a KIP-848
    group. `eager` are the ids of the members that run EAGER before the restarts; `eager_after` says
    whether restarted members run EAGER. With `together` all of `order` stop before the first starts
    again. Without a `pricing` no cost is computed.
    """

    snapshot: GroupSnapshot
    order: tuple[str, ...]
    target: tuple[str, ...] = ()
    protocol: str = ""
    server_side: str = SERVER_NAMES[0]
    eager: tuple[str, ...] = ()
    eager_after: bool = False
    together: bool = False
    speed: Speed = Speed()
    pricing: Pricing | None = FULL

    @property
    def kip848(self) -> bool:
        """True if the group is a KIP-848 group before the roll-out or during it."""
        return self.protocol == _CONSUMER or self.snapshot.group.type is GroupType.CONSUMER

    def scaled_down(self, share: int) -> Roll:
        """Return this roll-out for a smaller group, in which one member stands for `share` members.

        That member owns the partitions of all of them. Members that restart and members that stay
        are merged separately.
        """
        here = {member.member_id: member for member in self.snapshot.members}
        stay = tuple(id_ for id_ in here if id_ not in set(self.order))
        kept = {
            ids[at]: [here[id_] for id_ in ids[at : at + share]]
            for ids in (self.order, stay)
            for at in range(0, len(ids), share)
        }
        members = tuple(_merged(kept[id_]) for id_ in here if id_ in kept)
        return replace(
            self,
            snapshot=replace(self.snapshot, members=members),
            order=self.order[::share],
        )


def shape_of(roll: Roll) -> Hashable:
    """Return a key for a roll-out: roll-outs with equal keys have the same cost per partition.

    The key leaves out names, and also the number of partitions if all members own equal shares.
    Every group of Connect workers has a key of its own, because connectors are assigned by name.
    """
    snapshot = roll.snapshot
    group = snapshot.group
    step = (roll.target, roll.protocol, roll.server_side, roll.eager_after, roll.together)
    if group.protocol_type == "connect":
        return group.group_id, roll.order, step, roll.speed
    numbers = {topic.name: number for number, topic in enumerate(snapshot.topics)}
    order, eager = {id_: place for place, id_ in enumerate(roll.order)}, set(roll.eager)
    members = tuple(
        (order.get(member.member_id), member.member_id in eager, *_shape(member, numbers))
        for member in snapshot.members
    )
    shares = [sum(map(len, member.assignment.values())) for member in snapshot.members]
    even = min(shares) > 0 and max(shares) - min(shares) <= 1
    topics = None if even else (tuple(shares), tuple(t.partitions for t in snapshot.topics))
    settings = frozenset(snapshot.cluster.settings.items())
    kind = group.coordinator.kind if group.coordinator is not None else None
    return members, topics, group.assignor, group.type, settings, kind, step, roll.speed


def _shape(member: Member, numbers: Mapping[str, int]) -> tuple[Hashable, ...]:
    patience, software = waits(member), member.software
    read = member.subscription
    subscribed = read.topics if read is not None else member.subscribed_topics
    return (
        member.assignors.knowledge,
        member.assignors.list,
        None if software is None else (software.family, software.version),
        member.instance_id is not None,
        member.protocol_type,
        (patience.session, patience.rebalance),
        frozenset(numbers.get(topic, topic) for topic in subscribed),
    )


def size_of(roll: Roll) -> int:
    """Return the number of partitions of all topics in the snapshot."""
    return sum(topic.partitions for topic in roll.snapshot.topics)


class CostStart:
    """The group of a roll-out at any point of the restarts, with stand-ins for facts not known.

    `lists` are the assignor lists of the members before the restarts, by member name. `then` is the
    list of a restarted member (empty: unchanged). `notes` are sentence parts that name the
    stand-ins.
    """

    def __init__(self, roll: Roll) -> None:
        self._roll = roll
        self._called = names(roll.snapshot.members)
        self._members = {self._called[m.member_id]: m for m in roll.snapshot.members}
        self.notes: list[str] = []
        self.connectors = connectors_of(roll.snapshot)
        self.topics, self.owned = _owned(roll.snapshot)
        self._everything = tuple(sorted(self.topics))
        usual = _CONSUMER if roll.snapshot.group.type is GroupType.CONSUMER else "classic"
        self._protocols = {
            name: member.protocol_type or usual for name, member in self._members.items()
        }
        self._ids = {t.name: t.topic_id for t in roll.snapshot.topics if t.topic_id is not None}
        self._server = roll.server_side
        if roll.kip848 and self._server not in SERVER_NAMES:
            self._server = SERVER_NAMES[0]
            self._stands_in(self._server, roll.server_side)
        self.lists, self.then = self._with_stand_ins()
        self.assignors: dict[str, Assignor] = {}

    @cached_property
    def _new_ids(self) -> dict[str, str]:
        return new_ids(self.process(name, done=True, killed=False) for name in self._members)

    @property
    def _later(self) -> bool:
        """True if another step has to restart members before this roll-out can begin.

        That is so if some member's exactly known list has no assignor of the list `target`. False
        if `target` is empty, or if the roll-out stops all its members together.
        """
        asked = {*self._roll.target}
        return (
            bool(asked)
            and not self._roll.together
            and any(
                member.assignors.knowledge is Knowledge.EXACT
                and not asked & {*member.assignors.list}
                for member in self._roll.snapshot.members
            )
        )

    @cached_property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Every partition of the topics, or every connector and task of Connect workers."""
        pairs = ((topic, n) for topic, count in self.topics.items() for n in range(count))
        return (*pairs, *work_of(self.connectors))

    def heartbeat(self, member: Member) -> float:
        """Return the seconds between the member's heartbeats.

        With the classic protocol this is at most a third of the member's session timeout.
        """
        if self._protocols[self._called[member.member_id]] == _CONSUMER:
            return self._roll.speed.reconcile
        return min(self._roll.speed.rebalance, waits(member).session / 3)

    def scene(self, done: Collection[str], killed: bool) -> Scene:
        """Return the scene with the group after the members named in `done` have restarted.

        In a roll-out that stops all members together, those that have not started again are left
        out. With `killed` members join each rebalance as late as their timeout allows (the worst
        case).
        """
        roll, ready = self._roll, set(done)
        later = {self._called[id_] for id_ in roll.order} - ready if roll.together and done else ()
        here = [m for m in roll.snapshot.members if self._called[m.member_id] not in later]
        called = self._called
        processes = {
            m.member_id: self.process(
                called[m.member_id], done=called[m.member_id] in ready, killed=killed
            )
            for m in here
        }
        kind = brokers_of(roll.snapshot).kind
        elected = elect([one.assignors for one in processes.values()], kind).assignor or ""
        kip848 = any(one.protocol == _CONSUMER for one in processes.values())
        owned = self._shared(here, elected, kip848=kip848) if later else self.owned
        group, now = roll.snapshot.group, roll.snapshot.group.assignor or ""
        if not (done or self._later) and all(now in one.assignors for one in processes.values()):
            # The next rebalance may change it.
            elected = now
        number = group.group_epoch if group.type is GroupType.CONSUMER else group.generation
        generation = 1 if number is None else number
        return Scene(
            topics=self.topics,
            connectors=self.connectors,
            replicas={topic.name: topic.replicas for topic in roll.snapshot.topics},
            racks={broker.broker_id: broker.rack for broker in roll.snapshot.cluster.brokers},
            topic_ids=self._ids,
            brokers=self._brokers(),
            running=tuple(
                RunningProcess(
                    process=process,
                    member_id=self._new_ids[process.name] if process.name in ready else id_,
                    owned=owned[id_],
                    generation=generation,
                )
                for id_, process in processes.items()
            ),
            assignor=elected,
            leader=None if done else leader_of(roll.snapshot),
            generation=generation,
            restart=roll.speed.restart,
        )

    def process(self, name: str, *, done: bool, killed: bool) -> Process:
        """Return the process of the member `name`, as it runs before or (`done`) after its restart.

        With `killed` it joins each rebalance as late as its timeout allows (the worst case).
        """
        member = self._members[name]
        made = replace(
            process_of(member, self._subscribed(member), self._roll.speed),
            name=name,
            assignors=(self.then if done else ()) or self.lists[name],
            protocol=(self._roll.protocol if done else "") or self._protocols[name],
        )
        # A newer version comes with the restart, or the list is a stand-in that the client refuses.
        protocol = self._roll.protocol or made.protocol
        for other in ({"version": None}, {"family": "java"}):
            if client_rejection(
                replace(made, assignors=self.then or made.assignors, protocol=protocol)
            ):
                made = replace(made, **other)
        if killed:
            slow = made.rebalance - made.heartbeat - made.poll - _NOTICED
            made = replace(made, slow=max(slow, 0.0))
        return made

    def _subscribed(self, member: Member) -> tuple[str, ...]:
        if member.subscription is not None:
            return member.subscription.topics
        return member.subscribed_topics or self._everything

    def _brokers(self) -> Brokers:
        # They let these members in, and convert the group where asked to.
        roll = self._roll
        read, members = brokers_of(roll.snapshot), roll.snapshot.members
        sessions = [waits(member).session for member in members]
        if roll.kip848:
            # A static member counts twice while it takes its own place.
            read = replace(
                read,
                kind=CoordinatorKind.JAVA,
                migration="bidirectional",
                classic_joins=True,
                consumer_max_size=max(read.consumer_max_size, 2 * len(members)),
                consumer_heartbeat=roll.speed.reconcile,
                consumer_assignor=self._server,
            )
        return replace(
            read,
            initial_delay=roll.speed.first,
            max_size=max(read.max_size, len(members)),
            min_session=min(read.min_session, *sessions),
            max_session=max(read.max_session, *sessions),
        )

    def _shared(
        self, members: Sequence[Member], elected: str, *, kip848: bool
    ) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the partitions that each of `members` gets while all others are stopped.

        They are by member id. The coordinator's assignor computes them with `kip848`, the assignor
        `elected` without. Connectors and tasks are dealt evenly to Connect workers.
        """
        if self.connectors:
            return eager((member.member_id for member in members), self.partitions)
        custom = self.assignors.get(elected)
        by = server_assignor(self._server, self._ids) if kip848 else custom or get(elected)
        sent = tuple(SpecMember(member_id=m.member_id, topics=self._subscribed(m)) for m in members)
        made = by.assign(Spec(members=sent, partitions=self.topics))
        return {id_: tuple(owned) for id_, owned in made.items()}

    def stand_in_for_leader(self) -> None:
        """Compute assignments with range under every assignor's name, and add a note about it.

        It is called if the elected assignor fails for this group, as Java's `sticky` can.
        """
        self.assignors = dict.fromkeys({*chain(*self.lists.values()), *self.then}, get(_EAGER))
        self.notes.append(f"the leader's assignor would fail; {_EAGER} stands in for it")

    # Lists

    def _with_stand_ins(self) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        roll = self._roll
        called, ids = self._called, [member.member_id for member in roll.snapshot.members]
        elected = roll.snapshot.group.assignor or ""
        if roll.snapshot.group.protocol_type == "connect":
            members = roll.snapshot.members
            return {called[m.member_id]: list_of(m, elected)[0] for m in members}, roll.target
        calm = bool(set(ids) - set(roll.eager)) or (bool(roll.target) and not roll.eager_after)
        other = _COOPERATIVE if calm else _EAGER
        # A KIP-848 group elects none, and who is restarted with the classic protocol has a list.
        kip848 = roll.snapshot.group.type is GroupType.CONSUMER
        usual = (roll.target or (other,)) if kip848 else (elected,)
        exact = {
            m.member_id: m.assignors.list
            for m in roll.snapshot.members
            if m.assignors.knowledge is Knowledge.EXACT and m.assignors.list
        }
        classic = [id_ for id_ in ids if self._protocols[called[id_]] != _CONSUMER]
        lists = {id_: exact.get(id_, usual) for id_ in classic}
        unknown = sorted({*chain.from_iterable(lists.values()), *roll.target} - set(NAMES))
        if unknown:
            self._stands_in(other, *unknown)

        def known(found: Sequence[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(name if name in NAMES else other for name in found))

        target = self._as(known(roll.target), eager=roll.eager_after) if roll.target else ()
        lists = {id_: known(found) for id_, found in lists.items()}
        if target and not set(target).intersection(*lists.values()):
            # The steps before have added what this one keeps.
            lists = {
                id_: found if target[0] in found else tuple(dict.fromkeys((*target, *found)))
                for id_, found in lists.items()
            }
        if lists and not set.intersection(*map(set, lists.values())):
            lists = {id_: tuple(dict.fromkeys((*found, other))) for id_, found in lists.items()}
        now = {id_: self._as(found, eager=id_ in roll.eager) for id_, found in lists.items()}
        return {called[id_]: now.get(id_, target or (other,)) for id_ in ids}, target

    def _stands_in(self, other: str, *unknown: str) -> None:
        these = ", ".join(name or "the elected assignor" for name in unknown)
        self.notes.append(f"{other} stands in for {these}, which is not modelled")

    def _as(self, found: tuple[str, ...], *, eager: bool) -> tuple[str, ...]:
        """Return assignor list `found`, changed so that Java consumers run EAGER or COOPERATIVE.

        With `eager` range is added to a list that would run COOPERATIVE. Without it a list that
        would run EAGER becomes cooperative-sticky alone.
        """
        now = fixed_protocol(Process(name="", assignors=found), {}) is RebalanceProtocol.EAGER
        if now is eager or eager:
            return found if now is eager else (*found, _EAGER)
        return (_COOPERATIVE,)


def _merged(members: Sequence[Member]) -> Member:
    # The first of these with the partitions of all.
    owned: dict[str, list[int]] = {}
    for member in members:
        for topic, numbers in _target(member).items():
            owned.setdefault(topic, []).extend(numbers)
    made = {topic: Partitions(sorted(set(numbers))) for topic, numbers in owned.items()}
    return replace(members[0], assignment=made, target_assignment=None)


def _target(member: Member) -> TopicPartitions:
    """Return the member's assignment; in a KIP-848 group, its target assignment."""
    target = member.target_assignment
    return member.assignment if target is None else target


def _owned(
    snapshot: GroupSnapshot,
) -> tuple[dict[str, int], dict[str, tuple[TopicPartition, ...]]]:
    """Return each topic's partition count, and the partitions that each member owns, by member id.

    If two members own a partition, the first keeps it. For Connect workers, which own connectors
    and tasks, the partition counts are empty.
    """
    work = work_by_worker(snapshot)
    if work is not None:
        return {}, dict(work)
    topics = {topic.name: topic.partitions for topic in snapshot.topics}
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    seen: set[TopicPartition] = set()
    for member in snapshot.members:
        given = sorted(_target(member).items())
        pairs = dict.fromkeys((topic, number) for topic, numbers in given for number in numbers)
        owned[member.member_id] = mine = tuple(pair for pair in pairs if pair not in seen)
        seen.update(mine)
        for topic, number in mine:
            topics[topic] = max(topics.get(topic, 0), number + 1)
    return topics, owned
