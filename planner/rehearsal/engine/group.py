"""A consumer group at its coordinator, classic or KIP-848, with the online conversion between both.

Source: GroupMetadataManager of Kafka's group coordinator (4.1), `convertToConsumerGroup` and
`convertToClassicGroup` (KIP-848 "Upgrade/Downgrade", group.consumer.migration.policy).
"""

from collections.abc import Sequence
from typing import Final, cast

from rebal.groups.coordinator import elect
from rebal.groups.model import CoordinatorKind, GroupState, GroupType
from rebal.planner.rehearsal.engine.agenda import Agenda, Chance
from rebal.planner.rehearsal.engine.consumer_group import ConsumerGroup, Seat, Server
from rebal.planner.rehearsal.engine.coordinator import ClassicGroup
from rebal.planner.rehearsal.engine.memory import (
    Assigned,
    Beat,
    BeatAnswer,
    Brokers,
    ClassicClient,
    ClassicSeat,
    Client,
    Error,
    JoinRequest,
    Watcher,
)

_EMPTY: Final = (GroupState.EMPTY, GroupState.DEAD)


class SimulatedGroup:
    """The group to which members send requests; `now` is its current classic or KIP-848 form."""

    def __init__(
        self,
        agenda: Agenda,
        brokers: Brokers,
        watcher: Watcher,
        chance: Chance,
        *,
        server: Server,
        generation: int = 0,
    ) -> None:
        self._agenda, self._brokers, self._watcher = agenda, brokers, watcher
        self._chance, self._server = chance, server
        self.now: ClassicGroup | ConsumerGroup = self._classic(generation)

    # What the group is

    @property
    def kip848(self) -> bool:
        """True while it is a KIP-848 group."""
        return isinstance(self.now, ConsumerGroup)

    def seat(self, seats: Sequence[Seat], assignor: str, leader: str | None) -> None:
        """Make `seats` the members of a Stable group that elected `assignor`.

        It is a KIP-848 group if one of them comes with a ConsumerGroupHeartbeat. Otherwise `leader`
        is the leader's member id (None: the first member leads).
        """
        if any(isinstance(seat.request, Beat) for seat in seats):
            self.now = group = self._consumer(self.now.number)
            group.seat(seats)
        elif isinstance(self.now, ClassicGroup):
            joined = [
                ClassicSeat(request, cast(ClassicClient, client), partitions)
                for request, client, partitions in seats
                if isinstance(request, JoinRequest)
            ]
            self.now.seat(joined, assignor, leader)

    # Requests

    def beat(self, request: Beat, client: Client) -> BeatAnswer:
        """Handle a ConsumerGroupHeartbeat; the first that a classic group accepts converts it."""
        if isinstance(self.now, ClassicGroup):
            error = self._refuses(self.now, request)
            if error:
                return BeatAnswer(error)
            self._convert_up(self.now, streams=request.streams)
        assert isinstance(self.now, ConsumerGroup)
        return self.now.beat(request, client)

    def join(self, request: JoinRequest, client: ClassicClient) -> None:
        """Handle a JoinGroup; it replaces an Empty KIP-848 group by a classic group."""
        if self.kip848 and self.now.phase is GroupState.EMPTY and not self.now.away:
            self.now = self._classic(0)
        self.now.join(request, client)

    def sync(
        self,
        member_id: str,
        generation: int,
        client: ClassicClient,
        assigned: Assigned | None = None,
    ) -> None:
        """Handle a SyncGroup; `assigned` is the assignment that a classic group's leader sends."""
        self.now.sync(member_id, generation, client, assigned)

    def heartbeat(self, member_id: str, generation: int, client: Client) -> Error:
        """Handle a Heartbeat of the classic protocol, and return the error code."""
        return self.now.heartbeat(member_id, generation, client)

    def leave(self, member_id: str, client: Client, why: str = "a member left") -> None:
        """Handle a LeaveGroup of the classic protocol."""
        self.now.leave(member_id, client, why)

    def heartbeats_stopped(self, member_id: str, last: float, client: Client) -> str:
        """Record that a member has stopped its heartbeats; the last one was at the time `last`.

        Returns its member id; empty if the coordinator does not count it as a member.
        """
        return self.now.heartbeats_stopped(member_id, last, client)

    def delete(self) -> Error:
        """Handle a DeleteGroups, and return the error code; the group must have no members."""
        if isinstance(self.now, ClassicGroup):
            return self.now.delete()
        if self.now.away or self.now.phase is not GroupState.EMPTY:
            return Error.NOT_COORDINATOR if self.now.away else Error.NON_EMPTY_GROUP
        self.now = made = self._classic(0)
        return made.delete()

    def subscribes(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic.

        In a classic group the subscriptions are those of the last stored generation.
        """
        if isinstance(self.now, ConsumerGroup):
            return any(topic in member.topics for member in self.now.members)
        return any(topic in seat.request.subscription.topics for seat in self.now.stored.members)

    def refresh(self, topic: str) -> bool:
        """Handle a change of a topic, and return whether the group is a KIP-848 group.

        A KIP-848 group that subscribes to the topic gets a new epoch
        (GroupMetadataManager.onNewMetadataImage). In a classic group the leader's client has to
        notice the change.
        """
        if isinstance(self.now, ConsumerGroup) and self.subscribes(topic):
            self.now.refresh()
        return self.kip848

    # Conversion

    def _classic(self, generation: int) -> ClassicGroup:
        return ClassicGroup(self._agenda, self._brokers, self._watcher, self._chance, generation)

    def _consumer(self, epoch: int, first: float = 0.0) -> ConsumerGroup:
        return ConsumerGroup(
            self._agenda,
            self._brokers,
            self._watcher,
            self._chance,
            server=self._server,
            left=self._convert_down,
            epoch=epoch,
            first=first,
        )

    def _refuses(self, group: ClassicGroup, request: Beat) -> Error:
        if group.away:
            return Error.NOT_COORDINATOR
        wanted = GroupType.STREAMS if request.streams else GroupType.CONSUMER
        if self._brokers.kind is CoordinatorKind.SCALA or wanted in self._brokers.lacking:
            return Error.UNSUPPORTED_VERSION
        if request.epoch != 0:
            return Error.UNKNOWN_MEMBER_ID
        if group.phase in _EMPTY:
            return Error.NONE
        converts = self._brokers.migration in ("upgrade", "bidirectional") and not request.streams
        fits = group.size <= self._brokers.consumer_max_size
        # KAFKA-18134: a KIP-848 member could not be sent its user data.
        user_data = group.stored.assignor in self._server.with_user_data
        loses = user_data and any(group.partitions().values())
        return Error.NONE if converts and fits and not loses else Error.GROUP_ID_NOT_FOUND

    def _convert_up(self, group: ClassicGroup, *, streams: bool) -> None:
        """Convert the classic group to KIP-848 or Streams; its members keep their assignment."""
        resting = group.phase is GroupState.STABLE
        epoch = self._brokers.first_epoch if group.phase in _EMPTY else group.number
        self.now = made = self._consumer(epoch, self._brokers.streams_delay if streams else 0.0)
        members = group.dissolve()
        made.seat([Seat(m.request, m.client, m.partitions) for m in members])
        for member in members:
            if member.silent:
                made.heartbeats_stopped(member.request.member_id, member.heard, member.client)
        if members and not resting:
            self._watcher.stable(group.number)

    def _convert_down(self, leaving: str) -> bool:
        """Convert the KIP-848 group to a classic one if only classic members are left.

        Returns whether it is converted. `leaving` is the id of the last member with
        group.protocol=consumer. If it is empty, a static member with the classic protocol has just
        replaced that member, and no rebalance follows.
        """
        group = self.now
        assert isinstance(group, ConsumerGroup)
        stay = [member for member in group.members if member.member_id != leaving]
        classic = [member for member in stay if member.request is not None]
        refused = self._brokers.migration not in ("downgrade", "bidirectional")
        if refused or not 0 < len(classic) == len(stay) <= self._brokers.max_size:
            return False
        resting = group.phase is GroupState.STABLE
        # ClassicGroup.fromConsumerGroup: the first one leads; who has just joined is added last.
        ahead = classic if leaving else classic[:-1]
        ordered = [*group.in_table_order(ahead), *classic[len(ahead) :]]
        group.dissolve()
        self.now = made = self._classic(group.number)
        seats = [
            ClassicSeat(m.request, cast(ClassicClient, m.client), m.target)
            for m in ordered
            if m.request is not None
        ]
        vote = elect([seat.request.assignors for seat in seats], self._brokers.kind)
        made.seat(seats, vote.assignor or "", None)
        for member in classic:
            if member.silent:
                made.heartbeats_stopped(member.member_id, member.heard, member.client)
        if leaving:
            made.prepare("the last member with group.protocol=consumer left")
        elif not resting:
            self._watcher.stable(group.number)
        return True
