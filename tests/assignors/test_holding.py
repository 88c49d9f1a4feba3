"""Holding, kept up to date move by move, against a look through all lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.assignors.client.balancing import Holding
from rebal.groups.assignors.client.problem import Problem

MEMBERS = (2, 0, 3)
"""The movable ones of four, in the order that decides."""
PROBLEM = Problem(
    Spec(
        members=tuple(SpecMember(member_id=f"m{n}", topics=("a", "b")) for n in range(4)),
        partitions={"a": 3, "b": 2},
    )
)
CODES = st.integers(0, 11)  # the last ones do not exist
EXISTING = st.sampled_from([code for code in range(12) if PROBLEM.exists(code)])


def check(holding: Holding, lists: list[list[int]]) -> None:
    for topic in range(2):
        plain = {
            code: next((m for m in reversed(MEMBERS) if code in lists[m]), None)
            for code in PROBLEM.codes_of(topic)
        }
        assert dict(holding.holders(topic)) == plain
        assert holding.some_have_none(topic) == (None in plain.values())
        for member in MEMBERS:
            assert holding.holds(member, topic) == (member in plain.values())


@given(
    st.lists(st.lists(CODES, max_size=5), min_size=4, max_size=4),
    st.lists(st.tuples(EXISTING, st.sampled_from(MEMBERS), st.sampled_from(MEMBERS)), max_size=8),
)
def test_it_is_what_the_lists_say(
    lists: list[list[int]], moved: list[tuple[int, int, int]]
) -> None:
    holding = Holding(PROBLEM, MEMBERS, lists)
    check(holding, lists)
    for code, source, to in moved:
        has = code in lists[source]
        if has:
            lists[source].remove(code)
        lists[to].append(code)
        holding.move(code, source if has else None, to)
        check(holding, lists)
