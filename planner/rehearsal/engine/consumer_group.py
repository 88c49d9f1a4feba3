"""Coordinator of a KIP-848 group: epochs, targets, reconciliation, members of both protocols.

Written from Kafka's GroupMetadataManager and ConsumerGroup (4.1), KIP-848 and KIP-1099. Members
with the classic protocol join, sync and send heartbeats as in a classic group, but get each answer
at once. A member waits only for partitions that another member still holds.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from rebal.groups.assignors import Assignment, Owned, SpecMember, TopicPartition
from rebal.groups.assignors.javatable import hash_order
from rebal.groups.model import GroupState
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance
from rebal.planner.rehearsal.engine.memory import (
    COMES_BACK,
    Assigned,
    Beat,
    BeatAnswer,
    Brokers,
    ClassicClient,
    Client,
    Error,
    JoinAnswer,
    JoinRequest,
    MemberState,
    MemberTable,
    MovingCoordinator,
    ReconcilingMember,
    SyncAnswer,
    Watcher,
)


class Server(Protocol):
    """Interface of the brokers' assignors, which compute target assignments.

    `with_user_data` names the assignors whose assignments carry user data.
    """

    with_user_data: Collection[str]

    def targets(self, assignor: str, members: Sequence[SpecMember]) -> Assignment:
        """Return the new targets by member id; a member's `owned` is its current target."""


class Seat(NamedTuple):
    """A member that a group begins with: its join or heartbeat, its process and its partitions."""

    request: JoinRequest | Beat
    client: Client
    partitions: Owned


class Handover:
    """Holders of a KIP-848 group's partitions, and the members that are to get the partitions.

    `holders` has, for each partition, the member that has not released it. `takers` has the id of
    the member whose target contains it.
    """

    def __init__(self, members: Mapping[str, ReconcilingMember]) -> None:
        self._members = members
        self.holders: dict[TopicPartition, ReconcilingMember] = {}
        self.takers: dict[TopicPartition, str] = {}

    def aim(self, member: ReconcilingMember, target: Owned) -> None:
        """Set the target assignment of `member`."""
        if target != member.target:
            member.target, member.wanted = target, frozenset(target)
        self.takers.update(dict.fromkeys(target, member.member_id))

    def hold(self, member: ReconcilingMember) -> None:
        """Record `member` as holder of the partitions that it has not released."""
        self.holders.update(dict.fromkeys(member.held, member))

    def release(self, pairs: Iterable[TopicPartition]) -> None:
        """Free the partitions `pairs` for other members, and wake the members waiting for them."""
        waiting = set()
        for pair in pairs:
            self.holders.pop(pair, None)
            waiting.add(self.takers.get(pair, ""))
        for id_ in sorted(waiting & self._members.keys()):
            member = self._members[id_]
            if member.state is MemberState.UNRELEASED and not member.silent:
                member.client.wake()


class ConsumerGroup(MovingCoordinator[ReconcilingMember]):
    """A KIP-848 group at its coordinator.

    `left` is called with the id of a member with group.protocol=consumer that has gone; it returns
    True if the coordinator has converted the group to a classic one. `first` is the delay of the
    first target in seconds (KIP-1071).
    """

    leader: str | None = None
    """Always None: no member leads, because the coordinator assigns."""

    def __init__(
        self,
        agenda: Agenda,
        brokers: Brokers,
        watcher: Watcher,
        chance: Chance,
        *,
        server: Server,
        left: Callable[[str], bool],
        epoch: int = 0,
        first: float = 0.0,
    ) -> None:
        super().__init__(agenda, brokers, watcher, chance, members=MemberTable(), number=epoch)
        self._made_for = epoch
        # When the next target may be computed: at most one an interval (KIP-1263).
        self._due = agenda.now + first
        self._server, self._left = server, left
        self._handover = Handover(self._members)
        self._behind: set[str] = set()
        self._unsettled = self._refresh = False

    # What the group is

    @property
    def phase(self) -> GroupState:
        """State of the group: Empty, Assigning, Reconciling or Stable."""
        if not self._members:
            return GroupState.EMPTY
        if self.number > self._made_for:
            return GroupState.ASSIGNING
        return GroupState.RECONCILING if self._behind else GroupState.STABLE

    @property
    def assignor(self) -> str | None:
        """The server-side assignor that most members ask for, or the brokers' default."""
        asked = Counter(one.assignor for one in self._members.values() if one.assignor)
        usual = self._brokers.consumer_assignor
        return max(hash_order(asked), key=asked.__getitem__, default=usual)

    @property
    def members(self) -> Iterable[ReconcilingMember]:
        """The members, in the order in which they joined."""
        return self._members.values()

    def in_table_order(self, members: Iterable[ReconcilingMember]) -> list[ReconcilingMember]:
        """Return these members in the order of the coordinator's table."""
        return self._members.ordered(member.member_id for member in members)

    def partitions(self) -> dict[str, Owned]:
        """Return each member's partitions by its current assignment."""
        return {id_: tuple(sorted(member.assigned)) for id_, member in self._members.items()}

    def seat(self, seats: Iterable[Seat]) -> None:
        """Begin with the members `seats`; each has reached its target of the group's epoch."""
        for request, client, partitions in seats:
            member = self._add(request.member_id, request.instance_id, client)
            self._update(member, request)
            member.epoch = self.number
            self._handover.aim(member, sorted(partitions))
            member.assigned = member.wanted
            self._handover.hold(member)
            self._behind.discard(member.member_id)

    def dissolve(self) -> list[ReconcilingMember]:
        """Remove and return all members, because the group becomes a classic group."""
        members = list(self._members.values())
        self._members = MemberTable()
        return members

    # ConsumerGroupHeartbeat

    def beat(self, request: Beat, client: Client) -> BeatAnswer:
        """Handle a ConsumerGroupHeartbeat, with the checks in the order of Kafka's source."""
        if self.away:
            return BeatAnswer(Error.NOT_COORDINATOR)
        if request.epoch < 0:
            return self._beat_goodbye(request)
        if self._has_no_place(request):
            return BeatAnswer(Error.GROUP_MAX_SIZE_REACHED)
        error = self._refuses(request)
        if error:
            return BeatAnswer(error)
        member = self._enter(request.member_id, request.instance_id, client)
        before = member.assigned
        self._take(member, request, request.owned)
        moved = request.epoch == 0 or member.assigned != before
        return BeatAnswer(Error.NONE, member.epoch, member.assigned if moved else None)

    def _has_no_place(self, request: Beat | JoinRequest) -> bool:
        returns = (
            self._brokers.static_restarts_when_full and request.instance_id in self._members.static
        )
        full = len(self._members) >= self._brokers.consumer_max_size
        return full and not returns and request.member_id not in self._members

    def _refuses(self, request: Beat) -> Error:
        place = self._members.static.get(request.instance_id)
        if request.epoch == 0:
            old = self._members.get(place or "")
            held = old is not None and old.request is None and old.epoch != COMES_BACK
            return Error.UNRELEASED_INSTANCE_ID if held else Error.NONE
        if place not in (None, request.member_id):
            return Error.FENCED_INSTANCE_ID
        known = self._members.get(request.member_id)
        if known is None:
            return Error.UNKNOWN_MEMBER_ID
        return Error.NONE if request.epoch == known.epoch else Error.FENCED_MEMBER_EPOCH

    def _beat_goodbye(self, request: Beat) -> BeatAnswer:
        member = self._members.get(request.member_id)
        if member is None:
            return BeatAnswer(Error.UNKNOWN_MEMBER_ID)
        if request.epoch == COMES_BACK:
            member.epoch = COMES_BACK
            self._behind.add(member.member_id)
            revoked, member.revoking = member.revoking, frozenset()
            self._handover.release(revoked)
        else:
            self._fence(member, "a member left")
        return BeatAnswer(Error.NONE, request.epoch)

    # The classic protocol

    def join(self, request: JoinRequest, client: ClassicClient) -> None:
        """Handle a JoinGroup of a member with the classic protocol, and answer it at once."""
        error = self._refuses_classic(request)
        if error:
            client.joined(JoinAnswer(error))
            return
        member_id = request.member_id
        if not member_id:
            member_id = self._chance.kip848_member_id(request.client_id, self._agenda.now)
            if request.instance_id is None:
                client.joined(JoinAnswer(Error.MEMBER_ID_REQUIRED, member_id))
                return
        request = request._replace(member_id=member_id)
        member = self._enter(member_id, request.instance_id, client)
        member.late.cancel()
        owned = () if request.eager else request.subscription.owned
        self._take(member, request, frozenset(owned))
        if request.instance_id is not None:
            # It may have replaced the last member with group.protocol=consumer.
            self._left("")
        client.joined(JoinAnswer(Error.NONE, member_id, member.epoch, request.assignors[0]))

    def _refuses_classic(self, request: JoinRequest) -> Error:
        if self.away:
            return Error.NOT_COORDINATOR
        if not self._brokers.min_session <= request.session <= self._brokers.max_session:
            return Error.INVALID_SESSION_TIMEOUT
        if not self._brokers.classic_joins:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if self._has_no_place(request):
            return Error.GROUP_MAX_SIZE_REACHED
        lists = set(self.lists().values())
        if not any(all(name in each for each in lists) for name in request.assignors):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        place = self._members.static.get(request.instance_id)
        if request.instance_id is not None and request.member_id not in ("", place):
            return Error.UNKNOWN_MEMBER_ID if place is None else Error.FENCED_INSTANCE_ID
        return Error.NONE

    def sync(
        self,
        member_id: str,
        generation: int,
        client: ClassicClient,
        assigned: Assigned | None = None,  # noqa: ARG002 - the coordinator assigns
    ) -> None:
        """Answer a SyncGroup with the member's current assignment, or with an error code."""
        member = self._in_step(member_id, generation, client)
        if isinstance(member, Error):
            client.synced(SyncAnswer(member))
        elif self.number > member.epoch and member.state is not MemberState.UNREVOKED:
            self._expect(member, "join")
            client.synced(SyncAnswer(Error.REBALANCE_IN_PROGRESS))
        else:
            member.heard = self._agenda.now
            client.synced(SyncAnswer(Error.NONE, tuple(sorted(member.assigned))))

    def heartbeat(self, member_id: str, generation: int, client: Client) -> Error:
        """Handle a Heartbeat of a classic member, and return the error code.

        REBALANCE_IN_PROGRESS makes the member join again: for a new epoch, to revoke partitions, or
        to get partitions that other members have released.
        """
        member = self._in_step(member_id, generation, client)
        if isinstance(member, Error):
            return member
        member.heard, holders = self._agenda.now, self._handover.holders
        held = (pair in holders for pair in member.wanted - member.assigned)
        if (
            member.epoch < self.number
            or member.state is MemberState.UNREVOKED
            or (member.state is MemberState.UNRELEASED and not any(held))
        ):
            self._expect(member, "join")
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def _in_step(
        self, member_id: str, generation: int, client: Client
    ) -> ReconcilingMember | Error:
        member = self._found(member_id, client)
        if isinstance(member, Error) or generation == member.epoch:
            return member
        return Error.ILLEGAL_GENERATION

    def commit(self, member_id: str, generation: int, client: Client) -> Error:
        """Return the error code of an OffsetCommit: `generation` must be the member's own epoch."""
        member = self._found(member_id, client)
        if isinstance(member, Error):
            return member
        stale = Error.STALE_MEMBER_EPOCH if member.request is None else Error.ILLEGAL_GENERATION
        return Error.NONE if generation == member.epoch else stale

    def leave(self, member_id: str, client: Client, why: str = "a member left") -> None:
        """Handle a LeaveGroup; nothing happens if the member is unknown.

        While another broker loads the group, the request is lost: the member counts until its
        session ends.
        """
        member = self._members.get(member_id)
        if self.away:
            self.heartbeats_stopped(member_id, self._agenda.now, client)
        elif member is not None:
            self._fence(member, why)

    # Members that fall silent, and the coordinator

    def refresh(self) -> None:
        """Note that topics have changed: the next join or heartbeat gives the group a new epoch."""
        self._refresh = True
        self._wake_all()

    def _load(self) -> None:
        # The records hold the group's whole state.
        self.away = 0.0
        for member in self._members.values():
            member.heard = self._agenda.now
            member.session = self._brokers.consumer_session
            if member.silent:
                self._watch(member)
            if member.state is MemberState.UNREVOKED:
                self._expect(member, "revoke")
        self._wake_all()

    # Inside

    def _enter(self, member_id: str, instance_id: str | None, client: Client) -> ReconcilingMember:
        """Return the member that sent a request; add it if it is new.

        A static member with a new member id replaces its old self.
        """
        place = self._members.static.get(instance_id)
        if place is not None and (place != member_id or self._members[place].epoch == COMES_BACK):
            return self._replace(self._members[place], member_id, client)
        member = self._members.get(member_id) or self._add(member_id, instance_id, client)
        member.client, member.heard, member.silent = client, self._agenda.now, False
        return member

    def _add(self, member_id: str, instance_id: str | None, client: Client) -> ReconcilingMember:
        member = ReconcilingMember(member_id, instance_id, client, self._agenda)
        self._members.add(member)
        self._behind.add(member_id)
        return member

    def _replace(self, old: ReconcilingMember, member_id: str, client: Client) -> ReconcilingMember:
        # KIP-848, "Static Membership": the restarted member gets its old target.
        del self._members[old.member_id]
        self._behind.discard(old.member_id)
        if old.client is not client and not old.silent:
            old.client.wake()
        member = self._add(member_id, old.instance_id, client)
        member.state, member.topics, member.rack = old.state, old.topics, old.rack
        member.assigned, member.revoking = old.assigned, old.revoking
        member.target, member.wanted, member.assignor = old.target, old.wanted, old.assignor
        self._handover.hold(member)
        self._handover.aim(member, old.target)
        return member

    def _update(self, member: ReconcilingMember, request: JoinRequest | Beat) -> str:
        """Store a request's data in the member; return the reason for a new epoch (empty: none)."""
        before = member.topics
        if isinstance(request, Beat):
            member.request, member.session = None, self._brokers.consumer_session
            if request.topics is not None:
                member.topics = request.topics
            member.rack, member.assignor = request.rack or member.rack, request.assignor
        else:
            member.request, member.session = request, request.session
            member.topics, member.rack = request.subscription.topics, request.subscription.rack
            member.assignor = ""
        member.rebalance = request.rebalance
        if set(member.topics) == set(before):
            return ""
        return "a subscription changed" if before else "a member joined"

    def _take(
        self,
        member: ReconcilingMember,
        request: JoinRequest | Beat,
        owned: frozenset[TopicPartition] | None,
    ) -> None:
        changed = self._update(member, request)
        if changed or self._refresh:
            self._bump(changed or "topics changed", but=member)
        self._reconcile(member, owned)

    def _bump(self, why: str, but: ReconcilingMember | None = None) -> None:
        """Give the group a new epoch; new targets are computed at the next join or heartbeat.

        `why` is the reason. All members but `but`, which sent the current request, are woken.
        """
        self.number += 1
        self._unsettled, self._refresh = True, False
        self._watcher.preparing(why)
        self._watcher.generation(self.number, self.assignor, len(self._members))
        self._wake_all(but)
        if self._due > self._agenda.now:
            self._agenda.at(self._due, self._wake_all)

    def _wake_all(self, but: ReconcilingMember | None = None) -> None:
        for member in self._members.values():
            if member is not but and not member.silent:
                member.client.wake()

    def _make_targets(self, caller: ReconcilingMember) -> None:
        # The targets are for the table's members, then for who has just joined.
        new = [caller] if caller.epoch == 0 else []
        known = self.in_table_order(one for one in self._members.values() if one not in new)
        members = [
            SpecMember(
                member_id=member.member_id,
                topics=member.topics,
                instance_id=member.instance_id,
                rack=member.rack,
                owned=member.target,
            )
            for member in (*known, *new)
        ]
        made = self._server.targets(self.assignor or "", members)
        self._handover.takers.clear()
        for id_, member in self._members.items():
            self._handover.aim(member, made.get(id_, ()))
        self._made_for = self.number
        self._due = self._agenda.now + self._brokers.assignment_interval
        self._behind.update(self._members)

    def _reconcile(
        self, member: ReconcilingMember, owned: frozenset[TopicPartition] | None
    ) -> None:
        if self.number > self._made_for and self._due <= self._agenda.now:
            self._make_targets(member)
        before = member.held
        if member.advance(self._made_for, owned, self._handover.holders):
            self._handover.hold(member)
            self._handover.release(before - member.held)
            if member.request is None:
                member.late.cancel()
                if member.state is MemberState.UNREVOKED:
                    self._expect(member, "revoke")
        if member.reconciled(self._made_for):
            self._behind.discard(member.member_id)
            if self._unsettled and not self._behind and self.number == self._made_for:
                self._unsettled = False
                self._watcher.stable(self.number)

    def _fence(self, member: ReconcilingMember, why: str) -> None:
        """Remove a member; the group gets a new epoch, or is converted to a classic group."""
        if member.request is not None or not self._left(member.member_id):
            self._members.remove(member)
            self._behind.discard(member.member_id)
            self._handover.release(member.held)
            self._bump(why)

    # Time

    def _session(self, member: ReconcilingMember) -> float:
        return member.session

    def _expire(self, member: ReconcilingMember, why: str = "its session timed out") -> None:
        self._watcher.removed(member.member_id, why)
        if not member.silent:
            member.client.wake()
        self._fence(member, f"a member was removed: {why}")

    def _expect(self, member: ReconcilingMember, to: str) -> None:
        """Start the member's rebalance timeout, at whose end the member is removed.

        `to` is what it has to do before that: `revoke` (release partitions) or `join` (send a
        JoinGroup).
        """
        member.late.after(member.rebalance, self._too_late, member, f"it did not {to} in time")

    def _too_late(self, member: ReconcilingMember, why: str) -> None:
        if self._members.get(member.member_id) is member and not self.away:
            self._expire(member, why)
