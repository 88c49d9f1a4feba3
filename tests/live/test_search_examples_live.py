"""Counter-examples that the search found on the model (tests/search), on live brokers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.live.replay_world import LIMITS, ReplayWorld, why_not
from tests.live_support.rollout import GroupOn, PlannedGroup
from tests.search.histories import found
from tests.search.obey import carry_out

pytestmark = pytest.mark.full
EVERY = {why: known.history for why, known in found().items() if known.ends == "finished"}
PLAYED = [name for name, history in EVERY.items() if why_not(history) is None]


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", PLAYED)
def test_a_history_that_was_found_ends_well(
    name: str, request: pytest.FixtureRequest, members: Members, tmp_path: Path
) -> None:
    history = EVERY[name]
    cluster = request.getfixturevalue("cluster41" if history.kind == "java" else "cluster39")
    group = f"g-replay-{history.seed}-{os.getpid()}"
    world = ReplayWorld(cluster, members, group, folder=tmp_path, history=history)
    try:
        world.begin()
        outcome = carry_out(world, history, LIMITS)
    finally:
        world.end()
    print("\n".join(outcome.told))
    assert outcome.violations == []
    assert outcome.ended == "finished"


@pytest.mark.timeout(180)
def test_the_way_back_from_kip_848_has_an_assignor_of_the_clients(
    kafka41: Broker, group_on: GroupOn
) -> None:
    """The broker's assignor is uniform, which no client starts with."""
    group: PlannedGroup = group_on(kafka41, software="java-4.1.1")
    group.begin(["app-0", "app-1"], [], protocol="consumer")
    plan = group.make("--to", "eager", "--assume-family", "java", "--expect-members", "2")
    assert plan["target"] == "range"
    assert "uniform" not in group.texts()
    for name in ("app-0", "app-1"):
        group.stop(name)
        group.begin([name], ["range"])
    assert group.verify()["assignor"] == "range"
