"""The short way through user data understands what the codec understands, whatever the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.assignors.memory import Memories
from rebal.groups.assignors.problem import Problem
from rebal.groups.wire.sticky import StickyUserData, decode_sticky, encode_sticky

TOPICS = ("orders", "payments", "a", "no-such-topic")
partitions = st.tuples(st.sampled_from(TOPICS), st.integers(-1, 12))
sent = st.builds(
    lambda previous, generation: encode_sticky(
        StickyUserData(previous=tuple(previous), generation=generation)
    ),
    st.lists(partitions, max_size=12),
    st.none() | st.integers(-1, 9),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(sent))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    end = draw(st.integers(0, len(data)))
    return bytes(data[:end]) if draw(st.booleans()) else bytes(data) + draw(st.binary(max_size=4))


def problem(*more: str) -> Problem:
    topics = (*TOPICS[:3], *more)
    member = SpecMember(member_id="m", topics=topics)
    return Problem(Spec(members=(member,), partitions=dict.fromkeys(topics, 12)))


def by_the_codec(problem: Problem, data: bytes | None) -> tuple[list[int], int]:
    read = decode_sticky(data)
    return problem.codes(read.previous), -1 if read.generation is None else read.generation


@settings(max_examples=300)
@given(st.one_of(sent, damaged(), st.binary(max_size=40), st.none()))
def test_any_bytes_are_read_as_the_codec_reads_them(data: bytes | None) -> None:
    for some in (problem(), problem("t-é\ufffd")):
        assert Memories(some).read(data) == by_the_codec(some, data)


def test_usual_bytes_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    previous = (("orders", 3), ("orders", 1), ("no-such-topic", 0), ("payments", 7))
    data = encode_sticky(StickyUserData(previous=previous, generation=4))
    some = problem()
    expected = by_the_codec(some, data)
    monkeypatch.delattr("rebal.groups.assignors.memory.decode_sticky")
    assert Memories(some).read(data) == expected
    assert expected[1] == 4
