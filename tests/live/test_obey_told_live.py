"""Thirty written stories on three brokers: their actions are counted, and what went wrong of them.

`REBAL_OBEY_STORY` is a pattern of the stories to play; the total is then not asserted.
"""

from __future__ import annotations

import os
import random
import re
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pytest

from tests.kafka import clients, jars
from tests.kafka.cluster import Cluster
from tests.kafka.members import Members
from tests.live.obey import Limits
from tests.live.obey_told import BEFORE_KIP848, PATHS, STORIES, Told
from tests.live.obey_world import LiveWorld
from tests.live.test_obey_live import report

QUIET = Limits(
    seconds=240, event_chance=0, race_chance=0, opening_chance=0, trial_chance=0, looks=120
)
ACTIONS = 200


@dataclass
class Count:
    """What is counted of a story, and of all."""

    actions: int = 0
    rejected: int = 0
    false_done: int = 0
    dead_ends: int = 0
    blocked: int = 0
    other: int = 0

    def add(self, more: Count) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(more, one.name))


@pytest.fixture(params=jars.BROKER_VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as made:
        yield made


def play(number: int, cluster: Cluster, members: Members, folder: Path) -> Count:
    path, accident, kinds = STORIES[number]
    if cluster.is_scala_coordinator:
        path = BEFORE_KIP848.get(path, path)
    rng = random.Random(number)
    title = f"{number:>2} {path}, {accident}, by {' and '.join(kinds)}"
    name = f"told-{number}-{os.getpid()}"
    begin = PATHS[path]
    folder.mkdir()
    world = LiveWorld(
        cluster, members, f"g-{name}", f"t-{name}", folder=folder, rng=rng,
        processes=begin.processes(), kinds=set(kinds), goal=begin.to or begin.goal,
        rebalance_ms=8000 if begin.software[0].startswith("java") else 15_000,
    )  # fmt: skip
    story = Told(world, rng, begin.goal, limits=QUIET)
    story.tell_of(accident, number)
    outcome = story.outcome
    try:
        world.begin()
        story.run()
    except Exception:
        outcome.ended = "failed"
        outcome.violations.append(traceback.format_exc())
    finally:
        world.end()
    rejected = world.rejected() - story.deliberate
    done = sum("called finished" in one for one in outcome.violations)
    dead = outcome.ended != "finished"
    count = Count(
        outcome.obeyed, sum(rejected.values()), done, dead, story.blocked,
        len(outcome.violations) - done + (accident != "none" and not outcome.events),
    )  # fmt: skip
    print(f"{cluster.version} {title}: {count} {rejected}")
    report(outcome)
    return count


@pytest.mark.full
@pytest.mark.timeout(30 * 240)
def test_thirty_stories_end_well(cluster: Cluster, members: Members, tmp_path: Path) -> None:
    clients.command("franz-go")
    total, chosen = Count(), re.compile(os.environ.get("REBAL_OBEY_STORY", ""))
    for number, story in enumerate(STORIES):
        if chosen.search(f"{number} {story}"):
            total.add(play(number, cluster, members, tmp_path / f"{number}"))
    print(total)
    assert asdict(total) == {
        "actions": total.actions, "rejected": 0, "false_done": 0, "dead_ends": 0,
        "blocked": total.blocked, "other": 0,
    }  # fmt: skip
    assert total.blocked <= 0.02 * total.actions
    assert chosen.pattern or total.actions >= ACTIONS, total
