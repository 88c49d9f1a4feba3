"""Assignments in a rebalance: the members' subscriptions, the leader's assignor and its result.

The timed simulation uses the same functions as `Rounds`, a group without timing whose members all
join at once with one assignor.

This module also has assignors that differ from Java's: those of Connect workers, kafkajs and
segmentio/kafka-go. Workers assign connectors and tasks exactly as WorkerCoordinator and
DistributedHerder of Kafka 4.1 do (KIP-415). A connector is modelled as the partition `CONNECTOR` of
a topic, and its tasks as the other partitions. `default` is EAGER: a worker stops everything before
it joins. `compatible` and `sessioned` are COOPERATIVE: a worker that has to stop something joins
again, and the work of a lost worker waits for scheduled.rebalance.max.delay.ms.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Assignment, Assignor, Owned, Spec, SpecMember, connect
from rebal.groups.assignors.client.kafka import KafkaAssignor
from rebal.groups.assignors.server import ServerAssignor, Undecided
from rebal.groups.jvmhash import utf16
from rebal.groups.model import RebalanceProtocol
from rebal.groups.wire.consumer_protocol import CONNECTOR
from rebal.planner.rehearsal.engine.memory import JoinRequest


def sent(assignor: Assignor, member: SpecMember, *, eager: bool) -> SpecMember:
    """Return the member as the leader reads it from its JoinGroup.

    An EAGER member has revoked its partitions, so it is returned without `owned` (KIP-429). It
    keeps `owned` with `sticky`, which sends them as user data: the user data of Kafka's assignors
    is made from `owned` later, in the assignment. A custom `assignor` makes the user data here.
    """
    if isinstance(assignor, KafkaAssignor):
        forgets = eager and member.owned and assignor.name != "sticky"
        return replace(member, owned=()) if forgets else member
    data = assignor.subscription_user_data(member)
    return replace(member, owned=() if eager else member.owned, user_data=data)


def compute_assignment(assignor: Assignor, spec: Spec) -> tuple[Assignment, Undecided]:
    """Return the assignment that the leader, or a KIP-848 coordinator, computes for `spec`.

    The second item names topics and members whose unknown order could change the assignment.

    Raises:
        LeaderWouldFail: the real leader throws or never ends.
        CustomAssignorError: a custom assignor fails.
    """
    if isinstance(assignor, KafkaAssignor):
        return assignor.assign_remembered(spec), Undecided()
    if isinstance(assignor, ServerAssignor):
        return assignor.assign_with_undecided(spec)
    return assignor.assign(spec), Undecided()


def received(
    assignor: Assignor | None, member: SpecMember, partitions: Owned, generation: int
) -> SpecMember:
    """Return the member after it has received `partitions` as its assignment of `generation`.

    A custom `assignor` decides what the member keeps; otherwise (None too) it owns `partitions`.
    """
    if assignor is None or isinstance(assignor, KafkaAssignor):
        return replace(member, owned=tuple(partitions), generation=generation)
    return assignor.on_assignment(member, partitions, None, generation)


def rejoins(protocol: str, revoked: int) -> bool:
    """Return whether members join again after they have revoked `revoked` partitions (KIP-429).

    EAGER members revoke before they join, and need no second rebalance.
    """
    return protocol == RebalanceProtocol.COOPERATIVE and revoked > 0


class Rounds:
    """A group without timing, whose members all join each rebalance at once.

    `spec` is the group as its members joined the last time. `undecided` names topics and members
    whose order in a KIP-848 coordinator's tables is not known and could change the assignment.
    """

    def __init__(self, spec: Spec, assignor: Assignor, protocol: RebalanceProtocol) -> None:
        self.spec, self._assignor = spec, assignor
        self._eager = protocol is RebalanceProtocol.EAGER
        self._result: Assignment | None = None
        self.undecided = Undecided()

    def change(self, apply: Callable[[Spec], Spec]) -> tuple[SpecMember, ...]:
        """Change members or topics with `apply`, and return the members before the change."""
        self._receive()
        before = self.spec.members
        self.spec = apply(self.spec)
        return before

    def rebalance(self) -> tuple[Spec, Assignment]:
        """Rebalance once, and return the input that the assignor got and its assignment.

        Raises:
            LeaderWouldFail: the real leader throws or never ends.
            CustomAssignorError: a custom assignor fails.
        """
        read, self._result = self.compute_next()
        return read, self._result

    def compute_next(self) -> tuple[Spec, Assignment]:
        """Return the result of the next `rebalance`, without giving members the assignment."""
        self._receive()
        spec, assignor = self.spec, self._assignor
        if not isinstance(assignor, ServerAssignor):
            members = (sent(assignor, member, eager=self._eager) for member in spec.members)
            spec = replace(spec, members=tuple(members))
        result, undecided = compute_assignment(assignor, spec)
        self.undecided = Undecided(
            self.undecided.topics | undecided.topics, self.undecided.members | undecided.members
        )
        return spec, result

    def _receive(self) -> None:
        """Give members the result of the last rebalance, if they do not have it yet.

        Afterwards all members have the next generation.
        """
        result, self._result, members = self._result, None, self.spec.members
        if result is None:
            return
        generation = max((member.generation or 0 for member in members), default=0) + 1
        self.spec = replace(
            self.spec,
            members=tuple(
                received(
                    self._assignor, member, sorted(result.get(member.member_id, ())), generation
                )
                for member in members
            ),
        )


_BOTH: Final = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})
EAGER: Final = "default"
"""Name on the wire of the EAGER protocol, which every Connect worker offers."""
PROTOCOLS: Final[Mapping[str, frozenset[RebalanceProtocol]]] = {
    EAGER: frozenset({RebalanceProtocol.EAGER}),
    "compatible": _BOTH,
    "sessioned": _BOTH,
}
"""Name on the wire of a Connect protocol → EAGER, or both protocols if it is incremental."""


def work_of(connectors: Mapping[str, int]) -> Iterable[connect.Item]:
    """Return all connectors and tasks; `connectors` has the number of tasks of each connector."""
    for name, tasks in connectors.items():
        yield from ((name, number) for number in (CONNECTOR, *range(tasks)))


class WorkerLeaders:
    """Memory that each Connect worker has of the rebalances it led; a new process has none."""

    def __init__(self, connectors: Mapping[str, int]) -> None:
        self._configured = frozenset(work_of(connectors))
        self._memories: dict[str, connect.Memory] = {}

    def seat(self, leader: str, generation: int, running: Mapping[str, Owned]) -> None:
        """Set the memory of the worker `leader`, which led `generation`.

        `running` has the connectors and tasks of each worker, by member id.
        """
        self._memories[leader] = connect.Memory(
            generation=generation,
            members=frozenset(running),
            previous=frozenset(item for work in running.values() for item in work),
        )

    def assign(
        self,
        protocol: str,
        members: Sequence[JoinRequest],
        leader: str,
        *,
        generation: int,
        now: float,
        max_delay: float,
    ) -> tuple[Assignment, float]:
        """Return each worker's new work, and the seconds after which all workers must join again.

        The seconds are 0.0 if no work is held back. `now` and `max_delay` (the leader's
        scheduled.rebalance.max.delay.ms) are in seconds.
        """
        if protocol == EAGER:
            dealt = connect.eager((one.member_id for one in members), self._configured)
            return {id_: list(work) for id_, work in dealt.items()}, 0.0
        # A worker's work has the order of its JoinGroup request.
        held: dict[str, connect.Work] = {
            one.member_id: ()
            if one.eager
            else connect.work_of(connect.by_connector(tuple(one.subscription.owned)))
            for one in members
        }
        led = next(one.subscription.generation for one in members if one.member_id == leader)
        given, self._memories[leader] = connect.incremental(
            connect.ConnectRound(
                workers=held,
                configured=self._configured,
                generation=generation,
                last_generation=-1 if led is None else led,
                now_ms=round(now * 1000) + 1,
                max_delay_ms=round(max_delay * 1000),
            ),
            self._memories.get(leader, connect.Memory()),
        )
        made = {id_: list(connect.after(held[id_], part)) for id_, part in given.items()}
        return made, max((part.delay_ms for part in given.values()), default=0) / 1000


def kafkajs_round_robin(spec: Spec) -> Assignment:
    """Return the assignment of kafkajs's only assignor (src/consumer/assigners/roundRobinAssigner).

    It deals all partitions of the leader's own topics in turn to the members, sorted by id, without
    regard to their subscriptions. Here it deals the topics of all members; the simulated world
    gives every member the leader's topics. The real order of a topic's partitions is that of the
    leader's metadata, which is arbitrary; here it is by number. So the number of a member's
    partitions is exact, but not which ones it gets.
    """
    ids = sorted((member.member_id for member in spec.members), key=utf16)
    topics = dict.fromkeys(topic for member in spec.members for topic in member.topics)
    pairs = [(topic, n) for topic in topics for n in range(spec.partitions.get(topic, 0))]
    return {id_: pairs[place :: len(ids)] for place, id_ in enumerate(ids)}


def kafka_go_range(spec: Spec) -> Assignment:
    """Return the assignment of the range assignor of segmentio/kafka-go (RangeGroupBalancer).

    It divides a topic differently from Java's range: of P partitions, member i of M gets those from
    iP/M to (i + 1)P/M, rounded down.
    """
    members = sorted(spec.members, key=lambda member: member.member_id)
    made: Assignment = {member.member_id: [] for member in members}
    for topic, count in spec.partitions.items():
        ids = [member.member_id for member in members if topic in member.topics]
        for number, id_ in enumerate(ids):
            first, end = number * count // len(ids), (number + 1) * count // len(ids)
            made[id_] += [(topic, n) for n in range(first, end)]
    return made


FOREIGN: Final[Mapping[str, Assignor]] = {
    "RoundRobinAssigner": KafkaAssignor(
        "RoundRobinAssigner",
        PROTOCOLS[EAGER],
        lambda p: kafkajs_round_robin(p.spec),
        lambda _: None,
    )
}
"""Name on the wire → assignor that only clients other than Java's have."""
OF_FAMILY: Final[Mapping[tuple[str, str], Assignor]] = {
    ("segmentio", "range"): KafkaAssignor(
        "range", PROTOCOLS[EAGER], lambda p: kafka_go_range(p.spec), lambda _: None
    )
}
"""Assignors that have the name of one of Kafka's own and assign differently, by client family."""
