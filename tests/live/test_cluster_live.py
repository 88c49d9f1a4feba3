"""Coordinators that move between three brokers: what `rebal` says, held to real members."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.service import inspect, named
from tests.live_support.rollout import GroupOn, PlannedGroup

OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
DEFAULT = ["range", "cooperative-sticky"]
FINAL = ["cooperative-sticky"]
APPS = ("app-0", "app-1", "app-2")


class Moved(PlannedGroup):
    """A group on a cluster, and a plan of it whose evidence are the brokers' request logs."""

    broker: Cluster

    def stands(self, *missing: int, journal: str = "plan") -> dict[str, Any]:
        """What verify says by the probe and the request logs of all but these brokers.

        Each journal is an audience of its own: it knows only what it was shown.
        """
        book = self.file.with_name(f"{journal}.jsonl")
        return self.verify("--probe", "--journal", str(book), *self.logs(*missing))

    def verdict(self) -> tuple[str, str]:
        """The probe's answer for cooperative-sticky, and whether a rebalance followed the load."""
        group = inspect(self.broker, self.group, "--probe")
        assert group["probe"]["refused"] is None, group["probe"]
        words = {one["assignor"]: one["supported"] for one in group["probe"]["answers"]}
        assert words["range"] == "yes"
        return words["cooperative-sticky"], group["coordinator"]["rebalanced_since_load"]


@pytest.fixture
def moved(cluster41: Cluster, group_on: GroupOn) -> Moved:
    made: Moved = group_on(cluster41, Moved)
    return made


def test_verify_looks_through_the_brokers_that_are_left(moved: Moved) -> None:
    moved.begin(APPS, DEFAULT, session_timeout_ms=45_000)
    moved.make("--probe", "--expect-members", "3", *moved.logs())
    killed = moved.broker.coordinator_of(moved.group)
    moved.broker.kill(killed)
    try:
        moved.settle()
        # The new coordinator has loaded [range] alone; the probe may come before it has.
        deadline = time.monotonic() + 30
        while (told := moved.stands())["exit_code"] != 3 and time.monotonic() < deadline:
            time.sleep(1)
        assert (told["exit_code"], named(told, "no")) == (3, set(APPS)), told
        # The block was right: the very restart that the step asks for would be rejected.
        moved.refuses("app-9", FINAL, "InconsistentGroupProtocol", session_timeout_ms=45_000)
        moved.restart("app-0", DEFAULT)
        assert moved.verdict() == ("yes", "yes")
    finally:
        moved.broker.restart(killed)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", ["cluster41", "cluster39"])
def test_a_rolling_restart_in_the_middle_of_each_of_two_bounces(
    cluster: str, group_on: GroupOn, request: pytest.FixtureRequest
) -> None:
    moved: Moved = group_on(request.getfixturevalue(cluster), Moved)
    moved.begin(APPS, OLD, session_timeout_ms=45_000)
    moved.make("--probe", "--expect-members", "3", *moved.logs())
    assert [step["target_list"] for step in moved.body["steps"]] == [MIXED, FINAL]
    for step, assignors in ((1, MIXED), (2, FINAL)):
        moved.restart("app-0", assignors)
        assert named(moved.stands(), "yes") == {"app-0"}
        for _ in moved.broker.rolling_restart():
            moved.settle()
        told = moved.stands()
        assert (told["step"], told["exit_code"]) == (step, 4), told
        assert named(told, "yes") == {"app-0"}
        moved.restart("app-1", assignors)
        moved.restart("app-2", assignors)
        told = moved.stands()
        assert named(told, "yes") == set(APPS)
        assert told["gate"] == "yes", told
    assert told["finished"]


def test_without_the_log_of_one_broker_no_member_is_called_done_too_early(moved: Moved) -> None:
    for name in APPS:
        moved.place(name, OLD, instance_id=name, session_timeout_ms=45_000)
    moved.settle()
    moved.make("--probe", "--expect-members", "3", *moved.logs())
    # A static member's restart shows only itself: in the log of the coordinator of that moment.
    first = moved.broker.coordinator_of(moved.group)
    moved.restart("app-0", MIXED)
    moved.broker.move_coordinator(moved.group)
    moved.settle()
    moved.restart("app-1", MIXED)
    assert named(moved.stands(), "yes") == {"app-0", "app-1"}
    told = moved.stands(first, journal="half")
    assert named(told, "yes") == {"app-1"}
    assert named(told, "cannot tell") == {"app-0"}
    assert told["exit_code"] == 4


@pytest.mark.parametrize("version", ["41", pytest.param("39", marks=pytest.mark.full)])
def test_a_load_keeps_the_bytes_of_a_static_members_new_process(
    version: str, request: pytest.FixtureRequest, group_on: GroupOn
) -> None:
    """The record of a static restart holds the subscription of the process that came.

    So after a load no byte of the old process, which kept its partitions, speaks against the list
    of the new one.
    """
    cluster = request.getfixturevalue(f"cluster{version}")
    group: PlannedGroup = group_on(cluster)
    for name in APPS[:2]:
        # One after the other: the first one joins again and names the partitions that it keeps.
        group.place(name, FINAL, instance_id=name, session_timeout_ms=45_000)
        group.settle()
    group.make("--to", "eager", "--expect-members", "2", *group.logs())
    group.restart("app-0", DEFAULT)
    cluster.move_coordinator(group.group)
    group.settle()
    body = group.verify("--probe", *group.logs())
    seen = inspect(cluster, group.group, "--probe")
    assert seen["coordinator"]["rebalanced_since_load"] == "no"
    assert seen["members"][0]["subscription"]["generation_id"] == -1
    assert seen["members"][0]["subscription"]["owned_partitions"] == []
    (shown,) = [one for one in body["members"] if one["name"] == "app-0"]
    assert shown["done"] == "yes", shown
    assert "RB902" not in {one["rule"] for one in body["findings"]}
    advice = body["advice"]
    assert (advice["verdict"], advice["assignors"]) == ("yes", DEFAULT), advice["text"]
