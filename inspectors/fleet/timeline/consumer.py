"""A KIP-848 group as its records build it up (kinds 3 to 8): generation by generation.

The group epoch (3) is the generation. A member's record (5) and the tombstones of one that goes
stand before the epoch they lead to, in one write of the coordinator: they wait for it. Where an
assignment (8) follows instead, a static member was replaced by its next start, with another member
id and all that it had. A rebalance is done when every member has reached the epoch and owes nothing
(8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rebal.groups.model import GroupType
from rebal.groups.wire import offsets_topic as kinds
from rebal.groups.wire import offsets_topic as records
from rebal.inspectors.fleet.timeline.rebalances import TOPIC, Generation
from rebal.inspectors.fleet.timeline.values import (
    NOTHING,
    Given,
    Head,
    PartitionList,
    Seen,
    Sent,
    Server,
    Values,
)

_STABLE: Final = 0
_CHANGES_MEMBERS: Final = frozenset(
    {kinds.CONSUMER_GROUP_MEMBER_METADATA, kinds.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
     kinds.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER}
)  # fmt: skip


class Topics:
    """Topics' names by their ids; `unnamed` are ids whose name was asked for in vain."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.unnamed: set[str] = set()

    def name(self, topic_id: str) -> str | None:
        """The name of the topic; None where no record told it."""
        return self._names.get(topic_id)


class _Member:
    """One member's newest records."""

    __slots__ = ("current", "metadata", "target")

    def __init__(self) -> None:
        self.metadata: records.ConsumerGroupMember | None = None
        self.target: records.TargetAssignment | None = None
        self.current: records.CurrentAssignment | None = None


class ConsumerGroup:
    """One group's KIP-848 records, as they are now."""

    def __init__(self, values: Values, topics: Topics) -> None:
        self.values = values
        self.topics = topics
        self.learned: dict[str, str] = {}
        self.epoch: int | None = None
        self.target_epoch: int | None = None
        self.started: int | None = None
        self.done: int | None = None
        self.replaced: int | None = None
        # are the times of this epoch evidence of when
        self.timed = True
        self.members: dict[str, _Member] = {}
        self._waiting: list[tuple[int, str, records.Value | None]] = []
        self._waiting_at = 0

    def put(
        self, key: kinds.Key, value: records.Value | None, at: int, timed: bool = True
    ) -> list[Generation]:
        """Take in one record; the generations that are over by it, as their members were then.

        `timed` is whether `at` is evidence of when.
        """
        self.timed &= timed
        over = self._replaced() if self._is_replaced(key, value) else []
        ended = self._put(key, value, at, timed)
        return over if ended is None else [*over, ended]

    def _put(
        self, key: kinds.Key, value: records.Value | None, at: int, timed: bool
    ) -> Generation | None:
        if isinstance(key, kinds.MemberKey) and key.version in _CHANGES_MEMBERS:
            comes_or_goes = value is None or (
                isinstance(value, records.ConsumerGroupMember) and not self._knows(key.member_id)
            )
            if comes_or_goes or self._waiting:
                self._waiting.append((key.version, key.member_id, value))
                self._waiting_at = at
            else:
                self._take(key.version, key.member_id, value, at)
            return None
        if isinstance(value, records.GroupEpoch):
            ended = self.generation(at) if self.epoch not in (None, value.epoch) else None
            if self.epoch != value.epoch:
                self.started, self.done, self.replaced = at, None, None
                self.timed = timed
            self.epoch = value.epoch
            self._take_waiting()
            return ended
        if isinstance(value, records.TargetEpoch):
            self.target_epoch = value.assignment_epoch
            self._look(at)
        elif isinstance(value, records.PartitionMetadata):
            self.learned.update({topic.topic_id: topic.name for topic in value.topics})
        return None

    def generation(self, at: int) -> Generation | None:
        """The members as they are in this epoch; None without an epoch."""
        if self.epoch is None:
            return None
        return Generation(
            self.epoch,
            self.replaced or (self.done if self.done is not None else at),
            [self._seen(key, one) for key, one in self.members.items() if one.metadata],
            TOPIC,
            assignor=self._assignor(),
            protocol_type="consumer",
            group_type=GroupType.CONSUMER,
            started=self.started,
            timed=self.timed,
        )

    def finish(self, at: int, ended: int | None = None) -> list[Generation]:
        """No record comes any more; what was written at `ended` took the group apart.

        Gives the generations that were not told yet, the last one as it is at `at`.
        """
        if ended is not None and all(value is None for _, _, value in self._waiting):
            self._waiting = []
        over = self._replaced() if self._waiting else []
        last = self.generation(at)
        return over if last is None else [*over, last]

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

    def _knows(self, member_id: str) -> bool:
        found = self.members.get(member_id)
        return found is not None and found.metadata is not None

    def waits_for(self, member_id: str) -> bool:
        """Return whether this member's records wait for what is written with them."""
        return any(one == member_id for _, one, _ in self._waiting)

    def _is_replaced(self, key: kinds.Key, value: records.Value | None) -> bool:
        """Return whether this record shows that what waits replaced a static member.

        A new member's assignment (8) is written before a group epoch (3) only then; what follows,
        and is not the rest of that write (its own record again, or an epoch), is another write.
        """
        if not self._waiting:
            return False
        if not any(isinstance(one, records.CurrentAssignment) for _, _, one in self._waiting):
            return False
        if isinstance(value, records.GroupEpoch):
            return False
        same = isinstance(key, kinds.MemberKey) and self.waits_for(key.member_id)
        return value is None or not same

    def _replaced(self) -> list[Generation]:
        """Take in what waits, as no epoch followed; the members of before, if they were settled."""
        before = self.generation(self._waiting_at) if self.done is not None else None
        self._take_waiting()
        if before is None:
            return []
        self.replaced = self._waiting_at
        return [before]

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for kind, member_id, value in waiting:
            self._take(kind, member_id, value, self._waiting_at)

    def _take(self, kind: int, member_id: str, value: records.Value | None, at: int) -> None:
        if value is None:
            if kind == kinds.CONSUMER_GROUP_MEMBER_METADATA:
                self.members.pop(member_id, None)
                self._look(at)
            return
        member = self.members.setdefault(member_id, _Member())
        if isinstance(value, records.ConsumerGroupMember):
            member.metadata = value
        elif isinstance(value, records.TargetAssignment):
            member.target = value
            self._learn(value)
        elif isinstance(value, records.CurrentAssignment):
            member.current = value
            self._look(at)

    def _look(self, at: int) -> None:
        """Has every member reached the epoch."""
        if self.done is not None or self.epoch is None or self._waiting:
            return
        if self.target_epoch is not None and self.target_epoch < self.epoch:
            return
        for one in self.members.values():
            now = one.current
            if now is None or now.member_epoch != self.epoch or now.state != _STABLE:
                return
            if one.target is not None and _unlike(one.target.partitions, now.assigned):
                return
        self.done = at

    def _learn(self, target: records.TargetAssignment) -> None:
        """With one subscribed topic in the whole group, an assigned topic id can only be its."""
        unknown = [i for i, _ in target.partitions if self._name(i) == i]
        if not unknown:
            return
        topics: set[str] = set()
        for one in self.members.values():
            if one.metadata is None or one.metadata.topic_regex:
                return
            topics |= set(one.metadata.topics)
        if len(topics) == 1:
            self.learned.update(dict.fromkeys(unknown, topics.pop()))

    def _name(self, topic_id: str) -> str:
        name = self.topics.name(topic_id) or self.learned.get(topic_id)
        if name is None:
            self.topics.unnamed.add(topic_id)
        return name or topic_id

    def _seen(self, member_id: str, member: _Member) -> Seen:
        known = member.metadata
        assert known is not None
        sent = Sent(None, known.topics, rack=known.rack_id)
        if known.supported_protocols:
            sent = self.values.sent(known.supported_protocols[0].metadata)
        now = member.current
        given = Given(self._list(now.assigned) if now is not None else NOTHING)
        head = Head(
            member_id,
            known.instance_id,
            known.client_id,
            known.client_host,
            known.rebalance_timeout_ms,
            known.session_timeout_ms,
            "consumer" if known.supported_protocols is None else "classic",
        )
        target = self._list(member.target.partitions) if member.target is not None else None
        return Seen(head, sent, given, Server(target, known.topic_regex, known.rack_id))

    def _assignor(self) -> str | None:
        """The server-side assignor, where all members ask for the same; else the broker decides."""
        asked = {one.metadata.server_assignor for one in self.members.values() if one.metadata}
        return asked.pop() if len(asked) == 1 else None

    def _list(self, partitions: records.TopicIdPartitions) -> PartitionList:
        named: dict[str, bytes] = {}
        for topic_id, numbers in partitions:
            name = self._name(topic_id)
            raw = b"".join(n.to_bytes(4, "big", signed=True) for n in sorted(numbers))
            named[name] = named.get(name, b"") + raw
        topics = tuple(sorted(named))
        return PartitionList(topics, tuple(named[topic] for topic in topics))


def _unlike(some: records.TopicIdPartitions, others: records.TopicIdPartitions) -> bool:
    """Are they other partitions; coordinators write them in any order."""
    if some == others:
        return False
    return {(i, frozenset(of)) for i, of in some} != {(i, frozenset(of)) for i, of in others}
