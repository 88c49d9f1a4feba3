"""A KIP-848 group in a capture: its records, folded up to one moment."""

from dataclasses import dataclass, field
from typing import Any

from rebal.groups.wire.offsets_topic import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    GroupKey,
    MemberKey,
    decode_consumer_group_record,
)

Owned = frozenset[tuple[str, int]]
EPOCH, MEMBER, CURRENT = 3, 5, 8


@dataclass(frozen=True)
class Fact:
    """One record about a KIP-848 group; `value` is None for a tombstone."""

    at: float
    kind: int
    member_id: str
    value: Any


@dataclass
class OnlineGroup:
    """What the records of a group say at one moment; its type is KIP-848's while it has an epoch.

    `current` holds each member's epoch, whether it is at rest, and its partitions by topic id.
    """

    epoch: int | None = None
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    current: dict[str, CurrentAssignment] = field(default_factory=dict)

    @property
    def at_rest(self) -> bool:
        """Whether every member has reached the group's epoch and has nothing to revoke."""
        return self.members.keys() == self.current.keys() and all(
            one.member_epoch == self.epoch and one.state == 0 for one in self.current.values()
        )

    @property
    def assignor(self) -> str:
        """The server-side assignor: a member's wish, or the brokers' default."""
        wishes = [one.server_assignor for one in self.members.values() if one.server_assignor]
        return wishes[0] if wishes else "uniform"

    def owned(self, topics: dict[str, str]) -> dict[str, Owned]:
        return {
            id_: frozenset(
                (topics.get(topic, topic), number)
                for topic, numbers in one.assigned
                for number in numbers
            )
            for id_, one in self.current.items()
        }


def fact(at: float, key: GroupKey, raw: bytes | None) -> Fact | None:
    """Read a record; None for one that says nothing about members and epochs."""
    if key.version not in (EPOCH, MEMBER, CURRENT):
        return None
    member_id = key.member_id if isinstance(key, MemberKey) else ""
    value = None if raw is None else decode_consumer_group_record(key.version, raw)
    return Fact(at, key.version, member_id, value)


def folded(facts: list[Fact], until: float) -> OnlineGroup:
    """What the records say at this moment."""
    group = OnlineGroup()
    for one in facts:
        if one.at > until:
            break
        if one.kind == EPOCH:
            group.epoch = one.value.epoch if isinstance(one.value, GroupEpoch) else None
        else:
            known: dict[str, Any] = group.members if one.kind == MEMBER else group.current
            if one.value is None:
                known.pop(one.member_id, None)
            else:
                known[one.member_id] = one.value
    return group


def topic_names(facts: list[Fact]) -> dict[str, str]:
    """Topic id → name, where every member subscribes to one topic only."""
    topics = {t for one in facts if one.kind == MEMBER and one.value for t in one.value.topics}
    ids = {t for one in facts if one.kind == CURRENT and one.value for t, _ in one.value.assigned}
    return dict.fromkeys(ids, next(iter(topics))) if len(topics) == len(ids) == 1 else {}
