"""Messages between a coordinator and its members, its member table, and the group's stored record.

A member of a KIP-848 group reaches its target as in CurrentAssignmentBuilder and
ConsumerGroupMember of Kafka's group coordinator (4.1), KIP-848 "Member State Machine".

A classic coordinator takes a new leader from a hash table of its members, and sends the members to
the leader in the table's order. The Java coordinator (ClassicGroup.members) has a
java.util.HashMap. The Scala one (GroupMetadata) has a scala.collection.mutable.HashMap of Scala
2.13, which sorts a bucket by hash. A KIP-848 group (ModernGroup.members) has an
org.apache.kafka.timeline.TimelineHashMap. None of these tables shrinks.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from rebal.groups.assignors import Owned, SpecMember, TopicPartition
from rebal.groups.jvmhash import string_hash
from rebal.groups.model import CoordinatorKind, GroupType, Record
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance, Timer


class Error(IntEnum):
    """Kafka's error codes that a coordinator answers members with."""

    NONE = 0
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    UNSUPPORTED_VERSION = 35
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    STALE_MEMBER_EPOCH = 113


class JoinRequest(NamedTuple):
    """A JoinGroup request, with the assignor list in order of preference and the subscription.

    `subscription` has the partitions that the member owned before; an `eager` member has revoked
    them and sends none. The coordinator compares `stamp` to see whether the member's metadata has
    changed. `session` and `rebalance` are timeouts in seconds.
    """

    member_id: str
    client_id: str
    instance_id: str | None
    assignors: tuple[str, ...]
    subscription: SpecMember
    eager: bool
    stamp: object
    session: float
    rebalance: float


class JoinAnswer(NamedTuple):
    """Answer to a JoinGroup; for the leader, `members` has all JoinGroups of the generation."""

    error: Error
    member_id: str = ""
    generation: int = -1
    assignor: str = ""
    leader: bool = False
    members: Sequence[JoinRequest] = ()
    skip_assignment: bool = False


class SyncAnswer(NamedTuple):
    """Answer to a SyncGroup: the member's partitions of this generation."""

    error: Error
    partitions: Owned = ()


class Beat(NamedTuple):
    """A ConsumerGroupHeartbeat request (KIP-848).

    `topics`, `owned` and `rack` are None if they have not changed since the last heartbeat. `epoch`
    is the member epoch: 0 joins, -1 leaves, -2 is a static member that will return. `owned` is what
    the member owns, `assignor` group.remote.assignor (empty: not set), `rebalance`
    max.poll.interval.ms in seconds. `streams` is True for a StreamsGroupHeartbeat (KIP-1071), whose
    group assigns tasks.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    owned: frozenset[TopicPartition] | None = None
    rack: str | None = None
    assignor: str = ""
    rebalance: float = 300.0
    streams: bool = False


class BeatAnswer(NamedTuple):
    """Answer to a ConsumerGroupHeartbeat; `partitions` is None while they have not changed."""

    error: Error
    epoch: int = 0
    partitions: frozenset[TopicPartition] | None = None


class Client(Protocol):
    """Interface by which a coordinator calls a member's process."""

    def wake(self) -> None:
        """Tell the process that the member's next heartbeat will find something new.

        Heartbeats that would find nothing new are not simulated.
        """


class ClassicClient(Client, Protocol):
    """Interface by which a coordinator calls a process that speaks the classic protocol."""

    @property
    def skips_assignment(self) -> bool:
        """True if it sends JoinGroup v9, whose answer may tell a leader not to assign."""

    def joined(self, answer: JoinAnswer) -> None:
        """Process the answer to the client's JoinGroup."""

    def synced(self, answer: SyncAnswer) -> None:
        """Process the answer to the client's SyncGroup."""


Assigned = Mapping[str, Owned]
"""Member id → its partitions, in the order of the leader's assignor."""


class Brokers(Record, frozen=True, kw_only=True):
    """Settings of the brokers; times in seconds.

    `kind` is the coordinator's implementation. `initial_delay` is group.initial.rebalance.delay.ms,
    `max_size` group.max.size; `min_session` and `max_session` are group.min.session.timeout.ms and
    group.max.session.timeout.ms.

    For KIP-848 groups: `consumer_heartbeat`, `consumer_session` and `consumer_max_size` are
    group.consumer.heartbeat.interval.ms, group.consumer.session.timeout.ms and
    group.consumer.max.size, `consumer_assignor` is the first of group.consumer.assignors, and
    `migration` is group.consumer.migration.policy. `classic_joins` is False if the brokers reject
    joins with the classic protocol (KAFKA-20640). `static_restarts_when_full` is True if a static
    member can restart in a full group (KAFKA-20601). `streams_delay` is
    group.streams.initial.rebalance.delay.ms; for other times a Streams group uses those of KIP-848
    groups, which have the same defaults.
    `assignment_interval` is group.consumer.assignment.interval.ms (KIP-1263, since Kafka 4.3).
    `first_epoch` is the epoch of an empty group (1 since 4.3, KAFKA-20268). `lacking` are the types
    of groups that the brokers do not support: CONSUMER (KIP-848) or STREAMS (KIP-1071).
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
    static_restarts_when_full: bool = False
    streams_delay: float = 3.0
    assignment_interval: float = 0.0
    first_epoch: int = 0
    lacking: frozenset[GroupType] = frozenset()


class Watcher(Protocol):
    """An observer of the group's rebalances."""

    def preparing(self, why: str) -> None:
        """Note that a rebalance has begun for the reason `why`."""

    def generation(self, number: int, assignor: str | None, members: int) -> None:
        """Note the new generation or epoch; `assignor` is None if a classic group is Empty."""

    def stable(self, number: int) -> None:
        """Note that the leader's assignment has arrived, or that a KIP-848 group has reconciled."""

    def removed(self, member_id: str, why: str) -> None:
        """Note that the coordinator has removed a member after a timeout."""


class ClassicSeat(NamedTuple):
    """A member that a classic group begins with: its last join, its process, its partitions."""

    request: JoinRequest
    client: ClassicClient
    partitions: Owned


class CountedMember:
    """One member in the coordinator's memory, of a classic or a KIP-848 group.

    `request` is the last JoinGroup of a member with the classic protocol, None for other members.
    `heard` is the time from which its session timeout counts. A `silent` member has stopped its
    heartbeats; its session ends at `deadline`.
    """

    def __init__(self, member_id: str, instance_id: str | None, client: Client, now: float) -> None:
        self.member_id, self.instance_id, self.client = member_id, instance_id, client
        self.request: JoinRequest | None = None
        self.heard, self.silent, self.deadline = now, False, 0.0


class ClassicMember(CountedMember):
    """A member of a classic group; it is `new` until its first generation.

    `joining` and `syncing` are True while it waits for the answer to a JoinGroup or SyncGroup.
    `unsynced` is True until it sends the SyncGroup of its generation.
    """

    client: ClassicClient
    request: JoinRequest

    def __init__(self, request: JoinRequest, client: ClassicClient, now: float) -> None:
        super().__init__(request.member_id, request.instance_id, client, now)
        self.request = request
        self.joining = self.syncing = self.unsynced = False
        self.new = True
        self.partitions: Owned = ()

    def reject(self, error: Error) -> None:
        """Answer the pending JoinGroup or SyncGroup with `error`; without one, wake the member.

        Its next heartbeat then gets the error.
        """
        if self.joining:
            self.client.joined(JoinAnswer(error))
        elif self.syncing:
            self.client.synced(SyncAnswer(error))
        elif not self.silent:
            self.client.wake()


class Stored(NamedTuple):
    """The group's record in __consumer_offsets, from which a coordinator loads the group."""

    generation: int
    assignor: str | None
    leader: str | None
    members: tuple[ClassicSeat, ...]


LEAVES: Final = -1
"""Member epoch of a heartbeat by which a member leaves the group (KIP-848)."""
COMES_BACK: Final = -2
"""Member epoch of a heartbeat by which a static member leaves until it restarts (KIP-848)."""
_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class MemberState(Enum):
    """The stage that a member has reached on the way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


class ReconcilingMember(CountedMember):
    """A member of a KIP-848 group; no other member can get its `assigned` or `revoking` partitions.

    `target` is its target assignment, sorted, and `wanted` the same as a set. The timer `late`
    removes the member after its rebalance timeout. Times are in seconds.
    """

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
        """Partitions that the member has not released: assigned ones and those being revoked."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    def reconciled(self, epoch: int) -> bool:
        """Return whether the member has reached the target of `epoch`."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def advance(
        self,
        epoch: int,
        owned: frozenset[TopicPartition] | None,
        taken: Container[TopicPartition],
    ) -> bool:
        """Move the member towards the target of `epoch`; return whether its partitions changed.

        `owned` are the partitions that the member reports as owned (None: it reports nothing),
        `taken` those that a member of the group has not released.
        """
        own = self.epoch
        if self.state is MemberState.UNREVOKED:
            if owned is None or owned & self.revoking:
                return False
            own += 1
        elif self.reconciled(epoch):
            return False
        kept = self.assigned & self.wanted
        revoking = self.assigned - kept
        missing = self.wanted - kept
        free = frozenset(pair for pair in missing if pair not in taken)
        before = self.assigned, self.revoking
        if revoking and (owned is None or owned & revoking):
            self.state, self.epoch = MemberState.UNREVOKED, own
            self.assigned, self.revoking = kept, revoking
        else:
            self.state = MemberState.UNRELEASED if len(free) < len(missing) else MemberState.STABLE
            self.epoch, self.assigned, self.revoking = epoch, kept | free, _NOTHING
        return before != (self.assigned, self.revoking)


_M = TypeVar("_M", bound=CountedMember)
_SIGN: Final = 0x80000000
_FIBONACCI: Final = -7046029254386353131


def table_size(size: int, members: int, kind: CoordinatorKind | None) -> int:
    """Return the number of buckets of a hash table that has grown to `members` members.

    `size` is the number before the last member was added. Java's table doubles after the entry that
    exceeds three quarters of its buckets, Scala's before the entry that reaches three quarters. A
    TimelineHashMap (`kind` None) doubles before an insertion that may exceed its limit
    (BaseHashTable). Each member is inserted at its join and again at its assignment, so the last
    member counts too.
    """
    count = members if kind is CoordinatorKind.JAVA else members + 1
    while count > (size * 4 // 3 if kind is None else size * 3 // 4):
        size *= 2
    return size


def table_order(member_ids: Sequence[str], size: int, kind: CoordinatorKind | None) -> list[str]:
    """Return the member ids in the order of a hash table with `size` buckets.

    `member_ids` are in the order in which they were added. A TimelineHashMap iterates each bucket
    from its end (BaseHashTable.findSlot). Buckets of more than eight members, which Java turns into
    trees, are not modelled.
    """
    scala, shift = kind is CoordinatorKind.SCALA, 65 - size.bit_length()

    def place(member_id: str) -> tuple[int, int]:
        hashed = string_hash(member_id)
        if kind is None:
            signed = hashed - 2 * _SIGN if hashed >= _SIGN else hashed
            return (signed * _FIBONACCI & 2**64 - 1) >> shift, 0
        spread = hashed ^ hashed >> 16
        # Scala compares signed hashes.
        return spread & (size - 1), spread ^ _SIGN if scala else 0

    return sorted(reversed(member_ids) if kind is None else member_ids, key=place)


class MemberTable(dict[str, _M]):
    """Members by member id, in the order in which they joined.

    `static` maps the instance ids of static members to their member ids. `kind` is the classic
    coordinator's implementation (None: a KIP-848 group), on which the order of `ordered` depends.
    """

    def __init__(self, kind: CoordinatorKind | None = None) -> None:
        super().__init__()
        self.static: dict[str | None, str] = {}
        self._kind = kind
        # The number of buckets; a TimelineHashMap has 2 when it is new.
        self._size = 2 if kind is None else 16

    def add(self, member: _M) -> None:
        """Add a member; a static member takes over its instance id from its predecessor."""
        self[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._size = table_size(self._size, len(self), self._kind)

    def remove(self, member: _M) -> None:
        """Remove a member, and its instance id unless another member has taken that over."""
        del self[member.member_id]
        if self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]

    def ordered(self, member_ids: Iterable[str]) -> list[_M]:
        """Return the members `member_ids` in the table's order; the ids are in order of joining."""
        return [self[id_] for id_ in table_order([*member_ids], self._size, self._kind)]


class MovingCoordinator(ABC, Generic[_M]):
    """The coordinator of one group: it times members' sessions, and can move to another broker.

    `number` is the group's generation or epoch. While another broker loads the group, `away` is the
    time in seconds that the loading takes; otherwise it is 0.0.
    """

    def __init__(
        self,
        agenda: Agenda,
        brokers: Brokers,
        watcher: Watcher,
        chance: Chance,
        *,
        members: MemberTable[_M],
        number: int,
    ) -> None:
        self._agenda, self._brokers, self._watcher, self._chance = agenda, brokers, watcher, chance
        self._members, self.number, self.away = members, number, 0.0
        self._loading = Timer(agenda)

    @property
    def size(self) -> int:
        """Number of members, crashed ones included until their session ends."""
        return len(self._members)

    def lists(self) -> dict[str, tuple[str, ...]]:
        """Return the stored assignor list of each classic-protocol member, by member id."""
        return {
            id_: member.request.assignors
            for id_, member in self._members.items()
            if member.request is not None
        }

    def counts_member(self, member_id: str) -> bool:
        """Return whether the coordinator still counts this member."""
        return member_id in self._members

    def heartbeats_stopped(self, member_id: str, last: float, client: Client) -> str:
        """Record that a member has stopped its heartbeats; the last one was at the time `last`.

        Returns its member id; empty if the process `client` has no such member in the group.
        """
        member = self._members.get(member_id)
        if member is None or member.client is not client:
            return ""
        member.silent, member.heard = True, max(member.heard, last)
        self._watch(member)
        return member_id

    def heartbeats_resumed(self, member_id: str) -> None:
        """Record that a silent member sends heartbeats again."""
        member = self._members.get(member_id)
        if member is not None:
            member.silent, member.heard = False, self._agenda.now

    def move(self, seconds: float) -> None:
        """Move the group to another broker, which takes `seconds` to load it."""
        self.away = max(seconds, 1e-9)
        self._loading.after(seconds, self._load)

    def _found(self, member_id: str, client: Client) -> _M | Error:
        """Return the member, or the error code if this process is not that member."""
        member = self._members.get(member_id)
        if self.away:
            return Error.NOT_COORDINATOR
        return self._unknown(client) if member is None or member.client is not client else member

    @abstractmethod
    def _load(self) -> None:
        """Restore the group from its records in __consumer_offsets."""

    def _watch(self, member: _M) -> None:
        """Schedule the end of a silent member's session."""
        member.deadline = member.heard + self._session(member)
        self._agenda.at(member.deadline, self._session_over, member, member.deadline)

    def _session_over(self, member: _M, deadline: float) -> None:
        due = member.silent and member.deadline == deadline and not self.away
        if due and self._members.get(member.member_id) is member:
            self._expire(member)

    @abstractmethod
    def _session(self, member: _M) -> float:
        """Return the seconds that the member may stay in the group without a heartbeat."""

    @abstractmethod
    def _expire(self, member: _M) -> None:
        """Remove a member whose session is over."""

    def _unknown(self, client: Client) -> Error:
        """Return the error code for a process that is not a member.

        It is FENCED_INSTANCE_ID if another member has its instance id, and UNKNOWN_MEMBER_ID
        otherwise.
        """
        taken = getattr(client, "instance_id", None) in self._members.static
        return Error.FENCED_INSTANCE_ID if taken else Error.UNKNOWN_MEMBER_ID
