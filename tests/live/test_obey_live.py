"""Whoever carries out what `rebal` advises, and nothing else, loses no member: generated stories.

`REBAL_OBEY_SEED` is the seed of the first story (the next ones count up); each failure names its
own.
"""

from __future__ import annotations

import json
import os
import random
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.kafka import clients
from tests.kafka.cluster import Cluster
from tests.kafka.members import Members
from tests.live.obey import KINDS, Limits, Outcome, Story
from tests.live.obey_world import LiveWorld
from tests.search.histories import History, draw

FULL_SHARDS = 8
STORIES_A_SHARD = 6
SHORT = Limits(
    seconds=90, events=1, events_until=10, event_chance=0.5, race_chance=0, opening_chance=0
)

# The clients of one service; a history of others is not played here.
JAVA = ({"java"},)
CLIENTS = (*JAVA, {"java", "franz-go"}, {"franz-go"}, {"librdkafka"}, {"kafka-python"})
JARS = ("java-2.8.2", "java-3.9.1", "java-4.1.1")

Tell = Callable[[int, Cluster, History, Limits], Outcome]


def begin_of(seed: int, clients: tuple[set[str], ...] = CLIENTS, most: int = 5) -> History:
    """Return the first history from this seed on whose group a cluster can begin with."""

    def playable(history: History) -> bool:
        every = [one.process() for one in history.consumers]
        jars = all(one.software in JARS for one in every if one.family == "java")
        own = any(one.own for one in history.consumers)
        known = jars and not own and not history.kip848 and 1 < len(every) <= most
        return known and {one.family for one in every} in clients

    return next(filter(playable, map(draw, count(seed))))


@pytest.fixture
def tell(members: Members, tmp_path: Path) -> Tell:
    """Play the story of a seed on a cluster."""

    def play(seed: int, cluster: Cluster, begin: History, limits: Limits) -> Outcome:
        rng = random.Random(seed)
        print(f"seed {seed}: {begin}")
        folder = tmp_path / f"story-{seed}"
        folder.mkdir()
        world = LiveWorld(
            cluster, members, f"g-obey-{seed}-{os.getpid()}", f"t-obey-{seed}-{os.getpid()}",
            folder=folder, rng=rng, processes=[one.process() for one in begin.consumers],
            kinds={*begin.evidence.kinds} & {*KINDS}, goal=begin.goal, session_ms=8000,
            shift=begin.evidence.shift,
        )  # fmt: skip
        world.begin()
        story = Story(world, rng, begin.goal, limits=limits, counted=begin.counted)
        try:
            outcome = story.run()
        except Exception:
            outcome = story.outcome
            outcome.violations.append(traceback.format_exc())
        finally:
            world.end()
        outcome.told += [f"rebal aborted {world.aborted} times"] if world.aborted else []
        report(outcome)
        return outcome

    return play


def report(outcome: Outcome) -> None:
    """Print what a counter-example is known by."""
    print(f"  {outcome.ended}: {outcome.obeyed} obeyed, {outcome.seconds:.0f} s")
    keys = ("step", "gate", "exit_code", "advice", "withheld", "dangers", "outsiders", "members")
    if outcome.violations:
        print("\n".join(outcome.told))
        for body in outcome.last[-2:]:
            print(json.dumps({key: body[key] for key in keys if key in body}))


def base_seed() -> int:
    return int(os.environ.get("REBAL_OBEY_SEED") or random.SystemRandom().randrange(1, 10**6))


def held(outcomes: dict[int, Outcome]) -> None:
    """No promise was broken, and next to nothing had to be excused."""
    broken = {seed: one.violations for seed, one in outcomes.items() if one.violations}
    assert broken == {}
    obeyed = sum(one.obeyed for one in outcomes.values())
    assert sum(one.excused for one in outcomes.values()) <= max(1, 0.05 * obeyed)
    blocked = {seed: one.ended for seed, one in outcomes.items() if "blocked" in one.ended}
    assert blocked == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [4, 9])
def test_a_short_story_ends_well(seed: int, cluster41: Cluster, tell: Tell) -> None:
    held({seed: tell(seed, cluster41, begin_of(seed, JAVA, most=3), SHORT)})


@pytest.mark.full
@pytest.mark.timeout(STORIES_A_SHARD * 300)
@pytest.mark.parametrize("shard", range(FULL_SHARDS))
def test_whoever_obeys_loses_no_member(
    shard: int, request: pytest.FixtureRequest, tell: Tell
) -> None:
    # Of the other clients no more is needed than this one.
    clients.command("franz-go")
    cluster = request.getfixturevalue("cluster39" if shard % 4 == 3 else "cluster41")
    first = base_seed() + 1000 * shard
    seeds = range(first, first + STORIES_A_SHARD)
    held({seed: tell(seed, cluster, begin_of(seed), Limits()) for seed in seeds})
