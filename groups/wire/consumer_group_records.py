"""Values of KIP-848's records in `__consumer_offsets` (kinds 3 to 8 and 16), all at version 0.

Source: Kafka's ConsumerGroup*Value.json. Topics are named by their id (KIP-516), as Kafka prints
it; a record of kind 4 (Kafka 4.0) or an offset commit (4.1) says which topic that is. A group is
made of several records: its epoch (3), each member (5), the target assignment's epoch (6) and its
part for each member (7), and what each member has (8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from rebal.groups.model import Record
from rebal.groups.wire import offsets_key as kinds
from rebal.groups.wire.primitives import Reader

TopicIdPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""Topic ids, each with its partitions, as written."""

MEMBER_STATES: Final = {
    0: "STABLE",
    1: "UNREVOKED_PARTITIONS",
    2: "UNRELEASED_PARTITIONS",
    127: "UNKNOWN",
}
"""Kafka's MemberState by its number."""

_CLASSIC_MEMBER: Final = 0


class GroupEpoch(Record, frozen=True, kw_only=True):
    """Kind 3: the group's epoch, which rises when members or their topics change."""

    epoch: int


class TopicMetadata(Record, frozen=True, kw_only=True):
    """One subscribed topic as the coordinator saw it."""

    topic_id: str
    name: str
    partitions: int


class PartitionMetadata(Record, frozen=True, kw_only=True):
    """Kind 4 (Kafka 4.0): the topics that the group subscribes to."""

    topics: tuple[TopicMetadata, ...] = ()


class SupportedProtocol(Record, frozen=True, kw_only=True):
    """One assignor of a classic member's list, with its subscription's bytes."""

    name: str
    metadata: bytes


class ConsumerGroupMember(Record, frozen=True, kw_only=True):
    """Kind 5: a member as it joined.

    `supported_protocols` is the ordered list of a member that speaks the classic protocol in this
    group (KIP-848, "Online Migration"), None of one that does not; `session_timeout_ms` likewise.
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
    """Kind 6: the group epoch that the target assignment was made for."""

    assignment_epoch: int


class TargetAssignment(Record, frozen=True, kw_only=True):
    """Kind 7: what one member is to have."""

    partitions: TopicIdPartitions = ()


class CurrentAssignment(Record, frozen=True, kw_only=True):
    """Kind 8: what one member has, and what it still has to give up; `state` as `MEMBER_STATES`."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: TopicIdPartitions = ()
    pending_revocation: TopicIdPartitions = ()


class RegularExpression(Record, frozen=True, kw_only=True):
    """Kind 16: the topics that a regular expression matched; time in milliseconds since 1970."""

    topics: tuple[str, ...] = ()
    version: int
    timestamp_ms: int


Value = (
    GroupEpoch
    | PartitionMetadata
    | ConsumerGroupMember
    | TargetEpoch
    | TargetAssignment
    | CurrentAssignment
    | RegularExpression
)


def decode_consumer_group_record(kind: int, data: bytes) -> Value:
    """The value of a record whose key has one of the kinds in `DECODERS` (a tombstone has none).

    Raises:
        KeyError: another kind.
        WireError: a version other than 0, a cut-off field, a lying array length, or text that is
            null or not UTF-8.
    """
    read = DECODERS[kind]
    reader = Reader(data, f"value of {kinds.kind_name(kind)}")
    version = reader.int16("the version")
    if version != 0:
        raise reader.error(f"version {version} is not 0")
    return read(reader)


def _group_epoch(reader: Reader) -> GroupEpoch:
    value = GroupEpoch(epoch=reader.int32("the epoch"))
    reader.skip_tagged_fields("the tagged fields")
    return value


def _partition_metadata(reader: Reader) -> PartitionMetadata:
    topics = []
    for _ in range(reader.compact_count(23, "the topics")):
        topic_id = reader.uuid("a topic id")
        name = reader.compact_string("a topic")
        partitions = reader.int32("a number of partitions")
        for _ in range(reader.compact_count(6, "the partitions")):
            reader.int32("a partition")
            for _ in range(reader.compact_count(1, "the racks")):
                reader.compact_string("a rack")
            reader.skip_tagged_fields("a partition's tagged fields")
        reader.skip_tagged_fields("a topic's tagged fields")
        topics.append(TopicMetadata(topic_id=topic_id, name=name, partitions=partitions))
    reader.skip_tagged_fields("the tagged fields")
    return PartitionMetadata(topics=tuple(topics))


def _member(reader: Reader) -> ConsumerGroupMember:
    instance_id = reader.compact_nullable_string("the instance id")
    rack_id = reader.compact_nullable_string("the rack")
    client_id = reader.compact_string("the client id")
    client_host = reader.compact_string("the client host")
    topics = _topics(reader)
    topic_regex = reader.compact_nullable_string("the regular expression")
    rebalance_timeout = reader.int32("the rebalance timeout")
    server_assignor = reader.compact_nullable_string("the server assignor")
    tags = reader.tagged_fields("the tagged fields")
    session_timeout, protocols = _classic_member(tags.get(_CLASSIC_MEMBER))
    return ConsumerGroupMember(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        topic_regex=topic_regex,
        rebalance_timeout_ms=rebalance_timeout,
        server_assignor=server_assignor,
        session_timeout_ms=session_timeout,
        supported_protocols=protocols,
    )


def _classic_member(
    data: bytes | None,
) -> tuple[int | None, tuple[SupportedProtocol, ...] | None]:
    """A nullable structure in a tag begins with a number that is 0 where it is null."""
    if data is None:
        return None, None
    reader = Reader(data, "classic member's metadata")
    if not reader.unsigned_varint("the presence of a structure"):
        return None, None
    session_timeout = reader.int32("the session timeout")
    protocols = []
    for _ in range(reader.compact_count(3, "the supported protocols")):
        name = reader.compact_string("a protocol's name")
        metadata = reader.compact_bytes("a protocol's metadata")
        reader.skip_tagged_fields("a protocol's tagged fields")
        protocols.append(SupportedProtocol(name=name, metadata=metadata))
    reader.skip_tagged_fields("the tagged fields")
    return session_timeout, tuple(protocols)


def _target_epoch(reader: Reader) -> TargetEpoch:
    value = TargetEpoch(assignment_epoch=reader.int32("the assignment epoch"))
    reader.skip_tagged_fields("the tagged fields")
    return value


def _target_assignment(reader: Reader) -> TargetAssignment:
    value = TargetAssignment(partitions=_partitions(reader, "the partitions"))
    reader.skip_tagged_fields("the tagged fields")
    return value


def _current_assignment(reader: Reader) -> CurrentAssignment:
    value = CurrentAssignment(
        member_epoch=reader.int32("the member epoch"),
        previous_member_epoch=reader.int32("the previous member epoch"),
        state=reader.int8("the state"),
        assigned=_partitions(reader, "the assigned partitions"),
        pending_revocation=_partitions(reader, "the partitions to revoke"),
    )
    reader.skip_tagged_fields("the tagged fields")
    return value


def _regular_expression(reader: Reader) -> RegularExpression:
    value = RegularExpression(
        topics=_topics(reader),
        version=reader.int64("the metadata version"),
        timestamp_ms=reader.int64("the timestamp"),
    )
    reader.skip_tagged_fields("the tagged fields")
    return value


def _topics(reader: Reader) -> tuple[str, ...]:
    count = reader.compact_count(1, "the topics")
    return tuple(reader.compact_string("a topic") for _ in range(count))


def _partitions(reader: Reader, field: str) -> TopicIdPartitions:
    found = []
    for _ in range(reader.compact_count(18, field)):
        topic_id = reader.uuid("a topic id")
        partitions = reader.int32s(reader.compact_count(4, field), field)
        reader.skip_tagged_fields("a topic's tagged fields")
        found.append((topic_id, partitions))
    return tuple(found)


DECODERS: Final[Mapping[int, Callable[[Reader], Value]]] = MappingProxyType(
    {
        kinds.CONSUMER_GROUP_METADATA: _group_epoch,
        kinds.CONSUMER_GROUP_PARTITION_METADATA: _partition_metadata,
        kinds.CONSUMER_GROUP_MEMBER_METADATA: _member,
        kinds.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _target_epoch,
        kinds.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _target_assignment,
        kinds.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _current_assignment,
        kinds.CONSUMER_GROUP_REGULAR_EXPRESSION: _regular_expression,
    }
)
