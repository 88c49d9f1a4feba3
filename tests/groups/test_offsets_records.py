"""Keys and values of `__consumer_offsets`: captured ones, any bytes, and every message's schema."""

import base64
import json
import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.data import load_data
from rebal.groups.errors import WireError
from rebal.groups.model import GroupType
from rebal.groups.wire import offsets_topic as records
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupKey,
    GroupMetadata,
    GroupMetadataKey,
    GroupMetadataMember,
    MemberKey,
    OffsetCommit,
    OffsetCommitKey,
    UnknownKey,
    decode_group_metadata,
    decode_key,
    decode_offset_commit,
)
from rebal.groups.wire.schema import Message, Schema
from tests.encoders import compact, int32, int64, nullable_bytes, short, string, varint
from tests.planner.captured import FOLDER
from tests.planner.rehearsal.captures.capture import stored

GROUP = b"\x00\x01g"
TOPIC_ID = "8puPsrA7R9e6PednZ9e7Iw"


def key(kind: int, rest: bytes = b"") -> bytes:
    return struct.pack(">h", kind) + GROUP + rest


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            key(0, b"\x00\x01t\x00\x00\x00\x07"),
            OffsetCommitKey(version=0, group_id="g", topic="t", partition=7),
        ),
        (
            key(1, b"\x00\x01t\xff\xff\xff\xff"),
            OffsetCommitKey(version=1, group_id="g", topic="t", partition=-1),
        ),
        (key(2), GroupMetadataKey(version=2, group_id="g")),
        (key(3), GroupKey(version=3, group_id="g")),
        (key(8, b"\x00\x02m1"), MemberKey(version=8, group_id="g", member_id="m1")),
        (key(16, b"\x00\x02a*"), GroupKey(version=16, group_id="g")),
        (key(14, b"\x00\x02m1"), MemberKey(version=14, group_id="g", member_id="m1")),
        (key(23), GroupKey(version=23, group_id="g")),
        (key(24, b"anything"), UnknownKey(version=24)),
        (b"\xff\xff", UnknownKey(version=-1)),
    ],
)
def test_each_kind_of_offsets_topic_key_is_decoded(data: bytes, expected: records.Key) -> None:
    assert decode_key(data) == expected


@pytest.mark.parametrize("data", [b"", *(key(kind)[:4] for kind in sorted(records.KINDS))])
def test_a_truncated_offsets_topic_key_is_rejected(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_key(data)


def test_record_kinds_have_kafkas_names_and_the_type_of_their_group() -> None:
    assert records.kind_name(8) == "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT"
    assert records.kind_name(99) == "UNKNOWN_KIND_99"
    types = Counter(records.group_type(kind) for kind in records.KINDS)
    assert types == {
        GroupType.UNKNOWN: 2,
        GroupType.CLASSIC: 1,
        GroupType.CONSUMER: 7,
        GroupType.SHARE: 7,
        GroupType.STREAMS: 7,
    }
    assert records.group_type(1) == records.group_type(99) == GroupType.UNKNOWN


topic_ids = st.binary(min_size=16, max_size=16).map(
    lambda raw: base64.urlsafe_b64encode(raw)[:22].decode()
)


@st.composite
def commits(draw: st.DrawFn) -> OffsetCommit:
    version = draw(st.integers(0, 4))
    return OffsetCommit(
        version=version,
        offset=draw(int64),
        leader_epoch=draw(int32) if version >= 3 else None,
        metadata=draw(short),
        commit_timestamp_ms=draw(int64),
        expire_timestamp_ms=draw(int64) if version == 1 else None,
        topic_id=draw(st.none() | topic_ids) if version >= 4 else None,
    )


def written_commit(value: OffsetCommit) -> bytes:
    out = struct.pack(">hq", value.version, value.offset)
    if value.leader_epoch is not None:
        out += struct.pack(">i", value.leader_epoch)
    out += compact(value.metadata) if value.version >= 4 else string(value.metadata)
    out += struct.pack(">q", value.commit_timestamp_ms)
    if value.expire_timestamp_ms is not None:
        out += struct.pack(">q", value.expire_timestamp_ms)
    if value.version >= 4:
        out += varint(value.topic_id is not None)
        if value.topic_id is not None:
            out += b"\x00\x10" + base64.urlsafe_b64decode(value.topic_id + "==")
    return out


@given(commits())
def test_every_version_of_an_offset_commit_is_read(value: OffsetCommit) -> None:
    assert decode_offset_commit(written_commit(value)) == value


def written_group(value: GroupMetadata) -> bytes:
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
def test_every_version_of_a_group_metadata_value_is_read(value: GroupMetadata) -> None:
    assert decode_group_metadata(written_group(value)) == value


def written_partitions(partitions: records.TopicIdPartitions) -> bytes:
    out = varint(len(partitions) + 1)
    for topic_id, numbers in partitions:
        out += base64.urlsafe_b64decode(topic_id + "==") + varint(len(numbers) + 1)
        out += struct.pack(f">{len(numbers)}i", *numbers) + b"\x00"
    return out


def written_texts(texts: tuple[str, ...]) -> bytes:
    return varint(len(texts) + 1) + b"".join(map(compact, texts))


def written(value: records.Value) -> tuple[int, bytes]:
    """The kind and bytes of a value, written from Kafka's schema apart from the reader."""
    if isinstance(value, records.GroupEpoch):
        return 3, struct.pack(">hi", 0, value.epoch) + b"\x01\x00\x08" + bytes(8)
    if isinstance(value, records.PartitionMetadata):
        out = varint(len(value.topics) + 1)
        for topic in value.topics:
            out += base64.urlsafe_b64decode(topic.topic_id + "==") + compact(topic.name)
            out += struct.pack(">i", topic.partitions)
            out += b"\x02\x00\x00\x00\x00\x02" + compact("rack") + b"\x00" + b"\x00"
        return 4, b"\x00\x00" + out + b"\x00"
    if isinstance(value, records.TargetEpoch):
        return 6, struct.pack(">hi", 0, value.assignment_epoch) + b"\x00"
    if isinstance(value, records.TargetAssignment):
        return 7, b"\x00\x00" + written_partitions(value.partitions) + b"\x00"
    if isinstance(value, records.CurrentAssignment):
        out = struct.pack(">hiib", 0, value.member_epoch, value.previous_member_epoch, value.state)
        out += written_partitions(value.assigned) + written_partitions(value.pending_revocation)
        return 8, out + b"\x00"
    out = b"\x00\x00" + compact(value.instance_id) + compact(value.rack_id)
    out += compact(value.client_id) + compact(value.client_host) + written_texts(value.topics)
    out += compact(value.topic_regex) + struct.pack(">i", value.rebalance_timeout_ms)
    out += compact(value.server_assignor)
    if value.supported_protocols is None:
        return 5, out + b"\x01\x00\x01\x00"
    classic = b"\x01" + struct.pack(">i", value.session_timeout_ms)
    classic += varint(len(value.supported_protocols) + 1)
    for protocol in value.supported_protocols:
        classic += compact(protocol.name) + varint(len(protocol.metadata) + 1)
        classic += protocol.metadata + b"\x00"
    classic += b"\x00"
    return 5, out + b"\x01\x00" + varint(len(classic)) + classic


partitions = st.lists(st.tuples(topic_ids, st.lists(int32, max_size=4).map(tuple)), max_size=3).map(
    tuple
)
int8 = st.integers(-128, 127)
texts = st.lists(short, max_size=3).map(tuple)
protocols = st.lists(
    st.builds(records.SupportedProtocol, name=short, metadata=st.binary(max_size=200)), max_size=3
).map(tuple)
members = st.builds(
    records.ConsumerGroupMember,
    instance_id=st.none() | short,
    rack_id=st.none() | short,
    client_id=short,
    client_host=short,
    topics=texts,
    topic_regex=st.none() | short,
    rebalance_timeout_ms=int32,
    server_assignor=st.none() | short,
)
classic_members = st.builds(
    replace, members, session_timeout_ms=int32, supported_protocols=protocols
)
values = st.one_of(
    st.builds(records.GroupEpoch, epoch=int32),
    st.builds(
        records.PartitionMetadata,
        topics=st.lists(
            st.builds(records.TopicMetadata, topic_id=topic_ids, name=short, partitions=int32),
            max_size=3,
        ).map(tuple),
    ),
    members | classic_members,
    st.builds(records.TargetEpoch, assignment_epoch=int32),
    st.builds(records.TargetAssignment, partitions=partitions),
    st.builds(
        records.CurrentAssignment,
        member_epoch=int32,
        previous_member_epoch=int32,
        state=int8,
        assigned=partitions,
        pending_revocation=partitions,
    ),
)


@given(values)
def test_every_kip_848_record_value_is_read(value: records.Value) -> None:
    kind, data = written(value)
    assert records.decode_consumer_group_record(kind, data) == value


def test_an_unknown_record_version_is_rejected_and_named() -> None:
    with pytest.raises(WireError, match="CONSUMER_GROUP_METADATA: version 1 is not 0"):
        records.decode_consumer_group_record(3, b"\x00\x01")
    for decode, version in [(decode_group_metadata, -1), (decode_group_metadata, 5),
                            (decode_offset_commit, 5)]:  # fmt: skip
        with pytest.raises(WireError, match=f"version {version} is not one of 0 to 4"):
            decode(struct.pack(">h", version) + bytes(40))


def test_every_captured_offsets_topic_record_is_decoded_without_loss() -> None:
    """Each decoded value is encoded again to the same bytes, except fields not kept."""
    document = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
    newer = "Kafka 4.1" not in document["broker"]
    seen = set()
    for record in stored(FOLDER):
        found = decode_key(base64.b64decode(record["key"]))
        assert not isinstance(found, UnknownKey)
        assert found.group_id in document["groups"]
        if not record["value"]:
            continue
        seen.add(type(found))
        raw = base64.b64decode(record["value"])
        if isinstance(found, OffsetCommitKey):
            assert written_commit(decode_offset_commit(raw)) == raw
        elif isinstance(found, GroupMetadataKey):
            group = decode_group_metadata(raw)
            assert written_group(group) == raw
            assert not group.leader or group.leader in {one.member_id for one in group.members}
        elif found.version in records.DECODERS:
            value = records.decode_consumer_group_record(found.version, raw)
            if isinstance(value, records.GroupEpoch):  # its hash is not kept
                assert written(value)[1][:6] == raw[:6]
            elif newer:
                # Nor are the tagged fields of later versions.
                assert records.decode_consumer_group_record(*written(value)) == value
            else:
                assert written(value) == (found.version, raw)
            if isinstance(value, records.ConsumerGroupMember):
                for protocol in value.supported_protocols or ():
                    assert decode_subscription(protocol.metadata).topics == value.topics
    assert seen >= {OffsetCommitKey, GroupMetadataKey}


SCHEMAS = load_data("messages.yaml", dict[str, Schema])


@pytest.mark.parametrize("name", sorted(SCHEMAS))
@given(data=st.data())
def test_any_bytes_decode_to_the_fields_of_their_version_or_a_wire_error(
    name: str, data: st.DataObject
) -> None:
    known = SCHEMAS[name]
    low, _, high = known.versions.partition("-")
    version = data.draw(st.integers(int(low), int(high)))
    body = data.draw(st.binary(max_size=60) | st.just(bytes(60)))
    form = {"int16": ">h", "int32": ">i", "none": ""}[known.form]
    head = struct.pack(form, version) if form else b""
    try:
        found = Message(name).read(head + body, version=None if form else version)
    except WireError:
        return
    wanted = {field.key for field in known.present(known.fields, version)} - {"-"}
    tagged = {field.key for field in known.fields if field.tag is not None}
    assert found[0] == version
    assert wanted <= found[1].keys() <= wanted | tagged


def test_message_versions_claimed_by_bytes_are_not_cached() -> None:
    message = Message("StreamsSubscriptionInfo")
    for version in range(12, 300):
        message.read(struct.pack(">ii", version, version))
    assert len(message._bodies) == 1
