"""Stories on real brokers with real members, beside what the rehearsal engine foretells of them.

Generations, partitions that stop and move, rejections and what each owns at the end must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rebal.planner.rehearsal.script import Deed, Event
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.members import Members
from tests.live_support.rehearsed import Course, RealGroup, Seed, foretold

RANGE = ("range",)
MIXED = ("cooperative-sticky", "range")
BACK = ("range", "cooperative-sticky")
FINAL = ("cooperative-sticky",)
SOFTWARE = {"m-0": "java-3.9.1", "m-1": "java-4.1.1", "m-2": "java-4.1.1", "m-3": "java-3.9.1"}
THREE = ("m-0", "m-1", "m-2")
SEEDS = range(5)
MANY_SEEDS = range(60)
ATTEMPTS = 3


class Teller:
    """Tells stories on groups of its own."""

    def __init__(self, members: Members, group: str, topic: str) -> None:
        self.members, self.name, self.topic = members, group, topic
        self.groups: list[RealGroup] = []

    def same(
        self,
        broker: Broker,
        seeds: Sequence[Seed],
        events: Sequence[Event],
        *,
        by_chance: bool = False,
        **more: Any,
    ) -> Course:
        """Carry the story out; the engine foretells the same with any seed.

        `by_chance`: what moves rests on the random member ids, so it is the same with one of them.
        On a busy machine a member's SyncGroup can come after the next rebalance has begun, which
        the request log shows: the story is then told once more, on a new group.
        """
        for _ in range(ATTEMPTS):
            broker.log_requests(True)
            names = [f"{name}-{len(self.groups)}" for name in (self.name, self.topic)]
            group = RealGroup(broker, self.members, *names, **more)
            self.groups.append(group)
            scene = group.begin(seeds)
            done = group.play(events)
            real = group.course()
            if not group.overtaken():
                break
            group.end()
        else:
            pytest.fail(f"a SyncGroup came too late in each of {ATTEMPTS} groups: a busy machine")
        runs = [foretold(scene, done, seed) for seed in (MANY_SEEDS if by_chance else SEEDS)]
        told = {course for course, _ in runs}
        assert all(run.at_rest for _, run in runs)
        assert real in told, f"foretold {told}, real {real}, {done}"
        assert len({course._replace(moved=0) if by_chance else course for course in told}) == 1
        return real


@pytest.fixture
def teller(members: Members, group_id: str, topic_name: str) -> Iterator[Teller]:
    """Tell stories on new groups; request logs are off again afterwards."""
    made = Teller(members, group_id, topic_name)
    yield made
    for broker in {id(one.broker): one.broker for one in made.groups}.values():
        broker.log_requests(False)


@pytest.fixture(scope="module")
def own41() -> Iterator[Broker]:
    """A broker of its own: it is restarted here. It outlives the members."""
    with Broker(jars.EARLY, secure=False, request_log=True) as broker:
        yield broker


def team(*lists: tuple[str, ...], names: Sequence[str] = THREE, static: bool = False) -> list[Seed]:
    """Members on both Java clients with these lists, or with the one list."""
    lists = lists * len(names) if len(lists) == 1 else lists
    return [
        Seed(name, SOFTWARE[name], list_, static) for name, list_ in zip(names, lists, strict=True)
    ]


def restart(name: str, to: tuple[str, ...] = (), protocol: str = "") -> Event:
    return Event(do=Deed.RESTART, members=(name,), assignors=to, protocol=protocol)


def bounces(*lists: tuple[str, ...], names: Sequence[str] = THREE) -> list[Event]:
    """All members restart with each of these lists in turn."""
    return [restart(name, list_) for list_ in lists for name in names]


@pytest.mark.timeout(180)
def test_two_bounces(kafka41: Broker, teller: Teller) -> None:
    real = teller.same(kafka41, team(RANGE), bounces(MIXED, FINAL))
    assert (real.rejected, real.owned) == (0, (4, 4, 4))
    # Each restart is a leave and a join; cooperative members join once more to hand over.
    assert real.generations > 12


@pytest.mark.timeout(180)
def test_a_forgotten_member_outlives_the_others(kafka41: Broker, teller: Teller) -> None:
    """m-2 is still [range] in bounce 2: whoever restarts with the last list is rejected."""
    real = teller.same(kafka41, team(MIXED, MIXED, RANGE), bounces(FINAL, names=THREE[:2]))
    assert (real.rejected, real.owned) == (2, (12,))
    assert [*teller.groups[-1].running] == ["m-2"]


@pytest.mark.timeout(180)
def test_a_reload_has_a_static_member_rejected(own41: Broker, teller: Teller) -> None:
    """The coordinator that loads the group knows of each list only what was elected: range."""
    story = [Event(do=Deed.COORDINATOR), restart("m-1", FINAL)]
    real = teller.same(own41, team(BACK, static=True), story, session=8.0)
    assert (real.rejected, real.owned) == (1, (6, 6))


@pytest.mark.full
@pytest.mark.timeout(240)
def test_two_bounces_on_a_scala_coordinator(kafka39: Broker, teller: Teller) -> None:
    names = [*SOFTWARE]
    real = teller.same(
        kafka39, team(RANGE, names=names), bounces(MIXED, FINAL, names=names), partitions=20
    )
    assert (real.rejected, real.owned) == (0, (5, 5, 5, 5))


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.parametrize("broker", jars.SITES)
def test_the_downgrade(broker: str, request: pytest.FixtureRequest, teller: Teller) -> None:
    on = request.getfixturevalue(broker)
    real = teller.same(on, team(FINAL), bounces(BACK, RANGE), partitions=17)
    assert (real.rejected, real.owned) == (0, (6, 6, 5))


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("now", "to"), [(FINAL, RANGE), (RANGE, FINAL)], ids=["down", "up"])
def test_a_change_without_a_mixed_list_is_rejected(
    now: tuple[str, ...], to: tuple[str, ...], kafka41: Broker, teller: Teller
) -> None:
    real = teller.same(kafka41, team(now), bounces(to, names=THREE[:1]))
    assert (real.rejected, real.owned) == (1, (6, 6))


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.parametrize("broker", jars.SITES)
def test_two_bounces_of_static_members(
    broker: str, request: pytest.FixtureRequest, teller: Teller
) -> None:
    """They come back in time: only the one whose list changes the vote causes a rebalance."""
    on = request.getfixturevalue(broker)
    story = bounces(RANGE, MIXED, FINAL)
    real = teller.same(on, team(RANGE, static=True), story, session=15.0)
    assert (real.rejected, real.owned) == (0, (4, 4, 4))
    assert real.generations < len(story)


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.parametrize("list_", [RANGE, FINAL], ids=["eager", "cooperative"])
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_crash(list_: tuple[str, ...], kafka41: Broker, teller: Teller, *, static: bool) -> None:
    """The dead one counts until its session is over; then it comes back."""
    story = [Event(do=Deed.KILL, members=("m-1",)), restart("m-1")]
    real = teller.same(kafka41, team(list_, static=static), story)
    assert (real.rejected, real.owned) == (0, (4, 4, 4))


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("list_", [RANGE, FINAL], ids=["eager", "cooperative"])
def test_kip_848_up_and_back(
    list_: tuple[str, ...], kafka41: Broker, teller: Teller, *, static: bool
) -> None:
    """Generations go on as epochs, and back."""
    up = [restart(name, protocol="consumer") for name in THREE]
    back = [restart(name, list_, protocol="classic") for name in THREE]
    # Range gives by member id, and those of KIP-848 members are random.
    by_chance = list_ is RANGE and not static
    real = teller.same(
        kafka41, team(list_, static=static), [*up, *back], by_chance=by_chance, session=10.0
    )
    assert (real.rejected, real.owned) == (0, (4, 4, 4))
