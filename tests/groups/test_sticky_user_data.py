"""User data of the sticky assignors: as tolerant as Java, and exact on what was captured."""

from __future__ import annotations

import base64
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.clients import version_tuple
from rebal.groups.errors import WireError
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.user_data import (
    StickyUserData,
    decode_cooperative_sticky,
    decode_sticky,
    encode_cooperative_sticky,
    encode_sticky,
)

V0 = bytes.fromhex("00000001 0001 61 00000002 00000000 00000003")

previous = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
    max_size=3,
).map(lambda topics: tuple((t, p) for t, numbers in topics.items() for p in numbers))
values = st.builds(
    StickyUserData, previous=previous, generation=st.none() | st.integers(-(2**31), 2**31 - 1)
)


def test_v0_has_no_generation():
    assert decode_sticky(V0) == StickyUserData(previous=(("a", 0), ("a", 3)))


def test_v1_has_one():
    assert decode_sticky(V0 + bytes.fromhex("00000009")).generation == 9


def test_bytes_after_v1_are_ignored_and_a_cut_generation_is_v0():
    whole = V0 + bytes.fromhex("00000009")
    assert decode_sticky(whole + b"more") == decode_sticky(whole)
    assert decode_sticky(whole[:-1]) == decode_sticky(V0)


@pytest.mark.parametrize("nothing", [None, b""])
def test_no_user_data_remembers_nothing(nothing):
    assert decode_sticky(nothing) == StickyUserData()


@pytest.mark.parametrize("hex_bytes", ["00", "ffffffff", "7fffffff 00", "00000001 ffff 00000000"])
def test_what_java_cannot_parse_is_forgotten(hex_bytes):
    read = decode_sticky(bytes.fromhex(hex_bytes))
    assert read == StickyUserData(generation=-1, readable=False)


def test_a_topic_that_is_not_utf8_is_read_with_replacement_as_java_does():
    data = bytes.fromhex("00000001 0001 ff 00000001 00000000 00000002")
    assert decode_sticky(data) == StickyUserData(previous=(("\ufffd", 0),), generation=2)


@given(values)
def test_any_value_survives_its_bytes(value):
    assert decode_sticky(encode_sticky(value)) == value


@given(st.binary(max_size=60) | values.map(encode_sticky).map(lambda data: data[:-3]))
def test_any_bytes_give_a_value(data):
    read = decode_sticky(data)
    if read.readable and data:
        assert decode_sticky(encode_sticky(read)) == read


@given(st.binary(max_size=12))
def test_cooperative_user_data_is_the_first_four_bytes(data):
    read = decode_cooperative_sticky(data)
    assert read == (int.from_bytes(data[:4], "big", signed=True) if len(data) >= 4 else -1)
    assert read is not None
    if len(data) >= 4:
        assert encode_cooperative_sticky(read) == data[:4]


def test_cooperative_null_is_no_generation():
    assert decode_cooperative_sticky(None) is None


@pytest.mark.parametrize("generation", [2**31, -(2**31) - 1])
def test_a_generation_out_of_range_is_refused(generation):
    with pytest.raises(WireError):
        encode_cooperative_sticky(generation)


def test_captured_cooperative_user_data(captures, capsys):
    """Java since 2.8.1 writes four bytes (KAFKA-12984): the last generation that this assignor
    itself handed out, so -1 while another assignor is the elected one, and never above the member's
    own generation, unless it has lost that (-1) as it was too slow.
    """
    seen: Counter[str] = Counter()
    for request in captures.requests("JOIN_GROUP"):
        software = request["clientInformation"]["softwareName"]
        for protocol in request["request"]["protocols"]:
            if protocol["name"] != "cooperative-sticky":
                continue
            subscription = decode_subscription(base64.b64decode(protocol["metadata"]))
            data = subscription.user_data
            version = request["clientInformation"]["softwareVersion"]
            older = (version_tuple(version) or ()) < (2, 8, 1)
            if software == "apache-kafka-java" and not older:
                generation = decode_cooperative_sticky(data)
                assert generation is not None
                assert encode_cooperative_sticky(generation) == data
                if subscription.version >= 2 and subscription.generation_id >= 0:
                    assert -1 <= generation <= subscription.generation_id
            seen[f"{software} {'null' if data is None else len(data)}"] += 1
    assert seen["apache-kafka-java 4"] or not captures.bundled
    with capsys.disabled():
        print(f"\ncooperative-sticky user data, bytes by client: {dict(seen)}")
