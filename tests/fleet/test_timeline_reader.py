"""A group's values read by members known again: the same as each alone, and the same tables."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import WireError
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
)
from rebal.inspectors.fleet.timeline.values import (
    NOT_GIVEN,
    Subscription,
    partition_list,
    read_assignment,
    read_value,
)
from tests.examples import examples
from tests.fleet.timeline_story import M, Story, text
from tests.groups.test_group_metadata import written

RACKS = [b"\xff\xff", text("rack"), text("lane")]


def partitions(numbers: Sequence[int]) -> bytes:
    packed = struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return struct.pack(">i", 1) + text("t") + packed if numbers else struct.pack(">i", 0)


def sent(
    version: int, generation: int, owned: Sequence[int] = (0,), rack: bytes = RACKS[0]
) -> bytes:
    """A consumer's subscription of this version."""
    fields = [partitions(owned), struct.pack(">i", generation), rack][:version]
    return struct.pack(">hi", version, 1) + text("t") + struct.pack(">i", -1) + b"".join(fields)


class Shape(NamedTuple):
    """A member but for the generation that it sends; `junk` are bytes that it sends instead."""

    version: int
    owned: list[int]
    rack: bytes
    junk: bytes | None
    instance: str | None
    client: str
    assigned: list[int]

    def in_group(self, member_id: str, generation: int, value_version: int) -> GroupMetadataMember:
        said = sent(self.version, generation, self.owned, self.rack)
        return GroupMetadataMember(
            member_id=member_id,
            instance_id=self.instance if value_version >= 3 else None,
            client_id=self.client,
            client_host="/10.0.0.1",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=10_000,
            subscription=said if self.junk is None else self.junk,
            assignment=b"\x00\x01" + partitions(self.assigned) + b"\xff\xff\xff\xff",
        )


numbers = st.lists(st.integers(0, 3), max_size=2, unique=True)
shapes = st.builds(
    Shape,
    st.sampled_from([3, 3, 3, 0, 1, 2]),
    numbers,
    st.sampled_from(RACKS),
    st.one_of(*[st.none()] * 4, st.binary(max_size=20)),
    st.sampled_from([None, None, "i"]),
    st.sampled_from(["one", "other"]),
    numbers,
)


@st.composite
def histories(draw: st.DrawFn) -> list[GroupMetadata]:
    """Values of one group, most of whose members stay as they are but for the generation."""
    version, known, made = draw(st.sampled_from([3, 3, 3, 2, 4])), dict[str, Shape](), []
    for _ in range(draw(st.integers(2, 6))):
        generation = draw(st.integers(0, 9))
        ids = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5))
        for one in ids:
            if one not in known or not draw(st.integers(0, 3)):
                known[one] = draw(shapes)
        value = GroupMetadata(
            version=version,
            protocol_type=draw(st.sampled_from(["consumer"] * 9 + ["connect"])),
            generation=generation,
            protocol=draw(st.sampled_from(["range", "cooperative-sticky"])),
            leader=draw(st.sampled_from(["a", "b"])),
            state_timestamp_ms=draw(st.sampled_from([-1, 1_790_000_000_000])),
            members=tuple(known[one].in_group(one, generation, version) for one in ids),
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
        return identity, None, Subscription(), NOT_GIVEN
    given = read_assignment(one.assignment)
    try:
        read = decode_subscription(one.subscription)
    except WireError as error:
        return identity, None, Subscription(error=str(error)), given
    owned = partition_list(read.owned_partitions)
    said = Subscription(read.version, read.topics, owned, read.rack_id, read.user_data)
    return identity, read.generation_id, said, given


def head(value: GroupMetadata) -> tuple[Any, ...]:
    return (value.protocol_type, value.generation, value.protocol, value.leader)


@examples(40, full=100)
@given(st.lists(histories(), min_size=1, max_size=3), st.data())
def test_values_read_one_after_another_say_what_each_says_alone(
    groups: list[list[GroupMetadata]], data: st.DataObject
) -> None:
    for one in itertools.chain.from_iterable(groups):
        raw = bytearray(written(one))
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
                (one.identity, generation, one.subscription, one.assignment)
                for one, generation in named.items()
            ] == [as_read(one, alone.protocol_type == "consumer") for one in alone.members]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("rack", RACKS[:2])
def test_a_member_that_says_the_same_again_is_the_same_object(version: int, rack: bytes) -> None:
    story = Story()
    for generation, ids in ((5, "ab"), (6, "ba")):
        said = {"a": None, "b": sent(version, generation, rack=rack)}
        story.generation(60, generation, [M(one, (0,), sent=said[one]) for one in ids])
    first, second = (read_value(row["value"]).members for row in story.rows)
    assert list(second) == list(first)[::-1]
    told = [{one.member_id: generation for one, generation in of.items()} for of in (first, second)]
    assert [of["b"] for of in told] == ([5, 6] if version > 1 else [None, None])


def test_a_member_whose_bytes_tell_no_place_of_the_generation() -> None:
    """Bytes follow the last field: the whole is decoded anew wherever it is another one."""
    story = Story()
    for number, generation in enumerate((5, 5, 6), 1):
        story.generation(60 * number, number, [M("b", (1,), sent=sent(3, generation) + b"more")])
    found = [next(iter(read_value(row["value"]).members.items())) for row in story.rows]
    assert [generation for _, generation in found] == [5, 5, 6]
    assert found[0][0] is found[1][0]
    assert found[0][0] is not found[2][0]


def test_a_value_that_claims_very_many_members() -> None:
    some = [text(f"{n}") + struct.pack(">hhhiiii", *[0] * 7) for n in range(10_001)]
    start = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", 1, -1, -1, -1, 10_001)
    whole, cut = start + b"".join(some), start + bytes(10_000 * 24)
    assert len(read_value(whole)[1]) == 10_001
    with pytest.raises(WireError, match="more than its bytes can hold"):
        read_value(cut + bytes(10))
