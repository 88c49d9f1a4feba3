"""ConsumerProtocol, and the user data of the sticky assignors, of Streams and of Connect.

Bytes are made by hand, captured from real clients, or any at all.
"""

import base64
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.compact import Partitions
from rebal.groups.errors import WireError
from rebal.groups.model import Subscription
from rebal.groups.streams import releases_of, user_data_of
from rebal.groups.wire import consumer_protocol
from rebal.groups.wire.consumer_protocol import (
    ConsumerAssignment,
    StickyUserData,
    StreamsUserData,
    WorkerAssignment,
    WorkerMetadata,
    decode_assignment,
    decode_cooperative_sticky,
    decode_sticky,
    decode_streams,
    decode_subscription,
    decode_worker,
    decode_worker_assignment,
    encode_cooperative_sticky,
    encode_sticky,
)
from tests.counted import counted_calls
from tests.encoders import (
    HIGHEST_STREAMS,
    encode_assignment,
    encode_streams,
    encode_subscription,
    encode_worker,
    encode_worker_assignment,
    int32,
    int64,
    short,
)
from tests.planner.captured import FOLDER
from tests.planner.rehearsal.captures.capture import read
from tests.tables import table

V1 = bytes.fromhex("0001 00000001 0006 6f7264657273 ffffffff 00000001 0006 6f7264657273 00000002")
V1 += bytes.fromhex("00000000 00000005")
V3 = bytes.fromhex("0003 00000001 0001 61 00000000 00000000 00000007 0002 7231")

text = st.text(st.characters(codec="utf-8"), max_size=12)
numbers = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), max_size=6).map(Partitions)
topic_partitions = st.dictionaries(text, numbers, max_size=4)
user_data = st.none() | st.binary(max_size=12)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription:
    version = draw(st.integers(0, 3) | st.integers(4, 2**15 - 1))
    return Subscription(
        version=version,
        topics=tuple(draw(st.lists(text, max_size=4))),
        owned_partitions=draw(topic_partitions) if version >= 1 else None,
        generation_id=draw(st.integers(-(2**31), 2**31 - 1)) if version >= 2 else None,
        rack_id=draw(st.none() | text) if version >= 3 else None,
        user_data=draw(user_data),
    )


@st.composite
def assignments(draw: st.DrawFn) -> ConsumerAssignment:
    return ConsumerAssignment(
        version=draw(st.integers(0, 2**15 - 1)),
        partitions=draw(topic_partitions),
        user_data=draw(user_data),
    )


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Real bytes, cut off, lengthened, or with some bytes overwritten."""
    data = bytearray(draw(whole))
    data = data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 127, 128, 255]))
    return bytes(data) + draw(st.binary(max_size=4))


ANY_SUBSCRIPTION = st.binary(max_size=80) | damaged(subscriptions().map(encode_subscription))
ANY_ASSIGNMENT = st.binary(max_size=80) | damaged(assignments().map(encode_assignment))


def test_v1_and_v3_subscription_bytes_of_java_clients_are_decoded():
    assert decode_subscription(V1) == Subscription(
        version=1, topics=("orders",), owned_partitions={"orders": Partitions([0, 5])}
    )
    assert decode_subscription(V3) == Subscription(
        version=3, topics=("a",), owned_partitions={}, generation_id=7, rack_id="r1", user_data=b""
    )


def test_v0_subscription_bytes_marked_as_v1_are_decoded():
    data = bytes.fromhex("0001 00000001 0001 61 ffffffff")
    read = decode_subscription(data)
    assert (read.topics, read.owned_partitions) == (("a",), None)
    with pytest.raises(WireError, match="cut off"):
        decode_subscription(data + b"\0")


def test_a_newer_subscription_version_is_decoded_as_v3():
    read = decode_subscription(b"\x00\x09" + V3[2:] + b"\x00\x00\x00\x09new-field")
    assert (read.version, read.rack_id, read.generation_id) == (9, "r1", 7)


def test_an_owned_topic_listed_twice_in_a_subscription_is_merged():
    entry = bytes.fromhex("0001 61 00000001 000000")
    data = bytes.fromhex("0001 00000000 ffffffff 00000002") + entry + b"\x00" + entry + b"\x03"
    assert decode_subscription(data).owned_partitions == {"a": Partitions([0, 3])}


@pytest.mark.parametrize(("hex_bytes", "message"), table("consumer_protocol", "bad_subscriptions"))
def test_an_invalid_subscription_is_reported_in_one_sentence(hex_bytes, message):
    with pytest.raises(WireError, match="not a consumer subscription") as caught:
        decode_subscription(bytes.fromhex(hex_bytes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [0x7FFFFFFF, 0x10000000, 0x00FFFFFF])
def test_a_false_length_field_costs_neither_memory_nor_work(count):
    length = count.to_bytes(4, "big")
    for data in (
        b"\0\0" + length,
        b"\0\1" + bytes(4) + b"\xff" * 4 + length,
        b"\0\0" + bytes(4) + length,
    ):
        tracemalloc.start()
        with counted_calls() as calls, pytest.raises(WireError):
            decode_subscription(data + b"x" * 64)
        assert tracemalloc.get_traced_memory()[1] < 200_000
        tracemalloc.stop()
        assert calls.total() < 1000


@given(ANY_SUBSCRIPTION | ANY_ASSIGNMENT)
def test_the_direct_decoder_and_the_schema_decoder_agree_on_any_bytes(data):
    def read():
        found = []
        for decode in (decode_subscription, decode_assignment):
            try:
                found.append(decode(data))
            except WireError as error:
                found.append(str(error))
        return found

    directly = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer_protocol, "_directly", lambda *_: None)
        assert directly == read()


def test_every_captured_subscription_and_assignment_is_re_encoded_byte_by_byte():
    groups = read(FOLDER).groups.values()
    joins = [join for group in groups for join in group.joins()]
    sent = [
        base64.b64decode(each["metadata"])
        for join in joins
        if join.asked["protocolType"] == "consumer"
        for each in (*join.asked["protocols"], *join.answered["members"])
    ]
    values = [record.value for group in groups for record in group.records]
    stored = [
        member
        for value in values
        if value is not None and value.protocol_type == "consumer"
        for member in value.members
    ]
    subscribed = {*sent, *(member.subscription for member in stored)}
    assigned = {member.assignment for member in stored}
    # A member that the leader left out has no bytes at all.
    assigned.discard(b"")
    assert subscribed
    assert assigned
    assert {encode_subscription(decode_subscription(blob)) for blob in subscribed} == subscribed
    assert {encode_assignment(decode_assignment(blob)) for blob in assigned} == assigned


SUBSCRIPTIONS = table("user_data", "subscriptions")
WORKERS = table("user_data", "workers")
ASSIGNED = table("user_data", "assigned")
tasks = st.lists(st.tuples(short, st.lists(int32, max_size=3).map(tuple)), max_size=3).map(tuple)


@st.composite
def streams_data(draw: st.DrawFn) -> StreamsUserData:
    version = draw(st.integers(1, HIGHEST_STREAMS + 2) | st.integers(1, 2**31 - 1))
    return StreamsUserData(
        version=version,
        latest=draw(st.integers(version, 2**31 - 1)) if version >= 3 else None,
        process_id=draw(st.uuids()) if version <= HIGHEST_STREAMS else None,
        rest=draw(st.binary(max_size=12)),
    )


@st.composite
def work_given(draw: st.DrawFn) -> WorkerAssignment:
    version = draw(st.integers(0, 3))
    return WorkerAssignment(
        version=version,
        error=draw(st.integers(-(2**15), 2**15 - 1)),
        leader=draw(short),
        leader_url=draw(short),
        config_offset=draw(int64),
        assigned=draw(st.none() | tasks) if version else draw(tasks),
        revoked=draw(st.none() | tasks) if version else None,
        delay_ms=draw(int32) if version else 0,
    )


@st.composite
def workers(draw: st.DrawFn) -> WorkerMetadata:
    version = draw(st.integers(0, 3))
    return WorkerMetadata(
        version=version,
        url=draw(short),
        config_offset=draw(int64),
        assignment=draw(st.none() | work_given()) if version else None,
    )


previous = st.dictionaries(short, st.lists(int32, min_size=1, max_size=4), max_size=3).map(
    lambda topics: tuple((topic, number) for topic, some in topics.items() for number in some)
)
sticky_data = st.builds(StickyUserData, previous=previous, generation=st.none() | int32)
ANY_PROTOCOL = ANY_SUBSCRIPTION | ANY_ASSIGNMENT
ANY_PROTOCOL |= st.just(bytes.fromhex("0003 00000000 fffffffe 00000000 00000000 ffff"))
ANY_BYTES = st.binary(max_size=60) | st.builds(bytes.__add__, st.just(b"\0\1"), st.binary())
# Each reader and its writer, with values of theirs and what bytes may come.
CODECS = [
    (decode_subscription, encode_subscription, subscriptions(), ANY_PROTOCOL),
    (decode_assignment, encode_assignment, assignments(), ANY_PROTOCOL),
    (decode_streams, encode_streams, streams_data(), ANY_BYTES),
    (decode_worker, encode_worker, workers(), ANY_BYTES),
    (decode_worker_assignment, encode_worker_assignment, work_given(), ANY_BYTES),
    (decode_sticky, encode_sticky, sticky_data, sticky_data.map(encode_sticky)),
]


@pytest.mark.parametrize(("decode", "encode", "values", "sent"), CODECS)
@given(data=st.data())
def test_any_value_survives_encoding_and_any_bytes_are_decoded_or_rejected(
    decode: Any, encode: Any, values: Any, sent: Any, data: st.DataObject
) -> None:
    value = data.draw(values)
    assert decode(encode(value)) == value
    raw = data.draw(sent)
    try:
        read = decode(raw)
    except WireError:
        return
    # The encoder writes the owned partitions that some clients leave out of v1.
    if raw[:2] != b"\0\1" or getattr(read, "owned_partitions", read) is not None:
        assert decode(encode(read)) == read


def user_data_sent(program: str) -> bytes:
    return decode_subscription(base64.b64decode(SUBSCRIPTIONS[program])).user_data


WHOLE: list[tuple[Callable[[bytes], Any], Callable[[Any], bytes], bytes]] = [
    *((decode_streams, encode_streams, user_data_sent(program)) for program in SUBSCRIPTIONS),
    *((decode_worker, encode_worker, base64.b64decode(text)) for text in WORKERS.values()),
    (decode_worker_assignment, encode_worker_assignment, base64.b64decode(ASSIGNED)),
]


@pytest.mark.parametrize(("decode", "encode", "whole"), WHOLE)
def test_captured_user_data_is_re_encoded_unchanged_and_truncation_is_detected(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], whole: bytes
) -> None:
    refused = 0
    for end in range(len(whole)):
        try:
            decode(whole[:end])
        except WireError:
            refused += 1
    assert refused
    assert encode(decode(whole)) == whole


@pytest.mark.parametrize(
    ("program", "version", "latest", "releases"),
    [
        ("2.3.1", 4, 4, ">= 2.1, < 2.4"),
        ("2.3.1 from 1.1", 2, None, "< 2.4"),
        ("3.9.1", 11, 11, ">= 3.4"),
    ],
)
def test_streams_user_data_reveals_the_version_of_the_program(
    program: str, version: int, latest: int | None, releases: str
) -> None:
    subscription = decode_subscription(base64.b64decode(SUBSCRIPTIONS[program]))
    user_data_read = user_data_of(subscription)
    assert (user_data_read.version, user_data_read.latest) == (version, latest)
    assert releases_of(subscription) == releases


def test_foreign_or_downgraded_user_data_reveals_no_streams_release() -> None:
    for data in (None, b"", bytes(40), b"\x00\x00\x00\x0b"):
        assert releases_of(Subscription(version=3, user_data=data)) is None
    # upgrade.from=1.1 makes a new program write the old form.
    old = encode_streams(StreamsUserData(version=2, process_id=UUID(int=7)))
    assert releases_of(Subscription(version=3, user_data=old)) is None


@pytest.mark.parametrize(("data", "expected"), table("user_data", "sticky"))
def test_sticky_user_data_is_read_as_java_does(data: str | None, expected: dict[str, Any]) -> None:
    """A truncated generation is none; Java ignores what it cannot parse."""
    sent = None if data is None else bytes.fromhex(data)
    assert decode_sticky(sent) == StickyUserData(**expected)


@given(st.binary(max_size=60) | sticky_data.map(encode_sticky).map(lambda data: data[:-3]))
def test_any_bytes_are_decoded_as_sticky_user_data(data):
    read = decode_sticky(data)
    if read.readable and data:
        assert decode_sticky(encode_sticky(read)) == read


@given(st.binary(max_size=12))
def test_cooperative_sticky_user_data_is_the_generation_in_four_bytes(data):
    assert decode_cooperative_sticky(None) is None
    read = decode_cooperative_sticky(data)
    assert read == (int.from_bytes(data[:4], "big", signed=True) if len(data) >= 4 else -1)
    if len(data) >= 4:
        assert encode_cooperative_sticky(read) == data[:4]


@pytest.mark.parametrize("generation", [2**31, -(2**31) - 1])
def test_a_generation_out_of_int32_range_is_rejected(generation):
    with pytest.raises(WireError):
        encode_cooperative_sticky(generation)
