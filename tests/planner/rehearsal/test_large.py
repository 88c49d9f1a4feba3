"""One restart of each kind beside the rehearsal of all, and which one counts for the others."""

import pytest
from msgspec.structs import replace

from rebal.planner.paths import make_plan
from rebal.planner.rehearsal.engine.member import Process
from rebal.planner.rehearsal.outcome import endangered
from rebal.planner.rehearsal.rehearse import Rollout, choose_restarts, rehearse, restart_kinds
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import Deed, Script, ScriptEvent, restarts, rollout
from tests.planner.rehearsal.scenes import BOTH, DONE, RANGE, scene
from tests.planner.test_cost import sized


@pytest.fixture(autouse=True)
def every_roll_out_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebal.planner.rehearsal.rehearse._TOO_LONG", 0.0)


@pytest.mark.parametrize(
    ("elected", "goal"),
    [
        ("range", "cooperative"),
        ("uniform", "cooperative-sticky"),
        pytest.param("range", "consumer", marks=pytest.mark.full),
        pytest.param("cooperative-sticky", "eager", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.full)])
def test_rehearsal_of_one_restart_of_each_kind_is_close_to_that_of_all_restarts(
    elected: str, goal: str, batch: int
) -> None:
    snapshot = sized(80, 400, elected)
    plan = make_plan(snapshot, goal, pricing=None)
    where, _ = scene_of(snapshot)
    script = rollout(plan, batch=batch)
    made = Rollout(where, script)
    assert made.too_long
    some = made.rehearse(seed=4)
    whole = rehearse(where, script, seed=9, keep=False)
    assert some.sampled.restarts == len(script.events)
    assert some.sampled.rehearsed < some.sampled.restarts / 2
    measures, exact = some.measures, whole.measures
    chance = 0.5 if elected == "uniform" else 0.1
    assert measures.unowned == pytest.approx(exact.unowned, rel=chance)
    assert measures.longest == pytest.approx(exact.longest, rel=0.3)
    assert measures.seconds == pytest.approx(exact.seconds, rel=0.05)
    assert measures.rebalances == pytest.approx(exact.rebalances, rel=0.05)
    assert [p.name for p in some.phases] == [p.name for p in whole.phases]
    assert [p.began for p in some.phases] == pytest.approx(
        [p.began for p in whole.phases], rel=0.05, abs=5
    )
    assert sum(p.measures.unowned for p in some.phases) == pytest.approx(measures.unowned)
    assert (some.state, some.assignor, some.at_rest) == (whole.state, whole.assignor, True)
    assert not endangered(some)


SIXTY = scene(*[RANGE] * 60)
ROLLING = restarts("step 1", BOTH, [(one.process.name,) for one in SIXTY.running], batch=1)


def test_a_member_that_is_rejected_is_rehearsed_and_in_the_notes() -> None:
    """One of sixty restarts with a list of its own is rejected, wherever it stands."""
    for place in (1, 31, 58):
        events = [*ROLLING]
        events[place] = replace(events[place], assignors=("sticky",))
        some = Rollout(SIXTY, Script(events=tuple(events))).rehearse()
        name = SIXTY.running[place].process.name
        assert endangered(some)
        assert some.measures.rejected == 1
        assert name in {note.who for note in some.notes if note.what == "rejected"}
        (at,) = {note.at for note in some.notes if note.what == "rejected" and note.who == name}
        assert at == pytest.approx(33 * place, rel=0.15, abs=40)


def test_scripts_with_other_events_than_rolling_restarts_are_rehearsed_whole() -> None:
    assert Rollout(SIXTY, Script(events=tuple(ROLLING))).too_long
    for event in (
        ScriptEvent(do=Deed.KILL, members=("m0",)),
        ScriptEvent(do=Deed.COORDINATOR),
        replace(ROLLING[3], after=1.0),
        ScriptEvent(do=Deed.STOP, members=("m3",)),
    ):
        assert not Rollout(SIXTY, Script(events=(*ROLLING, event))).too_long


def test_the_leaders_restart_is_rehearsed() -> None:
    script = Script(events=tuple(ROLLING))
    for place in (17, 44):
        led = Rollout(replace(SIXTY, leader=SIXTY.running[place].member_id), script)
        assert {0, place, 59} <= set(led._chosen.places)


def test_a_stop_of_all_before_their_start_is_one_restart() -> None:
    names = tuple(one.process.name for one in SIXTY.running)
    stop = ScriptEvent(do=Deed.STOP, members=names, phase="step 2")
    (start,) = restarts("", DONE, [names], batch=0)
    script = Script(events=(*ROLLING, stop, start))
    some, whole = Rollout(SIXTY, script).rehearse(), rehearse(SIXTY, script, keep=False)
    assert some.sampled.restarts == 61
    assert some.phases[-1].name == "step 2"
    assert some.phases[-1].measures.unowned == pytest.approx(
        whole.phases[-1].measures.unowned, rel=0.1
    )


def processes(count: int) -> dict[str, Process]:
    return {f"m{n}": Process(name=f"m{n}", assignors=RANGE) for n in range(count)}


def test_one_restart_of_each_kind_counts_for_the_others() -> None:
    before = processes(200)
    before["m77"] = Process(name="m77", assignors=RANGE, instance_id="i-77")
    before["m120"] = Process(name="m120", assignors=RANGE, family="librdkafka")
    after = [{name: Process(name=name, assignors=BOTH)} for name in before]
    after[33] = {"m33": Process(name="m33", assignors=("sticky",))}
    kinds = list(restart_kinds(before, after, leader="m150"))
    made = choose_restarts(kinds)
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
    assert choose_restarts(kinds).places[60] == 60


def test_of_too_many_kinds_the_rarest_are_left_out_but_never_the_ends() -> None:
    made = choose_restarts([("kind", n) for n in range(500)], most=12)
    assert (made.rehearsed, made.left_out) == (12, 488)
    assert (made.places[0], made.places[499]) == (0, 499)
    assert abs(made.places[250] - 250) == min(abs(other - 250) for other in set(made.places))


def test_several_of_a_kind_are_spread_over_the_order() -> None:
    made = choose_restarts(["same"] * 60, each=3)
    assert made.places == (10,) * 20 + (30,) * 20 + (50,) * 20


def test_all_restarts_are_rehearsed_where_that_is_no_more_work() -> None:
    assert choose_restarts(["same"] * 2).whole
    assert choose_restarts([("kind", n % 10) for n in range(20)]).whole
    assert not choose_restarts(["same"] * 3).whole
