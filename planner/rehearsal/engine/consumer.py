"""A simulated member with the classic protocol, as clients implement KIP-429.

Source: ConsumerCoordinator and AbstractCoordinator of kafka-clients 2.4 to 4.1; differences between
client families are in `engine.member`. A member learns of a rebalance from a heartbeat and joins
again in its next poll. Its heartbeats are not simulated one by one: the coordinator wakes the
member if its next heartbeat would find something new.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from rebal.groups.assignors import Owned, SpecMember
from rebal.groups.model import RebalanceProtocol
from rebal.planner.rehearsal.engine.leaders import received, rejoins
from rebal.planner.rehearsal.engine.member import (
    Process,
    RunningProcess,
    SimulatedMember,
    Surroundings,
    fixed_protocol,
    joins_for_topics,
    leaves_on_close,
    retries_after,
    revokes_on_downgrade,
    sends_generation,
    skips_assignment,
    voted_protocol,
)
from rebal.planner.rehearsal.engine.memory import (
    Error,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
)

_EAGER: Final = RebalanceProtocol.EAGER
ROUND_TRIP: Final = 0.002
"""Seconds from a request to its answer, if the coordinator does not delay the answer."""
BACKOFF: Final = 0.1
_METADATA_AGE: Final = 300.0


class Consumer(SimulatedMember):
    """A simulated consumer with the classic protocol, from the start of its process to its end."""

    def __init__(self, process: Process, around: Surroundings) -> None:
        super().__init__(process, around, interval=process.heartbeat, session=process.session)
        self.skips_assignment = skips_assignment(process)
        self._fixed = fixed_protocol(process, around.protocols)
        self.protocol = self._fixed or _EAGER
        self._subscription = SpecMember(
            member_id="", topics=process.topics, instance_id=process.instance_id, rack=process.rack
        )
        self._sends_generation = sends_generation(process)
        self._joining = self._again = self._missed = False
        self._joined_at, self._listens_until, self._elected = -1.0, 0.0, ""
        # Topics of which it has metadata as the leader.
        self._read: set[str] = set()

    def seat(self, running: RunningProcess, elected: str) -> JoinRequest:
        """Make the consumer a member that owns the partitions of `running` from the beginning.

        Returns the JoinGroup by which it became a member. `elected` is the group's assignor.
        """
        self.member_id = self.last_id = running.member_id
        owned, generation = running.owned, running.generation
        if self._fixed is None:
            self.protocol = voted_protocol(self.process, elected, self._around.protocols)
        self.generation = -1 if generation is None else generation
        self._subscription = replace(
            self._subscription, member_id=self.member_id, owned=tuple(owned), generation=generation
        )
        self._own(self._numbers(owned))
        # Its last heartbeat was at any time up to one interval ago.
        self._beats_from = -self._chance.phase(self.process.heartbeat)
        request = self._request()
        # It joined with the generation before.
        return request._replace(stamp=None) if self._sends_generation else request

    # What a person or a machine does to it

    def start(self) -> None:
        """Send the first JoinGroup."""
        self._set_moving(True)
        self._join()

    def enforce_rebalance(self) -> bool:
        """Request a rebalance (KIP-568): join again at the next poll, and revoke nothing before.

        Returns False, and does nothing, if the process has ended or a join is under way. Otherwise
        the result is True. A member that is not in the group joins again anyway.
        """
        if not self.alive or self._joining:
            return False
        if self._group.now.counts_member(self.member_id):
            self._again = True
            self._set_moving(True)
            self._step.at(self._next_poll(self._agenda.now), self._rejoin)
        return True

    def commit(self) -> Error:
        """Commit offsets now, and return the error code (`Error.NONE`: committed).

        A failed commit is recorded with the exception that the Java client throws. A client that is
        joining sends no commit: it throws RebalanceInProgressException itself (KIP-429).
        """
        if self._joining and self.generation >= 0:
            error = Error.REBALANCE_IN_PROGRESS
        elif self.generation < 0:
            error = Error.UNKNOWN_MEMBER_ID
        else:
            error = self._group.now.commit(self.member_id, self.generation, self)
        if self._record_commit(error) is Error.FENCED_INSTANCE_ID:
            self._rejected(error)
        elif error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION):
            self.wake()
        return error

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics from now on, and join again for it."""
        self._subscription = replace(self._subscription, topics=topics)
        # A join that is under way still has the old topics.
        self._again = not self.enforce_rebalance() or self._again

    # What the coordinator says

    def joined(self, answer: JoinAnswer) -> None:
        """Process the answer to a JoinGroup."""
        if not self.alive or self._reads_later(self.joined, answer):
            return
        error = answer.error
        if error is Error.NONE:
            self._join_done(answer)
        elif error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._again_in(ROUND_TRIP, self._join)
        elif error is Error.UNKNOWN_MEMBER_ID:
            self._start_anew(error, ROUND_TRIP)
        elif error in (Error.NOT_COORDINATOR, Error.REBALANCE_IN_PROGRESS):
            self.failed += 1
            self._step.after(BACKOFF, self._join)
        else:
            self._rejected(error)

    def synced(self, answer: SyncAnswer) -> None:
        """Process the answer to a SyncGroup."""
        if not self.alive or self._reads_later(self.synced, answer):
            return
        error = answer.error
        if error is Error.NONE:
            # A COOPERATIVE member goes on with its records while it waits: it takes over when it
            # polls.
            busy = self._in_poll and self.protocol is not _EAGER and self.owned
            at = self._busy_until if busy else 0.0
            if at > self._agenda.now:
                self._step.at(at, self._receive, answer.partitions)
            else:
                self._receive(answer.partitions)
        elif error is Error.FENCED_INSTANCE_ID:
            self._rejected(error)
        else:
            self.failed += 1
            wait = BACKOFF if error is Error.NOT_COORDINATOR else ROUND_TRIP
            if error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION):
                wait += self._forget(error)
            if self.alive:
                self._again_in(wait, self._rejoin)

    def wake(self) -> None:
        """Schedule the next heartbeat and poll, because the heartbeat will find something new."""
        if not self.alive or self._woken:
            return
        self._missed, self._woken = self._joining, not self._joining
        if self._woken:
            self._set_moving(True)
            self._step.at(self._next_poll(self._last_beat() + self._interval), self._hear)

    # Joining

    def _request(self) -> JoinRequest:
        process, sent = self.process, self._subscription
        eager = self.protocol is _EAGER
        stamp = (
            process.assignors,
            sent.topics,
            () if eager else sent.owned,
            sent.generation if self._sends_generation else None,
            sent.owned if "sticky" in process.assignors else (),
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

    def _join(self) -> None:
        if self._frozen_until > self._agenda.now:
            self._step.at(self._frozen_until, self._join)
            return
        self._joining, self._woken, self._missed, self._again = True, False, False, False
        if self._joined_at < 0:
            self._joined_at = self._agenda.now
        self._group.join(self._request(), self)

    def _rejoin(self, slow: float = 0.0) -> None:
        """Prepare for a rebalance and join again, at least `slow` seconds later.

        EAGER revokes all partitions first. COOPERATIVE keeps them, except those of topics to which
        the member no longer subscribes.
        """
        self._set_moving(True)
        # A COOPERATIVE member revokes topics that it no longer subscribes to.
        dropped = self.owned if self.protocol is _EAGER else self._unsubscribed()
        took = max(slow, self._give_up(dropped, self.revoked, self.process.on_revoked))
        if not (dropped and self._throws_in("revoked")):
            self._join_in(took)

    def _join_in(self, seconds: float) -> None:
        if seconds:
            self._joining = True
            self._step.after(seconds, self._join)
        else:
            self._join()

    def _unsubscribed(self) -> frozenset[int]:
        sent = self._subscription
        # Connect workers subscribe to nothing.
        if sent.topics in ((), self.process.topics):
            return frozenset()
        kept = tuple(pair for pair in sent.owned if pair[0] in sent.topics)
        gone = self._numbers(set(sent.owned).difference(kept))
        self._subscription = replace(sent, owned=kept)
        return gone & self.owned

    def _hear(self) -> None:
        self._woken = False
        if self._frozen_until > self._agenda.now:
            return
        error = self._group.heartbeat(self.member_id, self.generation, self)
        if error is Error.REBALANCE_IN_PROGRESS or (error is Error.NONE and self._again):
            self._rejoin(slow=self.process.slow)
        elif error is Error.NONE:
            self._set_moving(False)
        elif error is Error.NOT_COORDINATOR:
            self._woken = True
            self._step.after(BACKOFF, self._hear)
        elif error is Error.FENCED_INSTANCE_ID:
            self._rejected(error)
        else:
            self._start_anew(error)

    def _start_anew(self, error: Error, wait: float = 0.0) -> None:
        took = self._forget(error)
        if self.alive:
            self._join_in(wait + took)

    def _join_done(self, answer: JoinAnswer) -> None:
        self.member_id = self.last_id = answer.member_id
        self.generation = answer.generation
        if self._subscription.member_id != self.member_id:
            self._subscription = replace(self._subscription, member_id=self.member_id)
        if self._fixed is None:
            self.protocol = voted_protocol(self.process, answer.assignor, self._around.protocols)
        self._elected, self._beats_from = answer.assignor, self._agenda.now
        if not answer.leader:
            self._read.clear()
        if not answer.leader or answer.skip_assignment:
            self._group.sync(self.member_id, self.generation, self)
            return
        self._read_metadata_for(answer.members)
        made = self._around.assign(answer.assignor, answer.members, self)
        if isinstance(made, str):
            self._around.record_event(self, "failed as leader", made)
            self._close()
        else:
            at = self._chance.assigned(self._client_id, 2 * ROUND_TRIP, self._agenda.now)
            self._step.at(at, self._group.sync, self.member_id, self.generation, self, made)

    def _read_metadata_for(self, members: Sequence[JoinRequest]) -> None:
        """Store the topics of `members` as the leader's metadata; join again if it was outdated.

        ConsumerCoordinator keeps topics to which nobody subscribes any more until its next metadata
        refresh (metadata.max.age.ms), and then joins again. kafka-python reads the topics of other
        members only after it has assigned partitions, and then joins again.
        """
        topics = {topic for member in members for topic in member.subscription.topics}
        added = topics - self._read - {*self._subscription.topics}
        self.unread = frozenset(added if self.process.family == "kafka-python" else ())
        gone = joins_for_topics(self.process) and self._read > topics
        self._read = topics
        self._again = self._again or bool(self.unread)
        if gone:
            at = self._chance.metadata(self._client_id, _METADATA_AGE, self._agenda.now)
            self._agenda.at(at, self._metadata_read, self.generation)

    def _metadata_read(self, generation: int) -> None:
        if generation == self.generation:
            self.enforce_rebalance()

    def _receive(self, partitions: Owned) -> None:
        """Take over the assigned partitions.

        A COOPERATIVE member first revokes its other partitions, and if it has any, joins again.
        """
        now = self._beats_from = self._agenda.now
        self.rejected = 0
        self._interval = self._chance.interval(self.process.heartbeat)
        self.rebalances.add(now - max(self._joined_at, 0.0), now)
        self._joined_at = -1.0
        topics = self._subscription.topics
        foreign = topics and any(topic not in topics for topic, _ in partitions)
        if foreign and joins_for_topics(self.process):
            self._subscription = replace(self._subscription, generation=self.generation)
            self._again_in(BACKOFF, self._rejoin)
            return
        new = self._numbers(partitions)
        revoked = self.owned - new if self.protocol is not _EAGER else frozenset()
        if self.protocol is _EAGER and revokes_on_downgrade(self.process):
            revoked = self.owned
        took = self._give_up(revoked, self.revoked, self.process.on_revoked)
        by = self._around.custom.get(self._elected)
        self._subscription = received(by, self._subscription, partitions, self.generation)
        added = new - self.owned
        if took:
            # One poll calls both listeners in turn: new partitions wait for the first.
            self._joining = True
            self._set_moving(True)
            self._step.after(took, self._take_over, added, True)
        else:
            self._step.cancel()
            self._take_over(added, bool(revoked))

    def _take_over(self, added: frozenset[int], revoked: bool) -> None:
        self._joining = False
        took = self.process.on_assigned
        if took:
            # Heartbeats go on meanwhile: a rebalance that they tell of is for the next poll.
            self._set_moving(True)
            self.assigned.add(took, self._agenda.now)
            self._listens_until = self._agenda.now + self._in_application(took)
            self._agenda.after(took, self._taken, self.generation, added, revoked)
        else:
            self._taken(self.generation, added, revoked)

    def _taken(self, generation: int, added: frozenset[int], revoked: bool) -> None:
        """Start to consume the partitions `added`, now that the listeners have returned.

        The member then joins again if a COOPERATIVE member has revoked partitions, or if a
        rebalance was requested.
        """
        if not self.alive or generation != self.generation:
            return
        if added:
            self._own(added)
        if (revoked and self._throws_in("revoked")) or self._throws_in("assigned"):
            return
        if rejoins(self.protocol, revoked) or self._again:
            self._set_moving(True)
            self._joining = True
            self._again_in(ROUND_TRIP, self._rejoin)
        else:
            self._set_moving(self._woken)
            if self._missed:
                self.wake()

    def _rejected(self, error: Error) -> None:
        self.failed += 1
        self.rejected += 1
        if self.rejected == 1:
            self._around.record_event(self, "rejected", error.name)
        wait = retries_after(self.process, self.rejected)
        if wait and error is not Error.FENCED_INSTANCE_ID:
            self._set_moving(False)
            self._again_in(wait, self._join)
        else:
            self._drop_all()
            self._end(leaves=False)

    def _again_in(self, wait: float, join: Callable[[], None]) -> None:
        self._step.at(self._chance.retry(self._client_id, wait, self._agenda.now), join)

    def _forget(self, error: Error) -> float:
        """Give up the membership, which the error code `error` ended, and lose all partitions.

        Returns the seconds that the listener takes (onPartitionsLost, KIP-429). If the listener
        throws, the consumer is closed, and `alive` is False afterwards.
        """
        if error is Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = -1
        had = bool(self.owned)
        took = self._drop_all()
        self._subscription = replace(
            self._subscription, member_id=self.member_id, owned=(), generation=None
        )
        if had:
            self._throws_in("lost")
        return took

    # Partitions

    def _let_go(self) -> tuple[float, bool]:
        """Revoke all partitions; return (listener's seconds, whether the client then leaves).

        A listener that throws prevents the LeaveGroup (ConsumerCoordinator.onLeavePrepare): the
        coordinator then counts the member until its session ends. Before that the client commits
        its offsets, which counts as a heartbeat (ConsumerCoordinator.close, enable.auto.commit).
        """
        leaves, fails_in = leaves_on_close(self.process), self.process.fails_in
        if not self.owned:
            return 0.0, leaves
        if self._joining or self.generation < 0:
            # Where a rebalance goes on, they are lost and not revoked.
            return self._drop_all(), leaves and "lost" not in fails_in
        self._group.now.commit(self.member_id, self.generation, self)
        took = self._give_up(self.owned, self.revoked, self.process.on_revoked)
        return took, leaves and "revoked" not in fails_in

    def _depart(self, last: float, *, leaves: bool) -> None:
        if leaves:
            self._group.leave(self.member_id, self)
        else:
            self.member_id = (
                self._group.heartbeats_stopped(self.member_id, last, self) or self.member_id
            )

    # Time

    def _next_poll(self, after: float) -> float:
        until = max(self._busy_until if self._in_poll else 0.0, self._listens_until)
        every = self.process.poll if self._in_poll and until <= after else 0.0
        return self._chance.poll(self._client_id, max(until, after), every, self._agenda.now)

    def _poll_too_late(self, until: float) -> None:
        if self.alive and until == self._busy_until and self.member_id:
            self._around.record_event(self, "past its poll timeout")
            self._ledger.mark_past_timeout(self.process.name, now=self._agenda.now, over=False)
            member_id, self.member_id, self.generation = self.member_id, "", -1
            self._set_moving(True)
            self._step.at(until, self._start_anew, Error.UNKNOWN_MEMBER_ID)
            if self.instance_id is None:
                self._group.leave(member_id, self, "a member did not poll in time")
            else:
                self._group.heartbeats_stopped(member_id, self._last_beat_before_end(), self)

    def _under_way(self) -> bool:
        return self._woken or self._joining or not self.member_id

    def _run_again(self) -> None:
        if not self._joining:
            self._woken = True
            self._step.cancel()
            self._hear()

    def _reads_later(self, read: Callable[[Any], None], answer: object) -> bool:
        """Return whether the process is frozen; if so, call `read(answer)` when it runs again."""
        frozen = self._frozen_until > self._agenda.now
        if frozen:
            self._agenda.at(self._frozen_until, read, answer)
        return frozen
