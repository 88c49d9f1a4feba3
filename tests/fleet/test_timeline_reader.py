"""A group's values read by members known again: the same as each alone, and the same tables."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rebal.groups.errors import WireError
from rebal.groups.wire.consumer_protocol import decode_assignment, decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
)
from rebal.inspectors.fleet.timeline.values import (
    NOTHING,
    Named,
    PartitionList,
    Subscription,
    partition_list,
    read_value,
)
from tests.examples import examples
from tests.fleet.timeline_story import M, Story
from tests.groups.test_group_metadata import written

START = 1_790_000_000_000_000
KEY = b"\x00\x02\x00\x01g"


def text(raw: str) -> bytes:
    return struct.pack(">h", len(raw)) + raw.encode()


def partitions(numbers: Sequence[int]) -> bytes:
    if not numbers:
        return struct.pack(">i", 0)
    return (
        struct.pack(">i", 1) + text("t") + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    )


RACKS = [b"\xff\xff", text("rack"), text("lane")]


@st.composite
def subscriptions(draw: st.DrawFn, generation: int) -> bytes:
    """A consumer's subscription of any version, or what is none."""
    version = draw(st.sampled_from([3, 3, 3, 0, 1, 2, -1]))
    if version < 0:
        return draw(st.binary(max_size=20))
    out = struct.pack(">h", version) + struct.pack(">i", 1) + text("t") + struct.pack(">i", -1)
    if version >= 1:
        out += partitions(draw(st.lists(st.integers(0, 3), max_size=2)))
    if version >= 2:
        out += struct.pack(">i", generation)
    return out + (draw(st.sampled_from(RACKS)) if version >= 3 else b"")


def with_generation(subscription: bytes, generation: int) -> bytes:
    """A subscription that was made here, in another generation."""
    tails = {b"\x00\x02": [b""], b"\x00\x03": RACKS}
    for tail in tails.get(subscription[:2], []):
        if len(subscription) >= 18 + len(tail) and subscription.endswith(tail):
            end = len(subscription) - len(tail)
            return subscription[: end - 4] + struct.pack(">i", generation) + tail
    return subscription


@st.composite
def members(draw: st.DrawFn, generation: int) -> GroupMetadataMember:
    return GroupMetadataMember(
        member_id=draw(st.sampled_from("abcdefgh")) + draw(st.sampled_from(["", "1", "2"])),
        instance_id=draw(st.sampled_from([None, None, "i"])),
        client_id=draw(st.sampled_from(["one", "other"])),
        client_host="/10.0.0.1",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=draw(st.sampled_from([10_000, 45_000])),
        subscription=draw(subscriptions(generation)),
        assignment=b"\x00\x01"
        + partitions(draw(st.lists(st.integers(0, 3), max_size=2, unique=True)))
        + b"\xff\xff\xff\xff",
    )


@st.composite
def histories(draw: st.DrawFn) -> list[GroupMetadata]:
    """Values of one group, most of whose members stay, wholly or but for a part."""
    version = draw(st.sampled_from([3, 3, 3, 2, 4]))
    last = GroupMetadata(
        version=version, protocol_type="consumer", generation=1, protocol="range", leader="a"
    )
    made = []
    for _ in range(draw(st.integers(2, 6))):
        generation = max(0, last.generation + draw(st.sampled_from([1, 1, 1, 0, 2, -1])))
        now = []
        for member in last.members:
            sent = draw(subscriptions(generation))
            changes: dict[str, dict[str, Any]] = {
                "none": {},
                "rejoined": {"subscription": with_generation(member.subscription, generation)},
                "subscription": {"subscription": sent},
                "assignment": {"assignment": draw(members(generation)).assignment},
                "other": {"client_id": "third"},
            }
            change = draw(st.sampled_from([*changes, "none", "rejoined", "rejoined", "gone"]))
            if change != "gone":
                now.append(structs.replace(member, **changes[change]))
        there = {member.member_id for member in now}
        came = draw(st.lists(members(generation), max_size=3, unique_by=lambda one: one.member_id))
        now += [member for member in came if member.member_id not in there]
        if draw(st.integers(0, 3)) == 0:
            now = draw(st.permutations(now))
        if version < 3:
            now = [structs.replace(member, instance_id=None) for member in now]
        last = structs.replace(
            last,
            generation=generation,
            protocol=draw(st.sampled_from([last.protocol, last.protocol, "cooperative-sticky"])),
            leader=draw(st.sampled_from([last.leader, "b"])),
            protocol_type=draw(st.sampled_from(["consumer"] * 9 + ["connect"])),
            state_timestamp_ms=draw(st.sampled_from([-1, 1_790_000_000_000])),
            members=tuple(now),
        )
        made.append(last)
    return made


def as_read(value: GroupMetadata) -> list[tuple[Any, ...]]:
    """What the strict codec says of each member, apart from the reader under test."""
    read: list[tuple[Any, ...]] = []
    for one in value.members:
        identity = (
            one.member_id, one.instance_id, one.client_id, one.client_host,
            one.rebalance_timeout_ms, one.session_timeout_ms, "classic",
        )  # fmt: skip
        said: tuple[Any, ...] = (None, Subscription())
        given: PartitionList | None = None
        if value.protocol_type == "consumer":
            said, given = subscription(one.subscription), assignment(one.assignment)
        read.append((identity, *said, given))
    return read


def subscription(data: bytes) -> tuple[int | None, Subscription]:
    try:
        read = decode_subscription(data)
    except WireError as error:
        return None, Subscription(error=str(error))
    owned = partition_list(read.owned_partitions)
    said = Subscription(read.version, read.topics, owned, read.rack_id, read.user_data)
    return read.generation_id, said


def assignment(data: bytes) -> PartitionList | None:
    try:
        return partition_list(decode_assignment(data).partitions) if data else NOTHING
    except WireError:
        return None


def told(members: Named) -> list[tuple[Any, ...]]:
    return [
        (one.identity, generation, one.subscription, one.assignment.partitions)
        for one, generation in members.items()
    ]


def head(value: GroupMetadata) -> tuple[Any, ...]:
    return (value.protocol_type, value.generation, value.protocol, value.leader)


@examples(40, full=100)
@given(st.lists(histories(), min_size=1, max_size=3), st.data())
def test_values_read_one_after_another_say_what_each_says_alone(
    groups: list[list[GroupMetadata]], data: st.DataObject
) -> None:
    for one in itertools.chain.from_iterable(groups):
        raw = written(one)
        if data.draw(st.integers(0, 5)) == 0:
            raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
        elif data.draw(st.integers(0, 5)) == 0:
            changed = bytearray(raw)
            changed[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
            raw = bytes(changed)
        try:
            alone = decode_group_metadata(raw)
        except WireError as error:
            with pytest.raises(WireError, match=re.escape(str(error))):
                read_value(raw)
        else:
            found, named = read_value(raw)
            assert (head(found), told(named)) == (head(alone), as_read(alone))


SENT = struct.pack(">hi", 3, 1) + text("t") + struct.pack(">i", -1) + partitions([0])
AGAIN = {
    "no generation": (SENT[:1] + b"\x01" + SENT[2:], (None, None)),
    "version 2": (SENT[:1] + b"\x02" + SENT[2:] + struct.pack(">i", 5), (5, 6)),
    "no rack": (SENT + struct.pack(">i", 5) + RACKS[0], (5, 6)),
    "a rack": (SENT + struct.pack(">i", 5) + RACKS[1], (5, 6)),
}


@pytest.mark.parametrize(("sent", "generations"), AGAIN.values(), ids=AGAIN)
def test_a_member_that_says_the_same_again_is_the_same_object(
    sent: bytes, generations: tuple[int | None, ...]
) -> None:
    story = Story()
    story.generation(60, 1, [M("a", (0,)), M("b", (1,), sent=sent)])
    story.generation(120, 2, [M("b", (1,), sent=with_generation(sent, 6)), M("a", (0,))])
    first, second = (list(read_value(row["value"]).members.items()) for row in story.rows)
    assert second[1][0] is first[0][0]
    assert second[0][0] is first[1][0]
    assert (first[1][1], second[0][1]) == generations


def test_a_member_whose_bytes_tell_no_place_of_the_generation() -> None:
    """Bytes follow the last field: the whole is decoded anew wherever it is another one."""
    sent = SENT + struct.pack(">i", 5) + RACKS[0] + b"more"
    story = Story()
    for number, generation in enumerate((5, 5, 6), 1):
        said = sent.replace(struct.pack(">i", 5), struct.pack(">i", generation))
        story.generation(60 * number, number, [M("b", (1,), sent=said)])
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
