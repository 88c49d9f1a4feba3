"""Readiness and order of groups side by side."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.planner.paths import make_plan
from rebal.planner.plan import Verdict
from rebal.planner.readiness import Pauses, Readiness, in_order, readiness, to_rehearse
from rebal.planner.rehearsal.costs import rehearsed
from rebal.planner.rehearsal.costs.start import Pricing
from rebal.planner.rehearsal.outcome import Rehearsal
from rebal.planner.rehearsal.scripts import Scene
from tests.planner.builder import group_of
from tests.planner.plans import BOTH, m, plan

EVERY_MINUTE = Pauses(per_hour=60, seconds=2.0, stopped=12, moved=2)


def ready_of(
    name: str, lists: list[list[str] | None], pauses: Pauses = EVERY_MINUTE, **more: Any
) -> Readiness:
    members = [m(f"{name}-{n}", names) for n, names in enumerate(lists)]
    return readiness(plan(members, group_id=name, reloaded=False, **more), pauses)


@pytest.mark.parametrize(
    ("pauses", "saves", "assumed"),
    [
        (Pauses(), None, False),
        (Pauses(per_hour=60), None, False),
        (Pauses(stopped=12), None, False),
        (Pauses(per_hour=60, stopped=12), 12 * 3.0 * 60, True),
        (Pauses(per_hour=60, seconds=1, stopped=2, moved=9), 0, False),
        (Pauses(per_hour=0, seconds=1, stopped=2), 0, False),
    ],
)
def test_what_was_not_seen_saves_nothing_that_is_known(
    pauses: Pauses, saves: float | None, assumed: bool
) -> None:
    found = ready_of("g", [["range"]] * 3, pauses)
    assert (found.saves, found.assumed) == (saves, assumed)
    assert (found.pays_back is None) == (not saves)


def test_blockers_of_now_and_of_later_and_what_is_missing_are_told_apart() -> None:
    half = ready_of("half", [BOTH, ["range"], None])
    assert [one.rule for one in half.blockers] == []
    assert {one.rule for one in half.later} == {"RB102"}
    (missing,) = half.missing
    assert (missing.rule, missing.members, missing.before_step) == ("RB901", 1, 2)
    assert missing.how


def test_a_rough_pricing_says_what_rehearsing_all_restarts_is_worth() -> None:
    def ready(name: str, size: int, names: list[str], **more: Any) -> Readiness:
        members = [m(f"{name}-{n}", names) for n in range(size)]
        return readiness(plan(members, group_id=name, elected=names[0], **more), EVERY_MINUTE)

    rough: dict[str, Any] = {"pricing": Pricing(rough=True)}
    fresh, twice = ready("fresh", 3, ["range"], **rough), ready("twice", 6, ["range"], **rough)
    assert fresh.work > 0
    assert twice.work > 2 * fresh.work
    plain = ready("fresh", 3, ["range"])
    assert (fresh.outlay.estimated, plain.outlay.estimated, plain.work) == (True, False, 0)
    done = ready("done", 2, ["cooperative-sticky"], **rough)
    assert (done.work, done.outlay) == (0, None)
    ordered = in_order([twice, fresh, done])
    assert to_rehearse(ordered, twice.work + fresh.work) == ("fresh", "twice")
    assert to_rehearse(ordered, twice.work) == ("fresh",)
    assert to_rehearse(ordered, fresh.work - 1) == ()


def test_groups_of_one_shape_are_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    rehearse = rehearsed.rehearse

    def counted(scene: Scene, *more: Any, **named: Any) -> Rehearsal:
        runs.append(scene.assignor)
        return rehearse(scene, *more, **named)

    monkeypatch.setattr(rehearsed, "rehearse", counted)
    rough = Pricing(rough=True)

    def estimated(name: str, per: int, shared: Pricing = rough, **more: Any) -> Readiness:
        """Four members on range, each with so many partitions."""
        members = [{"id": f"{name}-{n}", "list": ["range"], **more} for n in range(4)]
        spec = {"group_id": name, "members": members, "topics": {name: 4 * per}}
        made = group_of(spec)
        owners = [
            replace(member, assignment={name: Partitions(range(per * n, per * n + per))})
            for n, member in enumerate(made.members)
        ]
        owned = replace(made, members=tuple(owners))
        return readiness(make_plan(owned, pricing=shared), EVERY_MINUTE)

    first = estimated("first", 3)
    assert len(runs) == 2, "one for each bounce"
    second, third = estimated("second", 3), estimated("third", 9)
    assert len(runs) == 2
    assert (second.outlay, second.work) == (first.outlay, first.work)
    apart = estimated("third", 9, Pricing(rough=True)).outlay
    assert third.outlay.partition_seconds == pytest.approx(apart.partition_seconds, rel=0.15)
    estimated("slow", 3, timeouts=[60_000, 600_000])
    assert len(runs) == 6, "its members have other timeouts"


def test_the_order() -> None:
    done = ready_of("a-done", [["cooperative-sticky"]] * 2, elected="cooperative-sticky")
    native = {"id": "m", "list": ["range"], "family": "librdkafka", "version": "2.6.0"}
    blocked = readiness(plan([native], group_id="b-blocked"), EVERY_MINUTE)
    slow = ready_of("c-slow", [["range"]] * 3, Pauses(per_hour=1, seconds=2, stopped=12))
    unseen = ready_of("d-unseen", [["range"]] * 3, Pauses())
    soon = ready_of("e-soon", [["range"]] * 3)
    begun = ready_of("f-begun", [BOTH, ["range"], ["range"]], Pauses())
    moving = ready_of("g-moving", [["range"]], state="PreparingRebalance")
    assert done.plan.verdict is Verdict.DONE
    assert blocked.plan.verdict is Verdict.BLOCKED
    assert moving.plan.verdict is Verdict.UNPROVEN
    assert begun.under_way
    ordered = in_order([done, blocked, slow, unseen, soon, begun, moving])
    assert [(one.plan.group_id, one.place) for one in ordered] == [
        ("f-begun", 1),
        ("e-soon", 2),
        ("c-slow", 3),
        ("d-unseen", 4),
        ("g-moving", 5),
        ("b-blocked", 6),
        ("a-done", None),
    ]


def test_the_cost_of_connect_workers_counts_tasks() -> None:
    workers = [{"id": f"w-{n}", "list": ["default"]} for n in range(2)]
    made = plan(workers, protocol_type="connect", elected="default")
    found = readiness(made, EVERY_MINUTE)
    assert found.outlay.unit == "task"
