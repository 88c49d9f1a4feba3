"""A group's state in bytes: what it may name, and what it does not hold."""

from __future__ import annotations

import io
import os
import pickle

import pytest

from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupType
from rebal.inspectors.fleet.timeline.group import GroupTimeline, Shared
from rebal.inspectors.fleet.timeline.incidents import Incidents
from rebal.inspectors.fleet.timeline.order import Raw
from rebal.inspectors.fleet.timeline.state import form, freeze, thaw
from rebal.inspectors.fleet.timeline.values import NOTHING, UNTOLD
from tests.fleet.timeline_story import M, Story


def told(generations: int) -> GroupTimeline:
    """A group of two members after so many generations."""
    story, group = Story(), GroupTimeline("g", Shared())
    for number in range(1, generations + 1):
        story.generation(number * 60, number, [M("a", (0,)), M("b", (1,))])
    for row in story.rows:
        group.record(row["at"], Raw._make(row.get(name) for name in Raw._fields))
    return group


def test_what_all_groups_share_is_that_of_the_reading_scan() -> None:
    shared = Shared()
    back = thaw(freeze(told(5)), shared)
    assert back.shared is shared
    assert back.history.rows is shared.rows
    assert back.history.roster.rows is shared.rows
    assert back.history.protocols is shared.protocols
    assert back.group_id == "g"
    assert back.last_at == told(5).last_at
    assert pickle.loads(pickle.dumps(NOTHING)) == NOTHING
    assert UNTOLD.topics is None


def test_its_size_goes_by_the_members_and_not_by_the_history() -> None:
    few, many = (len(freeze(told(count))) for count in (20, 400))
    assert many < 1.3 * few


class _Command:
    """Stands for what somebody else may put into a lake."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("exit 1",)


@pytest.mark.parametrize("thing", [_Command(), [1, 2], os.path.join, Shared()])
def test_nothing_but_a_timeline_is_read(thing: object) -> None:
    data = pickle.dumps(thing) if not isinstance(thing, Shared) else b"\x80\x05cos\nsystem\n."
    with pytest.raises(DocumentError, match="a group's state in the lake"):
        thaw(data, Shared())


_SET = b"N}\x8c\x0arebalanced\x8c\x08builtins\x8c\x03set\x93s\x86b"
"""Opcodes that give what was named last an attribute of this name."""


def named(module: str, name: str) -> bytes:
    return (
        b"\x80\x05" + b"".join(b"\x8c%c%s" % (len(n), n.encode()) for n in (module, name)) + b"\x93"
    )


@pytest.mark.parametrize(
    "data",
    [
        named("rebal.inspectors.fleet.timeline.incidents", "Incidents"),
        named("rebal.groups.model", "GroupType") + b"\x8c\x07classic\x85R",
        named("rebal.inspectors.fleet.timeline.state", "_make") + b"\x8c\x00\x85R",
        named("builtins", "set"),
    ],
    ids=["a class", "a member of an enumeration", "what groups share", "a type of Python"],
)
def test_a_state_changes_nothing_of_other_groups(data: bytes) -> None:
    before = vars(Incidents).copy(), vars(GroupType.CLASSIC).copy()
    with pytest.raises(DocumentError):
        thaw(data + _SET + b".", Shared())
    assert (vars(Incidents), vars(GroupType.CLASSIC)) == before


@pytest.mark.parametrize("cut", [0, 1, 50, -1])
def test_a_damaged_state_is_one_sentence(cut: int) -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        thaw(freeze(told(3))[:cut], Shared())


def test_functions_of_the_timelines_own_modules_are_refused() -> None:
    out = io.BytesIO()
    out.write(b"\x80\x05crebal.inspectors.fleet.timeline.values\npartition_list\n(NtR.")
    with pytest.raises(DocumentError, match=r"values\.partition_list, which no timeline holds"):
        thaw(out.getvalue(), Shared())


def test_its_form_names_the_version_and_the_classes() -> None:
    version, _, classes = form().partition("/")
    assert version
    assert len(classes) == 8
