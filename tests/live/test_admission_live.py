"""`admitted` against the coordinators of 4.1.1 (Java) and 3.9.1 (Scala), by raw joins.

Random cases come first; then the facts that planner/admission's check.py and memory.py rest on.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.processes import wait_for
from tests.kafka.rawgroup import (
    FULL,
    INCONSISTENT,
    MEMBER_ID_REQUIRED,
    NONE,
    SESSION,
    UNKNOWN_MEMBER,
    RawGroup,
)
from tests.live_support.admission_cases import (
    CODES,
    Case,
    Outcome,
    formed,
    tally,
    tried,
    tried_after_load,
)

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
    """Without a load of the coordinator, and after one."""
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


def test_session_bounds_come_before_size_before_lists_before_the_member_id(small: Broker) -> None:
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


def test_a_group_that_does_not_exist_takes_any_list_but_an_empty_one(group: RawGroup) -> None:
    assert asked(group, "any", session_ms=100) == SESSION
    assert asked(group) == INCONSISTENT
    assert asked(group, "any") == MEMBER_ID_REQUIRED


def test_a_client_that_stops_after_79_holds_up_the_next_rebalance(group: RawGroup) -> None:
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


def test_random_restarts_after_a_load_are_admitted_as_predicted(loaded: Loaded) -> None:
    began = time.monotonic()
    check(tried_after_load(loaded.random), began)


def test_a_load_starts_the_session_timers_again(loaded: Loaded) -> None:
    """Counted although its session had ended before the load; a session later it is not."""
    assert loaded.counted
    wait_for("its end", lambda: loaded.timed.describe().group_state == "Empty", timeout=10)


def test_an_expired_session_restores_an_all_static_group_in_two_rebalances(loaded: Loaded) -> None:
    group = loaded.late
    group.describe()
    late, before = group.members[0], group.generation
    wait_for("the end of its session", lambda: not group.has(late), timeout=20)
    group.expire(late)
    group.settle()
    assert (group.generation - before, group.holds(COOP)) == (1, UNKNOWN_MEMBER)
    assert group.join(COOP, instance="late").error == NONE
    assert group.generation - before == 2
