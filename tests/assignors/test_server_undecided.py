"""What `uniform` says of topics that share a place in a table, against all orders they can have."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import permutations, product

from hypothesis import assume, given
from hypothesis import strategies as st

from rebal.groups.assignors import Spec, SpecMember
from rebal.groups.assignors.consumer_group import server_assignor
from rebal.groups.assignors.consumer_group.server import ServerProblem, Slots, Targets
from rebal.groups.assignors.consumer_group.uniform import assign_uniform

TOPICS = ("a", "b", "c")
Result = tuple[frozenset[int], ...]


def topic_id(place: int, number: int) -> str:
    """An id that a HashMap of 16 keeps at `place`; different numbers are different ids."""
    raw = (place + 16 * number).to_bytes(16)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Ordered(ServerProblem):
    """The problem with the orders given: of all topics, and of each table that is asked for."""

    def __init__(self, spec: Spec, ids: dict[str, str], orders: Iterator[Slots]) -> None:
        super().__init__(spec, ids)
        self.slots = next(orders)
        self._orders = orders

    def table(self, topics: Iterable[int]) -> Slots:
        slots = next(self._orders)
        assert {t for slot in slots for t in slot} == set(topics)
        return slots


class Recorded(ServerProblem):
    """The problem as it is; `asked` are the tables that somebody looked into."""

    asked: list[Slots]

    def table(self, topics: Iterable[int]) -> Slots:
        self.asked.append(super().table(topics))
        return self.asked[-1]


def result(targets: Targets) -> Result:
    return tuple(map(frozenset, targets.lists))


def every_order(slots: Slots) -> list[Slots]:
    return list(product(*(list(permutations(slot)) for slot in slots)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Spec, dict[str, str]]:
    names = TOPICS[: draw(st.integers(2, 3))]
    ids = {name: topic_id(draw(st.integers(3, 4)), n) for n, name in enumerate(names)}
    counts = {name: draw(st.integers(1, 5)) for name in names}
    members = draw(st.integers(1, 3))
    owned: list[list[tuple[str, int]]] = [[] for _ in range(members)]
    for name, count in counts.items():
        for partition in range(count):
            owner = draw(st.integers(-1, members - 1))
            if owner >= 0:
                owned[owner].append((name, partition))
    return Spec(
        members=tuple(
            SpecMember(member_id=f"m-{n}", topics=names, owned=tuple(some))
            for n, some in enumerate([*owned, *([[]] if draw(st.booleans()) else [])])
        ),
        partitions=counts,
    ), ids


@given(cases())
def test_it_speaks_exactly_when_another_order_gives_another_result(
    case: tuple[Spec, dict[str, str]],
) -> None:
    problem = Recorded(*case)
    problem.asked = []
    told = assign_uniform(problem)
    tables = [problem.slots, *problem.asked]
    assume(any(len(slot) > 1 for slots in tables for slot in slots))
    results = {
        result(assign_uniform(Ordered(*case, iter(orders))))
        for orders in product(*map(every_order, tables))
    }
    assert result(told) in results
    assert bool(told.undecided) == (len(results) > 1)
    shared = {topic for slots in tables for slot in slots if len(slot) > 1 for topic in slot}
    assert told.undecided <= shared


def spec(counts: dict[str, int], *owned: list[tuple[str, int]]) -> Spec:
    return Spec(
        members=tuple(
            SpecMember(member_id=f"m-{n}", topics=tuple(counts), owned=tuple(some))
            for n, some in enumerate(owned)
        ),
        partitions=counts,
    )


def undecided(given_: Spec, ids: dict[str, str], name: str = "uniform") -> set[str]:
    return set(server_assignor(name, ids).assign_and_tell(given_)[1])


def test_a_member_that_gives_up_part_of_two_topics_at_one_place() -> None:
    whole = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    given_ = spec({"a": 2, "b": 2}, whole, [])
    near = {"a": topic_id(3, 0), "b": topic_id(3, 1)}
    assert undecided(given_, near) == {"a", "b"}
    assert undecided(given_, {"a": topic_id(3, 0), "b": topic_id(4, 1)}) == set()
    assert undecided(given_, near, "range") == set()
    # Nobody gives anything up, and one member gets all that is free.
    assert undecided(spec({"a": 2, "b": 2}, whole[:2], []), near) == set()
    # Two members share what is free.
    assert undecided(spec({"a": 2, "b": 2}, [], []), near) == {"a", "b"}


def test_members_with_different_topics_are_served_in_the_order_of_ids() -> None:
    given_ = spec({"a": 2, "b": 2}, [("a", 0), ("a", 1), ("b", 0), ("b", 1)], [])
    odd = SpecMember(member_id="odd", topics=("a",))
    near = {"a": topic_id(3, 0), "b": topic_id(3, 1)}
    mixed = Spec(members=(*given_.members, odd), partitions=given_.partitions)
    assert undecided(mixed, near) == set()
