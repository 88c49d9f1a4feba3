"""A KIP-848 group as its records build it up (kinds 3 to 8): generation by generation.

The group epoch (3) is the generation. A member's record (5) and the tombstones of one that goes
stand before the epoch they lead to, in one write of the coordinator: they wait for it. Where an
assignment (8) follows instead, a static member was replaced by its next start, with another member
id and all that it had. A rebalance is done when every member has reached the epoch and owes nothing
(8).
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
"""An epoch as a generation, and its members."""


class MemberRecords(Struct, array_like=True):
    """One member's newest records, or one of them."""

    metadata: ConsumerGroupMember | None = None
    target: TargetAssignment | None = None
    current: CurrentAssignment | None = None


Waiting = tuple[str, MemberRecords | None]
"""A member, by its id, and its record that waits for what is written with it; None: it went."""


class ConsumerGroupRecords(Struct, array_like=True):
    """One group's KIP-848 records, as they are now; `timed` is whether the times of this epoch are
    evidence of when."""

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
        """Take in one record; the epochs that are over by it, as their members were then.

        `timed` is whether `at` is evidence of when.
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
        """Return the members as they are in this epoch; none without an epoch."""
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
        """No record comes any more; what was written at `ended` took the group apart.

        Gives the epochs that were not told yet, the last one as it is at `at`.
        """
        if ended is not None and all(record is None for _, record in self.waiting):
            self.waiting = []
        return (self._replaced(rows) if self.waiting else []) + self.generation(at, rows)

    @property
    def state(self) -> str:
        """The group's state, as KIP-848 names it."""
        if not self.members:
            return "Empty"
        if self.epoch is not None and self.target_epoch is not None:
            if self.target_epoch < self.epoch:
                return "Assigning"
            if self.done is None:
                return "Reconciling"
        return "Stable"

    def _is_replaced(self, key: kinds.Key, value: kinds.Value | None) -> bool:
        """Return whether this record shows that what waits replaced a static member.

        A new member's assignment (8) is written before a group epoch (3) only then; what follows,
        and is not the rest of that write (its own record again, or an epoch), is another write.
        """
        if isinstance(value, GroupEpoch) or not any(
            record is not None and record.current for _, record in self.waiting
        ):
            return False
        return value is None or not (
            isinstance(key, kinds.MemberKey) and key.member_id in dict(self.waiting)
        )

    def _replaced(self, rows: Rows) -> list[Epoch]:
        """Take in what waits, as no epoch followed; the members of before, if they were settled."""
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
        """Note when every member has reached the epoch."""
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
        """Learn a topic's name: where the group subscribes one topic, each assigned id is its."""
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
        said, generation = MemberSubscription(topics=known.topics), None
        if known.supported_protocols:
            said, generation = read_subscription(known.supported_protocols[0].metadata)
        if known.rack_id not in (None, said.rack):
            said = replace(said, rack=known.rack_id)
        now, target = member.current, member.target
        seen = GenerationMember(
            member_id,
            known.instance_id,
            known.client_id,
            known.client_host,
            known.rebalance_timeout_ms,
            known.session_timeout_ms,
            "consumer" if known.supported_protocols is None else "classic",
            said,
            Assignment(() if now is None else self._list(now.assigned, rows)),
            None if target is None else self._list(target.partitions, rows),
            known.topic_regex,
        )
        return seen, generation

    def _assignor(self) -> str | None:
        """Return the server-side assignor that all members ask for; None: the broker decides."""
        asked = {one.metadata.server_assignor for one in self.members.values() if one.metadata}
        return asked.pop() if len(asked) == 1 else None

    def _list(self, partitions: TopicIdPartitions, rows: Rows) -> PartitionList | None:
        named: dict[str, list[int]] = {}
        for topic_id, numbers in partitions:
            named.setdefault(rows.topic(topic_id, self.learned), []).extend(sorted(numbers))
        return partition_list(named)


def _unlike(some: TopicIdPartitions, others: TopicIdPartitions) -> bool:
    """Return whether they are other partitions; coordinators write them in any order."""
    return {(i, frozenset(of)) for i, of in some} != {(i, frozenset(of)) for i, of in others}
