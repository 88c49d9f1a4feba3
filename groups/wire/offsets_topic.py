"""Records of `__consumer_offsets`: keys, classic groups, offset commits and KIP-848 groups.

A key begins with its kind (CoordinatorRecordType) and the group id; the rest depends on the kind.

The value of a classic group is written when a generation's assignment arrives, when the group
becomes empty and when a static member is replaced. It never holds the members' assignor lists.

A KIP-848 group is made of several records: its epoch (kind 3), each member (5), the epoch of the
target assignment (6), the target of each member (7) and the current assignment of each member (8).
Topics are named by their ids (KIP-516); a record of kind 4 (Kafka 4.0) or an offset commit (4.1)
has the name of an id.
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from rebal.groups.errors import WireError
from rebal.groups.model import GroupType, Record
from rebal.groups.wire.schema import Message, nullable_text, plain_bytes, plain_text

OFFSET_COMMITS: Final = (0, 1)
GROUP_METADATA: Final = 2
CONSUMER_GROUP_METADATA: Final = 3
CONSUMER_GROUP_MEMBER_METADATA: Final = 5
OF_GROUPS: Final = (GROUP_METADATA, CONSUMER_GROUP_METADATA, 11, 17)
"""The kinds whose tombstone deletes a group: classic, consumer, share and streams groups."""

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
"""Kind of a record → Kafka's name of it; a kind that is missing is newer than this table."""


class GroupKey(Record, frozen=True, kw_only=True):
    """Key of a record about a group; `version` is the record's kind, a number in `KINDS`.

    Offset commits, classic groups and members have subclasses for their keys. This class itself is
    the key of all other records of KIP-848, share and streams groups.
    """

    version: int
    group_id: str


class OffsetCommitKey(GroupKey, frozen=True, kw_only=True):
    """Key of kind 0 or 1: an offset committed by `group_id` for one partition."""

    topic: str
    partition: int


class GroupMetadataKey(GroupKey, frozen=True, kw_only=True):
    """Key of kind 2: the state of the classic group `group_id`."""


class MemberKey(GroupKey, frozen=True, kw_only=True):
    """Key of a record about one member of a KIP-848, share or streams group."""

    member_id: str


class UnknownKey(Record, frozen=True, kw_only=True):
    """Key whose kind, `version`, is not in `KINDS`; its other fields cannot be read."""

    version: int


Key = GroupKey | UnknownKey

_KEY: Final = Message("OffsetsKey")
_KEYS: Final[Mapping[int, Callable[..., Key]]] = MappingProxyType(
    dict.fromkeys(KINDS, GroupKey)
    | dict.fromkeys((kind for kind, name in KINDS.items() if "MEMBER" in name), MemberKey)
    | dict.fromkeys(OFFSET_COMMITS, OffsetCommitKey)
    | {GROUP_METADATA: GroupMetadataKey}
)


def decode_key(data: bytes) -> Key:
    """Return the key of a record of `__consumer_offsets`.

    Raises:
        WireError: a field that is cut off, or text that is null or not UTF-8.
    """
    kind = int.from_bytes(data[:2], signed=True)
    if len(data) >= 2 and kind not in KINDS:
        return UnknownKey(version=kind)
    version, found, _ = _KEY.read(data)
    return _KEYS[version](version=version, **found)


def kind_name(version: int) -> str:
    """Return Kafka's name of the record kind `version`, or `UNKNOWN_KIND_…` with its number."""
    return KINDS.get(version, f"UNKNOWN_KIND_{version}")


def group_type(version: int) -> GroupType:
    """Return the type of the groups whose records have the kind `version`.

    Unknown for an offset commit, which every type of group writes, and for an unknown kind.
    """
    if version == GROUP_METADATA:
        return GroupType.CLASSIC
    prefix = KINDS.get(version, "").partition("_GROUP_")[0].lower()
    return GroupType(prefix) if prefix in ("consumer", "share", "streams") else GroupType.UNKNOWN


class GroupMetadataMember(Record, frozen=True, kw_only=True):
    """One member in the stored record of a classic group.

    Timeouts are in milliseconds, None where the version has no such field. `subscription` is the
    raw metadata of the ELECTED assignor, `assignment` the raw assignment that the leader sent.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int | None = None
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(Record, frozen=True, kw_only=True):
    """Stored record of a classic group (GroupMetadataValue).

    `protocol` is the elected assignor; it and `leader` are None when the group is empty.
    `state_timestamp_ms` is milliseconds since 1970 (None below v2, -1 when not set).
    """

    version: int
    protocol_type: str
    generation: int
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int | None = None
    members: tuple[GroupMetadataMember, ...] = ()


_GROUP_METADATA: Final = Message("GroupMetadataValue", members=GroupMetadataMember)


def decode_group_metadata(data: bytes) -> GroupMetadata:
    """Return the value of a record whose key is a `GroupMetadataKey` (a tombstone has none).

    Raises:
        WireError: see `Message.read`.
    """
    version, found, _ = _GROUP_METADATA.read(data)
    return GroupMetadata(version=version, **found)


# The version that is read directly, which brokers since 2.3 write.
_DIRECT: Final = 3
_INT32: Final = struct.Struct(">i").unpack_from
_TWO_INT32: Final = struct.Struct(">ii").unpack_from
_INT64_INT32: Final = struct.Struct(">qi").unpack_from


def group_metadata_head(data: bytes) -> tuple[GroupMetadata, int, int]:
    """Decode the fields of a GroupMetadataValue before its members, without the schema.

    Returns the group without members, the number of members, and the byte position of the first
    one.

    Raises:
        WireError: another version than 3, which `decode_group_metadata` may be able to read, or
            malformed bytes, of which it names the fault.
    """
    try:
        protocol_type, at = plain_text(data, 2)
        (generation,) = _INT32(data, at)
        protocol, at = nullable_text(data, at + 4)
        leader, at = nullable_text(data, at)
        state_timestamp_ms, count = _INT64_INT32(data, at)
    except (struct.error, ValueError) as error:
        raise WireError(str(error)) from None
    version = int.from_bytes(data[:2], signed=True)
    if version != _DIRECT or count < 0:
        raise WireError(f"Version {version} with {count} members.")
    group = GroupMetadata(
        version=version,
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_timestamp_ms=state_timestamp_ms,
    )
    return group, count, at + 12


def group_metadata_member(data: bytes, at: int) -> tuple[GroupMetadataMember, int]:
    """Return the member at byte `at` of a GroupMetadataValue (v3), and the position after it.

    Raises:
        WireError: as `group_metadata_head`.
    """
    try:
        member_id, at = plain_text(data, at)
        instance_id, at = nullable_text(data, at)
        client_id, at = plain_text(data, at)
        client_host, at = plain_text(data, at)
        rebalance_timeout_ms, session_timeout_ms = _TWO_INT32(data, at)
        subscription, at = plain_bytes(data, at + 8)
        assignment, at = plain_bytes(data, at)
    except (struct.error, ValueError) as error:
        raise WireError(str(error)) from None
    member = GroupMetadataMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )
    return member, at


def generation_in(head: bytes) -> int:
    """Return the generation in the first bytes of a GroupMetadataValue; -1 if cut off."""
    try:
        return int(_INT32(head, plain_text(head, 2)[1])[0])
    except (struct.error, ValueError):
        return -1


class OffsetCommit(Record, frozen=True, kw_only=True):
    """One committed offset: the next one to be read. Times are milliseconds since 1970.

    `leader_epoch` is None below v3, `expire_timestamp_ms` None in all versions but v1, `topic_id`
    (as Kafka prints it) None below v4 and where it was not written.
    """

    version: int
    offset: int
    leader_epoch: int | None = None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: str | None = None


_OFFSET_COMMIT: Final = Message("OffsetCommitValue")


def decode_offset_commit(data: bytes) -> OffsetCommit:
    """Return the value of a record whose key is an `OffsetCommitKey` (a tombstone has none).

    Raises:
        WireError: see `Message.read`.
    """
    version, found, _ = _OFFSET_COMMIT.read(data)
    return OffsetCommit(version=version, **found)


TopicIdPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic id, partitions) in the order written."""


class GroupEpoch(Record, frozen=True, kw_only=True):
    """Record of kind 3: the group's epoch, which rises when members or their topics change."""

    epoch: int


class TopicMetadata(Record, frozen=True, kw_only=True):
    """One topic in a `PartitionMetadata` record, as the coordinator saw it."""

    topic_id: str
    name: str
    partitions: int


class PartitionMetadata(Record, frozen=True, kw_only=True):
    """Record of kind 4 (Kafka 4.0): the topics that the KIP-848 group subscribes to."""

    topics: tuple[TopicMetadata, ...] = ()


class SupportedProtocol(Record, frozen=True, kw_only=True):
    """One assignor of a classic member's list in a KIP-848 group, with the raw subscription."""

    name: str
    metadata: bytes


class ConsumerGroupMember(Record, frozen=True, kw_only=True):
    """Record of kind 5: a member of a KIP-848 group, as it joined.

    `supported_protocols` is the ordered assignor list of a member that uses the classic protocol in
    this group (KIP-848, "Online Migration"), None for other members. `session_timeout_ms` is None
    for other members too.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topics: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int
    server_assignor: str | None = None
    session_timeout_ms: int | None = None
    supported_protocols: tuple[SupportedProtocol, ...] | None = None


class TargetEpoch(Record, frozen=True, kw_only=True):
    """Record of kind 6: the group epoch for which the target assignment was computed."""

    assignment_epoch: int


class TargetAssignment(Record, frozen=True, kw_only=True):
    """Record of kind 7: the target assignment of one member."""

    partitions: TopicIdPartitions = ()


class CurrentAssignment(Record, frozen=True, kw_only=True):
    """Record of kind 8: a member's current assignment, and the partitions it must still revoke."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: TopicIdPartitions = ()
    pending_revocation: TopicIdPartitions = ()


Value = (
    GroupEpoch
    | PartitionMetadata
    | ConsumerGroupMember
    | TargetEpoch
    | TargetAssignment
    | CurrentAssignment
)


def _member(
    classic: tuple[int, tuple[SupportedProtocol, ...]] | None = None, **found: Any
) -> ConsumerGroupMember:
    timeout, protocols = classic or (None, None)
    return ConsumerGroupMember(session_timeout_ms=timeout, supported_protocols=protocols, **found)


DECODERS: Final[Mapping[int, tuple[Message, Callable[..., Value]]]] = MappingProxyType(
    {
        3: (Message("ConsumerGroupMetadataValue"), GroupEpoch),
        4: (
            Message("ConsumerGroupPartitionMetadataValue", topics=TopicMetadata),
            PartitionMetadata,
        ),
        5: (
            Message("ConsumerGroupMemberMetadataValue", supported_protocols=SupportedProtocol),
            _member,
        ),
        6: (
            Message("ConsumerGroupTargetAssignmentMetadataValue"),
            TargetEpoch,
        ),
        7: (
            Message("ConsumerGroupTargetAssignmentMemberValue"),
            TargetAssignment,
        ),
        8: (
            Message("ConsumerGroupCurrentMemberAssignmentValue"),
            CurrentAssignment,
        ),
    }
)
"""Kind of a KIP-848 record → its message schema and the class of its value."""


def decode_consumer_group_record(kind: int, data: bytes) -> Value:
    """Return the value of a record whose key has one of the kinds in `DECODERS`.

    Raises:
        KeyError: another kind.
        WireError: see `Message.read`.
    """
    message, make = DECODERS[kind]
    return make(**message.read(data)[1])
