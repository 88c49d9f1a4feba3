"""A group's state: bounded by the members there are, and a document that is read whole only."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.timeline import rows as timeline_rows
from rebal.inspectors.fleet.timeline.facts import unpack_request
from rebal.inspectors.fleet.timeline.group import (
    Options,
    TimelineRow,
    apply_record,
    apply_request,
    finish,
    make_tables,
)
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.state import SCHEMA, TimelineState, decode, encode
from tests.fleet.timeline_input import in_order, record_of
from tests.fleet.timeline_story import M, Story


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
