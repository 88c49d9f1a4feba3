"""The group with which a step begins, as a scene; what is not known has a stand-in, which is named.

A step is priced before the steps in front of it are done, so members get the lists that those steps
would leave behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import NAMES, Assignor, Spec, SpecMember, get
from rebal.groups.assignors.connect import eager
from rebal.groups.model import GroupSnapshot, Knowledge, Member, RebalanceProtocol, Record
from rebal.groups.vote import elect
from rebal.planner.facts import names
from rebal.planner.rehearsal.costs.cost import Speed
from rebal.planner.rehearsal.costs.timeouts import waits
from rebal.planner.rehearsal.engine.memory import Brokers
from rebal.planner.rehearsal.engine.process import Process, Running, fixed_protocol, refusal
from rebal.planner.rehearsal.engine.workers import work_of
from rebal.planner.rehearsal.scene import (
    brokers_of,
    connectors_of,
    leader_of,
    list_of,
    process_of,
)
from rebal.planner.rehearsal.script import Scene
from rebal.planner.rehearsal.whatif.spec import work_by_worker

TopicPartition = tuple[str, int]
Lists = dict[str, tuple[str, ...]]

_COOPERATIVE: Final = "cooperative-sticky"
_EAGER: Final = "range"
# Seconds from the start of a rebalance until the last member has heard of it, but for a heartbeat.
_NOTICED: Final = 0.7


class Roll(Record, frozen=True, kw_only=True):
    """Members that restart: `order` are their ids, `target` their list then (empty: their own).

    `eager` are the ids of those that run EAGER when it begins; `eager_after` says whether a
    restarted member does. `together`: all of `order` stop before the first starts again.
    """

    snapshot: GroupSnapshot
    order: tuple[str, ...]
    target: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()
    eager_after: bool = False
    together: bool = False
    speed: Speed = Speed()


class Start:
    """The group of a roll-out at any point of it.

    `lists` are the members' assignor lists when it begins, by name; `then` is that of a restarted
    member (empty: its own). `notes` say what stands in for what is not known.
    """

    def __init__(self, roll: Roll) -> None:
        self._roll = roll
        self._called = names(roll.snapshot.members)
        self._members = {self._called[m.member_id]: m for m in roll.snapshot.members}
        self._notes: list[str] = []
        self.connectors = connectors_of(roll.snapshot)
        self.topics, self.owned = _owned(roll.snapshot)
        self._everything = tuple(sorted(self.topics))
        self.lists, self.then = self._with_stand_ins()
        self.assignors: dict[str, Assignor] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentence parts."""
        return tuple(self._notes)

    @cached_property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Every partition of the topics, or everything that workers can run."""
        pairs = ((topic, n) for topic, count in self.topics.items() for n in range(count))
        return (*pairs, *work_of(self.connectors))

    def heartbeat(self, member: Member) -> float:
        """Return the seconds between heartbeats; a short session has more of them."""
        return min(self._roll.speed.rebalance, waits(member).session / 3)

    def scene(self, done: Collection[str], killed: bool) -> Scene:
        """Return the group when these have been restarted; `killed`: its members are slow."""
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
        owned = self.owned if not later else self._shared(here, elected)
        if not done:
            elected = self._elected(elected, processes)
        generation = roll.snapshot.group.generation
        return Scene(
            topics=self.topics,
            connectors=self.connectors,
            replicas={topic.name: topic.replicas for topic in roll.snapshot.topics},
            racks={broker.broker_id: broker.rack for broker in roll.snapshot.cluster.brokers},
            brokers=self._brokers(),
            running=tuple(
                Running(
                    process=process,
                    member_id=id_,
                    owned=owned[id_],
                    generation=1 if generation is None else generation,
                )
                for id_, process in processes.items()
            ),
            assignor=elected,
            leader=None if done else leader_of(roll.snapshot),
            generation=1 if generation is None else generation,
            restart=roll.speed.restart,
        )

    def _elected(self, voted: str, processes: Mapping[str, Process]) -> str:
        """Return what is elected now: the next rebalance may change it."""
        now = self._roll.snapshot.group.assignor or ""
        return now if all(now in one.assignors for one in processes.values()) else voted

    def process(self, name: str, *, done: bool, killed: bool) -> Process:
        """Return a member's process, as it is or (`done`) restarted; `killed`: it is slow."""
        member = self._members[name]
        made = replace(
            process_of(member, self._subscribed(member), self._roll.speed),
            name=name,
            assignors=(self.then if done else ()) or self.lists[name],
        )
        if refusal(replace(made, assignors=self.then or made.assignors)):
            # A stand-in that its own client would refuse.
            made = replace(made, family="java")
        if killed:
            slow = made.rebalance - made.heartbeat - made.poll - _NOTICED
            made = replace(made, slow=max(slow, 0.0))
        return made

    def _subscribed(self, member: Member) -> tuple[str, ...]:
        if member.subscription is not None:
            return member.subscription.topics
        return member.subscribed_topics or self._everything

    def _brokers(self) -> Brokers:
        """Return the brokers; these members are in the group, so they have let them in."""
        read, members = brokers_of(self._roll.snapshot), self._roll.snapshot.members
        sessions = [waits(member).session for member in members]
        return replace(
            read,
            initial_delay=self._roll.speed.first,
            max_size=max(read.max_size, len(members)),
            min_session=min(read.min_session, *sessions),
            max_session=max(read.max_session, *sessions),
        )

    def _shared(
        self, members: Sequence[Member], elected: str
    ) -> dict[str, tuple[TopicPartition, ...]]:
        """Return what the elected assignor gives to members of which some have not started yet."""
        if self.connectors:
            return eager((member.member_id for member in members), self.partitions)
        return self._assigned(self.assignors.get(elected) or get(elected), members)

    def stand_in_for_leader(self) -> None:
        """Assign by range: the elected assignor fails for these members, as Java's sticky may."""
        used = {*chain.from_iterable(self.lists.values()), *self.then}
        self.assignors = dict.fromkeys(used, get(_EAGER))
        self._notes.append(f"the leader's assignor would fail; {_EAGER} stands in for it")

    def _assigned(
        self, assignor: Assignor, members: Sequence[Member]
    ) -> dict[str, tuple[TopicPartition, ...]]:
        sent = tuple(SpecMember(member_id=m.member_id, topics=self._subscribed(m)) for m in members)
        made = assignor.assign(Spec(members=sent, partitions=self.topics))
        return {id_: tuple(owned) for id_, owned in made.items()}

    # Lists

    def _with_stand_ins(self) -> tuple[Lists, tuple[str, ...]]:
        roll = self._roll
        elected = roll.snapshot.group.assignor or ""
        if roll.snapshot.group.protocol_type == "connect":
            members = roll.snapshot.members
            return {self._called[m.member_id]: list_of(m, elected)[0] for m in members}, roll.target
        lists = {
            m.member_id: m.assignors.list
            if m.assignors.knowledge is Knowledge.EXACT and m.assignors.list
            else (elected,)
            for m in roll.snapshot.members
        }
        unknown = sorted({*chain.from_iterable(lists.values()), *roll.target} - set(NAMES))
        cooperative = set(lists) - set(roll.eager)
        calm = bool(cooperative) or (bool(roll.target) and not roll.eager_after)
        other = _COOPERATIVE if calm else _EAGER
        if unknown:
            these = ", ".join(name or "the elected assignor" for name in unknown)
            self._notes.append(f"{other} stands in for {these}, which is not modelled")

        def known(found: Sequence[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(name if name in NAMES else other for name in found))

        target = known(roll.target)
        if target:
            target = self._as(target, eager=roll.eager_after)
        lists = {id_: known(found) for id_, found in lists.items()}
        if target and not set(target).intersection(*lists.values()):
            # The steps before have added what this one keeps.
            lists = {
                id_: found if target[0] in found else tuple(dict.fromkeys((*target, *found)))
                for id_, found in lists.items()
            }
        if not set.intersection(*map(set, lists.values())):
            lists = {id_: tuple(dict.fromkeys((*found, other))) for id_, found in lists.items()}
        return {
            self._called[id_]: self._as(found, eager=id_ in roll.eager)
            for id_, found in lists.items()
        }, target

    def _as(self, found: tuple[str, ...], *, eager: bool) -> tuple[str, ...]:
        """Return the list with which a Java consumer is EAGER, or COOPERATIVE."""
        now = fixed_protocol(Process(name="", assignors=found)) is RebalanceProtocol.EAGER
        if now is eager:
            return found
        if eager:
            return (*found, _EAGER)
        return tuple(name for name in found if name == _COOPERATIVE) or (_COOPERATIVE,)


def _owned(
    snapshot: GroupSnapshot,
) -> tuple[dict[str, int], dict[str, tuple[TopicPartition, ...]]]:
    """Return the topics' partition counts, and who owns what; the first of two owners keeps it.

    Connect workers own what they run.
    """
    work = work_by_worker(snapshot)
    if work is not None:
        return {}, dict(work)
    topics = {topic.name: topic.partitions for topic in snapshot.topics}
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    seen: set[TopicPartition] = set()
    for member in snapshot.members:
        mine = []
        for topic, numbers in sorted(member.assignment.items()):
            for number in numbers:
                if (topic, number) not in seen:
                    seen.add((topic, number))
                    mine.append((topic, number))
                    topics[topic] = max(topics.get(topic, 0), number + 1)
        owned[member.member_id] = tuple(mine)
    return topics, owned
