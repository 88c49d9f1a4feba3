"""A KIP-848 group, built up from its records (kinds 3 to 8): one generation for each group epoch.

The group epoch (kind 3) is the generation. The coordinator writes a member's record (kind 5), or
the tombstones of a member that leaves, before the epoch that they lead to, in one write. So these
records wait for the epoch. If an assignment (kind 8) follows instead, a static member restarted: it
has another member id and all that the old one had. A rebalance is complete when every member has
reached the epoch and owns exactly its target assignment (kinds 7 and 8).
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rebal.groups.model import GroupType
from rebal.groups.wire import offsets_topic as kinds
from rebal.groups.wire.offsets_topic import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    PartitionMetadata,
    TargetAssignment,
    TargetEpoch,
    TopicIdPartitions,
)
from rebal.inspectors.fleet.schemas import Rows
from rebal.inspectors.fleet.timeline.facts import TOPIC
from rebal.inspectors.fleet.timeline.rebalances import Generation
from rebal.inspectors.fleet.timeline.values import (
    Assignment,
    GenerationMember,
    MemberSubscription,
    Named,
    PartitionList,
    partition_list,
    read_subscription,
)

_STABLE: Final = 0
Epoch = tuple[Generation, Named]
"""A group epoch as a generation, and its members."""


class MemberRecords(Struct, array_like=True):
    """The newest records of one member, or a single record of it (the others are None)."""

    metadata: ConsumerGroupMember | None = None
    target: TargetAssignment | None = None
    current: CurrentAssignment | None = None


Waiting = tuple[str, MemberRecords | None]
"""A member id, and the member's record that waits for the other records of the same write (None:
the member left)."""


class ConsumerGroupRecords(Struct, array_like=True):
    """The state of one KIP-848 group, from its records so far.

    `timed` is whether the times of this epoch can be trusted for durations. `learned` maps topic
    ids to names. `started` and `done` are when the epoch began and was reached by all members
    (None: not yet). `waiting` are member records that wait for the rest of their write.
    """

    learned: dict[str, str] = {}
    epoch: int | None = None
    target_epoch: int | None = None
    started: int | None = None
    done: int | None = None
    timed: bool = True
    members: dict[str, MemberRecords] = {}
    waiting: list[Waiting] = []
    waiting_at: int = 0

    def put(
        self, key: kinds.Key, value: kinds.Value | None, at: int, timed: bool, rows: Rows
    ) -> list[Epoch]:
        """Apply one record; return the epochs that it ends, each with its members at that time.

        `at` is in microseconds since 1970; `timed` is whether it can be trusted for durations.
        """
        self.timed &= timed
        over = self._replaced(rows) if self._is_replaced(key, value) else []
        if isinstance(key, kinds.MemberKey):
            if value is not None or key.version == kinds.CONSUMER_GROUP_MEMBER_METADATA:
                self._member(key.member_id, value, at, rows)
        elif isinstance(value, GroupEpoch):
            if self.epoch not in (None, value.epoch):
                over += self.generation(at, rows)
            if self.epoch != value.epoch:
                self.started, self.done = at, None
                self.timed = timed
            self.epoch = value.epoch
            self._take_waiting(rows)
        elif isinstance(value, TargetEpoch):
            self.target_epoch = value.assignment_epoch
            self._look(at)
        elif isinstance(value, PartitionMetadata):
            self.learned.update({topic.topic_id: topic.name for topic in value.topics})
        return over

    def _member(self, member_id: str, value: kinds.Value | None, at: int, rows: Rows) -> None:
        record = (
            None
            if value is None
            else MemberRecords(
                value if isinstance(value, ConsumerGroupMember) else None,
                value if isinstance(value, TargetAssignment) else None,
                value if isinstance(value, CurrentAssignment) else None,
            )
        )
        known = self.members.get(member_id, MemberRecords()).metadata
        comes_or_goes = record is None or (record.metadata is not None and known is None)
        if comes_or_goes or self.waiting:
            self.waiting.append((member_id, record))
            self.waiting_at = at
        else:
            self._take(member_id, record, at, rows)

    def generation(self, at: int, rows: Rows) -> list[Epoch]:
        """Return a list of the present epoch with its members; empty if there is no epoch yet.

        `at` is the end of the epoch if not all members have reached it yet.
        """
        if self.epoch is None:
            return []
        members = dict(
            self._seen(member_id, one.metadata, one, rows)
            for member_id, one in self.members.items()
            if one.metadata is not None
        )
        new = Generation(
            number=self.epoch,
            ended=at if self.done is None else self.done,
            source=TOPIC,
            size=len(members),
            assignor=self._assignor(),
            protocol_type="consumer",
            type=GroupType.CONSUMER,
            started=self.started,
            timed=self.timed,
        )
        return [(new, members)]

    def finish(self, at: int, rows: Rows, ended: int | None = None) -> list[Epoch]:
        """End the group's records; return the epochs that were not returned yet.

        The last epoch ends at `at`, unless all members reached it before. `ended` is when the group
        was deleted or converted (None: it was not); waiting tombstones of members then belong to
        that write and remove no member.
        """
        if ended is not None and all(record is None for _, record in self.waiting):
            self.waiting = []
        return (self._replaced(rows) if self.waiting else []) + self.generation(at, rows)

    @property
    def state(self) -> str:
        """The group's state by KIP-848: Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.epoch is not None and self.target_epoch is not None:
            if self.target_epoch < self.epoch:
                return "Assigning"
            if self.done is None:
                return "Reconciling"
        return "Stable"

    def _is_replaced(self, key: kinds.Key, value: kinds.Value | None) -> bool:
        """Return whether this record shows that the waiting records are a static member's restart.

        Only in a restart is a new member's assignment (kind 8) written before a group epoch (kind
        3). A tombstone, or a record that is neither an epoch nor of a waiting member, shows that
        the write of the restart is over.
        """
        if isinstance(value, GroupEpoch) or not any(
            record is not None and record.current for _, record in self.waiting
        ):
            return False
        return value is None or not (
            isinstance(key, kinds.MemberKey) and key.member_id in dict(self.waiting)
        )

    def _replaced(self, rows: Rows) -> list[Epoch]:
        """Apply the waiting records as a static member's restart.

        Returns the epoch as it was before, if all members had reached it, else an empty list.
        """
        before = self.generation(self.waiting_at, rows) if self.done is not None else []
        self._take_waiting(rows)
        if before:
            self.done = self.waiting_at
        return before

    def _take_waiting(self, rows: Rows) -> None:
        waiting, self.waiting = self.waiting, []
        for member_id, record in waiting:
            self._take(member_id, record, self.waiting_at, rows)

    def _take(self, member_id: str, record: MemberRecords | None, at: int, rows: Rows) -> None:
        if record is None:
            self.members.pop(member_id, None)
            self._look(at)
            return
        member = self.members.setdefault(member_id, MemberRecords())
        member.metadata = record.metadata or member.metadata
        member.target = record.target or member.target
        member.current = record.current or member.current
        if record.target is not None:
            self._learn(record.target, rows)
        if record.current is not None:
            self._look(at)

    def _look(self, at: int) -> None:
        """Set `done` to `at` if it is not set and every member has now reached the epoch."""
        if (
            self.done is None
            and self.epoch is not None
            and not self.waiting
            and (self.target_epoch is None or self.target_epoch >= self.epoch)
            and all(map(self._has_reached, self.members.values()))
        ):
            self.done = at

    def _has_reached(self, one: MemberRecords) -> bool:
        now = one.current
        return (
            now is not None
            and now.member_epoch == self.epoch
            and now.state == _STABLE
            and (one.target is None or not _unlike(one.target.partitions, now.assigned))
        )

    def _learn(self, target: TargetAssignment, rows: Rows) -> None:
        """Note the name of the unnamed topic ids in `target`.

        It is known only if all members together subscribe to exactly one topic, by its name.
        """
        unknown = [i for i, _ in target.partitions if rows.topic(i, self.learned) == i]
        if not unknown:
            return
        topics: set[str] = set()
        for one in self.members.values():
            if one.metadata is None or one.metadata.topic_regex:
                return
            topics |= set(one.metadata.topics)
        if len(topics) == 1:
            self.learned.update(dict.fromkeys(unknown, topics.pop()))

    def _seen(
        self, member_id: str, known: ConsumerGroupMember, member: MemberRecords, rows: Rows
    ) -> tuple[GenerationMember, int | None]:
        subscription, generation = MemberSubscription(topics=known.topics), None
        if known.supported_protocols:
            subscription, generation = read_subscription(known.supported_protocols[0].metadata)
        if known.rack_id not in (None, subscription.rack):
            subscription = replace(subscription, rack=known.rack_id)
        now, target = member.current, member.target
        seen = GenerationMember(
            member_id,
            known.instance_id,
            known.client_id,
            known.client_host,
            known.rebalance_timeout_ms,
            known.session_timeout_ms,
            "consumer" if known.supported_protocols is None else "classic",
            subscription,
            Assignment(() if now is None else self._list(now.assigned, rows)),
            None if target is None else self._list(target.partitions, rows),
            known.topic_regex,
        )
        return seen, generation

    def _assignor(self) -> str | None:
        """Return the server-side assignor that all members ask for.

        None: they ask for different ones, or for none.
        """
        asked = {one.metadata.server_assignor for one in self.members.values() if one.metadata}
        return asked.pop() if len(asked) == 1 else None

    def _list(self, partitions: TopicIdPartitions, rows: Rows) -> PartitionList | None:
        named: dict[str, list[int]] = {}
        for topic_id, numbers in partitions:
            named.setdefault(rows.topic(topic_id, self.learned), []).extend(sorted(numbers))
        return partition_list(named)


def _unlike(some: TopicIdPartitions, others: TopicIdPartitions) -> bool:
    """Return whether two partition lists differ, in whatever order they are written."""
    return {(i, frozenset(of)) for i, of in some} != {(i, frozenset(of)) for i, of in others}
