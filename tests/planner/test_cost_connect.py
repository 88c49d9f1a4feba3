"""Costs of Connect workers' restarts: between bounds computed by hand, and in the plan.

The others notice a rebalance at their next heartbeats, which are up to `NOTICED` seconds away.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.clients import worker_list
from rebal.groups.model import AssignorList, GroupSnapshot, Knowledge, Software, WorkerState
from rebal.planner.paths.choose import make_plan
from rebal.planner.plan import Cost, StepKind
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.costs.steps import by_workers
from rebal.planner.timeouts import Speed
from tests.examples import examples
from tests.planner.worker_groups import IDS, WORK, workers

# A restart takes 30 s, and an Empty group waits 3 s for more.
SPEED = Speed()
NOTICED = 3.1


def cost(snapshot: GroupSnapshot, *ids: str, to: str = "", batch: int = 1) -> Cost:
    offers = worker_list(to) or ()
    return by_workers(
        Roll(
            eager_after=offers == ("default",),
            snapshot=snapshot,
            order=ids,
            target=offers,
            speed=replace(SPEED, batch=batch),
        )
    )


def within(value: float | None, least: float, most: float) -> bool:
    return value is not None and least <= value <= most


def test_an_eager_group_stops_everything_twice_a_restart() -> None:
    made = cost(workers("default"), IDS[1])
    assert (made.rebalances, made.unit) == (2, "task")
    assert made.partitions_stopped == 2 * 15
    # A worker stops everything when it joins; its own five are given out by the first rebalance.
    assert within(made.partition_seconds, 1, 2 * 15 * NOTICED)
    assert within(made.longest_seconds, 0.1, NOTICED)
    assert within(made.seconds, 30, 30 + NOTICED)
    # At worst it is missed for a session (10 s), and two rebalances take a minute each.
    assert within(made.worst_seconds, 10 + 60 + 60 - NOTICED, 10 + 60 + 60)
    assert within(made.worst_partition_seconds, 15 * 60, 5 * 10 + 2 * 15 * 60)


@pytest.mark.parametrize("elected", ["compatible", "sessioned"])
def test_lost_tasks_wait_for_the_whole_delay(elected: str) -> None:
    made = cost(workers(elected), IDS[1])
    # It leaves, is back at 30 s, and gets its five when 300 s from the first rebalance are over.
    assert (made.rebalances, made.partitions_moved) == (3, 0)
    assert within(made.seconds, 300, 300 + 2 * NOTICED)
    assert made.partition_seconds == pytest.approx(5 * made.seconds, abs=1)
    assert made.longest_seconds == pytest.approx(made.seconds, abs=0.1)
    assert "300 s by default: nothing shows the workers' own" in made.text
    shorter = cost(workers(elected, held_back_ms=60_000), IDS[1])
    assert within(shorter.seconds, 60, 60 + 2 * NOTICED)
    assert shorter.partition_seconds == pytest.approx(5 * shorter.seconds, abs=1)
    assert "is over (60 s)" in shorter.text


def test_without_a_delay_a_restarted_workers_tasks_move_at_once() -> None:
    made = cost(workers("sessioned", held_back_ms=0), IDS[1])
    assert (made.rebalances, made.partitions_moved) == (3, 10)
    assert within(made.partition_seconds, 5, 2 * 5 * NOTICED)


def test_the_way_down_stops_all_because_tasks_would_run_twice() -> None:
    (step,) = make_plan(workers("sessioned"), "eager").steps
    assert (step.cost.rebalances, step.cost.unit) == (1, "task")
    # Half-way, one by one: what is eager already stops everything at each restart anyway.
    offers = AssignorList(knowledge=Knowledge.EXACT, list=("sessioned", "compatible", "default"))
    eager_now = workers("default")
    members = (replace(eager_now.members[0], assignors=offers), *eager_now.members[1:])
    (step,) = make_plan(replace(eager_now, members=members), "eager").steps
    assert step.kind is StepKind.ROLLING


def test_what_the_figures_leave_out_is_said() -> None:
    group = workers("sessioned")
    first = group.members[0]
    waiting = replace(first, worker=replace(first.worker, held_back_ms=9_000))
    told = cost(replace(group, members=(waiting, *group.members[1:])), IDS[1]).text
    assert "held back right now, and not counted" in told
    old = replace(first, software=Software(family="connect", version="3.3.2"))
    told = cost(replace(group, members=(old, *group.members[1:])), IDS[1]).text
    assert "1 of the workers are older than 3.4" in told
    assert "KAFKA-12495" not in cost(group, IDS[1]).text


@examples(40, full=200)
@given(
    st.sampled_from(["default", "compatible", "sessioned"]),
    st.sampled_from(["", "eager", "sessioned"]),
    st.sampled_from([0, 2_000, 40_000, 300_000]),
    st.permutations(IDS),
    st.integers(0, 3),
)
def test_no_pace_stops_more_than_all_for_all_the_time(
    elected: str, to: str, held_back_ms: int, order: list[str], batch: int
) -> None:
    made = cost(workers(elected, held_back_ms), *order, to=to, batch=batch)
    assert made.paces[0].name == "one by one"
    assert made.paces[-1].rebalances == 1, "all at once"
    for pace in made.paces:
        # Both are rounded to a tenth.
        assert 0 < pace.partition_seconds <= len(WORK) * (pace.seconds + 0.05) + 0.05
        assert pace.worst_seconds >= pace.seconds
        assert pace.worst_partition_seconds <= len(WORK) * (pace.worst_seconds + 0.05) + 0.05


def test_what_the_workers_run_must_be_known() -> None:
    group = workers("default")
    members = tuple(replace(m, worker=WorkerState(url="")) for m in group.members)
    made = cost(replace(group, members=members), *IDS)
    assert (made.rebalances, made.partition_seconds, made.paces) == (6, None, ())
    assert "what the workers run is not known" in made.text
    assert cost(group).text == "nothing is restarted"


def test_the_plan_has_it() -> None:
    made = make_plan(workers("default"), "cooperative")
    assert made.steps[0].cost == cost(workers("default"), *IDS, to="sessioned")
    assert made.steps[0].cost.rebalances == 7
