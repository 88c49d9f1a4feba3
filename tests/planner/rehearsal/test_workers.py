"""Connect workers in the engine: exact assignments, and lost work that waits (KIP-415)."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from rebal.groups.assignors.connect import eager
from rebal.groups.clients import worker_list
from rebal.groups.model import WorkerState
from rebal.groups.wire.user_data import CONNECTOR
from rebal.planner.paths.choose import make_plan
from rebal.planner.rehearsal.engine.leaders import work_of
from rebal.planner.rehearsal.engine.member import Process, RunningProcess
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import Scene, Script, rollout
from tests.planner.rehearsal.scenes import RANGE, event, play, restart, starts, told
from tests.planner.worker_groups import WORK
from tests.planner.worker_groups import workers as captured

CONNECTORS = {"files": 4, "tables": 5}
TOTAL = 11


def workers(*protocols: str, connectors: Mapping[str, int] = CONNECTORS) -> Scene:
    """A Stable group of workers w0, w1, … with these values of connect.protocol; w0 leads."""
    processes = [
        Process(
            name=f"w{number}",
            family="connect",
            assignors=worker_list(protocol) or (),
            session=10.0,
            rebalance=60.0,
        )
        for number, protocol in enumerate(protocols)
    ]
    ids = [f"{one.name}-0" for one in processes]
    given = eager(ids, work_of(connectors))
    lists = [one.assignors for one in processes]
    return Scene(
        topics={},
        connectors=connectors,
        running=tuple(
            RunningProcess(process=process, member_id=id_, owned=given[id_], generation=5)
            for process, id_ in zip(processes, ids, strict=True)
        ),
        assignor=next(name for name in lists[0] if all(name in each for each in lists)),
        leader=ids[0],
        generation=5,
        restart=20.0,
    )


def owned(run: Rehearsal) -> list[int]:
    return [member.owned for member in run.members]


def test_leader_that_is_new_knows_of_nothing_lost_and_gives_it_out_at_once() -> None:
    run = play(workers("sessioned", "sessioned", "sessioned"), restart("w0"))
    assert run.measures.longest < 30
    assert sum(owned(run)) == TOTAL
    assert max(owned(run)) - min(owned(run)) <= 2


def test_worker_that_turns_eager_makes_the_others_run_tasks_twice() -> None:
    late = Process(name="w9", family="connect", assignors=("default",), session=10.0)
    run = play(workers("compatible", "compatible"), starts(late, at=10), event("wait", seconds=60))
    assert run.assignor == "default"
    # They kept what they ran when they joined, and stop nothing afterwards (KAFKA-13816).
    assert sum(owned(run)) > TOTAL
    assert run.measures.twice > 60
    again = play(workers("eager", "eager"), starts(late, at=10))
    assert sorted(owned(again)) == [3, 4, 4]
    assert again.measures.twice == 0


def test_consumer_that_joins_a_group_of_workers_is_rejected() -> None:
    late = Process(name="late", assignors=RANGE, topics=("orders",))
    run = play(workers("eager", "eager"), starts(late, at=10))
    assert told(run, "rejected") == [("late", "INCONSISTENT_GROUP_PROTOCOL")]
    assert run.rebalances == ()


@pytest.mark.parametrize(
    ("elected", "goal", "then", "rebalances"),
    [("default", "cooperative", "sessioned", 7), ("sessioned", "eager", "default", 1)],
)
def test_plan_of_a_captured_worker_group_is_rehearsed_with_what_it_runs(
    elected: str, goal: str, then: str, rebalances: int
) -> None:
    group = captured(elected)
    scene, assumes = scene_of(group)
    assert set(work_of(scene.connectors)) == WORK
    assert [set(one.owned) for one in scene.running] == [
        {(name.connector, n) for name in m.worker.running for n in (CONNECTOR, *name.tasks)
         if n != CONNECTOR or name.itself}
        for m in group.members if m.worker is not None and m.worker.running is not None
    ]  # fmt: skip
    assert assumes == (
        "what w0, w1, w2 offers is not known: the elected protocol and those below it stand in "
        "for it",
    )
    # On the way up no worker's list is known, so all are of unknown state: they restart too.
    (step,) = make_plan(group, goal).steps
    assert len(step.unknown if elected == "default" else step.to_do) == 3
    run = rehearse(scene, rollout(make_plan(group, goal)))
    assert (run.assignor, run.state, run.measures.rebalances) == (then, "Stable", rebalances)
    assert owned(run) == [5, 5, 5]
    assert (run.measures.twice, run.measures.rejected, run.assumes) == (0, 0, ())


def test_rehearsal_of_workers_whose_work_is_not_known_says_so() -> None:
    group = captured("sessioned")
    blind = tuple(replace(m, worker=WorkerState(url="")) for m in group.members)
    scene, _ = scene_of(replace(group, members=blind))
    assert scene.connectors == {}
    run = rehearse(scene, Script(events=(restart("w0"),)))
    assert run.measures.rebalances == 2
    assert run.partitions == ()
    (said,) = run.assumes
    assert said.startswith("the assignment of sessioned is not modelled")
