"""Keys of `__consumer_offsets`: what a record is about, whatever its value holds.

A key begins with its kind (Kafka: CoordinatorRecordType, in the place of a version) and then the
group's name; what follows depends on the kind. Source: the keys of Kafka 4.1's group coordinator,
and the two kinds (9, 18) that only 4.0 wrote.
"""

from __future__ import annotations

from typing import Final

from rebal.groups.model import GroupType, Record
from rebal.groups.wire.primitives import Reader

OFFSET_COMMITS: Final = (0, 1)
GROUP_METADATA: Final = 2
CONSUMER_GROUP_METADATA: Final = 3
CONSUMER_GROUP_PARTITION_METADATA: Final = 4
CONSUMER_GROUP_MEMBER_METADATA: Final = 5
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Final = 6
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = 7
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = 8
CONSUMER_GROUP_REGULAR_EXPRESSION: Final = 16

KINDS: Final = {
    0: "LEGACY_OFFSET_COMMIT",
    1: "OFFSET_COMMIT",
    2: "GROUP_METADATA",
    3: "CONSUMER_GROUP_METADATA",
    4: "CONSUMER_GROUP_PARTITION_METADATA",
    5: "CONSUMER_GROUP_MEMBER_METADATA",
    6: "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA",
    7: "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER",
    8: "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    9: "SHARE_GROUP_PARTITION_METADATA",
    10: "SHARE_GROUP_MEMBER_METADATA",
    11: "SHARE_GROUP_METADATA",
    12: "SHARE_GROUP_TARGET_ASSIGNMENT_METADATA",
    13: "SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER",
    14: "SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    15: "SHARE_GROUP_STATE_PARTITION_METADATA",
    16: "CONSUMER_GROUP_REGULAR_EXPRESSION",
    17: "STREAMS_GROUP_METADATA",
    18: "STREAMS_GROUP_PARTITION_METADATA",
    19: "STREAMS_GROUP_MEMBER_METADATA",
    20: "STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA",
    21: "STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER",
    22: "STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    23: "STREAMS_GROUP_TOPOLOGY",
}
"""Kafka's own names by kind; a kind that is not here is newer than this table."""

_OF_MEMBERS: Final = frozenset({5, 7, 8, 10, 13, 14, 19, 21, 22})


class OffsetCommitKey(Record, frozen=True, kw_only=True):
    """Kind 0 or 1: an offset committed by `group_id` for one partition."""

    version: int
    group_id: str
    topic: str
    partition: int


class GroupMetadataKey(Record, frozen=True, kw_only=True):
    """Kind 2: the state of the classic group `group_id`."""

    version: int
    group_id: str


class GroupKey(Record, frozen=True, kw_only=True):
    """A fact about the whole group of another type (consumer, share or streams)."""

    version: int
    group_id: str


class MemberKey(Record, frozen=True, kw_only=True):
    """A fact about one member of a group of another type than classic."""

    version: int
    group_id: str
    member_id: str


class RegularExpressionKey(Record, frozen=True, kw_only=True):
    """Kind 16: a regular expression that members of `group_id` subscribe to."""

    version: int
    group_id: str
    regular_expression: str


class UnknownKey(Record, frozen=True, kw_only=True):
    """A kind that is not in `KINDS`; nothing is known of what follows it."""

    version: int


Key = OffsetCommitKey | GroupMetadataKey | GroupKey | MemberKey | RegularExpressionKey | UnknownKey


def decode_key(data: bytes) -> Key:
    """The key of a record of `__consumer_offsets`.

    Raises:
        WireError: a cut-off field, or text that is null or not UTF-8.
    """
    reader = Reader(data, "key of __consumer_offsets")
    version = reader.int16("the version")
    if version not in KINDS:
        return UnknownKey(version=version)
    group_id = reader.string("the group")
    if version in OFFSET_COMMITS:
        topic = reader.string("the topic")
        partition = reader.int32("the partition")
        return OffsetCommitKey(version=version, group_id=group_id, topic=topic, partition=partition)
    if version == GROUP_METADATA:
        return GroupMetadataKey(version=version, group_id=group_id)
    if version in _OF_MEMBERS:
        member_id = reader.string("the member id")
        return MemberKey(version=version, group_id=group_id, member_id=member_id)
    if version == CONSUMER_GROUP_REGULAR_EXPRESSION:
        regular_expression = reader.string("the regular expression")
        return RegularExpressionKey(
            version=version, group_id=group_id, regular_expression=regular_expression
        )
    return GroupKey(version=version, group_id=group_id)


def kind_name(version: int) -> str:
    """Kafka's name of a kind, or one that says that it is not known."""
    return KINDS.get(version, f"UNKNOWN_KIND_{version}")


def group_type(version: int) -> GroupType:
    """The type of group that writes records of this kind; commits come from groups of any type."""
    if version == GROUP_METADATA:
        return GroupType.CLASSIC
    for prefix in (GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS):
        if KINDS.get(version, "").startswith(f"{prefix.value.upper()}_GROUP_"):
            return prefix
    return GroupType.UNKNOWN
