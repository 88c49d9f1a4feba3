"""A simulated member with group.protocol=consumer: heartbeats, reconciliation, callbacks (KIP-848).

Source: AsyncKafkaConsumer's ConsumerMembershipManager and ConsumerHeartbeatRequestManager (4.1).
Heartbeats go out in the background, callbacks run in poll(). A member acknowledges at once that it
has revoked partitions. It gets partitions that another member has revoked with its own next
heartbeat. A callback that throws ends the reconciliation: the member acknowledges nothing, and
poll() throws. As with the classic protocol, a heartbeat that would find nothing new is not
simulated.
"""

from rebal.groups.assignors import TopicPartition
from rebal.planner.rehearsal.engine.agenda import Timer
from rebal.planner.rehearsal.engine.consumer import BACKOFF, ROUND_TRIP
from rebal.planner.rehearsal.engine.member import (
    Process,
    RunningProcess,
    SimulatedMember,
    Surroundings,
)
from rebal.planner.rehearsal.engine.memory import (
    COMES_BACK,
    LEAVES,
    Beat,
    BeatAnswer,
    Brokers,
    Error,
)


class Kip848Consumer(SimulatedMember):
    """A simulated KIP-848 or Streams consumer, from the start of its process to its end."""

    def __init__(self, process: Process, around: Surroundings, brokers: Brokers) -> None:
        interval, session = brokers.consumer_heartbeat, brokers.consumer_session
        super().__init__(process, around, interval=interval, session=session)
        self.protocol = process.protocol.upper()
        # A Streams member sends its topology in place of topics.
        self._topics = ("topology",) if process.protocol == "streams" else process.topics
        self._epoch = 0
        # The assignment that was reconciled last and the one to reach; None: neither is known.
        self._current: frozenset[TopicPartition] | None = None
        self._target: frozenset[TopicPartition] | None = None
        self._told: frozenset[TopicPartition] | None = None
        self._topics_told = True
        self._reconciling = self._stale = False
        self._began = 0.0
        self._heartbeat = Timer(self._agenda)

    def seat(self, running: RunningProcess, elected: str) -> Beat:  # noqa: ARG002 - it elects none
        """Make the consumer a member that owns the partitions of `running` from the beginning.

        Returns the heartbeat with which the coordinator is to enter it as a member.
        """
        self.member_id = self.last_id = running.member_id
        self._epoch = running.generation or 0
        self._current = self._target = self._told = frozenset(running.owned)
        self._own(self._numbers(self._current))
        # Its last heartbeat was at any time up to one interval ago.
        self._beats_from = -self._chance.phase(self._interval)
        return self._request(self._epoch, full=True)

    # What a person or a machine does to it

    def start(self) -> None:
        """Send the first heartbeat, with a member id that the client generates (KIP-1082)."""
        self.member_id = self.last_id = self._chance.kip848_member_id(
            self._client_id, self._agenda.now
        )
        self._set_moving(True)
        self._beat()

    def enforce_rebalance(self) -> bool:
        """Write a note and return False: the client ignores KIP-568 requests with a warning."""
        self._around.record_event(self, "enforceRebalance ignored")
        return False

    def commit(self) -> Error:
        """Commit offsets now, and return the error code (`Error.NONE`: committed).

        A failed commit is recorded with the exception that the Java client throws.
        """
        return self._record_commit(self._group.now.commit(self.member_id, self._epoch, self))

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Change the subscription to `topics`; the next heartbeat sends them."""
        self._topics, self._topics_told = topics, False
        self.wake()

    # What the coordinator says

    def wake(self) -> None:
        """Schedule the next heartbeat, because it will find something new."""
        if self.alive and not (self._woken or self._stale):
            self._woken = True
            self._set_moving(True)
            self._heartbeat.at(self._last_beat() + self._interval, self._beat)

    # Heartbeats

    def _request(self, epoch: int, *, full: bool) -> Beat:
        process = self.process
        return Beat(
            self.member_id,
            epoch,
            self.instance_id,
            self._topics if full or not self._topics_told else None,
            (self._current or frozenset()) if full or self._told != self._current else None,
            process.rack,
            process.remote_assignor,
            process.rebalance,
            process.protocol == "streams",
        )

    def _beat(self) -> None:
        if not self.alive or self._stale or self._frozen_until > self._agenda.now:
            return
        self._heartbeat.cancel()
        self._woken = False
        self._beats_from = self._agenda.now
        answer = self._group.beat(self._request(self._epoch, full=self._epoch == 0), self)
        if answer.error:
            self._failed(answer.error)
        else:
            self._accept(answer)

    def _accept(self, answer: BeatAnswer) -> None:
        self._epoch = answer.epoch
        self._told, self._topics_told = self._current, True
        if answer.partitions is not None:
            self._target = answer.partitions
        if self._reconciling:
            return
        if self._target != self._current:
            self._set_moving(True)
            self._reconciling, self._began = True, self._agenda.now
            self._step.at(self._next_poll(self._agenda.now + ROUND_TRIP), self._revoke)
        else:
            self._set_moving(self._busy_until > self._agenda.now)

    def _failed(self, error: Error) -> None:
        self.failed += 1
        if error is Error.NOT_COORDINATOR:
            self._woken = True
            self._heartbeat.after(BACKOFF, self._beat)
        elif error in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH):
            self._around.record_event(self, "fenced", error.name)
            self._set_moving(True)
            self._stale = True
            if self.owned:
                self._ledger.mark_past_timeout(self.process.name, now=self._agenda.now, over=False)
            after = self._next_poll(self._agenda.now) if self.owned else self._agenda.now
            self._step.at(after, self._lose)
        else:
            self.rejected = 1
            self._around.record_event(self, "rejected", error.name)
            self._drop_all()
            self._end(leaves=False)

    # Reconciliation

    def _revoke(self) -> None:
        # The listener runs in this poll.
        target = self._target or frozenset()
        revoked = self.owned - self._numbers(target)
        took = self._give_up(revoked, self.revoked, self.process.on_revoked)
        took = self._in_application(max(took, self.process.slow) if revoked else 0.0)
        self._step.after(took, self._assign, target, bool(revoked))

    def _assign(self, target: frozenset[TopicPartition], had: bool) -> None:
        """Run onPartitionsAssigned for `target`.

        `had` is True if onPartitionsRevoked has just run; if it throws, the consumer is closed
        instead.
        """
        if not (had and self._throws_in("revoked")):
            took = self._in_application(self.process.on_assigned)
            self.assigned.add(took, self._agenda.now)
            self._step.after(took, self._acknowledge, target)

    def _acknowledge(self, target: frozenset[TopicPartition]) -> None:
        if not self._throws_in("assigned"):
            self._own(self._numbers(target) - self.owned)
            self._current, self._reconciling, self.rejected = target, False, 0
            self.rebalances.add(self._agenda.now - self._began, self._agenda.now)
            self._beat()

    def _lose(self) -> None:
        """Lose all partitions after being fenced (onPartitionsLost), and rejoin with epoch 0."""
        self._epoch, self._reconciling = 0, False
        self._current = self._target = self._told = None
        had = bool(self.owned)
        took = self._in_application(self.process.on_lost if had else 0.0)
        self._drop_all()
        self._step.after(took, self._join_again, had)

    def _join_again(self, had: bool) -> None:
        """Join with epoch 0, even if onPartitionsLost throws.

        The background thread joins before the application closes the consumer. `had` is True if the
        member owned partitions, so that onPartitionsLost has run.
        """
        self._stale = False
        self._beat()
        if had:
            self._throws_in("lost")

    # Partitions

    def _let_go(self) -> tuple[float, bool]:
        """Revoke all partitions; return (listener's seconds, True: the client then leaves).

        A listener that throws does not prevent the heartbeat that leaves, unlike with the classic
        protocol (AsyncKafkaConsumer.close). A static member's heartbeat says that the member will
        return.
        """
        if self._stale:
            return self._drop_all(), True
        return self._give_up(self.owned, self.revoked, self.process.on_revoked), True

    def _depart(self, last: float, *, leaves: bool) -> None:
        if leaves:
            epoch = LEAVES if self.instance_id is None else COMES_BACK
            self._group.beat(self._request(epoch, full=False), self)
        self._group.heartbeats_stopped(self.member_id, last, self)

    # Time

    def _next_poll(self, after: float) -> float:
        every = self.process.poll if self._in_poll else 0.0
        earliest = max(after, self._busy_until) if self._in_poll else after
        return self._chance.poll(self._client_id, earliest, every, self._agenda.now)

    def _poll_too_late(self, until: float) -> None:
        if self.alive and until == self._busy_until and not self._stale:
            self._around.record_event(self, "past its poll timeout")
            self._ledger.mark_past_timeout(self.process.name, now=self._agenda.now, over=False)
            self._stale = True
            self._set_moving(True)
            self._depart(self._last_beat(), leaves=True)
            self._step.at(until, self._lose)

    def _under_way(self) -> bool:
        return self._woken or self._reconciling or self._stale

    def _run_again(self) -> None:
        self._beat()
