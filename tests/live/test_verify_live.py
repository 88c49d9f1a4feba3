"""A roll-out on real Java members: after every restart verify's word is held to the truth."""

from __future__ import annotations

import pytest

from tests.kafka.broker import Broker
from tests.kafka.service import named
from tests.live_support.rollout import GroupOn
from tests.live_support.services import Service

OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


@pytest.mark.story
def test_two_bounces_with_a_forgotten_member_and_a_refusal(
    kafka41: Broker, group_on: GroupOn
) -> None:
    rollout: Service = group_on(kafka41, Service, "java-2.8.2")
    rollout.begin(APPS, OLD)
    # The plan keeps no log: a look that is given none has none.
    words = ("--expect-members", "3", "--out", str(rollout.file))
    rollout.ask("plan-upgrade", rollout.group, *words)
    with rollout.logged():
        before = rollout.verify_unlogged()
        assert (before["step"], before["exit_code"]) == (1, 4)
        assert named(before, "no") == set(APPS)

        rollout.restart("app-0", MIXED)
        rollout.check(4, {"app-0"})
        # The ids of the two others are still there: named without any log.
        assert named(rollout.verify_unlogged(), "no") == {"app-1", "app-2"}
        rollout.restart("app-1", MIXED)
        rollout.check(4, {"app-0", "app-1"})
        assert named(rollout.verify_unlogged(), "no") == {"app-2"}

        # app-2 is forgotten, and somebody begins the second bounce all the same.
        rollout.stop("app-0")
        rollout.refuses("app-0", FINAL, "InconsistentGroupProtocol")
        told = rollout.verify()
        assert told["exit_code"] == 3
        (danger,) = told["dangers"]
        assert danger["kind"] == "rejected"
        assert "app-0 (127.0.0.1) [cooperative-sticky]" in danger["message"]
        assert danger["members"] == [rollout.running["app-2"].member_id]
        assert [one["name"] for one in told["outsiders"]] == ["app-0"]
        assert rollout.verify_unlogged()["exit_code"] == 4

        rollout.begin(["app-0"], MIXED)
        rollout.restart("app-2", MIXED)
        told = rollout.verify()
        assert named(told, "yes") == set(APPS)
        # The very client that was rejected has joined since, as the log shows.
        assert told["dangers"] == []
        assert told["gate"] == "yes"
    # Without a log the elected target proves the same.
    told = rollout.verify_unlogged()
    assert (told["step"], told["gate"], told["exit_code"]) == (1, "yes", 0)
    assert told["assignor"] == "cooperative-sticky"
    assert told["next"].startswith("begin step 2")

    # The second bounce is done only when every list is seen.
    with rollout.logged():
        for number, name in enumerate(APPS):
            rollout.restart(name, FINAL)
            rollout.check(0 if number == 2 else 4, {*APPS[: number + 1]})
            unlogged = rollout.verify_unlogged()
            assert (unlogged["step"], unlogged["exit_code"]) == (2, 4)
    # The log is gone, its word stays in the journal; without either, a member shows by the
    # partitions that it kept that it runs COOPERATIVE, and the last one to restart shows nothing.
    assert rollout.ask("verify", str(rollout.file))["finished"]
    other = ("--journal", f"{rollout.file}.other", "--step", "2")
    nothing = rollout.ask("verify", str(rollout.file), *other)
    assert nothing["exit_code"] == 4
    assert named(nothing, "yes") <= {*APPS[:-1]}
