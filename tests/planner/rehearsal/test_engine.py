"""What the engine says of single stories whose course Kafka's source fixes."""

import pytest

from rebal.planner.rehearsal.rehearse import rehearse_often
from rebal.planner.rehearsal.script import Deed, Event, Script
from tests.planner.rehearsal.scenes import (
    BOTH,
    DONE,
    RANGE,
    assignors,
    play,
    restart,
    scene,
    told,
)


@pytest.mark.parametrize(
    ("list_", "members", "stopped"),
    [(RANGE, [2, 3], [12, 12]), (DONE, [2, 3, 3], [4, 4, 0])],
    ids=["eager", "cooperative"],
)
def test_a_restart_stops_everything_twice_or_what_moves_with_a_follow_up(
    list_: tuple[str, ...], members: list[int], stopped: list[int]
) -> None:
    run = play(scene(list_, list_, list_), restart("m1"))
    assert [one.members for one in run.rebalances] == members
    assert [one.stopped for one in run.rebalances] == stopped


def test_librdkafka_tries_again_after_a_rejection_until_it_is_admitted() -> None:
    run = play(
        scene(RANGE, RANGE, family="librdkafka"),
        restart("m0", to=DONE),
        Event(do=Deed.STOP, members=("m1",)),
        Event(do=Deed.WAIT, seconds=10),
    )
    assert told(run, "rejected") == [("m0", "INCONSISTENT_GROUP_PROTOCOL")]
    assert run.assignor == "cooperative-sticky"
    assert run.members[0].owned == 12


def test_a_static_restart_in_time_causes_no_rebalance() -> None:
    run = play(scene(RANGE, RANGE, static=True), restart("m0", to=BOTH))
    assert run.rebalances == ()
    assert run.measures.unowned == pytest.approx(6 * 30, rel=0.01)


def test_a_static_restart_that_changes_the_vote_causes_one() -> None:
    run = play(
        scene(BOTH, RANGE, elected="range", static=True), restart("m1", to=BOTH, seconds=5.0)
    )
    assert assignors(run) == ["cooperative-sticky"]


def test_a_killed_member_counts_until_its_session_ends() -> None:
    run = play(scene(RANGE, RANGE), Event(do=Deed.KILL, members=("m0",), at=100))
    began = run.rebalances[0].began
    assert 142 <= began <= 145
    assert told(run, "removed") == [("m0", "its session timed out")]
    assert run.measures.longest >= 42


def test_enforce_rebalance_waits_for_the_next_poll_and_revokes_nothing_before() -> None:
    run = play(
        scene(RANGE, RANGE, poll=20.0),
        Event(do=Deed.ENFORCE_REBALANCE, members=("m0",), at=5),
    )
    leads = run.rebalances[0]
    assert leads.began > 5
    assert leads.why == "the leader joined again"


def test_an_event_happens_so_long_after_the_one_before_without_a_rest() -> None:
    run = play(scene(RANGE, RANGE, RANGE), restart("m0", at=10.0), restart("m1", after=5.0))
    stopped = [note.at for note in run.notes if note.what == "stopped"]
    assert stopped == [10.0, 15.0]


def test_runs_with_a_danger_are_counted() -> None:
    script = Script(events=(restart("m1", to=DONE),))
    wrong = rehearse_often(scene(RANGE, RANGE), script, runs=3)
    fine = rehearse_often(scene(DONE, DONE), script, runs=3)
    assert (wrong.endangered, fine.endangered) == (3, 0)
    assert wrong.restless == fine.restless == 0


def test_a_process_that_freezes_while_it_joins_reads_the_answer_when_it_runs_again() -> None:
    run = play(
        scene(RANGE, RANGE, RANGE),
        restart("m0", seconds=10.0),
        Event(do=Deed.FREEZE, members=("m1",), seconds=100, at=2.5),
    )
    assert run.at_rest
    assert run.measures.seconds > 102
    assert [member.owned for member in run.members] == [4, 4, 4]
