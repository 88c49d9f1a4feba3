"""Coordinator of a classic group: members, generations, the vote, session and rebalance timeouts.

Written from Kafka's GroupMetadataManager and ClassicGroup (4.1) and GroupCoordinator.scala (2.3 to
3.9), apart from `planner/admission` on purpose: each is the other's check. Sources of single rules:
KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389
(group.max.size), KIP-394 (MEMBER_ID_REQUIRED), KIP-814 (skipAssignment).
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from rebal.groups.assignors import Owned
from rebal.groups.model import CoordinatorKind, GroupState
from rebal.groups.vote import elect
from rebal.planner.rehearsal.engine.agenda import Agenda
from rebal.planner.rehearsal.engine.chance import Chance
from rebal.planner.rehearsal.engine.memory import (
    FIRST_SIZE,
    Brokers,
    ClassicMember,
    ClassicSeat,
    Stored,
    Watcher,
    table_order,
    table_size,
)
from rebal.planner.rehearsal.engine.messages import (
    Assigned,
    ClassicClient,
    Client,
    Error,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
)

_NEW_MEMBER: Final = 300.0
"""Seconds for which a new member's join may wait before its session counts."""


class ClassicGroup:
    """One group and its coordinator.

    Requests are methods; their answers go to the client, at once or when a rebalance has gone on.
    """

    def __init__(
        self,
        agenda: Agenda,
        brokers: Brokers,
        watcher: Watcher,
        chance: Chance,
        generation: int = 0,
    ) -> None:
        self.phase = GroupState.EMPTY
        self.number = generation
        self.assignor: str | None = None
        self.leader: str | None = None
        self._agenda, self._brokers, self._watcher, self._chance = agenda, brokers, watcher, chance
        self._members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._pending: dict[str, float] = {}
        self.away = 0.0
        self._timer = self._loads = 0
        self._first = self._more = False
        self._table = FIRST_SIZE
        self.stored = Stored(generation, None, None, ())
        # Different assignor lists among the members'; None where one of them may have changed.
        self._known: frozenset[tuple[str, ...]] | None = None

    @property
    def size(self) -> int:
        """Number of members, crashed ones included until their session ends."""
        return len(self._members)

    def lists(self) -> dict[str, tuple[str, ...]]:
        """Return each member's assignor list as the coordinator remembers it."""
        return {id_: member.request.assignors for id_, member in self._members.items()}

    def partitions(self) -> dict[str, Owned]:
        """Return each member's partitions by the last assignment."""
        return {id_: member.partitions for id_, member in self._members.items()}

    def seat(self, stable: Iterable[ClassicSeat], assignor: str, leader: str | None) -> None:
        """Begin with a Stable group of these members, as a snapshot shows it."""
        for request, client, partitions in stable:
            member = self._add(request, client)
            member.new, member.partitions = False, partitions
        self.phase, self.assignor = GroupState.STABLE, assignor
        self.leader = leader if leader in self._members else next(iter(self._members))
        self._store()

    def delete(self) -> Error:
        """DeleteGroups: only an Empty group can be deleted; the next join makes it anew."""
        if self.away:
            return Error.NOT_COORDINATOR
        if self.phase is GroupState.DEAD:
            return Error.GROUP_ID_NOT_FOUND
        if self.phase is not GroupState.EMPTY:
            return Error.NON_EMPTY_GROUP
        self.phase, self.number, self.assignor, self.leader = GroupState.DEAD, 0, None, None
        self._pending, self._table = {}, FIRST_SIZE
        self.stored = Stored(0, None, None, ())
        return Error.NONE

    def dissolve(self) -> list[ClassicMember]:
        """End as a classic group (KIP-848), have its members join again, and return them."""
        members = list(self._members.values())
        self._answer_waiting(Error.REBALANCE_IN_PROGRESS)
        self._members, self._static, self._pending = {}, {}, {}
        return members

    # Requests

    def join(self, request: JoinRequest, client: ClassicClient) -> None:
        """JoinGroup; checks in the order of the coordinators' source."""
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
        if not self._has_room(request.member_id):
            self._pending.pop(request.member_id, None)
            if request.member_id in self._members:
                self._remove(request.member_id)
            return Error.GROUP_MAX_SIZE_REACHED
        if not self._admits(request.assignors):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id or request.member_id in self._pending:
            return Error.NONE
        if request.instance_id is not None and request.instance_id in self._static:
            if self._static[request.instance_id] != request.member_id:
                return Error.FENCED_INSTANCE_ID
        elif request.member_id not in self._members:
            return Error.UNKNOWN_MEMBER_ID
        return Error.NONE

    def _has_room(self, member_id: str) -> bool:
        most = self._brokers.max_size
        if self.phase is GroupState.EMPTY or len(self._members) < most:
            return True
        known = self._members.get(member_id)
        if self.phase is GroupState.PREPARING_REBALANCE:
            waiting = sum(member.joining for member in self._members.values())
            return (known is not None and known.joining) or waiting < most
        return known is not None

    def _admits(self, assignors: tuple[str, ...]) -> bool:
        """Return whether every remembered list holds one of these, the joiner's own old one too."""
        if self.phase is GroupState.EMPTY or not self._members:
            return bool(assignors)
        return any(all(name in each for each in self._distinct()) for name in assignors)

    def _distinct(self) -> frozenset[tuple[str, ...]]:
        """Return the different lists among those that are remembered."""
        if self._known is None:
            self._known = frozenset(m.request.assignors for m in self._members.values())
        return self._known

    def _join_new(self, request: JoinRequest, client: ClassicClient) -> None:
        instance = request.instance_id
        member_id = self._chance.member_id(request.client_id, instance, self._agenda.now)
        request = request._replace(member_id=member_id)
        if instance is None:
            self._pending[member_id] = deadline = self._agenda.now + request.session
            self._agenda.at(deadline, self._forget_pending, member_id, deadline)
            client.joined(JoinAnswer(Error.MEMBER_ID_REQUIRED, member_id))
        elif instance in self._static:
            self._replace_static(self._static[instance], request, client)
        else:
            self._enter(request, client)

    def _enter(self, request: JoinRequest, client: ClassicClient) -> None:
        member = self._add(request, client)
        member.joining = True
        self._more = True
        if self.leader is None:
            self.leader = request.member_id
        self._rebalance_or_go_on("a member joined")

    def _join_again(self, request: JoinRequest, client: ClassicClient) -> None:
        member = self._members[request.member_id]
        same = member.request.stamp == request.stamp
        leads = request.member_id == self.leader
        member.client, member.heard, member.silent = client, self._agenda.now, False
        completing = self.phase is GroupState.COMPLETING_REBALANCE
        if same and (completing or (self.phase is GroupState.STABLE and not leads)):
            self._tell_generation(member)
            return
        if member.request.assignors != request.assignors:
            self._known = None
        member.request, member.joining = request, True
        self._rebalance_or_go_on("the leader joined again" if leads else "a member joined again")

    def _replace_static(self, old_id: str, request: JoinRequest, client: ClassicClient) -> None:
        """Replace a static member by its restarted process (KIP-345)."""
        old = self._members[old_id]
        place = self._add(request, client)
        place.new, place.partitions = False, old.partitions
        del self._members[old_id]
        self._known = None
        self._turn_away(old, Error.FENCED_INSTANCE_ID)
        leads = self.leader == old_id
        if leads:
            self.leader = request.member_id
        if self.phase is GroupState.STABLE and self._vote() == self.assignor:
            self._store()
            # KIP-814: an older client is not told that it leads, and assigns nothing.
            self._tell_generation(place, leads=leads and client.skips_assignment, skips=True)
            return
        place.joining = True
        self._rebalance_or_go_on("the list of a static member changed the vote")

    def sync(
        self, member_id: str, number: int, client: ClassicClient, assigned: Assigned | None = None
    ) -> None:
        """SyncGroup of that generation; `assigned` is the leader's."""
        member = self._members.get(member_id)
        if self.away:
            client.synced(SyncAnswer(Error.NOT_COORDINATOR))
        elif member is None or member.client is not client:
            error = self._unknown(client) if member is None else Error.UNKNOWN_MEMBER_ID
            client.synced(SyncAnswer(error))
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
        """Heartbeat."""
        member = self._members.get(member_id)
        if self.away:
            return Error.NOT_COORDINATOR
        if member is None or member.client is not client:
            return self._unknown(client)
        if generation != self.number:
            return Error.ILLEGAL_GENERATION
        member.heard = self._agenda.now
        if self.phase is GroupState.PREPARING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def commit(self, member_id: str, generation: int, client: Client | None = None) -> Error:
        """OffsetCommit: rejected while members wait for the leader's assignment.

        A commit in the name of no member (generation -1) is taken only by an Empty group. One that
        is taken counts as a heartbeat.
        """
        if self.away:
            return Error.NOT_COORDINATOR
        if generation < 0 and self.phase in (GroupState.EMPTY, GroupState.DEAD):
            return Error.NONE
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
        """LeaveGroup; of a member that is not known nothing comes.

        Without a coordinator the request is lost: clients do not send it again when they close.
        """
        if self.away:
            self.silent(member_id, self._agenda.now, client)
            return
        if self._pending.pop(member_id, None) is not None:
            stable = self.phase in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
            if stable and self._brokers.kind is CoordinatorKind.JAVA:
                # The Java coordinator rebalances the whole group for a member that was never in it.
                self.prepare("a member left before it had joined")
            else:
                self._complete_if_all_joined()
        elif member_id in self._members:
            self._remove(member_id)
            self._rebalance_or_go_on(why)

    def silent(self, member_id: str, last: float, client: Client) -> str:
        """Learn that a member sends no heartbeat any more; its last one was at `last`.

        Returns its id, which a static one whose first join waits does not know; empty if it is not
        counted.
        """
        member = self._members.get(member_id)
        if member is None and not member_id:
            member = next((one for one in self._members.values() if one.client is client), None)
        if member is None:
            return ""
        member.silent, member.heard = True, max(member.heard, last)
        self._watch(member)
        return member.request.member_id

    def awake(self, member_id: str) -> None:
        """Learn that a silent member sends heartbeats again."""
        member = self._members.get(member_id)
        if member is not None:
            member.silent, member.heard = False, self._agenda.now

    def waits_for(self, member_id: str) -> bool:
        """Return whether the coordinator still counts this member."""
        return member_id in self._members or member_id in self._pending

    def move(self, seconds: float) -> None:
        """Let another broker take over the group; it loads the group in `seconds`."""
        self.away = max(seconds, 1e-9)
        self._answer_waiting(Error.NOT_COORDINATOR)
        self._loads += 1
        self._agenda.after(seconds, self._load, self._loads)

    def _answer_waiting(self, error: Error) -> None:
        self._timer += 1
        for member in self._members.values():
            if member.joining or member.syncing:
                self._turn_away(member, error)

    def _load(self, number: int) -> None:
        """Know only what the record in __consumer_offsets holds: of each list the elected name."""
        if number != self._loads:
            return
        stored = self.stored
        self.away = 0.0
        silent = {id_ for id_, member in self._members.items() if member.silent}
        here = self._members
        self._members, self._static, self._pending, self._table = {}, {}, {}, FIRST_SIZE
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
        for id_ in sorted(here.keys() - self._members.keys()):
            if not here[id_].silent:
                here[id_].client.wake()
        if len(self._members) > self._brokers.max_size:
            self.prepare("the group is larger than group.max.size")

    # Rebalances

    def _rebalance_or_go_on(self, why: str) -> None:
        if self.phase is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined()
        else:
            self.prepare(why)

    def prepare(self, why: str) -> None:
        """Begin a rebalance."""
        agenda = self._agenda
        self._first = self.phase is GroupState.EMPTY
        waiting = [member for member in self._members.values() if member.syncing]
        if self.phase is GroupState.COMPLETING_REBALANCE:
            for member in self._members.values():
                member.partitions = ()
        self.phase = GroupState.PREPARING_REBALANCE
        self._timer += 1
        self._watcher.preparing(why)
        for member in self._members.values():
            member.unsynced = member.syncing = False
            if not (member.joining or member.silent):
                member.client.wake()
        for member in waiting:
            # propagateAssignment begins its session anew, with an error too.
            member.heard = agenda.now
            member.client.synced(SyncAnswer(Error.REBALANCE_IN_PROGRESS))
        if self._first:
            self._more = False
            delay = self._brokers.initial_delay
            left = max(self._longest() - delay, 0.0)
            agenda.after(delay, self._first_join_over, self._timer, left)
        else:
            agenda.after(self._longest(), self._join_over, self._timer)
            self._complete_if_all_joined()

    def _longest(self) -> float:
        return max((member.request.rebalance for member in self._members.values()), default=0.0)

    def _first_join_over(self, timer: int, left: float) -> None:
        """KIP-134: an Empty group waits on while members come, up to the rebalance timeout."""
        if timer != self._timer:
            return
        if self._more and left > 0:
            self._more = False
            delay = min(self._brokers.initial_delay, left)
            self._agenda.after(delay, self._first_join_over, timer, left - delay)
        else:
            self._complete()

    def _join_over(self, timer: int) -> None:
        if timer == self._timer:
            self._complete()

    def _complete_if_all_joined(self, *, expired: bool = False) -> None:
        if self.phase is not GroupState.PREPARING_REBALANCE or self._pending:
            return
        # The first generation of an Empty group is complete when its delay is over; the Java
        # coordinator completes it too when a member that it waited for has expired.
        first = self._first and not (expired and self._brokers.kind is CoordinatorKind.JAVA)
        if not first and all(member.joining for member in self._members.values()):
            self._complete()

    def _complete(self) -> None:
        missing = [id_ for id_, m in self._members.items() if not m.joining]
        for id_ in missing:
            if self._members[id_].request.instance_id is None:
                self._remove(id_)
                self._watcher.removed(id_, "it did not join in time")
        if self._members and not self._elect_leader():
            # Only static members are left, and none has joined: they are waited for once more.
            self._timer += 1
            self._agenda.after(self._longest(), self._join_over, self._timer)
            return
        self._timer += 1
        self.number += 1
        if not self._members:
            self.phase, self.assignor, self.leader = GroupState.EMPTY, None, None
            self._store()
            self._watcher.generation(self.number, None, 0)
            return
        self.assignor = self._vote()
        self.phase = GroupState.COMPLETING_REBALANCE
        self._watcher.generation(self.number, self.assignor, len(self._members))
        self._agenda.after(self._longest(), self._sync_over, self._timer)
        self._answer_joins()

    def _answer_joins(self) -> None:
        """Answer all joins; who is static and did not join has a new session, and must sync too."""
        timer, now = self._timer, self._agenda.now
        for member in list(self._members.values()):
            member.new, member.unsynced, member.heard = False, True, now
            if member.silent:
                self._watch(member)
        for member in list(self._members.values()):
            if not member.joining:
                continue
            member.joining = False
            self._tell_generation(member)
            if timer != self._timer:
                return

    def _tell_generation(
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
                [self._members[id_].request for id_ in self._order()] if leads else (),
                skip_assignment=skips and leads,
            )
        )

    def _elect_leader(self) -> bool:
        """Keep the leader if it has joined again, or take the first of the table that has."""
        leader = self._members.get(self.leader or "")
        if leader is not None and leader.joining:
            return True
        joined = next((id_ for id_ in self._order() if self._members[id_].joining), None)
        if joined is not None:
            self.leader = joined
        return joined is not None

    def _order(self) -> list[str]:
        """Return the member ids in the order of the coordinator's hash table."""
        return table_order(self._members, self._table, self._brokers.kind)

    def _vote(self) -> str | None:
        return elect(
            [m.request.assignors for m in self._members.values()], self._brokers.kind
        ).assignor

    def _hand_out(self, assigned: Assigned) -> None:
        for id_, member in self._members.items():
            member.partitions = assigned.get(id_, ())
        self.phase = GroupState.STABLE
        self._store()
        self._watcher.stable(self.number)
        for member in list(self._members.values()):
            if member.syncing:
                member.syncing = False
                member.heard = self._agenda.now
                if member.silent:
                    self._watch(member)
                member.client.synced(SyncAnswer(Error.NONE, member.partitions))

    def _sync_over(self, timer: int) -> None:
        """Members that joined and never asked for their partitions are removed."""
        if timer != self._timer:
            return
        late = [id_ for id_, member in self._members.items() if member.unsynced]
        for id_ in late:
            self._remove(id_)
            self._watcher.removed(id_, "it did not sync in time")
        if late:
            self._rebalance_or_go_on("a member did not sync in time")

    # Members

    def _add(self, request: JoinRequest, client: ClassicClient) -> ClassicMember:
        sent = request.subscription
        if sent.member_id != request.member_id:
            request = request._replace(subscription=replace(sent, member_id=request.member_id))
        member = self._members[request.member_id] = ClassicMember(request, client, self._agenda.now)
        self._known = None
        if request.instance_id is not None:
            self._static[request.instance_id] = request.member_id
        self._table = table_size(self._table, len(self._members), self._brokers.kind)
        return member

    def _remove(self, member_id: str) -> None:
        member = self._members.pop(member_id)
        self._known = None
        instance = member.request.instance_id
        if instance is not None and self._static.get(instance) == member_id:
            del self._static[instance]
        if self.leader == member_id:
            self.leader = next(iter(self._order()), None)
        self._turn_away(member, Error.UNKNOWN_MEMBER_ID)

    def _turn_away(self, member: ClassicMember, error: Error) -> None:
        """Answer what it waits for, or have its next heartbeat find the error."""
        if member.joining:
            member.client.joined(JoinAnswer(error))
        elif member.syncing:
            member.client.synced(SyncAnswer(error))
        elif not member.silent:
            member.client.wake()

    def _unknown(self, client: Client | None) -> Error:
        """Return the answer to a process that is no member; another one may have its place."""
        instance = getattr(client, "instance_id", None)
        return Error.FENCED_INSTANCE_ID if instance in self._static else Error.UNKNOWN_MEMBER_ID

    def _watch(self, member: ClassicMember) -> None:
        """Schedule the end of a silent member's session; a new member's join may wait longer."""
        waits = _NEW_MEMBER if member.new and member.joining else member.request.session
        member.deadline = member.heard + waits
        self._agenda.at(member.deadline, self._session_over, member, member.deadline)

    def _session_over(self, member: ClassicMember, deadline: float) -> None:
        id_ = member.request.member_id
        if self._members.get(id_) is not member or not member.silent or self.away:
            return
        if member.deadline != deadline or ((member.joining or member.syncing) and not member.new):
            return
        self._remove(id_)
        self._watcher.removed(id_, "its session timed out")
        if self.phase is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(expired=True)
        else:
            self.prepare("a session timed out")

    def _forget_pending(self, member_id: str, deadline: float) -> None:
        if self._pending.get(member_id) == deadline:
            del self._pending[member_id]
            self._complete_if_all_joined(expired=True)

    def _store(self) -> None:
        """Write the group's record, with the subscription of each member's last join."""
        seats = [ClassicSeat(m.request, m.client, m.partitions) for m in self._members.values()]
        self.stored = Stored(self.number, self.assignor, self.leader, tuple(seats))
