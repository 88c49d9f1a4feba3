"""What leaders assign: rounds without a clock beside timed ones, and Connect workers (KIP-415)."""

from collections.abc import Mapping
from random import Random

import pytest
from msgspec.structs import replace

from rebal.groups.assignors import NAMES, Spec, SpecMember
from rebal.groups.assignors.connect import eager
from rebal.groups.clients import worker_list
from rebal.groups.model import GroupSnapshot, Partitions, RebalanceProtocol, WorkerState
from rebal.groups.wire.consumer_protocol import CONNECTOR
from rebal.planner.facts import names
from rebal.planner.paths.choose import make_plan
from rebal.planner.rehearsal.engine.leaders import Rounds, work_of
from rebal.planner.rehearsal.engine.member import Process, RunningProcess
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import Scene, Script, rollout
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import Simulation, simulate
from tests.planner import worker_groups
from tests.planner.builder import group_of
from tests.planner.rehearsal.scenes import (
    RANGE,
    Counting,
    event,
    play,
    restart,
    scene,
    starts,
    told,
    with_processes,
)


def captured(random: Random, assignor: str, *, kip848: bool = False) -> GroupSnapshot:
    """Return a group whose members own their topics' partitions at random."""
    topics = {f"t{n}": random.randint(1, 8) for n in range(random.randint(1, 3))}
    group = group_of(
        {
            "elected": assignor,
            "type": "consumer" if kip848 else "classic",
            "topics": topics,
            "members": [
                {
                    "id": f"m{n}",
                    "list": [assignor],
                    "family": "java",
                    "version": "3.9.1",
                    "topics": sorted(topics),
                    **({"protocol_type": "consumer"} if kip848 else {}),
                }
                for n in range(random.randint(2, 5))
            ],
        }
    )
    owned: list[dict[str, list[int]]] = [{} for _ in group.members]
    for topic, count in topics.items():
        for number in range(count):
            random.choice(owned).setdefault(topic, []).append(number)
    members = (
        replace(member, assignment={topic: Partitions(mine) for topic, mine in some.items()})
        for member, some in zip(group.members, owned, strict=True)
    )
    return replace(group, members=tuple(members))


def owners(run: Rehearsal) -> dict[tuple[str, int], str]:
    """Return who owns each partition at the end of a rehearsal."""
    return {
        (one.topic, one.partition): one.owners[-1].owner
        for one in run.partitions
        if one.owners and one.owners[-1].end is None
    }


def then(told: Simulation) -> dict[tuple[str, int], str]:
    """Return who owns each partition at the end of a what-if."""
    return {
        (topic, number): shift.name
        for shift in told.members
        for topic, numbers in shift.then.items()
        for number in numbers
    }


def agreed(group: GroupSnapshot, assignor: str, kind: str, seed: int) -> Simulation:
    """Tell what a what-if makes of a change of this kind, and hold the timed engine to it."""
    where, _ = scene_of(group)
    called = names(group.members)
    gone = group.members[-1].member_id
    if kind == "leave":
        changes = Changes(remove_members=(gone,))
        deed = event("stop", called[gone])
    elif kind == "grow":
        changes = Changes(add_partitions={"t0": 3})
        deed = event("partitions", topic="t0", count=where.topics["t0"] + 3)
    else:
        changes = Changes()
        deed = event("enforce-rebalance", called[group.members[0].member_id])
    told = simulate(group, assignor, changes)
    run = rehearse(where, Script(events=(deed,)), seed=seed)
    assert run.measures.rebalances == told.rebalances
    assert run.measures.twice == 0
    assert owners(run) == then(told)
    return told


@pytest.mark.parametrize("assignor", NAMES)
def test_what_if_and_timed_engine_agree_on_rebalances_and_owners(assignor: str) -> None:
    differs = set()
    for seed in range(60):
        random = Random(seed)
        group, kind = captured(random, assignor), random.choice(("leave", "grow", "again"))
        differs.add(agreed(group, assignor, kind, seed).rebalances)
    # One rebalance and two both occur where the assignor is COOPERATIVE.
    assert differs == ({1, 2} if assignor == "cooperative-sticky" else {1})


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_what_if_and_timed_engine_agree_on_targets_of_a_kip848_group(assignor: str) -> None:
    moved = 0
    for seed in range(40):
        random = Random(seed)
        group = captured(random, assignor, kip848=True)
        what_if = agreed(group, assignor, random.choice(("leave", "grow")), seed)
        assert what_if.server_side
        assert what_if.rebalances == 1
        moved += what_if.moved
    assert moved > 40


@pytest.mark.parametrize("eager", [True, False])
def test_custom_assignor_receives_the_user_data_that_its_on_assignment_stored(eager: bool) -> None:
    protocols = [RebalanceProtocol.EAGER, *(() if eager else (RebalanceProtocol.COOPERATIVE,))]
    timed, clockless = Counting(*protocols), Counting(*protocols)
    where = with_processes(scene(RANGE, RANGE, RANGE), assignors=("counting",))
    again = event("enforce-rebalance", "m0")
    script = Script(events=(again, again, again))
    run = rehearse(replace(where, assignor="counting"), script, assignors={"counting": timed})
    assert (run.measures.rebalances, run.measures.moved) == (3, 0)
    members = tuple(
        SpecMember(member_id=one.member_id, topics=one.process.topics, owned=tuple(one.owned))
        for one in where.running
    )
    protocol = RebalanceProtocol.EAGER if eager else RebalanceProtocol.COOPERATIVE
    rounds = Rounds(Spec(members=members, partitions=where.topics), clockless, protocol)
    for _ in range(3):
        rounds.rebalance()
    for seen in (timed.seen, clockless.seen):
        counts = [{data for _, data, _ in members} for members in seen]
        assert counts == [{None}, {b"1"}, {b"2"}]
        assert {sum(owned for *_, owned in members) > 0 for members in seen} == {not eager}
    assert [sorted(one) for one in timed.seen] == [sorted(one) for one in clockless.seen]


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


def test_new_connect_leader_assigns_lost_tasks_at_once_without_the_rebalance_delay() -> None:
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
    group = worker_groups.workers(elected)
    where, assumes = scene_of(group)
    assert set(work_of(where.connectors)) == worker_groups.WORK
    assert [set(one.owned) for one in where.running] == [
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
    run = rehearse(where, rollout(make_plan(group, goal)))
    assert (run.assignor, run.state, run.measures.rebalances) == (then, "Stable", rebalances)
    assert owned(run) == [5, 5, 5]
    assert (run.measures.twice, run.measures.rejected, run.assumes) == (0, 0, ())


def test_rehearsal_of_connect_workers_with_unknown_tasks_states_that_assumption() -> None:
    group = worker_groups.workers("sessioned")
    blind = tuple(replace(m, worker=WorkerState(url="")) for m in group.members)
    where, _ = scene_of(replace(group, members=blind))
    assert where.connectors == {}
    run = rehearse(where, Script(events=(restart("w0"),)))
    assert run.measures.rebalances == 2
    assert run.partitions == ()
    (assumption,) = run.assumes
    assert assumption.startswith("the assignment of sessioned is not modelled")
