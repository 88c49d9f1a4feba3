"""A group's state as a document: what it holds, and what is refused."""

from __future__ import annotations

import os
import pickle
import zlib
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from rebal.groups.errors import DocumentError
from rebal.inspectors.fleet.timeline.group import apply_record
from rebal.inspectors.fleet.timeline.rows import Rows
from rebal.inspectors.fleet.timeline.state import SCHEMA, GroupState, decode, encode
from tests.fleet.timeline_input import Row, record_of
from tests.fleet.timeline_story import M, Story
from tests.house.modules import files, imports


def story(generations: int) -> list[Row]:
    """A group of two members through so many generations."""
    made = Story()
    for number in range(1, generations + 1):
        made.generation(number * 60, number, [M("a", (0,)), M("b", (1,))])
    return made.rows


def told(generations: int) -> GroupState:
    state, rows = GroupState(group_id="g", recorded=True), Rows()
    for row in story(generations):
        apply_record(state, rows, record_of(row))
    return state


def test_a_document_says_all_that_the_state_holds() -> None:
    state = told(5)
    back = decode(encode(state), "g")
    assert encode(back) == encode(state)
    assert (back.group_id, back.last_at) == ("g", state.last_at)
    assert back.members["a"].member.assignment.count == 1


class _Command:
    """Stands for what somebody else may put into a lake."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("exit 1",)


def crafted(**changes: Any) -> bytes:
    """A state's document with other values of some fields."""
    fields = msgspec.msgpack.decode(encode(told(3)))
    for name, value in changes.items():
        fields[GroupState.__struct_fields__.index(name)] = value
    return msgspec.msgpack.encode(fields)


def half_a_partition() -> bytes:
    return encode(told(3)).replace(b"\xc4\x04\x00\x00\x00\x01", b"\xc4\x02\x00\x01")


BROKEN = {
    "a pickle": pickle.dumps([1, 2]),
    "a pickled command": pickle.dumps(_Command()),
    "nothing": b"",
    "its first byte": encode(told(3))[:1],
    "cut off": encode(told(3))[:50],
    "cut off at its end": encode(told(3))[:-1],
    "another schema": crafted(schema=SCHEMA + 1),
    "a text for a number": crafted(last_at="now"),
    "another type of group": crafted(type="none"),
    "half a partition": half_a_partition(),
    "another group's": crafted(group_id="h"),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_nothing_but_a_whole_document_is_read(data: bytes) -> None:
    with pytest.raises(
        DocumentError, match=r"the lake's state of group g .*: scan again with --full"
    ):
        decode(data, "g")


def test_no_module_reads_what_names_code() -> None:
    named = {name for file in files("inspectors/fleet") for _, name, _ in imports(file)}
    assert "msgspec.msgpack" in named
    assert not named & {"pickle", "cPickle", "dill", "marshal", "shelve", "cloudpickle"}


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
    shape = repr(shape_of(inspect.type_info(GroupState)))
    assert (SCHEMA, zlib.crc32(shape.encode())) == (5, 813298262)
