"""The vote tables against real coordinators: 4.1.1 (Java) and 3.9.1 (Scala)."""

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, permutations

import pytest

from rebal.groups.coordinator import elect
from rebal.groups.model import CoordinatorKind
from tests.kafka.rawgroup import RawGroup

KNOWN = ("range", "roundrobin", "sticky", "cooperative-sticky")
CUSTOM = (
    "RoundRobinAssigner", "stream", "my-assignor", "com.example.Rack", "zone_aware", "größte",
    "consistent", "A",
)  # fmt: skip
# Strings with one and the same Java hash: "Aa" and "BB".
COLLIDING = ("x-AaAa", "x-BBBB", "x-AaBB", "x-BBAa")


@pytest.fixture
def kind(broker):
    return CoordinatorKind.SCALA if broker.is_scala_coordinator else CoordinatorKind.JAVA


def tied(names):
    """Lists of one member for each of `names`, which it puts first: every name has one vote."""
    return [[name, *(other for other in names if other != name)] for name in names]


def elected(broker, lists):
    """The assignor that the coordinator elects for members that join in the order of `lists`."""
    group = RawGroup(broker)
    try:
        group.form([group.member(*names) for names in lists])
        return group.elected
    finally:
        group.end()


def disagreements(broker, kind, cases):
    """Lists, what was really elected and what was foretold, for every case where they differ."""
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda lists: elected(broker, lists), cases))
    wrong = []
    for lists, real in zip(cases, answers, strict=True):
        told = elect(lists, kind)
        if told.assignor is None:
            most = max(told.votes.values())
            fits = told.tie and real in {name for name in told.votes if told.votes[name] == most}
        else:
            fits = real == told.assignor
        if not fits:
            wrong.append((lists, real, told))
    return wrong


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ties_of_kafkas_own_assignors_end_as_foretold(broker, kind, size):
    """In every order in which the members may join."""
    cases = [order for names in combinations(KNOWN, size) for order in permutations(tied(names))]
    assert disagreements(broker, kind, cases) == []
    assert all(elect(lists, kind).assignor is not None for lists in cases)


def test_names_whose_hashes_are_equal(broker, kind):
    for names in [*permutations(COLLIDING, 2), COLLIDING]:
        lists = tied(names)
        told = elect(lists, kind)
        assert told.assignor is None
        assert told.tie
        assert elected(broker, lists) in names


def test_random_lists(broker, kind):
    """A list may lack a name, which takes it from the vote of those that put it first."""
    random_lists = random.Random(429)
    names = (*KNOWN, *CUSTOM)
    cases = []
    for _ in range(150):
        pool = random_lists.sample(names, random_lists.randint(2, 6))
        shared = random_lists.choice(pool)
        lists = []
        for _ in range(random_lists.randint(2, 6)):
            own = random_lists.sample(pool, random_lists.randint(len(pool) - 1, len(pool)))
            lists.append(own if shared in own else [*own, shared])
        cases.append(lists)
    assert disagreements(broker, kind, cases) == []
    ties = sum(elect(lists, kind).tie for lists in cases)
    assert ties > 40, "too few of these lists tie for the tables to be tried"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_lists_of_so_many_names_that_the_table_grows(broker, kind):
    random_lists = random.Random(848)
    names = [f"assignor-{number}" for number in range(40)]
    pools = [random_lists.sample(names, random_lists.randint(2, 20)) for _ in range(600)]
    cases = [[random_lists.sample(pool, len(pool)) for _ in pool] for pool in pools]
    assert disagreements(broker, kind, cases) == []
