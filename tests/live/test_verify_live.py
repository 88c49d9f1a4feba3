"""A roll-out on real Java members: after every restart verify's word is held to the truth."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.service import named
from tests.live_support.rollout import GroupOn, PlannedGroup

OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


class Rollout(PlannedGroup):
    """A plan of Java members, and what verify says with and without a request log."""

    def __init__(self, broker: Broker, *more: Any, **options: Any) -> None:
        super().__init__(broker, *more, **options)
        self.blind = ["--journal", str(self.file.with_name("blind.jsonl"))]

    def check(self, gate: int | None, done: set[str], *more: str) -> dict[str, Any]:
        """With the log the answer is the truth; without it, never more than the truth."""
        told = self.verify(*self.logs(), *more)
        assert named(told, "yes") == done
        assert named(told, "no") == set(self.running) - done
        assert told["exit_code"] == gate, told
        unlogged = self.verify(*self.blind, *more)
        assert named(unlogged, "yes") <= done
        assert not named(unlogged, "no") & done
        assert unlogged["exit_code"] == gate or unlogged["exit_code"] == 4, unlogged
        return unlogged


@pytest.fixture
def rollout(kafka41: Broker, group_on: GroupOn) -> Rollout:
    """A group that nobody has joined, and no plan of it."""
    made: Rollout = group_on(kafka41, Rollout, "java-2.8.2")
    return made


@pytest.mark.story
def test_two_bounces_with_a_forgotten_member_and_a_refusal(rollout: Rollout) -> None:
    rollout.begin(APPS, OLD)
    rollout.make("--expect-members", "3")
    with rollout.logged():
        before = rollout.verify()
        assert (before["step"], before["exit_code"]) == (1, 4)
        assert named(before, "no") == set(APPS)

        rollout.restart("app-0", MIXED)
        unlogged = rollout.check(4, {"app-0"})
        # The ids of the two others are still there: named without any log.
        assert named(unlogged, "no") == {"app-1", "app-2"}
        rollout.restart("app-1", MIXED)
        unlogged = rollout.check(4, {"app-0", "app-1"})
        assert named(unlogged, "no") == {"app-2"}

        # app-2 is forgotten, and somebody begins the second bounce all the same.
        rollout.dies("app-0", FINAL)
        rollout.settle()
        told = rollout.verify(*rollout.logs())
        assert told["exit_code"] == 3
        (danger,) = told["dangers"]
        assert danger["kind"] == "rejected"
        assert "app-0 (127.0.0.1) [cooperative-sticky]" in danger["message"]
        assert danger["members"] == [rollout.running["app-2"].member_id]
        assert [one["name"] for one in told["outsiders"]] == ["app-0"]
        assert rollout.verify(*rollout.blind)["exit_code"] == 4

        rollout.begin(["app-0"], MIXED)
        rollout.restart("app-2", MIXED)
        told = rollout.verify(*rollout.logs(), "--probe")
        assert named(told, "yes") == set(APPS)
        # The very client that was rejected has joined since, as the log shows.
        assert told["dangers"] == []
        assert told["gate"] == "yes"
    # Without a log the elected target proves the same.
    told = rollout.verify(*rollout.blind)
    assert (told["step"], told["gate"], told["exit_code"]) == (1, "yes", 0)
    assert told["assignor"] == "cooperative-sticky"
    assert told["next"].startswith("begin step 2")

    # The second bounce is done only when every list is seen.
    with rollout.logged():
        for number, name in enumerate(APPS):
            rollout.restart(name, FINAL)
            unlogged = rollout.check(0 if number == 2 else 4, {*APPS[: number + 1]})
            assert unlogged["step"] == 2
            assert unlogged["exit_code"] == 4
    # The log is gone, its word stays in the journal; without either, a member shows by the
    # partitions that it kept that it runs COOPERATIVE, and the last one to restart shows nothing.
    assert rollout.verify()["finished"]
    nothing = rollout.verify("--journal", str(rollout.file) + ".other", "--step", "2")
    assert nothing["exit_code"] == 4
    assert named(nothing, "yes") <= {*APPS[:-1]}
