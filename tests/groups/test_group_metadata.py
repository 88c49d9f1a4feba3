"""Group records of `__consumer_offsets`: every version; captured ones are in the records' tests."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
)
from tests.encoders import nullable_bytes, string
from tests.groups.written import compact, int32, short, varint


def written(value: GroupMetadata) -> bytes:
    """GroupMetadataValue, written from Kafka's schema apart from the reader under test."""
    version = value.version
    flexible = version >= 4
    text = compact if flexible else string

    def blob(item: bytes) -> bytes:
        return varint(len(item) + 1) + item if flexible else nullable_bytes(item)

    out = struct.pack(">h", version) + text(value.protocol_type)
    out += struct.pack(">i", value.generation) + text(value.protocol) + text(value.leader)
    if version >= 2:
        out += struct.pack(">q", value.state_timestamp_ms)
    count = len(value.members)
    out += varint(count + 1) if flexible else struct.pack(">i", count)
    for member in value.members:
        out += text(member.member_id)
        out += text(member.instance_id) if version >= 3 else b""
        out += text(member.client_id) + text(member.client_host)
        out += struct.pack(">i", member.rebalance_timeout_ms) if version >= 1 else b""
        out += struct.pack(">i", member.session_timeout_ms)
        out += blob(member.subscription) + blob(member.assignment)
        out += b"\x01\x05\x02hi" if flexible else b""
    return out + (b"\x00" if flexible else b"")


@st.composite
def groups(draw: st.DrawFn) -> GroupMetadata:
    version = draw(st.integers(0, 4))
    members = [
        GroupMetadataMember(
            member_id=draw(short),
            instance_id=draw(st.none() | short) if version >= 3 else None,
            client_id=draw(short),
            client_host=draw(short),
            rebalance_timeout_ms=draw(int32) if version >= 1 else None,
            session_timeout_ms=draw(int32),
            subscription=draw(st.binary(max_size=200)),
            assignment=draw(st.binary(max_size=9)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    return GroupMetadata(
        version=version,
        protocol_type=draw(short),
        generation=draw(int32),
        protocol=draw(st.none() | short),
        leader=draw(st.none() | short),
        state_timestamp_ms=draw(st.integers(-1, 2**62)) if version >= 2 else None,
        members=tuple(members),
    )


@given(groups())
def test_every_version_is_read(value: GroupMetadata) -> None:
    assert decode_group_metadata(written(value)) == value
