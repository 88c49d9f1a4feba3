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
    FENCED,
    FULL,
    INCONSISTENT,
    MEMBER_ID_REQUIRED,
    NONE,
    SESSION,
    UNKNOWN_MEMBER,
    RawGroup,
    RawMember,
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
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_random_restarts_are_admitted_as_predicted(small: Broker, shard: int) -> None:
    began = time.monotonic()
    check(tried(cases(small, f"plain {shard}", SHARD_CASES, max_size=4)), began)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_random_restarts_after_a_load_are_admitted_as_predicted(
    small: Broker, shard: int
) -> None:
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


def in_state(group: RawGroup, state: str) -> None:
    wait_for(state, lambda: group.describe().group_state == state, timeout=10)


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


def test_joins_that_are_answered_23_or_79_store_no_list(group: RawGroup) -> None:
    members = group.form([group.member(*WHOLE), group.member(*WHOLE, instance="i")])
    before = group.describe().members
    assert asked(group, "sticky") == INCONSISTENT
    assert asked(group, "sticky", instance="i") == INCONSISTENT
    assert asked(group, "range") == MEMBER_ID_REQUIRED
    assert group.describe().members == before
    assert [group.beat(member) for member in members] == [NONE, NONE]
    assert [group.holds(name) for name in WHOLE] == [UNKNOWN_MEMBER] * 2


def test_a_client_that_stops_after_79_holds_up_the_next_rebalance(group: RawGroup) -> None:
    (member,) = group.form([group.member("range")])
    assert asked(group, "range", session_ms=1_500) == MEMBER_ID_REQUIRED
    began = time.monotonic()
    group.rebalance(member)
    assert time.monotonic() - began > 1


def test_the_own_entry_of_a_static_member_counts(group: RawGroup) -> None:
    old, _ = group.form([group.member("range", instance="i"), group.member(*WHOLE, instance="j")])
    group.die(old)
    assert asked(group, COOP, instance="i") == INCONSISTENT
    group.leave(old)
    group.settle()
    assert group.join(COOP, instance="i").error == NONE


def test_a_surge_with_the_same_instance_id_fences_the_running_member(group: RawGroup) -> None:
    (old,) = group.form([group.member("range", instance="i")])
    assert group.join("range", instance="i").error == NONE
    assert (old.alive, old.error) == (False, FENCED)


def test_a_killed_dynamic_member_counts_until_a_rebalance_ends_without_it(broker: Broker) -> None:
    group = RawGroup(broker, rebalance_ms=1_500)
    live, killed = group.form([group.member(*WHOLE), group.member("range")])
    group.die(killed)
    assert asked(group, COOP, instance="new") == INCONSISTENT
    group.rebalance(live)
    assert not group.has(killed)
    assert group.join(COOP).error == NONE
    group.end()


def test_a_newcomer_takes_a_place_of_a_full_group_while_it_prepares_a_rebalance(
    small: Broker,
) -> None:
    """Only members that have joined again count, so the last of the old members is rejected.

    4.1.1 then completes the rebalance no sooner than at the rebalance timeout.
    """
    group = RawGroup(small, rebalance_ms=3_000)
    members = group.form([group.member(*WHOLE) for _ in range(4)])
    assert asked(group, *WHOLE) == FULL
    group.knock(members[0])
    in_state(group, "PreparingRebalance")
    newcomer = group.member(*WHOLE)
    assert group.knock(newcomer) is None
    wait_for("the newcomer", lambda: group.has(newcomer), timeout=10)
    for member in members[1:]:
        group.knock(member)
    group.settle()
    assert newcomer.error == NONE
    assert sorted(member.error or NONE for member in members) == [NONE, NONE, NONE, FULL]
    group.end()


def test_of_two_first_joiners_without_a_common_assignor_the_later_is_rejected(
    group: RawGroup,
) -> None:
    """Both are asked to join again with an id: an Empty group takes any list."""
    one, two = group.member("range"), group.member(COOP)
    assert group.knock(one, first_only=True) == MEMBER_ID_REQUIRED
    assert group.knock(two, first_only=True) == MEMBER_ID_REQUIRED
    group.knock(one)
    wait_for("the first", lambda: group.has(one), timeout=10)
    assert group.knock(two, first_only=True) == INCONSISTENT


# --- facts about a load -------------------------------------------------------------------------


@dataclass
class Loaded:
    """Groups that one coordinator load found, by the name of the fact; cases to be tried."""

    broker: Broker
    groups: dict[str, RawGroup]
    random: list[Case]
    timer_counts: bool = False

    def take(self, name: str) -> tuple[RawGroup, list[RawMember]]:
        found = self.groups[name]
        found.describe()
        return found, found.members


@pytest.fixture(scope="module")
def loaded(small: Broker) -> Loaded:
    """One restart of the broker serves all tests; the lists are [range, cooperative-sticky]."""

    def made(*instances: str | None, rebalance_ms: int = 60_000, **more: int) -> RawGroup:
        group = RawGroup(small, rebalance_ms=rebalance_ms)
        late = {i: more if i == "late" else {} for i in instances}
        group.form([group.member(*WHOLE, instance=i, **late[i]) for i in instances])
        assert [group.elected, *(group.holds(n) for n in WHOLE)] == ["range", 25, 25]
        return group

    short = int(SHORT_SESSION_S * 1000)
    groups = {
        "mixed": made(None, "i", None),
        "statics": made("i", "j"),
        "rebalance": made(None, "i"),
        "down": made("i", "j", rebalance_ms=2_000),
        "own entry": made("i"),
        "leave": made(None, None),
        "temporary": made("i", "j"),
        "each": made("i", "j", "k"),
        "expired": made("late", "i", "j", session_ms=short),
        "kip848": made(None, "i"),
        "kip848 after": made(None, "i"),
        "timers": made("late", session_ms=short),
    }
    began = time.monotonic()
    if not small.is_scala_coordinator:
        groups["kip848"].convert()
    found = Loaded(small, groups, formed(cases(small, "loaded", CI_CASES, load=True, max_size=4)))
    small.stop()
    time.sleep(max(0.0, began + SHORT_SESSION_S - time.monotonic()))
    small.start()
    for group in groups.values():
        group.reloaded()
    found.timer_counts = len(groups["timers"].describe().members) == 1
    return found


def test_random_restarts_after_a_load_are_admitted_as_predicted(loaded: Loaded) -> None:
    began = time.monotonic()
    check(tried_after_load(loaded.random), began)


def test_a_load_leaves_the_elected_assignor_of_every_list(loaded: Loaded) -> None:
    group, members = loaded.take("mixed")
    assert group.describe().group_state == "Stable"
    assert [group.holds(name) for name in WHOLE] == [UNKNOWN_MEMBER, INCONSISTENT]
    assert [group.beat(member) for member in members] == [NONE] * 3
    assert asked(group, COOP) == INCONSISTENT
    assert asked(group, "range") == MEMBER_ID_REQUIRED


def test_a_load_starts_the_session_timers_again(loaded: Loaded) -> None:
    """Counted although its session had ended before the load; a session later it is not."""
    assert loaded.timer_counts
    group, _ = loaded.take("timers")
    in_state(group, "Empty")


def test_a_static_restart_after_a_load_refreshes_that_member_alone(loaded: Loaded) -> None:
    group, members = loaded.take("statics")
    before = group.generation
    for old, expected in zip(list(members), (INCONSISTENT, UNKNOWN_MEMBER), strict=True):
        group.die(old)
        assert group.join(*WHOLE, instance=old.instance_id).error == NONE
        assert group.holds(COOP) == expected
    assert group.generation == before


def test_a_rebalance_after_a_load_restores_the_lists_of_the_members_that_join(
    loaded: Loaded,
) -> None:
    group, _ = loaded.take("rebalance")
    assert group.holds(COOP) == INCONSISTENT
    group.rebalance()
    assert group.holds(COOP) == UNKNOWN_MEMBER


def test_a_static_member_that_is_down_keeps_the_elected_assignor_until_it_rejoins(
    loaded: Loaded,
) -> None:
    group, (down, live) = loaded.take("down")
    group.die(down)
    group.rebalance(live)
    assert group.holds(COOP) == INCONSISTENT
    after = group.generation
    assert group.join(*WHOLE, instance=down.instance_id).error == NONE
    assert (group.holds(COOP), group.generation) == (UNKNOWN_MEMBER, after)


def test_the_own_entry_that_a_load_shortened_rejects_a_static_restart(loaded: Loaded) -> None:
    group, (old,) = loaded.take("own entry")
    group.die(old)
    assert asked(group, COOP, instance="i") == INCONSISTENT
    assert group.join(*WHOLE, instance="i").error == NONE
    group.die(group.members[-1])
    assert group.join(COOP, instance="i").error == NONE


def test_after_a_load_a_leaver_is_rejected_at_once_and_admitted_after_the_rebalance(
    loaded: Loaded,
) -> None:
    group, (leaver, _) = loaded.take("leave")
    group.leave(leaver)
    assert asked(group, COOP) == INCONSISTENT
    group.settle()
    assert group.join(COOP).error == NONE


def test_a_temporary_member_restores_an_all_static_group_in_two_rebalances(
    loaded: Loaded,
) -> None:
    group, (old, *others) = loaded.take("temporary")
    before = group.generation
    temporary = group.join(*WHOLE)
    assert (group.generation - before, group.holds(COOP)) == (1, UNKNOWN_MEMBER)
    group.leave(temporary)
    group.settle()
    assert group.generation - before == 2
    group.die(old)
    assert group.join(COOP, instance=old.instance_id).error == NONE
    assert all(member.alive for member in others)


def test_a_restart_of_each_restores_an_all_static_group_without_a_rebalance(
    loaded: Loaded,
) -> None:
    group, members = loaded.take("each")
    before = group.generation
    for old in list(members):
        assert asked(group, COOP, instance=old.instance_id) == INCONSISTENT
        group.die(old)
        assert group.join(*WHOLE, instance=old.instance_id).error == NONE
    assert (group.generation, group.holds(COOP)) == (before, UNKNOWN_MEMBER)
    group.die(group.members[-1])
    assert group.join(COOP, instance="k").error == NONE


def test_an_expired_session_restores_an_all_static_group_in_two_rebalances(
    loaded: Loaded,
) -> None:
    group, (late, *_) = loaded.take("expired")
    before = group.generation
    wait_for("the end of its session", lambda: not group.has(late), timeout=20)
    group.expire(late)
    group.settle()
    assert (group.generation - before, group.holds(COOP)) == (1, UNKNOWN_MEMBER)
    assert group.join(COOP, instance="late").error == NONE
    assert group.generation - before == 2


@pytest.mark.parametrize("small", [jars.EARLY], indirect=True)
def test_a_kip848_group_holds_a_classic_join_against_its_classic_members(loaded: Loaded) -> None:
    """A load does not shorten their lists; a conversion after a load copies the short ones."""
    group = loaded.groups["kip848"]
    assert asked(group, COOP) == MEMBER_ID_REQUIRED
    assert asked(group, "sticky") == INCONSISTENT
    assert asked(group, "range", protocol_type="connect") == INCONSISTENT
    group.leave(*group.members)
    assert asked(group, "sticky") == MEMBER_ID_REQUIRED
    short = loaded.groups["kip848 after"]
    short.convert()
    assert asked(short, "range") == MEMBER_ID_REQUIRED
    assert asked(short, COOP) == INCONSISTENT
    group.end()
    short.end()
