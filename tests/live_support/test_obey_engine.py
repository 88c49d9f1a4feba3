"""The engine of the obeying test on a scripted world: it obeys exactly, and it judges exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.live.obey import Limits, Outcome, Process, Story

QUIET = Limits(event_chance=0, race_chance=0, trial_chance=0, opening_chance=0)
RACING = Limits(event_chance=0, race_chance=1, trial_chance=0, opening_chance=0)
WIDE = ("cooperative-sticky", "range")


class Script:
    """A world whose looks are written down; its clock moves by looks and sleeps alone."""

    session_seconds = 6.0
    rebalance_seconds = 15.0

    def __init__(self, *bodies: dict[str, Any], rejects: tuple[str, ...] = ()) -> None:
        self.processes = [
            Process(name, "java-3.9.1", ("range",), running=True) for name in ("app-0", "app-1")
        ]
        self.did: list[str] = []
        self.kinds: set[str] = set()
        self.longest = 0.0
        self.failing: dict[str, str] = {}
        self._bodies = list(bodies)
        self._rejects = rejects
        self._clock = 0.0

    def now(self) -> float:
        return self._clock

    def sleep(self, seconds: float) -> None:
        self._clock += seconds

    def start(self, process: Process) -> str | None:
        self.did.append(f"start {process.name} {','.join(process.assignors)}")
        return "InconsistentGroupProtocol" if process.assignors == self._rejects else None

    def stop(self, process: Process) -> None:
        self.did.append(f"stop {process.name}")

    def crash(self, process: Process) -> None:
        self.did.append(f"crash {process.name}")

    def error(self, process: Process) -> str | None:
        return self.failing.get(process.name)

    def settle(self) -> bool:
        return True

    def gone(self, processes: Sequence[Process]) -> bool:
        self.did.append(f"gone {','.join(process.name for process in processes)}")
        return True

    def reload(self) -> str:
        self.did.append("reload")
        return "moved"

    def found(self, member_id: str, name: str) -> Process | None:
        return next((each for each in self.processes if each.name == name), None)

    def plan(self, expected: int | None, *more: str) -> dict[str, Any]:
        return self.verify(expected)

    def verify(self, expected: int | None, *more: str) -> dict[str, Any]:
        self._clock += 0.5
        return self._bodies.pop(0) if len(self._bodies) > 1 else self._bodies[0]

    def grant(self, kind: str) -> bool:
        had = kind in self.kinds
        self.kinds.add(kind)
        return not had

    def spoil(self) -> str:
        return "cut"

    def unowned(self, since: float, breaks: Sequence[float]) -> tuple[float, str]:
        return self.longest, "t-0"


def look(action: str, **fields: Any) -> dict[str, Any]:
    """One look with this advice."""
    advice = {
        "action": action, "members": [], "names": [], "assignors": [], "verdict": "yes",
        "reason": "", "evidence_needed": [], "step": 1, "text": action,
        "valid_while": {"generation": 1, "assignor": "range", "leader_epoch": None},
    }  # fmt: skip
    return {"advice": {**advice, **fields}, "withheld": []}


def restart(name: str, assignors: Sequence[str]) -> dict[str, Any]:
    return look("restart", members=[f"{name}-id"], names=[name], assignors=list(assignors))


DONE = look("none")


def told(world: Script, limits: Limits = QUIET, *, counted: bool = True) -> Outcome:
    # A goal that every list fits: these stories are not about lists.
    return Story(
        world, random.Random(0), "eager", limits=limits, counted=counted, is_eager=lambda _: True
    ).run()


def test_a_restart_is_a_stop_a_leave_and_a_start_with_the_advised_list() -> None:
    world = Script(restart("app-0", WIDE), restart("app-1", []), DONE)
    outcome = told(world)
    expected = ["stop app-0", "gone app-0", "start app-0 cooperative-sticky,range"]
    expected += ["stop app-1", "gone app-1", "start app-1 range"]
    # The advice of the plan itself may or may not be carried out.
    assert world.did in (expected, expected[3:])
    assert (outcome.ended, outcome.violations) == ("finished", [])
    assert outcome.obeyed == len(world.did) // 3


def test_a_static_member_does_not_have_to_leave() -> None:
    world = Script(*[restart("app-0", WIDE)] * 2, DONE)
    world.processes[0].instance_id = "app-0"
    told(world)
    assert not any(each.startswith("gone") for each in world.did)


def test_a_cut_over_stops_all_before_one_starts() -> None:
    both = look(
        "cut-over", members=["a", "b"], names=["app-0", "app-1"], assignors=["cooperative-sticky"]
    )
    world = Script(both, both, DONE)
    told(world)
    assert world.did[-5:-2] == ["stop app-0", "stop app-1", "gone app-0,app-1"]
    assert world.did[-2:] == ["start app-0 cooperative-sticky", "start app-1 cooperative-sticky"]


def test_a_temporary_member_comes_and_leaves() -> None:
    world = Script(*[look("temporary", assignors=["range"])] * 2, DONE)
    outcome = told(world)
    name = world.processes[-1].name
    assert world.did[-2:] == [f"start {name} range", f"stop {name}"]
    assert outcome.violations == []


def test_a_rejected_restart_is_a_violation() -> None:
    world = Script(*[restart("app-0", WIDE)] * 2, DONE, rejects=WIDE)
    outcome = told(world, counted=False)
    assert "InconsistentGroupProtocol" in outcome.violations[0]
    assert outcome.excused == 0


@pytest.mark.parametrize(("assignors", "excused"), [(("cooperative-sticky",), 1), (WIDE, 0)])
def test_an_event_before_the_join_excuses_only_a_list_without_the_elected_assignor(
    assignors: tuple[str, ...], excused: int
) -> None:
    world = Script(*[restart("app-0", assignors)] * 2, DONE, rejects=assignors)
    outcome = told(world, RACING, counted=False)
    assert (outcome.excused, len(outcome.violations)) == (excused, 1 - excused)


def test_advice_that_is_not_proven_is_not_carried_out() -> None:
    unproven = look(
        "start", names=["app-0"], verdict="cannot tell", evidence_needed=["probe"], text="do not"
    )
    world = Script(unproven, unproven, DONE)
    assert told(world).obeyed == 0
    assert world.did == []


def test_evidence_is_granted_once_and_asking_again_is_only_waiting() -> None:
    world = Script(look("evidence", evidence_needed=["probe"], verdict="cannot tell"))
    outcome = told(world)
    assert world.kinds == {"probe"}
    assert outcome.granted == 1
    assert "only waits" in outcome.violations[0]


def test_a_story_that_only_waits_fails_and_a_lasting_stop_is_a_block() -> None:
    assert "only waits" in told(Script(look("wait", verdict="cannot tell"))).violations[0]
    blocked = told(Script(look("stop", verdict="no", reason="RB104")))
    assert (blocked.ended, blocked.violations) == ("blocked: RB104", [])


def test_finished_is_wrong_while_a_member_is_down_or_has_another_list() -> None:
    world = Script(DONE)
    world.processes[0].running = False
    assert "app-0" in told(world).violations[0]
    world = Script(DONE)
    outcome = Story(world, random.Random(0), "cooperative", limits=QUIET).run()
    assert "has ['range']" in outcome.violations[0]


def test_a_bystander_that_fails_is_a_violation() -> None:
    world = Script(DONE)
    world.failing["app-1"] = "FencedInstanceId"
    story = Story(world, random.Random(2), "eager", limits=QUIET, is_eager=lambda _: True)
    outcome = story.run()
    assert outcome.ended == "finished"
    assert any("app-1" in each for each in outcome.violations) or outcome.looks == 1


def test_a_partition_without_an_owner_for_too_long_is_a_violation() -> None:
    world = Script(DONE)
    world.longest = 31
    assert told(world).violations == ["t-0 had no owner for 31 s"]
    world.longest = 30
    assert told(world).violations == []


def test_a_withheld_restart_that_is_admitted_is_a_violation() -> None:
    limits = Limits(event_chance=0, race_chance=0, trial_chance=1, opening_chance=0)
    body = look("wait", verdict="cannot tell")
    withheld = restart("app-0", WIDE)["advice"] | {"error": "INCONSISTENT_GROUP_PROTOCOL"}
    body["withheld"] = [{**withheld, "verdict": "no"}]
    rejected = told(Script(body, rejects=WIDE), limits, counted=False)
    assert (rejected.trials, rejected.violations) == (1, [])
    assert "admitted" in told(Script(body), limits, counted=False).violations[0]


def test_the_same_seed_tells_the_same_story() -> None:
    def story() -> list[str]:
        world = Script(*[restart("app-0", WIDE)] * 30, DONE)
        Story(world, random.Random(7), "eager", is_eager=lambda _: True).run()
        return world.did

    assert story() == story()
