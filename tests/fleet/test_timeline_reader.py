"""A group's values read by members known again, and its state.

The values say the same as each alone; the state is bounded by the members there are, and a document
that is read whole only.
"""

import itertools
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect
from msgspec.structs import astuple

from rebal.groups.errors import DocumentError, WireError
from rebal.groups.wire.consumer_protocol import decode_subscription
from rebal.groups.wire.offsets_topic import (
    GroupMetadata,
    GroupMetadataMember,
    decode_group_metadata,
)
from rebal.inspectors.fleet import schemas as timeline_rows
from rebal.inspectors.fleet.schemas import Rows
from rebal.inspectors.fleet.timeline.facts import unpack_request
from rebal.inspectors.fleet.timeline.group import (
    Options,
    TimelineRow,
    apply_record,
    apply_request,
    finish,
    make_tables,
)
from rebal.inspectors.fleet.timeline.history import SCHEMA, TimelineState, decode, encode
from rebal.inspectors.fleet.timeline.values import (
    NOT_GIVEN,
    MemberSubscription,
    partition_list,
    read_assignment,
    read_value,
)
from tests.examples import examples
from tests.fleet.timeline_input import in_order, record_of
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


def size_after(story: Story, step: Callable[[Story, int], None], count: int) -> tuple[int, int]:
    """How large a state is after so many steps, and how many rebalances were told."""
    rows, state, found = Rows(), TimelineState(group_id="g"), 0

    def taken() -> int:
        return sum(len(b) for name, b in rows.take(rest=True) if name.endswith("rebalances"))

    for number in range(1, count):
        step(story, number)
        for row in in_order(story.rows):
            if row["key"] is not None:
                apply_record(state, rows, record_of(row))
            else:
                apply_request(state, rows, row["at"], unpack_request(row["value"]))
        story.rows.clear()
        found += taken()
    size = len(encode(state))
    finish(state, rows)
    return size, found + taken()


def rebalance(story: Story, number: int) -> None:
    members = [M("a", (0,)), M(f"m{number}", (1,), client=f"c{number}")]
    story.round(number * 60, number, members)
    story.refuse(number * 60 + 5, f"r{number}", ("sticky",))
    story.generation(number * 60 + 0.05, number, members)


def heartbeats(story: Story, epoch: int) -> None:
    story.beat(epoch * 60, f"n{epoch}", 0, epoch)
    for member in ("a", "b"):
        story.beat(epoch * 60, member, epoch - 1, epoch)


@pytest.mark.parametrize(
    ("step", "count"),
    [pytest.param(rebalance, 200, marks=pytest.mark.slow), (heartbeats, 1_000)],
    ids=["records and requests", "heartbeats alone"],
)
def test_memory_does_not_grow_with_history(step: Callable[[Story, int], None], count: int) -> None:
    """What is kept is bounded by the members there are, not by how many there have been."""
    (few, _), (many, rebalances) = (size_after(Story(), step, n) for n in (count, 3 * count))
    assert many < 1.2 * few, (few, many)
    assert rebalances == 3 * count - 1


def test_rows_of_unchanged_members_are_handed_on_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline_rows, "_AT_ONCE", 1_000)
    story = Story()
    for number in range(1, 3_500):
        story.generation(number, number, [M("a", (0,))])
    given = 0

    def counted() -> Iterator[TimelineRow]:
        nonlocal given
        for row in in_order(story.rows):
            given += 1
            yield record_of(row)

    made = make_tables(counted(), Options())
    found = next(len(rows) for kind, rows in made if kind == "rebalances")
    assert found >= 1_000
    assert given < len(story.rows)


def told() -> TimelineState:
    """The state of a group of two members after some generations."""
    state, story = TimelineState(group_id="g", recorded=True), Story()
    for number in range(1, 6):
        story.generation(number * 60, number, [M("a", (0,)), M("b", (1,))])
    for row in story.rows:
        apply_record(state, Rows(), record_of(row))
    return state


def crafted(**changes: Any) -> bytes:
    """A state's document with other values of some fields."""
    fields = msgspec.msgpack.decode(encode(told()))
    for name, value in changes.items():
        fields[TimelineState.__struct_fields__.index(name)] = value
    return msgspec.msgpack.encode(fields)


BROKEN = {
    "another format": b"PAR1 and more",
    "nothing": b"",
    "cut off": encode(told())[:50],
    "cut off at its end": encode(told())[:-1],
    "another schema": crafted(schema=SCHEMA + 1),
    "a text for a number": crafted(last_at="now"),
    "another type of group": crafted(type="none"),
    "no number of a partition": encode(told()).replace(b"\xa1t\x91\x01", b"\xa1t\x91\xc0"),
    "another group's": crafted(group_id="h"),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_nothing_but_a_whole_document_is_read(data: bytes) -> None:
    with pytest.raises(
        DocumentError, match=r"the lake's state of group g .*: scan again with --full"
    ):
        decode(data, "g")


def shape_of(kind: Any) -> Any:
    """A type by its fields' names and types, all the way down."""
    if isinstance(kind, inspect.Field):
        return kind.name, shape_of(kind.type)
    if isinstance(kind, inspect.EnumType):
        return [one.value for one in kind.cls]
    if isinstance(kind, tuple):
        return [shape_of(one) for one in kind]
    if isinstance(kind, inspect.Type):
        return type(kind).__name__, [shape_of(getattr(kind, n)) for n in kind.__struct_fields__]
    return kind if isinstance(kind, bool | int | str) else None


def test_every_change_of_a_document_has_a_schema_of_its_own() -> None:
    """If this fails, raise `SCHEMA` (not for a name alone: documents are arrays); note both."""
    shape = repr(shape_of(inspect.type_info(TimelineState)))
    assert (SCHEMA, zlib.crc32(shape.encode())) == (7, 1722434786)
