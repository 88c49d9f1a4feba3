"""`admitted` and the vote against the coordinators of 4.1.1 (Java) and 3.9.1 (Scala).

Raw joins at random come first, then the facts that planner/admission's check.py and memory.py rest
on.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path

import pytest

from rebal.groups.coordinator import elect
from rebal.groups.evidence.bounds import apply_assumptions
from rebal.groups.model import CoordinatorKind
from rebal.inspectors.connection.translate import admin_cli_options
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from tests.kafka import jars
from tests.kafka.broker import Broker, wait_for
from tests.kafka.rawgroup import (
    FULL,
    INCONSISTENT,
    MEMBER_ID_REQUIRED,
    NONE,
    SESSION,
    UNKNOWN_MEMBER,
    RawGroup,
)
from tests.live_support import config_of, read_group
from tests.live_support.admission_cases import (
    CODES,
    Case,
    Outcome,
    formed,
    tally,
    tried,
    tried_after_load,
)
from tests.live_support.rollout import GroupOn, PlannedGroup

SEED = os.environ.get("REBAL_SEED", "20261122")
SMALL = {
    "group.max.size": "4",
    "group.consumer.max.size": "4",
    "group.consumer.session.timeout.ms": "60000",
}
COOP = "cooperative-sticky"
WHOLE = ("range", COOP)
CI_CASES = 40
SHARDS, SHARD_CASES = 4, 270
SHORT_SESSION_S = 4.0
NAMES_OF = {code: name for name, code in CODES.items()}


@pytest.fixture
def group(broker: Broker) -> Iterator[RawGroup]:
    made = RawGroup(broker)
    yield made
    made.end()


@pytest.fixture(scope="module", params=[jars.EARLY, jars.SCALA])
def small(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of its own: it is restarted here, and its groups have at most four members."""
    with Broker(request.param, secure=False, settings=SMALL) as broker:
        broker.wait_coordinator("any")
        yield broker


# --- random cases -------------------------------------------------------------------------------


def cases(broker: Broker, name: str, count: int, **more: object) -> list[Case]:
    return [Case(broker, f"{SEED} {name} {number}", **more) for number in range(count)]


def check(outcomes: list[Outcome], began: float) -> None:
    """No disagreement, and each verdict often enough that the test means something."""
    found = tally(outcomes)
    seconds = time.monotonic() - began
    print(f"seed {SEED}: {len(outcomes)} cases in {seconds:.0f} s, {dict(found)}")
    assert [each.wrong for each in outcomes if each.wrong] == []
    least = {"yes": len(outcomes) // 10, "no": len(outcomes) // 10, "cannot tell": 1}
    assert all(found[verdict] >= count for verdict, count in least.items()), found
    if len(outcomes) >= SHARD_CASES:
        for error in (INCONSISTENT, FULL, SESSION):
            assert found[NAMES_OF[error]] > 0, found


def test_random_restarts_are_admitted_as_predicted(broker: Broker) -> None:
    began = time.monotonic()
    check(tried(cases(broker, "plain", CI_CASES)), began)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_random_restarts_are_admitted_as_predicted(small: Broker, shard: int) -> None:
    """Without a coordinator reload, and after one."""
    began = time.monotonic()
    check(tried(cases(small, f"plain {shard}", SHARD_CASES, max_size=4)), began)
    began = time.monotonic()
    made = formed(cases(small, f"loaded {shard}", SHARD_CASES, load=True, max_size=4))
    small.restart()
    check(tried_after_load(made), began)


# --- facts that need no load --------------------------------------------------------------------


def asked(group: RawGroup, *assignors: str, **more: object) -> int | None:
    """The error code of a new client's first join, which is not to be admitted."""
    made = group.member(*assignors, **more)
    code = group.knock(made, first_only=True)
    made.wire.close()
    return code


def test_coordinator_checks_session_then_size_then_lists_then_member_id(small: Broker) -> None:
    group = RawGroup(small)
    first, *_ = group.form([group.member("range", instance=f"i{n}") for n in range(4)])
    assert asked(group, "sticky", session_ms=100) == SESSION
    assert asked(group, "sticky", session_ms=1_800_001) == SESSION
    assert asked(group, "sticky") == FULL
    assert asked(group, "range", instance="i1") == FULL, "a static restart needs a free place"
    group.leave(first)
    group.settle()
    assert asked(group, "sticky") == INCONSISTENT
    assert asked(group, "sticky", instance="i1") == INCONSISTENT
    assert asked(group, "range", protocol_type="connect") == INCONSISTENT
    assert asked(group, "sticky", COOP, "range") == MEMBER_ID_REQUIRED
    group.end()


def test_a_nonexistent_group_admits_any_assignor_list_but_an_empty_one(group: RawGroup) -> None:
    assert asked(group, "any", session_ms=100) == SESSION
    assert asked(group) == INCONSISTENT
    assert asked(group, "any") == MEMBER_ID_REQUIRED


def test_a_client_lost_after_member_id_required_delays_the_next_rebalance(group: RawGroup) -> None:
    (member,) = group.form([group.member("range")])
    assert asked(group, "range", session_ms=1_500) == MEMBER_ID_REQUIRED
    began = time.monotonic()
    group.rebalance(member)
    assert time.monotonic() - began > 1


# --- facts about a load -------------------------------------------------------------------------


@dataclass
class Loaded:
    """Groups that one coordinator load found, and cases to be tried.

    `timed` has one member, whose session ended before the load: `counted` then all the same.
    `late` has static members, of which one has a short session.
    """

    timed: RawGroup
    late: RawGroup
    counted: bool
    random: list[Case]


@pytest.fixture(scope="module")
def loaded(small: Broker) -> Loaded:
    """One restart of the broker serves all tests; the lists are [range, cooperative-sticky]."""
    groups = []
    for instances in (("late",), ("late", "i", "j")):
        groups.append(group := RawGroup(small))
        short = {"session_ms": int(SHORT_SESSION_S * 1000)}
        group.form(
            [group.member(*WHOLE, instance=i, **(short if i == "late" else {})) for i in instances]
        )
        assert [group.elected, *(group.holds(name) for name in WHOLE)] == ["range", 25, 25]
    began = time.monotonic()
    random = formed(cases(small, "loaded", CI_CASES, load=True, max_size=4))
    small.stop()
    time.sleep(max(0.0, began + SHORT_SESSION_S - time.monotonic()))
    small.start()
    for group in groups:
        group.reloaded()
    return Loaded(*groups, len(groups[0].describe().members) == 1, random)


def test_random_restarts_after_a_reload_are_admitted_as_predicted(loaded: Loaded) -> None:
    began = time.monotonic()
    check(tried_after_load(loaded.random), began)


def test_a_coordinator_reload_restarts_the_session_timers(loaded: Loaded) -> None:
    """A member whose session ended before the reload is counted for one more session."""
    assert loaded.counted
    wait_for("its end", lambda: loaded.timed.describe().group_state == "Empty", timeout=10)


def test_an_expiry_and_a_rejoin_restore_the_lists_of_an_all_static_group(loaded: Loaded) -> None:
    group = loaded.late
    group.describe()
    late, before = group.members[0], group.generation
    wait_for("the end of its session", lambda: not group.has(late), timeout=20)
    group.expire(late)
    group.settle()
    assert (group.generation - before, group.holds(COOP)) == (1, UNKNOWN_MEMBER)
    assert group.join(COOP, instance="late").error == NONE
    assert group.generation - before == 2


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
def test_vote_ties_of_kafkas_own_assignors_end_as_predicted(broker, kind, size):
    """In every order in which the members may join."""
    cases = [order for names in combinations(KNOWN, size) for order in permutations(tied(names))]
    assert disagreements(broker, kind, cases) == []
    assert all(elect(lists, kind).assignor is not None for lists in cases)


def test_vote_ties_of_names_with_equal_hashes_are_left_open(broker, kind):
    for names in [*permutations(COLLIDING, 2), COLLIDING]:
        lists = tied(names)
        vote = elect(lists, kind)
        assert vote.assignor is None
        assert vote.tie
        assert elected(broker, lists) in names


def test_votes_over_random_assignor_lists_end_as_predicted(broker, kind):
    """A list may lack a name, which then is no candidate for the other members either."""
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
def test_votes_over_so_many_names_that_the_hash_table_grows_end_as_predicted(broker, kind):
    random_lists = random.Random(848)
    names = [f"assignor-{number}" for number in range(40)]
    pools = [random_lists.sample(names, random_lists.randint(2, 20)) for _ in range(600)]
    cases = [[random_lists.sample(pool, len(pool)) for _ in pool] for pool in pools]
    assert disagreements(broker, kind, cases) == []


@pytest.mark.full
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("broker", "security"),
    [("kafka39", None), ("kafka41", None), ("kafka41", "SCRAM-SHA-512"),
     ("kafka41", "SSL")],
)  # fmt: skip
def test_entry_of_a_static_member_that_is_down_is_removed_by_the_printed_command(
    broker: str, security: str | None, request: pytest.FixtureRequest, group_on: GroupOn
) -> None:
    kafka = request.getfixturevalue(broker)
    service: PlannedGroup = group_on(kafka, software="java-4.1.1")
    options = {"session_timeout_ms": 1_800_000, "settings": {"heartbeat.interval.ms": "1000"}}
    service.begin(["app-0"], ["cooperative-sticky", "range"], instance_id="app-0", **options)
    service.begin(["app-1"], ["range"], instance_id="app-1", **options)
    service.running.pop("app-1").crash()
    seen = read_group(kafka, service.group, probe=True)
    assert len(seen.members) == 2, "the coordinator counts the member that is down"
    config = config_of(kafka, security)
    given = Given(brokers=config.bootstrap, client=admin_cli_options(config), plan="p.yaml")
    lists = ["instance-id=app-0:cooperative-sticky,range", "instance-id=app-1:range"]
    known, _ = apply_assumptions(seen, lists)
    findings = make_plan(known, given=given).findings
    (forgotten,) = [one for one in findings if one.rule == "RB102"]
    (command,) = [one.line for one in forgotten.commands if "remove" in one.use]
    assert command.startswith("python -m kafka.admin ")
    login = {"REBAL_X_SASL_USERNAME": config.username, "REBAL_X_SASL_PASSWORD": config.password}
    done = subprocess.run(
        ["bash", "-c", command],
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
             **{name: value for name, value in login.items() if value}},
        check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert "NoError" in done.stdout
    service.settle()
    seen = read_group(kafka, service.group)
    assert [one.instance_id for one in seen.members] == ["app-0"]
    assert seen.group.assignor == "cooperative-sticky"
