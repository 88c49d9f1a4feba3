"""The engine's figures of the roll-outs that were measured on live 4.1.1 brokers.

tests/live/test_kip848_costs_live.py holds the prediction of `move_online` to real members: equal
rebalances, and equal changes of owner where no member id decides them. These are the same groups.
"""

from __future__ import annotations

from typing import Any

import pytest

from rebal.groups.model import GroupSnapshot
from rebal.planner.facts import names
from rebal.planner.rehearsal.costs.online import move_online
from rebal.planner.rehearsal.costs.start import Roll
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.rehearse import rehearse
from rebal.planner.rehearsal.rollout import restarts
from rebal.planner.rehearsal.scene import scene_of
from rebal.planner.rehearsal.script import Deed, Event, Script
from rebal.planner.timeouts import Speed
from tests.planner.builder import group_of

SPEED = Speed(restart=30, rebalance=3, first=3, reconcile=5)
DONE = "cooperative-sticky"


def group(kip848: bool, elected: str, *, static: tuple[int, ...] = ()) -> GroupSnapshot:
    """Three members and 12 partitions, as in the live test."""
    members: list[dict[str, Any]] = [
        {
            "id": f"m{place}",
            **({"instance": f"a-{place}"} if place in static else {}),
            **({"protocol_type": "consumer"} if kip848 else {"list": [elected]}),
        }
        for place in range(3)
    ]
    kind = "consumer" if kip848 else "classic"
    return group_of({"members": members, "elected": elected, "type": kind})


def rolled(snapshot: GroupSnapshot, to: str, seed: int = 0, batch: int = 1) -> Rehearsal:
    """Restart all, each as its own phase: with group.protocol=consumer, or with the list `to`."""
    scene, _ = scene_of(snapshot, speed=SPEED)
    called = [names(snapshot.members)[member.member_id] for member in snapshot.members]
    up = to in ("uniform", "range-server")
    events = [
        event
        for start in range(0, len(called), batch)
        for event in restarts(
            f"place {start}",
            () if up else (to,),
            [(name,) for name in called[start : start + batch]],
            batch=batch,
            protocol="consumer" if up else "classic",
            remote_assignor=to.removesuffix("-server") if up else "",
        )
    ]
    return rehearse(scene, Script(events=tuple(events)), seed=seed)


def steps(run: Rehearsal) -> list[tuple[int, int]]:
    """Rebalances and changes of owner of each restart."""
    return [(phase.measures.rebalances, phase.measures.moved) for phase in run.phases]


@pytest.mark.parametrize("seed", range(5))
# The last leave down makes it a classic group, in which a join has a follow-up rebalance.
@pytest.mark.parametrize(("up", "last"), [(True, 2), (False, 3)], ids=["up", "down"])
def test_moves_to_and_from_uniform_cost_what_live_members_report(
    up: bool, last: int, seed: int
) -> None:
    snapshot = group(not up, DONE if up else "uniform", static=(0,))
    run = rolled(snapshot, "uniform" if up else DONE, seed)
    ids = tuple(member.member_id for member in snapshot.members)
    cost = move_online(
        Roll(
            snapshot=snapshot,
            order=ids,
            protocol="consumer" if up else "classic",
            target=() if up else (DONE,),
            server_side="uniform",
            speed=SPEED,
        )
    )
    assert steps(run) == [(0, 0), (2, 8), (last, 8)]
    assert (run.measures.rebalances, run.measures.moved) == (cost.rebalances, cost.partitions_moved)
    assert run.measures.twice == run.measures.rejected == 0
    assert {(one.protocol, one.owned) for one in run.members} == {
        ("CONSUMER" if up else "COOPERATIVE", 4)
    }
    assert run.assignor == ("uniform" if up else DONE)
    # What the static member owns stands still while it restarts, and nothing else does.
    assert run.phases[0].measures.unowned == pytest.approx(4 * 30, rel=0.1)
    assert cost.partition_seconds is not None
    assert 0.3 * cost.partition_seconds < run.measures.unowned < cost.partition_seconds + 16


@pytest.mark.parametrize("seed", range(5))
def test_up_from_range_is_two_rebalances_a_restart(seed: int) -> None:
    run = rolled(group(False, "range"), "range-server", seed)
    assert [rebalances for rebalances, _ in steps(run)] == [2, 2, 2]
    assert all(8 <= moved <= 24 for _, moved in steps(run))
    assert run.measures.twice == 0


def test_all_at_once_is_one_generation_down_and_an_epoch_a_member_up() -> None:
    for kip848, to, rebalances in ((True, "range", 1), (False, "range-server", 3)):
        snapshot = group(kip848, "range")
        scene, _ = scene_of(snapshot, speed=SPEED)
        called = [names(snapshot.members)[member.member_id] for member in snapshot.members]
        up = not kip848
        start = restarts(
            "start", () if up else (to,), [tuple(called)], batch=0,
            protocol="consumer" if up else "classic", remote_assignor="range" if up else "",
        )  # fmt: skip
        stop = Event(do=Deed.STOP, members=tuple(called), phase="stop")
        run = rehearse(scene, Script(events=(stop, *start)))
        # The Empty group is replaced by one of the other type: its first generation, or epochs.
        assert run.phases[-1].measures.rebalances == rebalances == run.rebalances[-1].generation
        assert [member.owned for member in run.members] == [4, 4, 4]
        # Nobody owns anything from the stop until the first are given their partitions.
        least = 30 + (0 if up else scene.brokers.initial_delay)
        assert least <= run.measures.longest <= least + 12
