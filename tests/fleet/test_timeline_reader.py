"""A group's values read by members known again: the same as each alone, and the same tables."""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from rebal.groups.errors import WireError
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
)
from rebal.inspectors.fleet.timeline.values import (
    NOT_GIVEN,
    MemberSubscription,
    partition_list,
    read_assignment,
    read_value,
)
from tests.examples import examples
from tests.fleet.timeline_story import M, Story, text
from tests.groups.test_offsets_records import written_group

numbers = st.lists(st.integers(0, 3), max_size=2, unique=True)
members = st.builds(
    M,
    st.just(""),
    has=numbers,
    owned=numbers,
    instance=st.sampled_from([None, None, "i"]),
    client=st.sampled_from(["one", "other"]),
    version=st.sampled_from([3, 3, 3, 0, 1, 2]),
    sent=st.one_of(*[st.none()] * 4, st.binary(max_size=20)),
    rack=st.sampled_from([None, "rack", "lane"]),
)
"""Members but for their id, and the generation that each sends."""


@st.composite
def histories(draw: st.DrawFn) -> list[GroupMetadata]:
    """Values of one group, most of whose members stay as they are but for the generation."""
    version, known, made = draw(st.sampled_from([3, 3, 3, 2, 4])), dict[str, M](), []
    for _ in range(draw(st.integers(2, 6))):
        generation = draw(st.integers(0, 9))
        ids = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5))
        for one in ids:
            if one not in known or not draw(st.integers(0, 3)):
                known[one] = draw(members)
        value = GroupMetadata(
            version=version,
            protocol_type=draw(st.sampled_from(["consumer"] * 9 + ["connect"])),
            generation=generation,
            protocol=draw(st.sampled_from(["range", "cooperative-sticky"])),
            leader=draw(st.sampled_from(["a", "b"])),
            state_timestamp_ms=draw(st.sampled_from([-1, 1_790_000_000_000])),
            members=tuple(
                replace(known[one], id=one, generation=generation).in_group(version) for one in ids
            ),
        )
        made.append(value)
    return made


def as_read(one: GroupMetadataMember, consumer: bool) -> tuple[Any, ...]:
    """What the strict codec says of a member, apart from the reader under test."""
    identity = (
        one.member_id, one.instance_id, one.client_id, one.client_host,
        one.rebalance_timeout_ms, one.session_timeout_ms, "classic",
    )  # fmt: skip
    if not consumer:
        return identity, None, MemberSubscription(), NOT_GIVEN
    given = read_assignment(one.assignment)
    try:
        read = decode_subscription(one.subscription)
    except WireError as error:
        return identity, None, MemberSubscription(error=str(error)), given
    owned = partition_list(read.owned_partitions)
    said = MemberSubscription(read.version, read.topics, owned, read.rack_id, read.user_data)
    return identity, read.generation_id, said, given


def head(value: GroupMetadata) -> tuple[Any, ...]:
    return (value.protocol_type, value.generation, value.protocol, value.leader)


@examples(40, full=100)
@given(st.lists(histories(), min_size=1, max_size=3), st.data())
def test_values_read_one_after_another_say_what_each_says_alone(
    groups: list[list[GroupMetadata]], data: st.DataObject
) -> None:
    for one in itertools.chain.from_iterable(groups):
        raw = bytearray(written_group(one))
        harm = data.draw(st.sampled_from(["none"] * 4 + ["cut", "changed"]))
        place = data.draw(st.integers(0, len(raw) - 1))
        if harm == "cut":
            del raw[place:]
        elif harm == "changed":
            raw[place] ^= data.draw(st.integers(1, 255))
        try:
            alone = decode_group_metadata(bytes(raw))
        except WireError as error:
            with pytest.raises(WireError, match=re.escape(str(error))):
                read_value(bytes(raw))
        else:
            found, named = read_value(bytes(raw))
            assert head(found) == head(alone)
            assert [
                (astuple(one)[:7], generation, one.subscription, one.assignment)
                for one, generation in named.items()
            ] == [as_read(one, alone.protocol_type == "consumer") for one in alone.members]


@pytest.mark.parametrize("more", [b"", b"more"])
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("rack", [None, "rack"])
def test_a_member_that_says_the_same_again_is_the_same_object(
    version: int, rack: str | None, more: bytes
) -> None:
    """Also where bytes after the last field hide the place of the generation."""
    story = Story()
    for generation, ids in ((5, "ab"), (6, "ba")):
        b = M("b", (0,), (0,), version=version, generation=generation, rack=rack)
        b = replace(b, sent=b.subscription() + more)
        story.generation(60, generation, [b if one == "b" else M("a", (0,)) for one in ids])
    first, second = (read_value(row["value"])[1] for row in story.rows)
    assert list(second) == list(first)[::-1]
    told = [{one.member_id: generation for one, generation in of.items()} for of in (first, second)]
    assert [of["b"] for of in told] == ([5, 6] if version > 1 else [None, None])


def test_a_value_that_claims_very_many_members() -> None:
    some = [text(f"{n}") + struct.pack(">hhhiiii", *[0] * 7) for n in range(10_001)]
    start = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", 1, -1, -1, -1, 10_001)
    whole, cut = start + b"".join(some), start + bytes(10_000 * 24)
    assert len(read_value(whole)[1]) == 10_001
    with pytest.raises(WireError, match="more than its bytes can hold"):
        read_value(cut + bytes(10))
