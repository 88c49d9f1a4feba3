"""A simulated consumer process: its settings, its client family's behaviour, and its membership.

`SimulatedMember` has what the classic protocol and KIP-848 have in common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from rebal.groups.assignors import Assignment, Assignor, Owned
from rebal.groups.clients import family, protocols_of, version_tuple
from rebal.groups.model import RebalanceProtocol, Record, Tri
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance, Latency, Timer
from rebal.planner.rehearsal.engine.group import SimulatedGroup
from rebal.planner.rehearsal.engine.ledger import Ledger, TopicPartition
from rebal.planner.rehearsal.engine.memory import Beat, Error, JoinRequest

_COOPERATIVE: Final = RebalanceProtocol.COOPERATIVE
_EAGER: Final = RebalanceProtocol.EAGER
Protocols = Mapping[str, frozenset[RebalanceProtocol]]
_JAVA: Final = ("java", "streams")
_WITHOUT_POLL: Final = ("connect", "franz-go", "kafkajs", "sarama", "segmentio")
CALLBACKS: Final = ("revoked", "assigned", "lost")


class Process(Record, frozen=True, kw_only=True):
    """One consumer process: its settings, its client and its timing; times in seconds.

    `name` is its name in scripts and results. `assignors` is partition.assignment.strategy;
    `session`, `rebalance` and `heartbeat` are session.timeout.ms, max.poll.interval.ms and
    heartbeat.interval.ms. It polls every `poll` seconds. After a heartbeat reports a rebalance, it
    takes at least `slow` seconds to prepare before it joins again (KIP-848: before it acknowledges
    that it revoked partitions). Its listener takes `on_revoked`, `on_assigned` and `on_lost`
    seconds; `fails_in` names the callbacks (see `CALLBACKS`) that throw.

    `protocol` is group.protocol: classic, consumer or streams. With consumer, `remote_assignor` is
    group.remote.assignor (empty: the brokers' default), and the brokers set the session timeout and
    the heartbeat interval. `held_back` is scheduled.rebalance.max.delay.ms of a Connect worker
    (family `connect`).
    """

    name: str
    client_id: str = ""
    instance_id: str | None = None
    family: str = "java"
    version: str | None = None
    protocol: str = "classic"
    remote_assignor: str = ""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    topics: tuple[str, ...] = ()
    rack: str | None = None
    session: float = 45.0
    rebalance: float = 300.0
    heartbeat: float = 3.0
    poll: float = 0.5
    slow: float = 0.0
    on_revoked: float = 0.0
    on_assigned: float = 0.0
    on_lost: float = 0.0
    fails_in: tuple[str, ...] = ()
    held_back: float = 300.0


class RunningProcess(Record, frozen=True, kw_only=True):
    """A process that is a member when the simulation begins, with its partitions at that time."""

    process: Process
    member_id: str
    owned: Owned = ()
    generation: int | None = None


def client_rejection(process: Process) -> str:
    """Return the reason why the client itself rejects these settings; empty if it accepts them."""
    client = family(process.family)
    if process.protocol == "consumer" and client.kip848(process.version) is Tri.NO:
        return f"this version of {client.title} has no group.protocol=consumer"
    if process.protocol != "classic":
        return ""
    for name in process.assignors:
        if client.starts_with(name) is Tri.NO:
            return f"{client.title}: no assignor {name}"
    kinds = {protocols_of(name, process.family) for name in process.assignors}
    cooperative = any(kind is not None and _COOPERATIVE in kind for kind in kinds)
    eager = any(kind == frozenset({_EAGER}) for kind in kinds)
    if cooperative and client.cooperative(process.version) is Tri.NO:
        return f"this version of {client.title} has no cooperative assignor"
    if client.mixed_list == "refused" and cooperative and eager:
        return f"{client.title}: eager and cooperative assignors exclude each other"
    return ""


def fixed_protocol(process: Process, own: Protocols) -> RebalanceProtocol | None:
    """Return the rebalance protocol that a client chooses from its own list when it is created.

    None: the client does not choose, because the elected assignor decides. `own` has the protocols
    of custom assignors, by name.
    """
    if process.family == "connect" or family(process.family).follows_vote:
        return None
    supported = (_supported(process, name, own) for name in process.assignors)
    return _COOPERATIVE if all(_COOPERATIVE in each for each in supported) else _EAGER


def voted_protocol(process: Process, elected: str, own: Protocols) -> RebalanceProtocol:
    """Return the rebalance protocol of a client whose protocol the elected assignor decides.

    `own` has the protocols of custom assignors, by name.
    """
    return _COOPERATIVE if _COOPERATIVE in _supported(process, elected, own) else _EAGER


def _supported(process: Process, name: str, own: Protocols) -> frozenset[RebalanceProtocol]:
    return own.get(name) or protocols_of(name, process.family) or frozenset({_EAGER})


def retries_after(process: Process, rejected: int) -> float:
    """Return the seconds after which a client retries a rejected join; 0.0 if the client ends.

    `rejected` is the number of rejections in a row. librdkafka waits 2 s (captured), sarama about 1
    s, franz-go 250 ms and then twice as long each time, at most 5 s (kgo.RetryBackoffFn).
    """
    if process.family == "franz-go":
        return min(0.25 * 2.0 ** min(rejected - 1, 10), 5.0)
    return {"librdkafka": 2.0, "sarama": 1.0}.get(process.family, 0.0)


def joins_for_topics(process: Process) -> bool:
    """Return whether the client joins again if topics do not match its assignment.

    Java clients do: as leader when their metadata no longer has all topics for which they assigned,
    and as any member when they are assigned a topic to which they do not subscribe
    (ConsumerCoordinator.onJoinComplete). The latter happens to a static member that returns with
    another subscription and gets its old assignment.
    """
    return process.family in _JAVA


def revokes_on_downgrade(process: Process) -> bool:
    """Return whether a member that turns from COOPERATIVE to EAGER revokes all it owns first.

    franz-go does so since 1.21.6 (twmb/franz-go#1367). Other clients never turn EAGER, or keep what
    they own. An unknown version counts as an older one.
    """
    return process.family == "franz-go" and (version_tuple(process.version) or ()) >= (1, 21, 6)


def leaves_on_close(process: Process) -> bool:
    """Return whether a clean stop leaves the group: static members and Streams do not (KIP-345)."""
    return process.instance_id is None and family(process.family).leaves_on_close


def sends_generation(process: Process) -> bool:
    """Return whether the client's JoinGroup has the generation of its last assignment.

    Versions 2 and later of the subscription have it (KIP-792), and so has the user data of Kafka's
    two sticky assignors. Such a JoinGroup changes with each generation.
    """
    version = version_tuple(process.version)
    newer = process.family in _JAVA and (version is None or version >= (3, 4))
    return newer or not {"sticky", "cooperative-sticky"}.isdisjoint(process.assignors)


def skips_assignment(process: Process) -> bool:
    """Return whether the client understands skipAssignment (JoinGroup v9, KIP-814)."""
    version = version_tuple(process.version)
    return process.family in _JAVA and (version is None or version >= (3, 2))


# What Java's commit throws.
_THROWN: Final = {
    Error.REBALANCE_IN_PROGRESS: "RebalanceInProgressException",
    Error.UNKNOWN_MEMBER_ID: "CommitFailedException",
    Error.ILLEGAL_GENERATION: "CommitFailedException",
    Error.STALE_MEMBER_EPOCH: "CommitFailedException",
    Error.FENCED_INSTANCE_ID: "FencedInstanceIdException",
}


class Surroundings(Protocol):
    """Interface of the simulated world to a group's members: coordinator, time, owners, chance.

    It computes assignments and records events. `custom` has the assignors that are not Java's own,
    by name, and `protocols` the rebalance protocols that they support.
    """

    group: SimulatedGroup
    agenda: Agenda
    ledger: Ledger
    chance: Chance
    protocols: Protocols
    custom: Mapping[str, Assignor]

    def assign(
        self, assignor: str, members: Sequence[JoinRequest], leader: SimulatedMember
    ) -> Assignment | str:
        """Return the leader's assignment by member id, or an error message if the leader fails."""

    def record_event(self, consumer: SimulatedMember, what: str, detail: str = "") -> None:
        """Record the event `what` of a member at the current time."""

    def unrest(self, consumer: SimulatedMember, *, moving: bool) -> None:
        """Record that a member has something under way (`moving` True), or is at rest (False)."""


class SimulatedMember(ABC):
    """A simulated consumer of any protocol, from the start of its process to its end.

    `interval` is the seconds between its heartbeats, `session` the seconds after its last heartbeat
    for which the coordinator counts it. Heartbeats that would find nothing new are not simulated.
    """

    protocol: str
    generation = -1
    """Generation of the classic protocol; -1 without one."""
    unread: frozenset[str] = frozenset()
    """Topics of which it has no metadata when it assigns as the leader."""

    def __init__(
        self, process: Process, around: Surroundings, *, interval: float, session: float
    ) -> None:
        self.process, self.instance_id, self.alive = process, process.instance_id, True
        self.member_id = self.last_id = ""
        self.rejected = self.failed = 0
        self.owned: frozenset[int] = frozenset()
        self.rebalances, self.revoked = Latency(), Latency()
        self.assigned, self.lost = Latency(), Latency()
        self._group, self._agenda, self._ledger = around.group, around.agenda, around.ledger
        self._around, self._chance = around, around.chance
        self._client_id = process.client_id or process.name
        # Whether the client joins again only when the application polls.
        self._in_poll = process.family not in _WITHOUT_POLL
        self._interval, self._session = interval, session
        self._beats_from = self._busy_until = self._frozen_until = 0.0
        self._woken = self._moving = False
        # What it does next, unless something else comes before.
        self._step = Timer(self._agenda)

    @abstractmethod
    def seat(self, running: RunningProcess, elected: str) -> JoinRequest | Beat:
        """Make the consumer a member that owns the partitions of `running` from the beginning.

        Returns the JoinGroup or heartbeat with which the coordinator is to enter it as a member.
        `elected` is the assignor that the group has elected.
        """

    @abstractmethod
    def start(self) -> None:
        """Send the first request to join the group."""

    @abstractmethod
    def enforce_rebalance(self) -> bool:
        """Request a rebalance (KIP-568); return False if the client ignores it, else True."""

    @abstractmethod
    def commit(self) -> Error:
        """Commit offsets now, and return the error code (`Error.NONE`: committed).

        A failed commit is recorded with the exception that the Java client throws.
        """

    @abstractmethod
    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics from now on."""

    @abstractmethod
    def wake(self) -> None:
        """Send the next heartbeat when it is due, because it will find something new."""

    def stop(self) -> None:
        """Close cleanly: revoke all partitions, and leave the group if the client does that."""
        if self.alive:
            self._around.record_event(self, "stopped")
            self._close()

    def kill(self) -> None:
        """End without LeaveGroup: the coordinator counts the member until its session ends."""
        if self.alive:
            self._around.record_event(self, "killed")
            self._ledger.release(self.process.name, self.owned, self._agenda.now)
            self._end(leaves=False)

    def busy(self, seconds: float) -> None:
        """Process records for `seconds` without a poll; heartbeats go on."""
        if self.alive:
            self._around.record_event(self, "busy", f"{seconds:g} s")
            self._set_moving(True)
            self._in_application(seconds)
            self._agenda.at(self._busy_until, self._busy_over, self._busy_until)

    def freeze(self, seconds: float) -> None:
        """Stop for `seconds`, heartbeats included (a long garbage collection)."""
        if self.alive:
            now, last = self._agenda.now, self._last_beat()
            self._frozen_until = self._busy_until = max(self._busy_until, now + seconds)
            self._around.record_event(self, "frozen", f"{seconds:g} s")
            self._set_moving(True)
            self._group.heartbeats_stopped(self.member_id, last, self)
            self._agenda.at(last + self._session, self._past_session, self._frozen_until)
            self._agenda.at(self._frozen_until, self._thaw, self._frozen_until)

    # What its protocol decides

    @abstractmethod
    def _let_go(self) -> tuple[float, bool]:
        """Revoke all partitions; return (listener's seconds, whether the client then leaves)."""

    @abstractmethod
    def _depart(self, last: float, *, leaves: bool) -> None:
        """Leave the group (`leaves`), or stay in it without heartbeats after the one at `last`."""

    @abstractmethod
    def _poll_too_late(self, until: float) -> None:
        """Leave the group, because the application has not polled within max.poll.interval.ms.

        `until` is the time until which the application does not poll.
        """

    @abstractmethod
    def _under_way(self) -> bool:
        """Return whether a heartbeat, join or reconciliation is pending."""

    @abstractmethod
    def _run_again(self) -> None:
        """Send the heartbeat that is overdue after a freeze."""

    def _busy_over(self, until: float) -> None:
        if until == self._busy_until and not self._under_way():
            self._set_moving(False)

    def _past_session(self, until: float) -> None:
        if self.alive and self._frozen_until == until and until > self._agenda.now:
            self._ledger.mark_past_timeout(self.process.name, now=self._agenda.now, over=False)

    def _thaw(self, until: float) -> None:
        if self.alive and until == self._frozen_until:
            self._group.now.heartbeats_resumed(self.member_id)
            self._run_again()

    # Its end

    def _close(self) -> None:
        took, leaves = self._let_go()
        if took and leaves:
            self.alive = False
            self._step.cancel()
            self._agenda.after(took, partial(self._end, leaves=True))
        else:
            self._end(leaves=leaves)

    def _end(self, *, leaves: bool) -> None:
        last = self._last_beat_before_end()
        self.alive, self.owned = False, frozenset()
        self._step.cancel()
        self._set_moving(False)
        self._depart(last, leaves=leaves)
        self._around.record_event(self, "ended")

    # Partitions and time

    def _own(self, partitions: frozenset[int]) -> None:
        self._ledger.own(self.process.name, partitions, self._agenda.now)
        self.owned |= partitions

    def _numbers(self, pairs: Iterable[TopicPartition]) -> frozenset[int]:
        """Return the ledger's numbers of `pairs`, without partitions of deleted topics."""
        numbers = self._ledger.numbers
        return frozenset(numbers[pair] for pair in pairs if pair in numbers)

    def _give_up(self, partitions: frozenset[int], kind: Latency, took: float) -> float:
        """Release `partitions`; return the seconds that the listener callback takes.

        They are `took`, or 0.0 without partitions, for which there is no callback. `kind` is the
        latency metric that counts the callback.
        """
        if not partitions:
            return 0.0
        self._ledger.release(self.process.name, partitions, self._agenda.now)
        self.owned -= partitions
        kind.add(took, self._agenda.now)
        return took

    def _drop_all(self) -> float:
        """Lose all partitions, and return the seconds that onPartitionsLost takes."""
        if self.owned:
            self._around.record_event(self, "lost", f"{len(self.owned)}")
        took = self._give_up(self.owned, self.lost, self.process.on_lost)
        self._ledger.mark_past_timeout(self.process.name, now=self._agenda.now, over=True)
        return took

    def _in_application(self, seconds: float) -> float:
        """Run the application for `seconds` without a poll, and return `seconds`.

        The member leaves the group if this exceeds max.poll.interval.ms.
        """
        now = self._agenda.now
        self._busy_until = max(self._busy_until, now + seconds)
        if seconds > self.process.rebalance and self._in_poll:
            self._agenda.at(now + self.process.rebalance, self._poll_too_late, self._busy_until)
        return seconds

    def _throws_in(self, callback: str) -> bool:
        """Return whether this listener callback throws; if it does, close the consumer.

        poll() throws then, and the application closes the consumer in the `finally` of its poll
        loop.
        """
        if callback not in self.process.fails_in:
            return False
        self._around.record_event(self, "callback failed", callback)
        self._close()
        return True

    def _record_commit(self, error: Error) -> Error:
        if error is Error.NONE:
            self._around.record_event(self, "committed")
        else:
            self._around.record_event(self, "commit failed", _THROWN.get(error, error.name))
        return error

    def _last_beat(self) -> float:
        now = self._agenda.now
        return now - (now - self._beats_from) % self._interval

    def _last_beat_before_end(self) -> float:
        return self._chance.last_beat(self.member_id, self._last_beat(), self._session)

    def _set_moving(self, moving: bool) -> None:
        if moving is not self._moving:
            self._moving = moving
            self._around.unrest(self, moving=moving)
