"""A classic group's GroupMetadataValue v0..v4, the records of kind 2 in `__consumer_offsets`.

Source: Kafka's GroupMetadataValue.json. A value is written when a generation's assignment arrives,
when the group empties and when a static member is replaced; it never holds the members' assignor
lists.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from rebal.groups.model import Record
from rebal.groups.wire.primitives import Reader

HIGHEST_VALUE_VERSION: Final = 4
_FLEXIBLE: Final = 4
_KNOWN_BY_HEART: Final = 3
"""The version that brokers since 2.3 write; only its members are recognised by their bytes."""
_INT32: Final = struct.Struct(">i").unpack_from


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


def decode_group_metadata(data: bytes) -> GroupMetadata:
    """The value of a record whose key is a `GroupMetadataKey` (a tombstone has none).

    Raises:
        WireError: a version other than 0..4, a cut-off field, a negative or lying array length,
            or text that is null or not UTF-8.
    """
    return GroupMetadataReader().decode(data)


class _Known(NamedTuple):
    """A member of the last value: `head` are its bytes up to the subscription, `entry` are all."""

    head: bytes
    entry: bytes
    member: GroupMetadataMember


class GroupMetadataReader:
    """Reads one group's values in their order, faster than each alone.

    A member whose bytes are those of the value before is the same object again, and of one with
    another subscription or assignment only these are read. As strict as `decode_group_metadata`.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def decode(self, data: bytes) -> GroupMetadata:
        """As `decode_group_metadata`."""
        reader = Reader(data, "group metadata value")
        version = reader.int16("the version")
        if not 0 <= version <= HIGHEST_VALUE_VERSION:
            raise reader.error(f"version {version} is not one of 0 to {HIGHEST_VALUE_VERSION}")
        flexible = version >= _FLEXIBLE
        text = reader.compact_string if flexible else reader.string
        nullable_text = reader.compact_nullable_string if flexible else reader.nullable_string
        count = reader.compact_count if flexible else reader.count
        value = GroupMetadata(
            version=version,
            protocol_type=text("the protocol type"),
            generation=reader.int32("the generation"),
            protocol=nullable_text("the protocol"),
            leader=nullable_text("the leader"),
            state_timestamp_ms=reader.int64("the state timestamp") if version >= 2 else None,
            members=self._members(reader, data, version, count(10, "the members")),
        )
        if flexible:
            reader.skip_tagged_fields("the tagged fields")
        return value

    def _members(
        self, reader: Reader, data: bytes, version: int, count: int
    ) -> tuple[GroupMetadataMember, ...]:
        if version != _KNOWN_BY_HEART:
            return tuple(_read_member(reader, version) for _ in range(count))
        before, known = self._known, {}
        members = []
        at = reader.offset
        size = len(data)
        for _ in range(count):
            length = data[at] << 8 | data[at + 1] if at + 2 <= size else 0
            member_id = data[at + 2 : at + 2 + length]
            old = before.get(member_id)
            if old is None or not data.startswith(old[1], at):
                old = (old and _again(data, at, old)) or self._anew(reader, data, at, version)
            known[member_id] = old
            _, entry, member = old
            at += len(entry)
            members.append(member)
        self._known = known
        reader.offset = at
        return tuple(members)

    def _anew(self, reader: Reader, data: bytes, at: int, version: int) -> _Known:
        reader.offset = at
        member = _read_member(reader, version)
        entry = data[at : reader.offset]
        blobs = 8 + len(member.subscription) + len(member.assignment)
        return _Known(entry[:-blobs], entry, member)


def _again(data: bytes, at: int, old: _Known) -> _Known | None:
    """A member whose bytes up to the subscription are known; None where they are not."""
    head = old.head
    if not data.startswith(head, at):
        return None
    sent_at = at + len(head) + 4
    try:
        given_at = sent_at + _INT32(data, sent_at - 4)[0] + 4
        end = given_at + _INT32(data, given_at - 4)[0]
    except struct.error:
        return None
    if not sent_at <= given_at - 4 <= given_at <= end <= len(data):
        return None
    was = old.member
    member = GroupMetadataMember(
        member_id=was.member_id,
        instance_id=was.instance_id,
        client_id=was.client_id,
        client_host=was.client_host,
        rebalance_timeout_ms=was.rebalance_timeout_ms,
        session_timeout_ms=was.session_timeout_ms,
        subscription=data[sent_at : given_at - 4],
        assignment=data[given_at:end],
    )
    return _Known(head, data[at:end], member)


def _read_member(reader: Reader, version: int) -> GroupMetadataMember:
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
