"""Rebalances without a clock: the what-ifs and the timed engine come to the same result."""

from random import Random

import pytest
from msgspec.structs import replace

from rebal.groups.assignors import NAMES, Spec, SpecMember
from rebal.groups.model import GroupSnapshot, Partitions, RebalanceProtocol
from rebal.planner.facts import names
from rebal.planner.rehearsal.engine.leaders import Rounds
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.scripts import Deed, Script, ScriptEvent
from rebal.planner.rehearsal.whatif.changes import Changes
from rebal.planner.rehearsal.whatif.simulation import Simulation, simulate
from tests.planner.builder import group_of
from tests.planner.rehearsal.scenes import RANGE, Counting, event, scene, with_processes


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
        deed = ScriptEvent(do=Deed.STOP, members=(called[gone],))
    elif kind == "grow":
        changes = Changes(add_partitions={"t0": 3})
        deed = ScriptEvent(do=Deed.PARTITIONS, topic="t0", count=where.topics["t0"] + 3)
    else:
        changes = Changes()
        deed = ScriptEvent(do=Deed.ENFORCE_REBALANCE, members=(called[group.members[0].member_id],))
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
        told = agreed(group, assignor, random.choice(("leave", "grow")), seed)
        assert told.server_side
        assert told.rebalances == 1
        moved += told.moved
    assert moved > 40


@pytest.mark.parametrize("eager", [True, False])
def test_members_of_a_custom_assignor_remember_what_it_makes_of_assignments(eager: bool) -> None:
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
