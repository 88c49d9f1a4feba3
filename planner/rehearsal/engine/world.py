"""A simulated group: processes that start and stop, their coordinator, and partition owners."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import (
    Assignment,
    Assignor,
    Spec,
    SpecMember,
)
from rebal.groups.assignors.client.kafka import ASSIGNORS, KafkaAssignor
from rebal.groups.assignors.server import server_assignor
from rebal.groups.errors import RebalError
from rebal.groups.model import GroupState, RebalanceProtocol
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance, Timer
from rebal.planner.rehearsal.engine.consumer import Consumer
from rebal.planner.rehearsal.engine.consumer_group import Seat
from rebal.planner.rehearsal.engine.group import SimulatedGroup
from rebal.planner.rehearsal.engine.kip848_consumer import Kip848Consumer
from rebal.planner.rehearsal.engine.leaders import (
    EAGER,
    FOREIGN,
    OF_FAMILY,
    PROTOCOLS,
    WorkerLeaders,
    compute_assignment,
    sent,
    work_of,
)
from rebal.planner.rehearsal.engine.ledger import Ledger, Note, Rebalance
from rebal.planner.rehearsal.engine.member import (
    Process,
    Protocols,
    RunningProcess,
    SimulatedMember,
    client_rejection,
)
from rebal.planner.rehearsal.engine.memory import Brokers, JoinRequest

HELD_BACK: Final = "held back"
"""Event: a Connect leader keeps lost work for scheduled.rebalance.max.delay.ms."""
_REST: Final = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)


class World:
    """A simulated group with its members, its coordinator, and a record of all events.

    `topics` has partition counts, `replicas` and `racks` are as in `Spec`, `topic_ids` as in
    `server_assignor`. A group of Connect workers has `connectors`, each with its number of tasks.
    `user_data` names the assignors whose assignments carry user data. All random values come
    from the generator `random`, or from `chance` if it is given: equal ones give equal results.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        brokers: Brokers,
        random: Random,
        *,
        replicas: Mapping[str, Sequence[Sequence[int]]] | None = None,
        racks: Mapping[int, str | None] | None = None,
        topic_ids: Mapping[str, str] | None = None,
        assignors: Mapping[str, Assignor] | None = None,
        keep: bool = False,
        generation: int = 0,
        chance: Chance | None = None,
        connectors: Mapping[str, int] | None = None,
        user_data: Collection[str] = (),
    ) -> None:
        self.chance = chance or Chance(random)
        self.agenda = Agenda()
        self.happened: list[Note] = []
        self.rebalances: list[Rebalance] = []
        self.consumers: dict[str, SimulatedMember] = {}
        self.ended: list[SimulatedMember] = []
        pairs = [(topic, number) for topic, count in topics.items() for number in range(count)]
        pairs += work_of(connectors or {})
        self._workers = WorkerLeaders(connectors) if connectors else None
        self.ledger = Ledger(pairs, keep=keep)
        self.group = SimulatedGroup(
            self.agenda, brokers, self, self.chance, server=self, generation=generation
        )
        own = {name: one.supported_protocols for name, one in (assignors or {}).items()}
        self._work = PROTOCOLS if connectors else {}
        self.protocols: Protocols = {**own, **self._work}
        self._topics = dict(topics)
        self.with_user_data = user_data
        self._spec = Spec(
            members=(), partitions=self._topics, replicas=replicas or {}, racks=racks or {}
        )
        self.custom: Mapping[str, Assignor] = {**FOREIGN, **(assignors or {})}
        self._brokers, self._topic_ids = brokers, topic_ids or {}
        # Elected assignors whose assignment is not modelled: nobody owns anything then.
        self.opaque: set[str] = set()
        self._moving: set[SimulatedMember] = set()
        self._loading = Timer(self.agenda)
        self._due: dict[str, Process] = {}
        self._silent: set[str] = set()
        self._taking_over = False
        self._coming = self._stopped = self._moved = 0

    # Set-up and running

    def seat(
        self, running: Iterable[RunningProcess], assignor: str, leader: str | None = None
    ) -> None:
        """Begin with the members `running` in a Stable group that elected `assignor`.

        `leader` is the leader's member id (None: the first member leads).
        """
        running = tuple(running)
        spoken = {one.process.protocol for one in running}
        known = "consumer" in spoken or assignor in {*self.custom, *ASSIGNORS, *self._work}
        if running and ("streams" in spoken or not known):
            self._count_no_partitions("stream" if "streams" in spoken else assignor)
            running = tuple(replace(one, owned=()) for one in running)
        members = [(one, self._consumer(one.process)) for one in running]
        if members:
            seats = [Seat(member.seat(one, assignor), member, one.owned) for one, member in members]
            self.group.seat(seats, assignor, leader)
        if self._workers is not None and self.group.now.leader is not None and assignor != EAGER:
            owned = {one.member_id: one.owned for one in running}
            self._workers.seat(self.group.now.leader, self.group.now.number, owned)

    def run(self, seconds: float) -> None:
        """Simulate `seconds` of time."""
        self.agenda.run(self.agenda.now + seconds)

    def settle(self, most: float) -> bool:
        """Simulate until the group is at rest, for at most `most` seconds; return whether it is."""
        return self.agenda.run(self.agenda.now + most, self.at_rest)

    def at_rest(self) -> bool:
        """Return whether nothing is pending: no rebalance, no start, no session timeout."""
        group = self.group.now
        if self._coming or self._moving or group.away or group.phase not in _REST:
            return False
        if self.rebalances and self.rebalances[-1].ended is None:
            return False
        if self._silent:
            self._silent = set(filter(group.counts_member, self._silent))
        return not self._silent

    # What happens to processes

    def start(self, process: Process, delay: float = 0.0) -> None:
        """Start a process; it joins in `delay` seconds."""
        self._coming += 1
        self._due[process.name] = process
        self.agenda.after(delay, self._start, process)

    def stop(self, name: str) -> None:
        """Close the process `name` cleanly; cancel its start if that is still pending."""
        self._due.pop(name, None)
        consumer = self.consumers.get(name)
        if consumer is not None:
            consumer.stop()
            self._note_silent(consumer)

    def kill(self, name: str) -> None:
        """End the process `name` without a LeaveGroup; cancel its start if that is pending."""
        self._due.pop(name, None)
        consumer = self.consumers.get(name)
        if consumer is not None:
            consumer.kill()

    def restart(self, process: Process, takes: float) -> None:
        """Close any running process of the same name; start `process` after `takes` seconds."""
        consumer = self.consumers.get(process.name)
        if consumer is not None:
            consumer.stop()
        self.start(process, takes)

    def delete_group(self) -> None:
        """Delete the group, as an administrator does; a note has the error code."""
        self._note("", "group deleted", self.group.delete().name)

    def move_coordinator(self, seconds: float) -> None:
        """Move the group to another broker, which takes `seconds` to load it."""
        self._note("", "coordinator moved")
        # The next coordinator knows nothing of it: members that go on begin another one.
        self._close(len(self.rebalances))
        self.group.now.move(seconds)
        self._loading.after(seconds, self._loaded)

    def add_partitions(self, topic: str, count: int, noticed: float = 0.0) -> None:
        """Set a topic's partition count; classic leaders notice it `noticed` seconds later."""
        self._topics[topic] = count
        if not self.opaque:
            self.ledger.grow(topic, count, self.agenda.now)
        self._note("", "partitions", f"{topic}: {count}")
        self._topic_changed(topic, noticed)

    def delete_topic(self, topic: str, noticed: float = 0.0) -> None:
        """Delete a topic; classic leaders notice it `noticed` seconds later."""
        self._topics.pop(topic, None)
        self.ledger.drop(topic, self.agenda.now)
        self._note("", "topic deleted", topic)
        self._topic_changed(topic, noticed)

    # What the coordinator and the members report

    def preparing(self, why: str) -> None:
        """Note that a rebalance has begun for the reason `why`."""
        self._close(len(self.rebalances))
        self.rebalances.append(
            Rebalance(
                why=why,
                began=self.agenda.now,
                ended=None,
                generation=-1,
                assignor=None,
                members=0,
                stopped=0,
                moved=0,
            )
        )

    def generation(self, number: int, assignor: str | None, members: int) -> None:
        """Note the new generation or epoch `number`; without members the rebalance ends."""
        self.rebalances[-1] = replace(
            self.rebalances[-1], generation=number, assignor=assignor, members=members
        )
        if not members:
            self._close(len(self.rebalances))

    def stable(self, number: int) -> None:  # noqa: ARG002 - it is that of the last rebalance
        """Note that the assignment has arrived: the rebalance ends now.

        In a KIP-848 group it ends when all members are at rest.
        """
        if self.group.kip848 and self._moving:
            self._taking_over = True
        else:
            self.agenda.after(0.0, self._close, len(self.rebalances))

    def removed(self, member_id: str, why: str) -> None:
        """Note that the coordinator has removed a member after a timeout."""
        everyone = (*self.consumers.values(), *self.ended)
        mine = (one for one in everyone if member_id in (one.member_id, one.last_id))
        consumer = next(mine, None)
        if consumer is not None and consumer.alive:
            self.ledger.mark_past_timeout(consumer.process.name, now=self.agenda.now, over=False)
        self._note(consumer.process.name if consumer is not None else member_id, "removed", why)

    def record_event(self, consumer: SimulatedMember, what: str, detail: str = "") -> None:
        """Record the event `what` of a member at the current time."""
        self._note(consumer.process.name, what, detail)
        if what == "ended":
            self._note_silent(consumer)

    def unrest(self, consumer: SimulatedMember, *, moving: bool) -> None:
        """Record that a member has something under way (`moving` True), or is at rest (False).

        A rebalance of a KIP-848 group ends here if it waits until all members are at rest.
        """
        if moving:
            self._moving.add(consumer)
        else:
            self._moving.discard(consumer)
            if self._taking_over and not self._moving:
                self._close(len(self.rebalances))

    def assign(
        self, assignor: str, members: Sequence[JoinRequest], leader: SimulatedMember
    ) -> Assignment | str:
        """Return the leader's assignment by member id, or an error message if the leader fails.

        The leader's computing time is not modelled.
        """
        if self._workers is not None and assignor in self._work:
            return self._assign_work(self._workers, assignor, members, leader)
        of_family = OF_FAMILY.get((leader.process.family, assignor))
        chosen = self.custom.get(assignor) or of_family or ASSIGNORS.get(assignor)
        if chosen is None:
            self._count_no_partitions(assignor)
            return {}
        try:
            read = tuple(sent(chosen, one.subscription, eager=one.eager) for one in members)
            if assignor in FOREIGN:
                # kafkajs deals its own topics alone.
                read = tuple(replace(member, topics=leader.process.topics) for member in read)
            known = {t: count for t, count in self._topics.items() if t not in leader.unread}
            result, _ = compute_assignment(
                chosen, replace(self._spec, members=read, partitions=known)
            )
        except RebalError as error:
            return str(error)
        validates = leader.protocol is RebalanceProtocol.COOPERATIVE
        own = isinstance(chosen, KafkaAssignor)
        if validates and not own and (twice := _handed_over(members, result)):
            return f"{twice[0]}-{twice[1]} would be owned twice (ConsumerCoordinator validates it)"
        return result

    def targets(self, assignor: str, members: Sequence[SpecMember]) -> Assignment:
        """Return the target assignments that the brokers of a KIP-848 group compute, by member id.

        Empty for a Streams group, whose tasks are not modelled.
        """
        if self.opaque:
            return {}
        spec = replace(self._spec, members=tuple(members), partitions=self._topics)
        return compute_assignment(server_assignor(assignor, self._topic_ids), spec)[0]

    # Inside

    def _note(self, who: str, what: str, detail: str = "") -> None:
        self.happened.append(Note(at=self.agenda.now, who=who, what=what, detail=detail))

    def _assign_work(
        self,
        workers: WorkerLeaders,
        protocol: str,
        members: Sequence[JoinRequest],
        leader: SimulatedMember,
    ) -> Assignment:
        made, delay = workers.assign(
            protocol,
            members,
            leader.member_id,
            generation=leader.generation,
            now=self.agenda.now,
            max_delay=leader.process.held_back,
        )
        if delay:
            self._coming += 1
            self._note("", HELD_BACK, f"{delay:g} s")
            self.agenda.after(delay, self._delay_over, leader, leader.generation)
        return made

    def _delay_over(self, leader: SimulatedMember, generation: int) -> None:
        """Make the Connect leader rejoin to assign delayed work, unless a rebalance came before."""
        self._coming -= 1
        if leader.generation == generation:
            leader.enforce_rebalance()

    def _loaded(self) -> None:
        # The sessions of members that left after the record was written are waited for.
        running = {one.member_id for one in self.consumers.values() if one.alive}
        self._silent |= self.group.now.lists().keys() - running

    def _count_no_partitions(self, assignor: str) -> None:
        """Stop modelling partitions, because what `assignor` assigns is not modelled.

        Kafka Streams assigns tasks, and a custom assignor class can do anything. The vote and the
        admission need no assignment.
        """
        self.opaque.add(assignor)
        for topic in self._topics:
            self.ledger.drop(topic, self.agenda.now)

    def _consumer(self, process: Process) -> SimulatedMember:
        brokers, classic = self._brokers, process.protocol == "classic"
        consumer = Consumer(process, self) if classic else Kip848Consumer(process, self, brokers)
        if process.name in self.consumers:
            self.ended.append(self.consumers[process.name])
        self.consumers[process.name] = consumer
        return consumer

    def _start(self, process: Process) -> None:
        self._coming -= 1
        if self._due.get(process.name) is not process:
            return
        del self._due[process.name]
        why = client_rejection(process)
        if why:
            self._note(process.name, "did not start", why)
        else:
            consumer = self._consumer(process)
            self.record_event(consumer, "started")
            consumer.start()

    def _note_silent(self, consumer: SimulatedMember) -> None:
        if self.group.now.counts_member(consumer.member_id):
            self._silent.add(consumer.member_id)

    def _topic_changed(self, topic: str, noticed: float) -> None:
        """Report a topic change: at once to brokers, `noticed` seconds later to classic leaders."""
        if not self.group.refresh(topic):
            self._coming += 1
            self.agenda.after(noticed, self._metadata_seen, topic)

    def _metadata_seen(self, topic: str) -> None:
        # The leader joins again if a member subscribes to the topic.
        self._coming -= 1
        leads = self.group.now.leader if self.group.subscribes(topic) else None
        alive = [one for one in self.consumers.values() if one.alive and one.member_id == leads]
        for leader in alive[:1]:
            leader.enforce_rebalance()

    def _close(self, number: int) -> None:
        """End the rebalance `number` (counted from 1) now; do nothing for 0 or if it has ended.

        Its `stopped` and `moved` become the partitions that stopped or moved since the rebalance
        before it ended.
        """
        if number and self.rebalances[number - 1].ended is None:
            self._taking_over = False
            stopped, moved = self.ledger.stopped, self.ledger.moved
            self.rebalances[number - 1] = replace(
                self.rebalances[number - 1],
                ended=self.agenda.now,
                stopped=stopped - self._stopped,
                moved=moved - self._moved,
            )
            self._stopped, self._moved = stopped, moved


def _handed_over(members: Sequence[JoinRequest], result: Assignment) -> tuple[str, int] | None:
    """Return a partition that `result` assigns to a member although another member still owns it.

    The other member reported it as owned in its JoinGroup. None: there is no such partition.
    """
    owner = {
        pair: request.member_id
        for request in members
        if not request.eager
        for pair in request.subscription.owned
    }
    return next(
        (pair for id_, pairs in result.items() for pair in pairs if owner.get(pair, id_) != id_),
        None,
    )
