"""`admitted` against worlds that are told one by one, apart from its own arithmetic."""

import random
from collections.abc import Iterable, Iterator
from itertools import chain, combinations, combinations_with_replacement, product
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from rebal.groups.model import GroupState, GroupType, Tri
from rebal.planner.admission.check import Admission, JoinEvent, LeaveEvent, Needs, admitted, restart
from rebal.planner.admission.memory import CoordinatorMemory, Entry, Held, memory_of
from tests.planner.builder import AT, context_of
from tests.planner.plans import entry

RANGE, COOP, STICKY = "range", "cooperative-sticky", "sticky"
NAMES = (COOP, RANGE, STICKY)
LISTS = [frozenset(c) for n in (1, 2, 3) for c in combinations(NAMES, n)]
NO_LIMIT = {"group.max.size": "2147483647"}


def memory(*entries: Entry, **more: object) -> CoordinatorMemory:
    more = {"elected": RANGE, "in_all": frozenset({RANGE}), "max_size": 100, **more}
    return CoordinatorMemory(cases=(entries,), **more)


def asked(found: CoordinatorMemory, who: str, *names: str, killed: bool = False) -> Admission:
    return admitted(found, restart(found, who, names, killed=killed))


@pytest.mark.parametrize(("guess", "verdict"), [(True, Tri.CANNOT_TELL), (False, Tri.NO)])
def test_cooperative_sticky_restart_beside_librdkafka_is_rejected_if_that_client_is_proven(
    *, guess: bool, verdict: Tri
) -> None:
    one = {"id": "a", "family": "librdkafka", "version": "2.6.0", "guess": guess}
    members = [one, {"id": "b", "list": [RANGE, COOP]}]
    found = memory_of(context_of({"members": members, "reloaded": False}))
    assert asked(found, "b-0f0f", COOP).verdict is verdict


def test_rejection_names_the_earlier_join_whose_list_lacks_the_assignor() -> None:
    joins = [JoinEvent(assignors=(name,), name=f"with {name}") for name in (RANGE, COOP)]
    assert "list of with range has no" in admitted(memory(), joins).reason


def test_static_restart_needs_group_max_size_unless_a_probe_found_room() -> None:
    one, two = entry("a", RANGE), entry("b", RANGE, instance="i")
    unread = memory(one, two, max_size=None)
    assert asked(unread, "b", RANGE).needs is Needs.BROKER
    assert asked(replace(unread, room=1), "b", RANGE).verdict is Tri.YES


def test_session_timeout_bounds_are_checked_before_group_max_size() -> None:
    found = memory(entry("a", RANGE), session_ms=(6000, 1800000), max_size=1)
    for outside in (5999, 1_800_001):
        answer = admitted(found, [JoinEvent(assignors=(RANGE,), session_ms=outside)])
        assert f"is {outside}, and the brokers accept 6000 to 1800000 (INV" in answer.reason
    for within in (6000, 1_800_000):
        answer = admitted(found, [JoinEvent(assignors=(RANGE,), session_ms=within)])
        assert answer.error == "GROUP_MAX_SIZE_REACHED"


def test_join_without_an_assignor_is_rejected_by_an_empty_group_too() -> None:
    answer = admitted(memory(), [JoinEvent(assignors=())])
    assert (answer.verdict, answer.error) == (Tri.NO, "INCONSISTENT_GROUP_PROTOCOL")
    assert answer.reason == "it names no assignor"
    assert admitted(memory(), [JoinEvent(assignors=(COOP,))]).elected, (
        "no load can have it rejected"
    )


def test_probe_answers_are_ignored_if_the_group_was_rebalancing() -> None:
    context = context_of({"members": [{"id": "a"}], "probe": {COOP: True}})
    found = memory_of(context)
    assert (found.in_all, found.room) == ({RANGE, COOP}, 1)
    refused = replace(context.snapshot.probe, refused="the group was rebalancing")
    context.snapshot = replace(context.snapshot, probe=refused)
    found = memory_of(context)
    assert (found.in_all, found.room) == ({RANGE}, 0)


def test_join_with_a_session_timeout_is_undecided_until_the_broker_bounds_are_read() -> None:
    found = memory(entry("a", RANGE))
    answer = admitted(found, [JoinEvent(assignors=(RANGE,), session_ms=5000)])
    assert (answer.verdict, answer.needs) == (Tri.CANNOT_TELL, Needs.BROKER)
    assert admitted(found, [JoinEvent(assignors=(RANGE,))]).verdict is Tri.YES


def test_empty_group_admits_any_assignor_list_and_later_joins_must_share_it() -> None:
    found = memory(entry("a", RANGE), entry("b", RANGE))
    stop = [LeaveEvent(member_id="a"), LeaveEvent(member_id="b")]
    start = [JoinEvent(assignors=(COOP,)), JoinEvent(assignors=(COOP,))]
    assert admitted(found, [*stop, *start]).verdict is Tri.YES
    assert admitted(found, [*stop, start[0], JoinEvent(assignors=(RANGE,))]).error is not None
    assert admitted(found, [stop[0], *start]).verdict is Tri.NO
    # DescribeGroups names no protocol type for an Empty group: the first member brings it.
    empty = memory(state=GroupState.EMPTY, protocol_type="")
    assert admitted(empty, start).verdict is Tri.YES
    other = [start[0], JoinEvent(assignors=(COOP,), protocol_type="connect")]
    assert admitted(empty, other).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_join_is_rejected_for_another_protocol_type_or_assignor_name_in_another_case() -> None:
    found = memory(entry("a", RANGE))
    other = admitted(found, [JoinEvent(assignors=(RANGE,), protocol_type="connect")])
    assert other.error == "INCONSISTENT_GROUP_PROTOCOL"
    assert admitted(found, [JoinEvent(assignors=("Range",))]).verdict is Tri.NO


def test_kip848_group_checks_a_classic_join_against_its_classic_members_only() -> None:
    alone = CoordinatorMemory(type=GroupType.CONSUMER, others=(entry("x"), entry("y")), max_size=10)
    assert admitted(alone, [JoinEvent(assignors=(STICKY,))]).verdict is Tri.YES
    mixed = replace(alone, cases=((entry("a", RANGE),),))
    assert admitted(mixed, [JoinEvent(assignors=(COOP,))]).verdict is Tri.NO
    worker = admitted(mixed, [JoinEvent(assignors=(RANGE,), protocol_type="connect")])
    assert worker.reason == "a KIP-848 group admits consumers only (INCONSISTENT_GROUP_PROTOCOL)"


def test_join_to_a_dead_group_is_undecided_and_gets_coordinator_not_available() -> None:
    answer = asked(memory(entry("a", RANGE), state=GroupState.DEAD), "a", RANGE)
    assert (answer.verdict, answer.error) == (Tri.CANNOT_TELL, "COORDINATOR_NOT_AVAILABLE")


def test_contradicted_list_evidence_decides_only_a_join_with_the_elected_assignor() -> None:
    found = memory(entry("a", COOP), Entry(member_id="b", name="b", lists=(Held(),)))
    assert asked(found, "b", COOP).needs is Needs.CONFLICT
    assert asked(found, "b", RANGE).verdict is Tri.YES


# Worlds: what every member sent, whether a load came, whether a rebalance came after it, and which
# static members did not take part in it. Written from the broker's side, with no bit in common with
# planner/admission/check.py.

HISTORIES = ("never loaded", "loaded", "loaded, then rebalanced")
SINCE = {True: HISTORIES[::2], False: HISTORIES[1:2], None: HISTORIES}
KINDS = [
    {"list": [RANGE]},
    {"list": [COOP, RANGE]},
    {"list": [COOP]},
    {"list": [COOP, RANGE, STICKY]},
    {"at_least": [RANGE]},
    {"at_least": [COOP]},
    {"lacks": [COOP], "at_least": [RANGE]},
    {},
]


class World(NamedTuple):
    """What decides about one member's restart, of all that a world tells."""

    common: frozenset[str]
    """What is in every remembered list."""
    beside: frozenset[str]
    """What is in every one but the restarted member's."""
    sent: frozenset[str]
    """What is in every list that was sent last, but the restarted member's."""


NOBODY = World(*[frozenset(NAMES)] * 3)


def remembered(
    own: frozenset[str], static: bool, elected: str, history: str
) -> Iterator[frozenset[str]]:
    """What the coordinator may hold after this history of a member that sent `own` last."""
    short = frozenset({elected})
    if static or history != "loaded":
        yield own
    if history == "loaded" or (static and history != "never loaded"):
        yield short


def fits(kind: dict[str, list[str]], sent: frozenset[str]) -> bool:
    if "list" in kind:
        return sent == frozenset(kind["list"])
    return set(kind.get("at_least", ())) <= sent and not set(kind.get("lacks", ())) & sent


def worlds(case: dict, who: int) -> set[World]:
    """Every world that fits the evidence, member by member: two that agree here are one."""
    elected, found = case["elected"], set()
    for history in SINCE[case["rebalanced"]]:
        told = {NOBODY}
        for n, (kind, static) in enumerate(zip(case["kinds"], case["static"], strict=True)):
            may = {
                (own, held)
                for own in LISTS
                if elected in own and fits(kind, own)
                for held in remembered(own, static, elected, history)
            }
            told = {
                World(
                    world.common & held,
                    world.beside if n == who else world.beside & held,
                    world.sent if n == who else world.sent & own,
                )
                for world in told
                for own, held in may
            }
        found |= told
    probe = case["probe"].items()
    return {one for one in found if all((name in one.common) is yes for name, yes in probe)}


def verdict_of(told: set[World], names: frozenset[str], stays: bool) -> Tri | None:
    """The answer by all worlds; None where the evidence fits no world.

    A dynamic member that leaves starts a rebalance: the restarted one may join before the others
    have joined again with whole lists, or after.
    """
    answers = {
        bool(names & counted)
        for world in told
        for counted in ([world.common] if stays else [world.beside, world.sent])
    }
    if not answers:
        return None
    return {(True,): Tri.YES, (False,): Tri.NO}.get(tuple(answers), Tri.CANNOT_TELL)


def told(case: dict) -> CoordinatorMemory:
    """The same evidence, through the snapshot."""
    members = [
        {"id": f"m{n}", "family": None, **({"instance": f"i{n}"} if static else {}), **kind}
        for n, (kind, static) in enumerate(zip(case["kinds"], case["static"], strict=True))
    ]
    rebalanced = case["rebalanced"]
    return memory_of(
        context_of(
            {
                "members": members,
                "elected": case["elected"],
                "reloaded": None if rebalanced is None else not rebalanced,
                "probe": case["probe"] or None,
                "cluster": {"settings": NO_LIMIT},
            }
        )
    )


# Of each assignor alone: in the list, not in it, or not known; and every whole list.
EVERY_KIND = [{"list": sorted(names)} for names in LISTS] + [
    {
        "at_least": [name for name, word in zip(NAMES, words, strict=True) if word == "in"],
        "lacks": [name for name, word in zip(NAMES, words, strict=True) if word == "out"],
    }
    for words in product(("in", "out", "unknown"), repeat=3)
    if "unknown" in words
]
FACTS = [
    {"elected": elected, "rebalanced": rebalanced, "probe": probe}
    for elected, probes in (
        (RANGE, ({}, {COOP: True}, {COOP: False}, {COOP: False, STICKY: True})),
        (COOP, ({}, {STICKY: True})),
    )
    for probe, rebalanced in product(probes, (True, False, None))
]
LONE_AND_PAIRS = [frozenset(c) for n in (1, 2) for c in combinations(NAMES, n)]


def every_case(size: int, facts: dict, kinds: list[dict] = KINDS) -> Iterator[dict]:
    """Every group of this size, whose members' order says nothing."""
    for members in combinations_with_replacement(product(kinds, (False, True)), size):
        evidence, static = zip(*members, strict=True)
        yield {**facts, "kinds": evidence, "static": static}


def check(case: dict, joins: Iterable[frozenset[str]]) -> int:
    """Ask for each restart of each member, of equal ones once; how often it was asked."""
    found = told(case)
    ids = sorted(entry.member_id for entry in found.cases[0])
    members = list(zip(case["kinds"], case["static"], strict=True))
    asked_of = 0
    for who, member in enumerate(members):
        if member in members[:who]:
            continue
        every = worlds(case, who)
        for names, killed in product(joins, (False, True)):
            wanted = verdict_of(every, names, killed or case["static"][who])
            answer = admitted(found, restart(found, ids[who], tuple(sorted(names)), killed=killed))
            asked_of += 1
            if wanted is None:
                alone = len(ids) == 1 and not killed and not case["static"][who]
                sure = alone or any(n in found.in_all for n in names)
                assert answer.verdict is (Tri.YES if sure else Tri.CANNOT_TELL), (case, names)
            else:
                assert answer.verdict is wanted, (case, who, names, killed, answer)
    return asked_of


@pytest.mark.parametrize("size", [1, 2])
def test_admission_agrees_with_all_coordinator_states_of_small_groups(size: int) -> None:
    """Compare the verdict on each restart with all coordinator states that fit the evidence."""
    cases = chain.from_iterable(every_case(size, facts) for facts in FACTS)
    assert sum(check(case, LISTS) for case in cases) > 300


@pytest.mark.parametrize("size", [3, 4])
def test_admission_agrees_with_all_coordinator_states_of_random_larger_groups(size: int) -> None:
    """Compare the verdict on each restart with all coordinator states that fit the evidence."""
    rng = random.Random(20261122)
    cases = [case for facts in FACTS for case in rng.sample(list(every_case(size, facts)), 20)]
    assert sum(check(case, [frozenset({COOP}), frozenset({RANGE, STICKY})]) for case in cases)


@pytest.mark.full
@pytest.mark.parametrize("facts", FACTS, ids=str)
def test_admission_agrees_with_all_coordinator_states_of_2_members_and_any_evidence(
    facts: dict,
) -> None:
    """Compare the verdict on each restart with all coordinator states that fit the evidence."""
    assert sum(check(case, LISTS) for case in every_case(2, facts, EVERY_KIND)) > 1_000


@pytest.mark.full
@pytest.mark.parametrize("facts", FACTS, ids=str)
def test_admission_agrees_with_all_coordinator_states_of_3_and_4_members(facts: dict) -> None:
    """Compare the verdict on each restart with all coordinator states that fit the evidence."""
    cases = chain(every_case(3, facts), every_case(4, facts))
    assert sum(check(case, LONE_AND_PAIRS) for case in cases) > 100_000


def test_static_member_not_seen_joining_since_a_coordinator_reload_leaves_admission_open() -> None:
    spec = {
        "members": [
            {"id": "a", "instance": "i", "list": [COOP, RANGE], "joined": 5},
            {"id": "b", "instance": "j", "list": [COOP, RANGE], "joined": -5},
        ],
        "reloaded": False,
        "cluster": {"settings": NO_LIMIT},
    }

    def answer(**known: object) -> Admission:
        context = context_of(spec)
        coordinator = replace(context.group.coordinator, **known)
        context.group = replace(context.group, coordinator=coordinator)
        context.snapshot = replace(context.snapshot, group=context.group)
        return asked(memory_of(context), "a-0f0f", COOP)

    unsure = answer(loaded_at=AT, leader_epoch=3)
    assert unsure.verdict is Tri.CANNOT_TELL
    assert "list of j holds" in unsure.reason
    assert answer(leader_epoch=0).verdict is Tri.YES


def test_rejection_of_an_assignor_in_every_list_proves_a_coordinator_reload() -> None:
    members = [{"id": n, "list": [COOP, RANGE], "joined": 1} for n in "ab"]
    spec = {"members": members, "reloaded": False, "cluster": {"settings": NO_LIMIT}}
    for name, at, proves in ((COOP, 2, True), (COOP, 0, False), (STICKY, 2, False), ("", 2, False)):
        rejected = [{"client": "c", "list": [name], "at": at}] if name else []
        found = memory_of(context_of({**spec, "refusals": rejected}))
        assert (asked(found, "a-0f0f", COOP).verdict is not Tri.YES) is proves


@pytest.mark.parametrize(
    ("member_id", "verdict"),
    [
        ("a-1b2c3d4e-aaaa-bbbb-cccc-123456789012", Tri.CANNOT_TELL),
        ("1b2c3d4e-aaaa-bbbb-cccc-123456789012", Tri.YES),
        ("BT3hbFQeQoqk3tq1pYlG7g", Tri.YES),
        ("m0-0f0f", Tri.CANNOT_TELL),
    ],
)
def test_member_of_a_converted_kip848_group_may_be_remembered_with_a_shortened_list(
    member_id: str, verdict: Tri
) -> None:
    """A conversion copies the list that a reload left; a later join has its whole list."""
    cluster = {"version": "4.1.1", "settings": {"x": "1"}}
    spec = {"type": "consumer", "elected": "uniform", "cluster": cluster}
    context = context_of({**spec, "members": [{"id": "a", "list": [COOP, RANGE]}]})
    member = replace(context.snapshot.members[0], member_id=member_id, protocol_type="classic")
    context.snapshot = replace(context.snapshot, members=(member,))
    found = memory_of(context)
    assert admitted(found, [JoinEvent(assignors=(COOP,))]).verdict is verdict
    assert len(found.everybody) == 1
