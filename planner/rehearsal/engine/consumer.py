"""A member with the classic protocol, as the clients really implement KIP-429.

Source: ConsumerCoordinator and AbstractCoordinator of kafka-clients 2.4 to 4.1; what differs by
client family is in `process`. A member learns of a rebalance at a heartbeat and joins again in its
next poll. Its heartbeats are not simulated one by one: the coordinator wakes it when its next one
would find something new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from rebal.groups.assignors import Assignment, Owned, SpecMember
from rebal.groups.model import RebalanceProtocol
from rebal.planner.rehearsal.engine.agenda import Agenda
from rebal.planner.rehearsal.engine.chance import Chance
from rebal.planner.rehearsal.engine.coordinator import ClassicGroup
from rebal.planner.rehearsal.engine.ledger import Ledger
from rebal.planner.rehearsal.engine.messages import (
    Error,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
)
from rebal.planner.rehearsal.engine.process import (
    Process,
    fixed_protocol,
    leaves_on_close,
    rejoins_in_poll,
    retries,
    sends_generation,
    skips_assignment,
    voted_protocol,
)

_EAGER: Final = RebalanceProtocol.EAGER
ROUND_TRIP: Final = 0.002
"""Seconds from a request to its answer, where nothing is waited for."""
_BACKOFF: Final = 0.1
_REJECTED_BACKOFF: Final = 1.0


class Leader(Protocol):
    """What computes the assignment where a member leads."""

    def assign(
        self, assignor: str, members: Sequence[JoinRequest], leader: Consumer
    ) -> tuple[Assignment, float] | str:
        """Return the partitions by member id and the seconds it took, or why the leader failed."""


class Reporter(Protocol):
    """Whoever writes down what happens to members."""

    def tell(self, consumer: Consumer, what: str, detail: str = "") -> None:
        """Something happened to this member now."""

    def unrest(self, consumer: Consumer, *, moving: bool) -> None:
        """The member is not at rest any more, or it is again."""


class Surroundings(NamedTuple):
    """What one group's members share: coordinator, time, ledger, and the source of chance."""

    group: ClassicGroup
    agenda: Agenda
    ledger: Ledger
    leader: Leader
    reporter: Reporter
    chance: Chance


class Latency:
    """Times of one kind: how many, their sum and the longest, in seconds (KIP-429's metrics)."""

    __slots__ = ("count", "last", "longest", "total")

    def __init__(self) -> None:
        self.count, self.total, self.longest, self.last = 0, 0.0, 0.0, -1.0

    def add(self, seconds: float, now: float) -> None:
        """Count one more, which ended now."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self.last = now


class Consumer:
    """One consumer object: from the start of its process to its end. It is started once."""

    def __init__(self, process: Process, around: Surroundings) -> None:
        self.process = process
        self.member_id = ""
        self.generation = -1
        self.alive = True
        self.rejected = False
        self.owned: frozenset[int] = frozenset()
        self.rebalances, self.revoked = Latency(), Latency()
        self.assigned, self.lost = Latency(), Latency()
        self.failed = 0
        self.instance_id = process.instance_id
        self.skips_assignment = skips_assignment(process)
        self._group, self._agenda, self._ledger = around.group, around.agenda, around.ledger
        self._leader, self._reporter, self._chance = around.leader, around.reporter, around.chance
        self._fixed = fixed_protocol(process)
        self.protocol = self._fixed or _EAGER
        self._subscription = SpecMember(
            member_id="",
            topics=process.topics,
            instance_id=process.instance_id,
            rack=process.rack,
        )
        self._sends_generation = sends_generation(process)
        self._in_poll = rejoins_in_poll(process)
        self._client_id = process.client_id or process.name
        self._joining = self._woken = self._moving = False
        self._joined_at = -1.0
        self._beats_from = 0.0
        self._beat = process.heartbeat
        self._busy_until = self._frozen_until = 0.0
        self._token = 0

    @property
    def subscription(self) -> SpecMember:
        """What it would tell a leader now: topics, owned partitions, generation."""
        return self._subscription

    def seat(self, member_id: str, owned: Owned, generation: int | None) -> JoinRequest:
        """Be a member already, with these partitions; return the join that it came by."""
        self.member_id = member_id
        self.generation = -1 if generation is None else generation
        self._subscription = replace(
            self._subscription, member_id=member_id, owned=tuple(owned), generation=generation
        )
        self._own(frozenset(self._ledger.numbers[pair] for pair in owned))
        # Its last heartbeat was at any time up to one interval ago.
        self._beats_from = -self._chance.phase(self.process.heartbeat)
        return self._request()

    # What a person or a machine does to it

    def start(self) -> None:
        """Begin to join."""
        self._set_moving(True)
        self._join()

    def stop(self) -> None:
        """Close cleanly: give up all partitions, and leave the group where the client does that."""
        if not self.alive:
            return
        self._reporter.tell(self, "stopped")
        self._give_up(self.owned, self.revoked, self.process.on_revoked)
        self._end(leaves=leaves_on_close(self.process))

    def kill(self) -> None:
        """End without a word: the coordinator counts it until its session is over."""
        if not self.alive:
            return
        self._reporter.tell(self, "killed")
        self._ledger.release(self.process.name, self.owned, self._agenda.now)
        self._end(leaves=False)

    def busy(self, seconds: float) -> None:
        """Process records for so long without a poll; heartbeats go on."""
        now = self._agenda.now
        self._busy_until = max(self._busy_until, now + seconds)
        self._reporter.tell(self, "busy", f"{seconds:g} s")
        self._set_moving(True)
        self._agenda.at(self._busy_until, self._busy_over, self._busy_until)
        if seconds > self.process.rebalance and self._in_poll:
            self._agenda.at(now + self.process.rebalance, self._poll_too_late, self._busy_until)

    def freeze(self, seconds: float) -> None:
        """Do nothing at all for so long, no heartbeat either: a long garbage collection."""
        now = self._agenda.now
        last = self._last_beat()
        self._frozen_until = self._busy_until = max(self._busy_until, now + seconds)
        self._reporter.tell(self, "frozen", f"{seconds:g} s")
        self._set_moving(True)
        self._group.silent(self.member_id, last)
        self._agenda.at(last + self.process.session, self._past_session, self._frozen_until)
        self._agenda.at(self._frozen_until, self._thaw, self._frozen_until)

    def enforce_rebalance(self) -> None:
        """KIP-568: ask for a rebalance at the next poll; while one goes on this does nothing."""
        if self.alive and not self._joining and self._group.waits_for(self.member_id):
            self._set_moving(True)
            self._poll_next(self._agenda.now)

    def commit(self) -> Error:
        """Commit offsets now."""
        error = self._group.commit(self.member_id, self.generation)
        self._reporter.tell(self, "committed" if not error else "commit failed", error.name)
        return error

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics from now on, and join again for it."""
        self._subscription = replace(self._subscription, topics=topics)
        self.enforce_rebalance()

    # What the coordinator says

    def joined(self, answer: JoinAnswer) -> None:
        """Take in the answer to a JoinGroup."""
        if not self.alive:
            return
        error = answer.error
        if error is Error.NONE:
            self._join_done(answer)
        elif error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._agenda.after(ROUND_TRIP, self._join, self._next_token())
        elif error is Error.UNKNOWN_MEMBER_ID:
            self._forget(Error.UNKNOWN_MEMBER_ID)
            self._agenda.after(ROUND_TRIP, self._join, self._next_token())
        elif error in (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS):
            self.failed += 1
            self._agenda.after(_BACKOFF, self._join, self._next_token())
        else:
            self._rejected(error)

    def synced(self, answer: SyncAnswer) -> None:
        """Take in the answer to a SyncGroup."""
        if not self.alive:
            return
        error = answer.error
        if error is Error.NONE:
            self._receive(answer.partitions)
            return
        if error is Error.FENCED_INSTANCE_ID:
            self._rejected(error)
            return
        self.failed += 1
        if error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION):
            self._forget(error)
        wait = _BACKOFF if error is Error.NOT_COORDINATOR else ROUND_TRIP
        self._agenda.after(wait, self._rejoin, self._next_token())

    def wake(self) -> None:
        """Find out at the next heartbeat what there is to know."""
        if not self.alive or self._woken or self._joining:
            return
        self._woken = True
        self._set_moving(True)
        beat = self._next_beat()
        self._agenda.at(self._next_poll(beat), self._hear, self._next_token())

    # Joining

    def _request(self) -> JoinRequest:
        process, sent = self.process, self._subscription
        eager = self.protocol is _EAGER
        stamp = (
            process.assignors,
            sent.topics,
            () if eager else sent.owned,
            sent.generation if self._sends_generation else None,
        )
        return JoinRequest(
            self.member_id,
            self._client_id,
            process.instance_id,
            process.assignors,
            sent,
            eager,
            stamp,
            process.session,
            process.rebalance,
        )

    def _join(self, token: int | None = None) -> None:
        if not self.alive or (token is not None and token != self._token):
            return
        if self._frozen_until > self._agenda.now:
            self._agenda.at(self._frozen_until, self._join, self._next_token())
            return
        self._joining, self._woken = True, False
        if self._joined_at < 0:
            self._joined_at = self._agenda.now
        self._group.join(self._request(), self)

    def _rejoin(self, token: int | None = None) -> None:
        """Prepare and join: an EAGER member gives up all it owns, a COOPERATIVE one keeps it."""
        if not self.alive or (token is not None and token != self._token):
            return
        self._set_moving(True)
        if self.protocol is _EAGER and self.owned:
            took = self._give_up(self.owned, self.revoked, self.process.on_revoked)
            if took:
                self._joining = True
                self._agenda.after(took, self._join, self._next_token())
                return
        self._join()

    def _hear(self, token: int) -> None:
        """Send the heartbeat that the coordinator has something new for."""
        if not self.alive or token != self._token:
            return
        self._woken = False
        if self._frozen_until > self._agenda.now:
            return
        error = self._group.heartbeat(self.member_id, self.generation, self)
        if error is Error.NONE:
            self._set_moving(False)
        elif error is Error.REBALANCE_IN_PROGRESS:
            self._rejoin()
        elif error is Error.NOT_COORDINATOR:
            self._woken = True
            self._agenda.after(_BACKOFF, self._hear, self._next_token())
        elif error is Error.FENCED_INSTANCE_ID:
            self._rejected(error)
        else:
            self._forget(error)
            self._join()

    def _join_done(self, answer: JoinAnswer) -> None:
        self.member_id, self.generation = answer.member_id, answer.generation
        if self._subscription.member_id != self.member_id:
            self._subscription = replace(self._subscription, member_id=self.member_id)
        if self._fixed is None:
            self.protocol = voted_protocol(self.process, answer.assignor)
        self._beats_from = self._agenda.now
        if not answer.leader or answer.skip_assignment:
            self._group.sync(self.member_id, self.generation, self)
            return
        made = self._leader.assign(answer.assignor, answer.members, self)
        if isinstance(made, str):
            self._reporter.tell(self, "failed as leader", made)
            self._give_up(self.owned, self.revoked, 0.0)
            self._end(leaves=leaves_on_close(self.process))
            return
        assignment, took = made
        after = 2 * ROUND_TRIP + took
        self._agenda.after(after, self._lead, self._next_token(), assignment)

    def _lead(self, token: int, assignment: Assignment) -> None:
        if self.alive and token == self._token:
            self._group.sync(self.member_id, self.generation, self, assignment)

    def _receive(self, partitions: Owned) -> None:
        """Take over what was assigned; a COOPERATIVE member revokes the rest and joins again."""
        now, numbers = self._agenda.now, self._ledger.numbers
        self._joining = False
        self.rejected = False
        self._beats_from = now
        self._beat = self._chance.interval(self.process.heartbeat)
        self.rebalances.add(now - max(self._joined_at, 0.0), now)
        self._joined_at = -1.0
        try:
            new = frozenset(map(numbers.__getitem__, partitions))
        except KeyError:
            # A deleted topic's partitions are not in the table.
            new = frozenset(numbers[pair] for pair in partitions if pair in numbers)
        revoked = self.owned - new if self.protocol is not _EAGER else frozenset()
        took = 0.0
        if revoked:
            took = self._give_up(revoked, self.revoked, self.process.on_revoked)
        added = new - self.owned
        if self.process.on_assigned:
            self.assigned.add(self.process.on_assigned, now)
        if added:
            self._own(added)
        self._subscription = replace(
            self._subscription, owned=tuple(partitions), generation=self.generation
        )
        self._token += 1
        if revoked:
            self._set_moving(True)
            self._joining = True
            self._agenda.after(ROUND_TRIP + took, self._rejoin, self._next_token())
        else:
            self._set_moving(False)

    def _rejected(self, error: Error) -> None:
        self.failed += 1
        first = not self.rejected
        self.rejected = True
        if first:
            self._reporter.tell(self, "rejected", error.name)
        if retries(self.process) and error is not Error.FENCED_INSTANCE_ID:
            self._set_moving(False)
            self._agenda.after(_REJECTED_BACKOFF, self._join, self._next_token())
            return
        self._drop_all()
        self._end(leaves=False)

    def _forget(self, error: Error) -> None:
        """Lose membership: what it owned is lost (KIP-429, onPartitionsLost)."""
        if error is Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = -1
        self._drop_all()
        self._subscription = replace(
            self._subscription, member_id=self.member_id, owned=(), generation=None
        )

    # Partitions

    def _own(self, partitions: frozenset[int]) -> None:
        self._ledger.own(self.process.name, partitions, self._agenda.now)
        self.owned |= partitions

    def _give_up(self, partitions: frozenset[int], kind: Latency, took: float) -> float:
        """Release partitions and return how long the listener takes for it."""
        self._ledger.release(self.process.name, partitions, self._agenda.now)
        self.owned -= partitions
        if partitions:
            kind.add(took, self._agenda.now)
        return took if partitions else 0.0

    def _drop_all(self) -> None:
        if self.owned:
            self._reporter.tell(self, "lost", f"{len(self.owned)}")
        self._give_up(self.owned, self.lost, self.process.on_lost)
        self._ledger.past(self.process.name, now=self._agenda.now, over=True)

    def _end(self, *, leaves: bool) -> None:
        last = self._last_beat()
        self.alive = False
        self.owned = frozenset()
        self._token += 1
        self._set_moving(False)
        if leaves:
            self._group.leave(self.member_id)
        else:
            self._group.silent(self.member_id, last)
        self._reporter.tell(self, "ended")

    # Time

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    def _last_beat(self) -> float:
        now = self._agenda.now
        return now - (now - self._beats_from) % self._beat if now > self._beats_from else now

    def _next_beat(self) -> float:
        return self._last_beat() + self._beat

    def _next_poll(self, after: float) -> float:
        every = self.process.poll if self._in_poll else 0.0
        earliest = max(after, self._busy_until) if self._in_poll else after
        return self._chance.poll(self._client_id, earliest, every, self._agenda.now)

    def _poll_next(self, after: float) -> None:
        self._agenda.at(self._next_poll(after), self._rejoin, self._next_token())

    def _poll_too_late(self, until: float) -> None:
        """Leave the group by itself: the application has not polled (max.poll.interval.ms)."""
        if self.alive and until == self._busy_until and self.member_id:
            self._reporter.tell(self, "past its poll timeout")
            self._ledger.past(self.process.name, now=self._agenda.now, over=False)
            member_id, self.member_id, self.generation = self.member_id, "", -1
            self._set_moving(True)
            self._agenda.at(until, self._back_in_poll, self._next_token())
            if self.instance_id is None:
                self._group.leave(member_id, "a member did not poll in time")
            else:
                self._group.silent(member_id, self._last_beat())

    def _busy_over(self, until: float) -> None:
        if until == self._busy_until and not (self._woken or self._joining) and self.member_id:
            self._set_moving(False)

    def _back_in_poll(self, token: int) -> None:
        if self.alive and token == self._token:
            self._forget(Error.UNKNOWN_MEMBER_ID)
            self._join()

    def _past_session(self, until: float) -> None:
        if self.alive and self._frozen_until == until and until > self._agenda.now:
            self._ledger.past(self.process.name, now=self._agenda.now, over=False)

    def _thaw(self, until: float) -> None:
        if self.alive and until == self._frozen_until:
            self._group.awake(self.member_id)
            self._woken = True
            self._hear(self._next_token())

    def _set_moving(self, moving: bool) -> None:
        if moving is not self._moving:
            self._moving = moving
            self._reporter.unrest(self, moving=moving)
