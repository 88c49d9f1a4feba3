"""User data of the sticky assignors: as tolerant as Java."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import WireError
from rebal.groups.wire.user_data import (
    StickyUserData,
    decode_cooperative_sticky,
    decode_sticky,
    encode_cooperative_sticky,
    encode_sticky,
)

V0 = bytes.fromhex("00000001 0001 61 00000002 00000000 00000003")
OWNED = (("a", 0), ("a", 3))

previous = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
    max_size=3,
).map(lambda topics: tuple((t, p) for t, numbers in topics.items() for p in numbers))
values = st.builds(
    StickyUserData, previous=previous, generation=st.none() | st.integers(-(2**31), 2**31 - 1)
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (V0, StickyUserData(previous=OWNED)),
        (V0 + bytes.fromhex("00000009"), StickyUserData(previous=OWNED, generation=9)),
        (V0 + bytes.fromhex("00000009") + b"more", StickyUserData(previous=OWNED, generation=9)),
        # A generation that is cut off is none.
        (V0 + bytes.fromhex("000000"), StickyUserData(previous=OWNED)),
        (None, StickyUserData()),
        (b"", StickyUserData()),
        # What Java cannot parse it forgets; of text it replaces what is not UTF-8.
        (b"\x00", StickyUserData(generation=-1, readable=False)),
        (bytes.fromhex("ffffffff"), StickyUserData(generation=-1, readable=False)),
        (bytes.fromhex("00000001 ffff 00000000"), StickyUserData(generation=-1, readable=False)),
        (
            bytes.fromhex("00000001 0001 ff 00000001 00000000 00000002"),
            StickyUserData(previous=(("\ufffd", 0),), generation=2),
        ),
    ],
)
def test_user_data_is_read_as_java_reads_it(data: bytes | None, expected: StickyUserData) -> None:
    assert decode_sticky(data) == expected


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
    assert decode_cooperative_sticky(None) is None
    read = decode_cooperative_sticky(data)
    assert read == (int.from_bytes(data[:4], "big", signed=True) if len(data) >= 4 else -1)
    if len(data) >= 4:
        assert encode_cooperative_sticky(read) == data[:4]


@pytest.mark.parametrize("generation", [2**31, -(2**31) - 1])
def test_a_generation_out_of_range_is_refused(generation):
    with pytest.raises(WireError):
        encode_cooperative_sticky(generation)
