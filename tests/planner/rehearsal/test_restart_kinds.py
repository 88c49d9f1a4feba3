"""Kinds of restart, and which restart counts for the others of its kind."""

from __future__ import annotations

from rebal.planner.rehearsal.engine.member import Process
from rebal.planner.rehearsal.rehearse import chosen, restart_kinds

OLD, BOTH = ("range",), ("cooperative-sticky", "range")


def processes(count: int) -> dict[str, Process]:
    return {f"m{n}": Process(name=f"m{n}", assignors=OLD) for n in range(count)}


def test_one_restart_of_each_kind_counts_for_the_others() -> None:
    before = processes(200)
    before["m77"] = Process(name="m77", assignors=OLD, instance_id="i-77")
    before["m120"] = Process(name="m120", assignors=OLD, family="librdkafka")
    after = [{name: Process(name=name, assignors=BOTH)} for name in before]
    after[33] = {"m33": Process(name="m33", assignors=("sticky",))}
    kinds = list(restart_kinds(before, after, leader="m150"))
    made = chosen(kinds)
    assert {0, 33, 77, 120, 150, 199} <= set(made.places)
    assert made.rehearsed == len(set(kinds)) < 12
    assert made.left_out == 0
    assert all(kinds[place] == kinds[other] for place, other in enumerate(made.places))


def test_the_restarts_before_and_after_a_list_leaves_the_group_are_not_alike() -> None:
    before = processes(100)
    before["m60"] = Process(name="m60", assignors=("roundrobin",))
    after = [{name: Process(name=name, assignors=BOTH)} for name in before]
    kinds = list(restart_kinds(before, after))
    assert kinds[59] != kinds[60]
    assert kinds[59] != kinds[61]
    assert len({kinds[n] for n in range(1, 60)}) == 1
    assert chosen(kinds).places[60] == 60


def test_of_too_many_kinds_the_rarest_are_left_out_but_never_the_ends() -> None:
    made = chosen([("kind", n) for n in range(500)], most=12)
    assert (made.rehearsed, made.left_out) == (12, 488)
    assert (made.places[0], made.places[499]) == (0, 499)
    assert abs(made.places[250] - 250) == min(abs(other - 250) for other in set(made.places))


def test_several_of_a_kind_are_spread_over_the_order() -> None:
    made = chosen(["same"] * 60, each=3)
    assert made.places == (10,) * 20 + (30,) * 20 + (50,) * 20


def test_all_restarts_are_rehearsed_where_that_is_no_more_work() -> None:
    assert chosen(["same"] * 2).whole
    assert chosen([("kind", n % 10) for n in range(20)]).whole
    assert not chosen(["same"] * 3).whole
