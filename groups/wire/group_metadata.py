"""A classic group's GroupMetadataValue v0..v4, the records of kind 2 in `__consumer_offsets`.

Source: Kafka's GroupMetadataValue.json. A value is written when a generation's assignment arrives,
when the group empties and when a static member is replaced; it never holds the members' assignor
lists.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rebal.groups.model import Record
from rebal.groups.wire.primitives import Reader

HIGHEST_VALUE_VERSION: Final = 4
_FLEXIBLE: Final = 4


class GroupMetadataMember(Record, frozen=True, kw_only=True):
    """One member as stored; timeouts in milliseconds, None where the version has no such field.

    `subscription` is the raw metadata of the ELECTED assignor, `assignment` what the leader sent.
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
    """A classic group as stored. `protocol` and `leader` are None when the group is empty.

    `state_timestamp_ms` is milliseconds since 1970 (None below v2, -1 when not set).
    """

    version: int
    protocol_type: str
    generation: int
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int | None = None
    members: tuple[GroupMetadataMember, ...] = ()


class GroupMetadataHead(NamedTuple):
    """What stands before a value's members; `members` is how many there are."""

    version: int
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int | None
    members: int


def decode_group_metadata(data: bytes) -> GroupMetadata:
    """The value of a record whose key is a `GroupMetadataKey` (a tombstone has none).

    Raises:
        WireError: a version other than 0..4, a cut-off field, a negative or lying array length,
            or text that is null or not UTF-8.
    """
    reader = Reader(data, "group metadata value")
    head = read_head(reader)
    value = GroupMetadata(
        version=head.version,
        protocol_type=head.protocol_type,
        generation=head.generation,
        protocol=head.protocol,
        leader=head.leader,
        state_timestamp_ms=head.state_timestamp_ms,
        members=tuple(read_member(reader, head.version) for _ in range(head.members)),
    )
    if head.version >= _FLEXIBLE:
        reader.skip_tagged_fields("the tagged fields")
    return value


def read_head(reader: Reader) -> GroupMetadataHead:
    """A value up to its members; the reader is left where the first of them begins.

    Raises:
        WireError: as `decode_group_metadata`.
    """
    version = reader.int16("the version")
    if not 0 <= version <= HIGHEST_VALUE_VERSION:
        raise reader.error(f"version {version} is not one of 0 to {HIGHEST_VALUE_VERSION}")
    flexible = version >= _FLEXIBLE
    text = reader.compact_string if flexible else reader.string
    nullable_text = reader.compact_nullable_string if flexible else reader.nullable_string
    count = reader.compact_count if flexible else reader.count
    return GroupMetadataHead(
        version,
        text("the protocol type"),
        reader.int32("the generation"),
        nullable_text("the protocol"),
        nullable_text("the leader"),
        reader.int64("the state timestamp") if version >= 2 else None,
        count(10, "the members"),
    )


def read_member(reader: Reader, version: int) -> GroupMetadataMember:
    """The member of a value of this version that begins where the reader is.

    Raises:
        WireError: as `decode_group_metadata`.
    """
    flexible = version >= _FLEXIBLE
    text = reader.compact_string if flexible else reader.string
    nullable_text = reader.compact_nullable_string if flexible else reader.nullable_string
    blob = reader.compact_bytes if flexible else reader.bytes_
    member = GroupMetadataMember(
        member_id=text("a member id"),
        instance_id=nullable_text("an instance id") if version >= 3 else None,
        client_id=text("a client id"),
        client_host=text("a client host"),
        rebalance_timeout_ms=reader.int32("a rebalance timeout") if version >= 1 else None,
        session_timeout_ms=reader.int32("a session timeout"),
        subscription=blob("a subscription"),
        assignment=blob("an assignment"),
    )
    if flexible:
        reader.skip_tagged_fields("a member's tagged fields")
    return member
