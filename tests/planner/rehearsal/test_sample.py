"""Which restarts a sample has, and what it says of the others."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from rebal.planner.rehearsal.engine.process import Process
from rebal.planner.rehearsal.sample import (
    Stratum,
    most_of_all,
    sample,
    situations,
    total_error,
)

OLD, BOTH = ("range",), ("cooperative-sticky", "range")


def processes(count: int, **more: str) -> dict[str, Process]:
    return {f"m{n}": Process(name=f"m{n}", assignors=OLD, **more) for n in range(count)}


def places(found: list[object], most: int) -> set[int]:
    return {place for one in sample(found, most).strata for place in one.places}


def test_first_last_and_each_odd_restart_are_rehearsed() -> None:
    before = processes(200)
    before["m77"] = Process(name="m77", assignors=OLD, instance_id="i-77")
    before["m120"] = Process(name="m120", assignors=OLD, family="librdkafka")
    after = [{name: Process(name=name, assignors=BOTH)} for name in before]
    after[33] = {"m33": Process(name="m33", assignors=("sticky",))}
    found = list(situations(before, after, leader="m150"))
    made = sample(found, 6)
    assert places(found, 6) >= {0, 33, 77, 120, 150, 199}
    assert made.left_out == 0
    assert made.rehearsed < 60
    assert sum(one.size for one in made.strata) == 200


def test_the_restarts_before_and_after_a_list_leaves_the_group_are_not_alike() -> None:
    before = processes(100)
    before["m60"] = Process(name="m60", assignors=("roundrobin",))
    after = [{name: Process(name=name, assignors=BOTH)} for name in before]
    found = list(situations(before, after))
    assert found[59] != found[60]
    assert found[59] != found[61]
    assert len({found[n] for n in range(1, 60)}) == 1
    assert 60 in places(found, 6)


def test_too_many_kinds_are_named_but_the_first_and_the_last_are_rehearsed() -> None:
    found = [("kind", n) for n in range(500)]
    made = sample(found, 20)
    assert made.left_out == 500 - made.rehearsed > 400
    assert {0, 499} <= places(list(found), 20)


def test_a_sample_that_is_more_work_than_the_whole_is_the_whole() -> None:
    assert sample([("kind", n) for n in range(20)], 20).whole
    assert sample(["same"] * 12, 6).whole
    assert not sample(["same"] * 100, 6).whole
    assert sample(["first", *["same"] * 40, "last"], 6).repeated(10).whole


def test_bounds_hold_for_draws_of_one_kind_as_often_as_they_say() -> None:
    """19 of 20 bounds hold, of a sum and of the highest value, whatever rises along the order."""
    random, held, below, rounds = Random(3), 0, 0, 400
    (stratum,) = sample(["same"] * 200, 8).strata
    for _ in range(rounds):
        seen = [[100 + 0.2 * place + random.gauss(0, 20) for place in stratum.places]]
        whole = [100 + 0.2 * place + random.gauss(0, 20) for place in range(200)]
        held += abs(200 * fmean(seen[0]) - sum(whole)) <= total_error([stratum], seen)
        below += max(whole) <= most_of_all([stratum], seen)
    assert held / rounds > 0.95
    assert below / rounds > 0.95


def test_a_lone_restart_is_as_uncertain_as_the_others() -> None:
    many, lone = Stratum(50, (5, 15, 25, 35, 45)), Stratum(1, (0,))
    values = [10.0, 14.0, 9.0, 13.0, 11.0]
    alone = total_error([many], [values])
    assert total_error([many, lone], [values, [1000.0]]) > 2 * alone
    assert most_of_all([many, lone], [values, [1000.0]]) > 1200
    assert most_of_all([lone], [[7.0]]) == pytest.approx(7.0)
