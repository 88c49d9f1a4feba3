"""The short ways to read and to leave out user data give what the long ones give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.assignors import NAMES, Assignment, LeaderWouldFail, Spec, SpecMember
from rebal.groups.assignors.client.kafka import ASSIGNORS
from rebal.groups.assignors.client.problem import Problem
from rebal.groups.assignors.client.sticky import Memories
from rebal.groups.wire.user_data import StickyUserData, decode_sticky, encode_sticky
from tests.examples import examples

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


@examples(100, full=300)
@given(st.one_of(sent, damaged(), st.binary(max_size=40), st.none()))
def test_any_bytes_are_read_as_the_codec_reads_them(data: bytes | None) -> None:
    for some in (problem(), problem("t-é\ufffd")):
        assert Memories(some).read(data) == by_the_codec(some, data)


@st.composite
def claims(draw: st.DrawFn) -> Spec:
    """Members that claim what they like, of any generation, and their topics at random."""
    counts = {"orders": 5, "payments": 3, "a": 2, "é": 4}
    owned = st.tuples(st.sampled_from([*counts, "no-such-topic"]), st.integers(0, 6))
    alike = draw(st.booleans())
    some = st.lists(st.sampled_from(sorted(counts)), unique=True).map(tuple)
    return Spec(
        members=tuple(
            SpecMember(
                member_id=f"m{n}",
                topics=tuple(counts) if alike else draw(some),
                owned=tuple(draw(st.lists(owned, max_size=6, unique=draw(st.booleans())))),
                generation=draw(st.none() | st.integers(-1, 2)),
            )
            for n in range(draw(st.integers(1, 4)))
        ),
        partitions=counts,
    )


def outcome(assign: Callable[[Spec], Assignment], spec: Spec) -> object:
    try:
        return assign(spec)
    except LeaderWouldFail as error:
        return str(error), error.members, error.topics, error.never_ends


@pytest.mark.parametrize("name", NAMES)
@examples(60, full=200)
@given(spec=claims())
def test_what_is_remembered_need_not_be_sent(name: str, spec: Spec) -> None:
    """The way without bytes gives what the members' own user data gives, whatever they claim."""
    assignor = ASSIGNORS[name]
    sent = (replace(m, user_data=assignor.subscription_user_data(m)) for m in spec.members)
    over_the_wire = outcome(assignor.assign, replace(spec, members=tuple(sent)))
    assert outcome(assignor.assign_remembered, spec) == over_the_wire
