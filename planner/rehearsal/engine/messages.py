"""Messages between members and their coordinator: requests, answers and error codes."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from rebal.groups.assignors import Owned, SpecMember, TopicPartition


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
    """JoinGroup: the assignor list in order of preference, and the subscription.

    `subscription` holds what the member owned before; an `eager` member has given it up and sends
    no owned partitions. `stamp` is what the coordinator compares to see whether the metadata of a
    member changed. Timeouts are in seconds.
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
    """Answer to a JoinGroup; `members` are the leader's alone (requests of the generation)."""

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
    """ConsumerGroupHeartbeat (KIP-848); None: as in the member's last one.

    `epoch` is the member epoch: 0 joins, -1 leaves, -2 is a static member that will return.
    `owned` is what the member owns, `assignor` group.remote.assignor (empty: not set), `rebalance`
    max.poll.interval.ms in seconds. `streams`: it is a StreamsGroupHeartbeat (KIP-1071), whose
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
    """A member's process, as its coordinator knows it."""

    def wake(self) -> None:
        """Let its next heartbeat find something new; until then it need not send any."""


class ClassicClient(Client, Protocol):
    """The process of a member that speaks the classic protocol."""

    @property
    def skips_assignment(self) -> bool:
        """True if it sends JoinGroup v9, whose answer may tell a leader not to assign."""

    def joined(self, answer: JoinAnswer) -> None:
        """Take in the answer to its JoinGroup."""

    def synced(self, answer: SyncAnswer) -> None:
        """Take in the answer to its SyncGroup."""


Assigned = Mapping[str, Owned]
"""Member id → its partitions, in the order of the leader's assignor."""
