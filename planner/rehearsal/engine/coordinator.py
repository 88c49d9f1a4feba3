"""Coordinator of a classic group: members, generations, the vote, session and rebalance timeouts.

Written from Kafka's GroupMetadataManager and ClassicGroup (4.1) and GroupCoordinator.scala (2.3 to
3.9). It is written independently of `planner/admission`, so that each checks the other. Sources:
KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389
(group.max.size), KIP-394 (MEMBER_ID_REQUIRED), KIP-814 (skipAssignment).
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Owned
from rebal.groups.coordinator import elect
from rebal.groups.model import CoordinatorKind, GroupState
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance, Timer
from rebal.planner.rehearsal.engine.memory import (
    Assigned,
    Brokers,
    ClassicClient,
    ClassicMember,
    ClassicSeat,
    Client,
    Error,
    JoinAnswer,
    JoinRequest,
    MemberTable,
    MovingCoordinator,
    Stored,
    SyncAnswer,
    Watcher,
)

# Seconds for which a new member's join may wait before its session counts.
_NEW_MEMBER: Final = 300.0


class ClassicTable(MemberTable[ClassicMember]):
    """Members of a classic group, with the facts that follow from all of their JoinGroups."""

    # Different assignor lists among the members'; None where one of them may have changed.
    _lists: frozenset[tuple[str, ...]] | None = None

    def add(self, member: ClassicMember) -> None:
        """Add a member, with its assignor list."""
        super().add(member)
        self._lists = None

    def remove(self, member: ClassicMember) -> None:
        """Remove a member, with its assignor list."""
        super().remove(member)
        self._lists = None

    def join_again(self, member: ClassicMember, request: JoinRequest) -> None:
        """Store a member's new JoinGroup; the member waits for the next generation."""
        if member.request.assignors != request.assignors:
            self._lists = None
        member.request, member.joining = request, True

    def admits(self, assignors: tuple[str, ...]) -> bool:
        """Return whether one of `assignors` is in the assignor list of every member.

        A list is the one that the coordinator has stored; for a member that joins again it is its
        earlier list.
        """
        if self._lists is None:
            self._lists = frozenset(member.request.assignors for member in self.values())
        known = self._lists
        return any(all(name in each for each in known) for name in assignors)

    def vote(self, kind: CoordinatorKind) -> str | None:
        """Return the assignor that the members elect."""
        return elect([member.request.assignors for member in self.values()], kind).assignor

    @property
    def patience(self) -> float:
        """The longest rebalance timeout of the members, in seconds."""
        return max((member.request.rebalance for member in self.values()), default=0.0)

    def has_room(self, member_id: str, most: int, *, preparing: bool) -> bool:
        """Return whether a member may join a group of at most `most` members (group.max.size).

        A full group admits only members that it knows. While it is `preparing` a rebalance, it
        admits members until `most` have joined.
        """
        known = self.get(member_id)
        if len(self) < most or not preparing:
            return len(self) < most or known is not None
        joins = known is not None and known.joining
        return joins or sum(member.joining for member in self.values()) < most

    def next_leader(self, leader: str | None) -> str | None:
        """Return `leader` if it has joined again, else the first member in the table that has.

        None: no member has joined again.
        """
        now = self.get(leader or "")
        if now is not None and now.joining:
            return leader
        return next((one.member_id for one in self.ordered(self) if one.joining), None)


class ClassicGroup(MovingCoordinator[ClassicMember]):
    """A classic group at its coordinator.

    Requests are methods. JoinGroup and SyncGroup are answered by a call of the client, at once or
    later in the rebalance.
    """

    def __init__(
        self,
        agenda: Agenda,
        brokers: Brokers,
        watcher: Watcher,
        chance: Chance,
        generation: int = 0,
    ) -> None:
        members = ClassicTable(brokers.kind)
        super().__init__(agenda, brokers, watcher, chance, members=members, number=generation)
        self._members: ClassicTable = members
        self.phase = GroupState.EMPTY
        self.assignor: str | None = None
        self.leader: str | None = None
        self._pending: dict[str, float] = {}
        # The end of the phase, by its timeout.
        self._barrier = Timer(agenda)
        self._first = self._more = False
        self.stored = Stored(generation, None, None, ())

    def partitions(self) -> dict[str, Owned]:
        """Return each member's partitions by the last assignment."""
        return {id_: member.partitions for id_, member in self._members.items()}

    def seat(self, stable: Iterable[ClassicSeat], assignor: str, leader: str | None) -> None:
        """Begin as a Stable group with the members `stable`, as a snapshot shows them."""
        for request, client, partitions in stable:
            member = self._add(request, client)
            member.new, member.partitions = False, partitions
        self.phase, self.assignor = GroupState.STABLE, assignor
        self.leader = leader if leader in self._members else next(iter(self._members))
        self._store()

    def delete(self) -> Error:
        """Handle a DeleteGroups, and return the error code: only an Empty group is deleted.

        The next join creates the group again.
        """
        if self.away:
            return Error.NOT_COORDINATOR
        if self.phase is GroupState.DEAD:
            return Error.GROUP_ID_NOT_FOUND
        if self.phase is not GroupState.EMPTY:
            return Error.NON_EMPTY_GROUP
        self.phase, self.number, self.assignor, self.leader = GroupState.DEAD, 0, None, None
        self._pending, self._members = {}, ClassicTable(self._brokers.kind)
        self.stored = Stored(0, None, None, ())
        return Error.NONE

    def dissolve(self) -> list[ClassicMember]:
        """Remove and return all members, because the group becomes a KIP-848 group.

        Members that wait for an answer get REBALANCE_IN_PROGRESS, so that they join again.
        """
        members = list(self._members.values())
        self._answer_waiting(Error.REBALANCE_IN_PROGRESS)
        self._pending, self._members = {}, ClassicTable(self._brokers.kind)
        return members

    # Requests

    def join(self, request: JoinRequest, client: ClassicClient) -> None:
        """Handle a JoinGroup, with the checks in the order of the coordinators' source."""
        error = self._refuses(request)
        if error:
            client.joined(JoinAnswer(error))
        elif not request.member_id:
            self._join_new(request, client)
        elif request.member_id in self._pending:
            del self._pending[request.member_id]
            self._enter(request, client)
        else:
            self._join_again(request, client)

    def _refuses(self, request: JoinRequest) -> Error:
        brokers = self._brokers
        if not brokers.min_session <= request.session <= brokers.max_session:
            return Error.INVALID_SESSION_TIMEOUT
        if self.away:
            return Error.NOT_COORDINATOR
        if self.phase is GroupState.DEAD:
            if request.member_id:
                return Error.UNKNOWN_MEMBER_ID
            self.phase = GroupState.EMPTY
        preparing = self.phase is GroupState.PREPARING_REBALANCE
        if not self._members.has_room(request.member_id, brokers.max_size, preparing=preparing):
            self._pending.pop(request.member_id, None)
            if request.member_id in self._members:
                self._remove(self._members[request.member_id])
            return Error.GROUP_MAX_SIZE_REACHED
        if not self._members.admits(request.assignors):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id or request.member_id in self._pending:
            return Error.NONE
        place = self._members.static.get(request.instance_id)
        if place is None:
            return Error.NONE if request.member_id in self._members else Error.UNKNOWN_MEMBER_ID
        return Error.NONE if place == request.member_id else Error.FENCED_INSTANCE_ID

    def _join_new(self, request: JoinRequest, client: ClassicClient) -> None:
        instance = request.instance_id
        member_id = self._chance.member_id(request.client_id, instance, self._agenda.now)
        request = request._replace(member_id=member_id)
        if instance is None:
            self._pending[member_id] = deadline = self._agenda.now + request.session
            self._agenda.at(deadline, self._forget_pending, member_id, deadline)
            client.joined(JoinAnswer(Error.MEMBER_ID_REQUIRED, member_id))
        elif instance in self._members.static:
            self._replace_static(self._members[self._members.static[instance]], request, client)
        else:
            self._enter(request, client)

    def _enter(self, request: JoinRequest, client: ClassicClient) -> None:
        self._add(request, client).joining = self._more = True
        if self.leader is None:
            self.leader = request.member_id
        self.prepare("a member joined")

    def _join_again(self, request: JoinRequest, client: ClassicClient) -> None:
        member = self._members[request.member_id]
        same = member.request.stamp == request.stamp
        leads = request.member_id == self.leader
        member.client, member.heard, member.silent = client, self._agenda.now, False
        completing = self.phase is GroupState.COMPLETING_REBALANCE
        if same and (completing or (self.phase is GroupState.STABLE and not leads)):
            self._send_join_answer(member)
        else:
            self._members.join_again(member, request)
            self.prepare("the leader joined again" if leads else "a member joined again")

    def _replace_static(
        self, old: ClassicMember, request: JoinRequest, client: ClassicClient
    ) -> None:
        place = self._add(request, client)
        place.new, place.partitions = False, old.partitions
        self._members.remove(old)
        old.reject(Error.FENCED_INSTANCE_ID)
        leads = self.leader == old.member_id
        if leads:
            self.leader = request.member_id
        if (
            self.phase is GroupState.STABLE
            and self._members.vote(self._brokers.kind) == self.assignor
        ):
            self._store()
            # KIP-814: an older client is not told that it leads, and assigns nothing.
            self._send_join_answer(place, leads=leads and client.skips_assignment, skips=True)
        else:
            place.joining = True
            self.prepare("the list of a static member changed the vote")

    def sync(
        self, member_id: str, number: int, client: ClassicClient, assigned: Assigned | None = None
    ) -> None:
        """Handle a SyncGroup of the generation `number`; `assigned` is the leader's assignment."""
        member = self._found(member_id, client)
        if isinstance(member, Error):
            client.synced(SyncAnswer(member))
        elif number != self.number:
            client.synced(SyncAnswer(Error.ILLEGAL_GENERATION))
        elif self.phase is GroupState.PREPARING_REBALANCE:
            client.synced(SyncAnswer(Error.REBALANCE_IN_PROGRESS))
        elif self.phase is GroupState.STABLE:
            member.heard, member.unsynced = self._agenda.now, False
            client.synced(SyncAnswer(Error.NONE, member.partitions))
        else:
            member.syncing, member.unsynced = True, False
            if assigned is not None and member_id == self.leader:
                self._hand_out(assigned)

    def heartbeat(self, member_id: str, generation: int, client: Client) -> Error:
        """Handle a Heartbeat, and return the error code."""
        member = self._found(member_id, client)
        if isinstance(member, Error):
            return member
        if generation != self.number:
            return Error.ILLEGAL_GENERATION
        member.heard = self._agenda.now
        preparing = self.phase is GroupState.PREPARING_REBALANCE
        return Error.REBALANCE_IN_PROGRESS if preparing else Error.NONE

    def commit(self, member_id: str, generation: int, client: Client) -> Error:
        """Handle an OffsetCommit, and return the error code.

        Commits are rejected while members wait for the leader's assignment. An accepted commit
        counts as a heartbeat.
        """
        if self.away:
            return Error.NOT_COORDINATOR
        member = self._members.get(member_id)
        if member is None:
            return self._unknown(client)
        if generation != self.number:
            return Error.ILLEGAL_GENERATION
        if self.phase is GroupState.COMPLETING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        member.heard = self._agenda.now
        return Error.NONE

    def leave(self, member_id: str, client: Client, why: str = "a member left") -> None:
        """Handle a LeaveGroup; nothing happens if the member is unknown.

        While another broker loads the group, the request is lost: clients do not repeat it when
        they close, and the member counts until its session ends.
        """
        if self.away:
            self.heartbeats_stopped(member_id, self._agenda.now, client)
        elif self._pending.pop(member_id, None) is not None:
            stable = self.phase in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
            if stable and self._brokers.kind is CoordinatorKind.JAVA:
                # The Java coordinator rebalances the whole group for a member that was never in it.
                self.prepare("a member left before it had joined")
            else:
                self._complete_if_all_joined()
        elif member_id in self._members:
            self._remove(self._members[member_id])
            self.prepare(why)

    def heartbeats_stopped(self, member_id: str, last: float, client: Client) -> str:
        """Record that a member has stopped its heartbeats; the last one was at the time `last`.

        Returns its member id; empty if the process `client` has no such member in the group. A
        static member whose first join is not answered yet does not know its id (`member_id` is
        empty), and is found by its `client`.
        """
        waiting = (id_ for id_, one in self._members.items() if one.client is client)
        return super().heartbeats_stopped(member_id or next(waiting, ""), last, client)

    def counts_member(self, member_id: str) -> bool:
        """Return whether the coordinator counts this member, or expects it to join with this id."""
        return member_id in self._members or member_id in self._pending

    def move(self, seconds: float) -> None:
        """Move the group to another broker, which takes `seconds` to load it."""
        self._answer_waiting(Error.NOT_COORDINATOR)
        super().move(seconds)

    def _answer_waiting(self, error: Error) -> None:
        self._barrier.cancel()
        for member in self._members.values():
            if member.joining or member.syncing:
                member.reject(error)

    def _load(self) -> None:
        """Restore the group from its record in __consumer_offsets.

        Of each assignor list the record has the elected assignor alone.
        """
        stored, self.away = self.stored, 0.0
        silent = {id_ for id_, member in self._members.items() if member.silent}
        here = self._members
        self._pending, self._members = {}, ClassicTable(self._brokers.kind)
        self.number, self.assignor, self.leader = stored.generation, stored.assignor, stored.leader
        for request, client, partitions in stored.members:
            kept = request._replace(assignors=(stored.assignor or "",), stamp=None)
            member = self._add(kept, client)
            member.new, member.partitions = False, partitions
            member.silent = request.member_id in silent or request.member_id not in here
            if member.silent:
                self._watch(member)
            else:
                client.wake()
        self.phase = GroupState.STABLE if self._members else GroupState.EMPTY
        for id_ in sorted(here.keys() - self._members.keys() - silent):
            here[id_].client.wake()
        if len(self._members) > self._brokers.max_size:
            self.prepare("the group is larger than group.max.size")

    # Rebalances

    def prepare(self, why: str, *, expired: bool = False) -> None:
        """Begin a rebalance for the reason `why`; if all members have joined, complete it too.

        If the group is already in PreparingRebalance, none begins, and the current one is completed
        if all have joined. The first rebalance of an Empty group also waits for the initial delay;
        the Java coordinator does not if `expired`: a member that it waited for has timed out.
        """
        if self.phase is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(expired=expired)
            return
        self._first = self.phase is GroupState.EMPTY
        waiting = [member for member in self._members.values() if member.syncing]
        if self.phase is GroupState.COMPLETING_REBALANCE:
            for member in self._members.values():
                member.partitions = ()
        self.phase = GroupState.PREPARING_REBALANCE
        self._barrier.cancel()
        self._watcher.preparing(why)
        for member in self._members.values():
            member.unsynced = member.syncing = False
            if not (member.joining or member.silent):
                member.client.wake()
        for member in waiting:
            # propagateAssignment begins its session anew, with an error too.
            member.heard = self._agenda.now
            member.client.synced(SyncAnswer(Error.REBALANCE_IN_PROGRESS))
        if self._first:
            self._more, delay = False, self._brokers.initial_delay
            self._barrier.after(
                delay, self._first_join_over, max(self._members.patience - delay, 0.0)
            )
        else:
            self._barrier.after(self._members.patience, self._complete)
            self._complete_if_all_joined()

    def _first_join_over(self, left: float) -> None:
        """Extend the initial delay if members have joined in it; otherwise complete the rebalance.

        `left` is the time in seconds until the rebalance timeout, at which the extensions end
        (KIP-134).
        """
        if self._more and left > 0:
            self._more = False
            delay = min(self._brokers.initial_delay, left)
            self._barrier.after(delay, self._first_join_over, left - delay)
        else:
            self._complete()

    def _complete_if_all_joined(self, *, expired: bool = False) -> None:
        # The first generation of an Empty group is complete when its delay is over; the Java
        # coordinator completes it too when a member that it waited for has expired.
        first = self._first and not (expired and self._brokers.kind is CoordinatorKind.JAVA)
        waits = first or self._pending or self.phase is not GroupState.PREPARING_REBALANCE
        if not waits and all(member.joining for member in self._members.values()):
            self._complete()

    def _complete(self) -> None:
        for member in [one for one in self._members.values() if not one.joining]:
            if member.instance_id is None:
                self._evict(member, "it did not join in time")
        leader = self._members.next_leader(self.leader)
        if self._members and leader is None:
            # Only static members are left, and none has joined: they are waited for once more.
            self._barrier.after(self._members.patience, self._complete)
            return
        self._barrier.cancel()
        self.leader, self.number = leader, self.number + 1
        if not self._members:
            self.phase, self.assignor = GroupState.EMPTY, None
            self._store()
            self._watcher.generation(self.number, None, 0)
        else:
            self.assignor = self._members.vote(self._brokers.kind)
            self.phase = GroupState.COMPLETING_REBALANCE
            self._watcher.generation(self.number, self.assignor, len(self._members))
            self._barrier.after(self._members.patience, self._sync_over)
            self._answer_joins()

    def _answer_joins(self) -> None:
        """Answer all pending JoinGroups.

        The session of every member begins anew, and every member must send a SyncGroup; both also
        hold for a static member that has not joined again.
        """
        for member in list(self._members.values()):
            member.new, member.unsynced, member.heard = False, True, self._agenda.now
            if member.silent:
                self._watch(member)
        for member in [one for one in self._members.values() if one.joining]:
            if self.phase is not GroupState.COMPLETING_REBALANCE:
                return
            member.joining = False
            self._send_join_answer(member)

    def _send_join_answer(
        self, member: ClassicMember, *, leads: bool | None = None, skips: bool = False
    ) -> None:
        leads = member.request.member_id == self.leader if leads is None else leads
        member.client.joined(
            JoinAnswer(
                Error.NONE,
                member.request.member_id,
                self.number,
                self.assignor or "",
                leads,
                [one.request for one in self._members.ordered(self._members)] if leads else (),
                skip_assignment=skips and leads,
            )
        )

    def _hand_out(self, assigned: Assigned) -> None:
        for id_, member in self._members.items():
            member.partitions = assigned.get(id_, ())
        self.phase = GroupState.STABLE
        self._store()
        self._watcher.stable(self.number)
        for member in list(self._members.values()):
            if member.syncing:
                member.syncing, member.heard = False, self._agenda.now
                if member.silent:
                    self._watch(member)
                member.client.synced(SyncAnswer(Error.NONE, member.partitions))

    def _sync_over(self) -> None:
        late = [member for member in self._members.values() if member.unsynced]
        for member in late:
            self._evict(member, "it did not sync in time")
        if late:
            self.prepare("a member did not sync in time")

    # Members

    def _add(self, request: JoinRequest, client: ClassicClient) -> ClassicMember:
        sent = request.subscription
        if sent.member_id != request.member_id:
            request = request._replace(subscription=replace(sent, member_id=request.member_id))
        member = ClassicMember(request, client, self._agenda.now)
        self._members.add(member)
        return member

    def _remove(self, member: ClassicMember) -> None:
        self._members.remove(member)
        if self.leader == member.member_id:
            self.leader = next((m.member_id for m in self._members.ordered(self._members)), None)
        member.reject(Error.UNKNOWN_MEMBER_ID)

    def _evict(self, member: ClassicMember, why: str) -> None:
        self._remove(member)
        self._watcher.removed(member.member_id, why)

    def _session(self, member: ClassicMember) -> float:
        return _NEW_MEMBER if member.new and member.joining else member.request.session

    def _expire(self, member: ClassicMember) -> None:
        # One that waits for a generation or for partitions stays.
        if member.new or not (member.joining or member.syncing):
            self._evict(member, "its session timed out")
            self.prepare("a session timed out", expired=True)

    def _forget_pending(self, member_id: str, deadline: float) -> None:
        if self._pending.get(member_id) == deadline:
            del self._pending[member_id]
            self._complete_if_all_joined(expired=True)

    def _store(self) -> None:
        seats = (ClassicSeat(m.request, m.client, m.partitions) for m in self._members.values())
        self.stored = Stored(self.number, self.assignor, self.leader, tuple(seats))
