"""Lanes show the worst moment of each column."""

from rebal.planner.rehearsal.outcome import Doing, lanes
from tests.planner.rehearsal.scenes import DONE, RANGE, event, play, restart, scene


def test_a_restart_shows_as_down_and_then_owning_again() -> None:
    run = play(scene(RANGE, RANGE), restart("m0"), event("wait", seconds=30))
    drawn = lanes(run, 30)
    assert [one.doing for one in drawn["m0"]] == [Doing.DOWN, Doing.IDLE, Doing.OWNS]
    assert drawn["m0"][-1].partitions == 6
    assert {one.partitions for one in drawn["m1"]} >= {0, 12, 6}
    assert all(stretches[-1].end == 30 for stretches in drawn.values())


def test_a_rejected_member_and_a_partition_with_two_owners_are_the_worst() -> None:
    run = play(scene(RANGE, RANGE), restart("m0", to=DONE), event("wait", seconds=30))
    assert lanes(run, 20)["m0"][-1].doing is Doing.REJECTED
    late = event("busy", "m0", seconds=90, at=10)
    run = play(scene(RANGE, RANGE, rebalance=60.0), late)
    assert Doing.TWICE in {one.doing for one in lanes(run, 40)["m0"]}
    assert Doing.TWICE in {one.doing for one in lanes(run, 40)["m1"]}


def test_the_usual_state_of_a_column_hides_a_short_stop_but_no_danger() -> None:
    run = play(scene(RANGE, RANGE, RANGE), restart("m0"), event("wait", seconds=3600))
    assert lanes(run, 60)["m1"][0].doing is Doing.IDLE
    assert {one.doing for one in lanes(run, 60, usual=True)["m1"]} == {Doing.OWNS}
    late = event("busy", "m0", seconds=65, at=10)
    run = play(scene(RANGE, RANGE, rebalance=60.0), late, event("wait", seconds=3600))
    assert Doing.TWICE in {one.doing for one in lanes(run, 20, usual=True)["m1"]}
