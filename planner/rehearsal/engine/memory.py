"""State of a coordinator: settings of its brokers, its members, the group's stored record."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rebal.groups.assignors import Owned
from rebal.groups.model import CoordinatorKind, Record
from rebal.planner.rehearsal.engine.messages import ClassicClient, JoinRequest


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


class ClassicMember:
    """One member in the coordinator's memory."""

    __slots__ = (
        "client",
        "deadline",
        "heard",
        "joining",
        "new",
        "partitions",
        "request",
        "silent",
        "syncing",
        "unsynced",
    )

    def __init__(self, request: JoinRequest, client: ClassicClient, now: float) -> None:
        self.request = request
        self.client = client
        self.heard = now
        self.joining = self.syncing = self.unsynced = self.silent = False
        self.new = True
        self.partitions: Owned = ()
        self.deadline = 0.0


class Stored(NamedTuple):
    """The group's record in __consumer_offsets: what a coordinator that loads it knows."""

    generation: int
    assignor: str | None
    leader: str | None
    members: tuple[ClassicSeat, ...]
