"""State of a coordinator: settings of its brokers, its members, the group's stored record.

How a member of a KIP-848 group goes on to its target: CurrentAssignmentBuilder and
ConsumerGroupMember of Kafka's group coordinator (4.1), KIP-848 "Member State Machine".
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import Final, NamedTuple, Protocol

from rebal.groups.assignors import Owned, TopicPartition
from rebal.groups.model import CoordinatorKind, Record
from rebal.planner.rehearsal.engine.agenda import Agenda, Timer
from rebal.planner.rehearsal.engine.messages import (
    ClassicClient,
    Client,
    Error,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
)


class Brokers(Record, frozen=True, kw_only=True):
    """Settings of the brokers; times in seconds.

    `initial_delay` is group.initial.rebalance.delay.ms, `max_size` group.max.size; `min_session`
    and `max_session` are group.min.session.timeout.ms and group.max.session.timeout.ms.

    For KIP-848 groups: `consumer_heartbeat`, `consumer_session` and `consumer_max_size` are
    group.consumer.heartbeat.interval.ms, group.consumer.session.timeout.ms and
    group.consumer.max.size, `consumer_assignor` is the first of group.consumer.assignors, and
    `migration` is group.consumer.migration.policy. `classic_joins`: they admit classic joins (not
    where KAFKA-20640 rejects them). `static_returns`: a static member needs no free place to return
    (KAFKA-20601). `streams_delay` is group.streams.initial.rebalance.delay.ms; a Streams group has
    the times of a KIP-848 one otherwise, as by Kafka's defaults. `assignment_interval` is
    group.consumer.assignment.interval.ms (KIP-1263, since Kafka 4.3), and `first_epoch` the epoch
    that an empty group begins with (1 since 4.3, KAFKA-20268).
    """

    kind: CoordinatorKind = CoordinatorKind.JAVA
    initial_delay: float = 3.0
    max_size: int = 2**31 - 1
    min_session: float = 6.0
    max_session: float = 1800.0
    consumer_heartbeat: float = 5.0
    consumer_session: float = 45.0
    consumer_max_size: int = 2**31 - 1
    consumer_assignor: str = "uniform"
    migration: str = "bidirectional"
    classic_joins: bool = True
    static_returns: bool = False
    streams_delay: float = 3.0
    assignment_interval: float = 0.0
    first_epoch: int = 0


class Watcher(Protocol):
    """An observer of the group's rebalances."""

    def preparing(self, why: str) -> None:
        """Note that a rebalance has begun: the group waits for its members."""

    def generation(self, number: int, assignor: str | None, members: int) -> None:
        """Every expected member has joined; `assignor` is None for an Empty group."""

    def stable(self, number: int) -> None:
        """Note that the leader's assignment has arrived."""

    def removed(self, member_id: str, why: str) -> None:
        """Note that the coordinator has removed a member by itself."""


class ClassicSeat(NamedTuple):
    """A member that a classic group begins with: its last join, its process, its partitions."""

    request: JoinRequest
    client: ClassicClient
    partitions: Owned


class CountedMember:
    """One member in the coordinator's memory, of either kind of group.

    `request` is the last JoinGroup of a member with the classic protocol, None of the others. A
    `silent` member sends no heartbeat any more; its session ends at `deadline`.
    """

    __slots__ = ("client", "deadline", "heard", "instance_id", "member_id", "request", "silent")

    def __init__(self, member_id: str, instance_id: str | None, client: Client, now: float) -> None:
        self.member_id, self.instance_id, self.client = member_id, instance_id, client
        self.request: JoinRequest | None = None
        self.heard, self.silent, self.deadline = now, False, 0.0


class ClassicMember(CountedMember):
    """A member of a classic group; it is `new` until its first generation."""

    __slots__ = ("joining", "new", "partitions", "syncing", "unsynced")
    client: ClassicClient
    request: JoinRequest

    def __init__(self, request: JoinRequest, client: ClassicClient, now: float) -> None:
        super().__init__(request.member_id, request.instance_id, client, now)
        self.request = request
        self.joining = self.syncing = self.unsynced = False
        self.new = True
        self.partitions: Owned = ()

    def turn_away(self, error: Error) -> None:
        """Answer what it waits for, or have its next heartbeat find the error."""
        if self.joining:
            self.client.joined(JoinAnswer(error))
        elif self.syncing:
            self.client.synced(SyncAnswer(error))
        elif not self.silent:
            self.client.wake()


class Stored(NamedTuple):
    """The group's record in __consumer_offsets: what a coordinator that loads it knows."""

    generation: int
    assignor: str | None
    leader: str | None
    members: tuple[ClassicSeat, ...]


LEAVES: Final = -1
"""Member epoch of a heartbeat that leaves the group."""
COMES_BACK: Final = -2
"""Member epoch of a static member that left for a while."""
_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class MemberState(Enum):
    """The stage that a member has reached on the way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


class ReconcilingMember(CountedMember):
    """A member of a KIP-848 group: `assigned` and `revoking` are what nobody else can get.

    `target` is sorted. `late` removes it after its rebalance timeout. Times in seconds.
    """

    __slots__ = (
        "assigned",
        "assignor",
        "epoch",
        "late",
        "rack",
        "rebalance",
        "revoking",
        "session",
        "state",
        "target",
        "topics",
        "wanted",
    )

    def __init__(
        self, member_id: str, instance_id: str | None, client: Client, agenda: Agenda
    ) -> None:
        super().__init__(member_id, instance_id, client, agenda.now)
        self.epoch, self.state = 0, MemberState.STABLE
        self.topics: tuple[str, ...] = ()
        self.rack: str | None = None
        self.assignor = ""
        self.assigned = self.revoking = self.wanted = _NOTHING
        self.target: Owned = ()
        self.session = self.rebalance = 0.0
        self.late = Timer(agenda)

    @property
    def held(self) -> frozenset[TopicPartition]:
        """Partitions that it has not released."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    def aim(self, target: Owned) -> None:
        """Set the target."""
        if target != self.target:
            self.target, self.wanted = target, frozenset(target)

    def reconciled(self, epoch: int) -> bool:
        """Return whether it has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def replaces(self, old: ReconcilingMember) -> None:
        """Take the place of the static member `old`, which has the same instance id."""
        self.state, self.topics, self.rack = old.state, old.topics, old.rack
        self.assigned, self.revoking = old.assigned, old.revoking
        self.target, self.wanted, self.assignor = old.target, old.wanted, old.assignor

    def advance(
        self,
        epoch: int,
        owned: frozenset[TopicPartition] | None,
        taken: Container[TopicPartition],
    ) -> bool:
        """Go on towards the target of `epoch`, and return whether what it holds changed.

        `owned` is what the member says that it owns (None: it says nothing), `taken` what a member
        of the group has not released.
        """
        if self.state is MemberState.UNREVOKED:
            if owned is None or owned & self.revoking:
                return False
            own = self.epoch + 1
        elif self.reconciled(epoch):
            return False
        else:
            own = self.epoch
        kept = self.assigned & self.wanted
        revoking = self.assigned - kept
        missing = self.wanted - kept
        free = frozenset(pair for pair in missing if pair not in taken)
        before = self.assigned, self.revoking
        if revoking and (owned is None or owned & revoking):
            self.state, self.epoch = MemberState.UNREVOKED, own
            self.assigned, self.revoking = kept, revoking
        else:
            waits = len(free) < len(missing)
            self.state = MemberState.UNRELEASED if waits else MemberState.STABLE
            self.epoch = epoch
            self.assigned, self.revoking = kept | free, _NOTHING
        return before != (self.assigned, self.revoking)
