"""The protocol that members really run: single rules, classes of their own, captured groups."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import (
    AssignorList,
    Contradiction,
    Evidence,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    RebalanceProtocol,
    Software,
    Source,
    Tri,
)
from rebal.groups.protocol import (
    borrowed_names,
    class_of,
    common_assignors,
    group_protocol,
    member_protocol,
    not_by_name,
)
from tests.groups import observed
from tests.groups.observed import COOP, KEPT, joined, member
from tests.planner.captured import BUNDLED, FOLDER, stories
from tests.software import family

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
CANNOT_TELL, MIXED = RebalanceProtocol.CANNOT_TELL, RebalanceProtocol.MIXED
AT_ODDS = Contradiction(member_id="c-id", what="one member id joined with different lists")
group = partial(observed.group, assignor=COOP)


def runs(one: Member, **fields) -> RebalanceProtocol:
    return member_protocol(one, group(one, **fields)).value


@pytest.mark.parametrize(
    ("family", "names", "elected", "value"),
    [
        ("java", (COOP, "range"), COOP, EAGER),
        ("java", (COOP,), COOP, COOPERATIVE),
        ("java", (COOP, "com.acme.Mine"), COOP, CANNOT_TELL),
        ("franz-go", (COOP, "range"), COOP, COOPERATIVE),
        ("franz-go", (COOP, "range"), "range", EAGER),
        (None, (COOP,), COOP, COOPERATIVE),
        (None, (COOP, "range"), COOP, CANNOT_TELL),
        (None, (COOP, "range"), "range", EAGER),
        # Without a list: an eager-only vote says it of every client, COOP of some clients.
        (None, (), "range", EAGER),
        ("java", (), COOP, CANNOT_TELL),
        (None, (), COOP, CANNOT_TELL),
        ("librdkafka", (), COOP, COOPERATIVE),
        ("franz-go", (), COOP, COOPERATIVE),
    ],
)
def test_the_list_the_client_and_the_vote_say_what_a_member_runs(family, names, elected, value):
    assert runs(member("a", *names, family=family), assignor=elected) is value


@pytest.mark.parametrize(
    ("names", "value"),
    [(("sticky", "range"), EAGER), ((COOP,), COOPERATIVE), ((COOP, "range"), CANNOT_TELL)],
)
def test_who_follows_the_vote_runs_what_all_of_its_list_runs_where_none_is_elected(names, value):
    classic = member("a", *names, family="franz-go", protocol_type="classic")
    assert runs(classic, type=GroupType.CONSUMER, assignor="uniform") is value


def test_a_client_id_alone_is_not_a_client():
    guess = Software(
        family="librdkafka", evidence=(Evidence(source=Source.DESCRIBE, detail="client id"),)
    )
    assert runs(member("a", software=guess)) is CANNOT_TELL


@pytest.mark.parametrize("elected", [COOP, "stream"])
def test_kept_partitions_prove_cooperative(elected):
    one = member("a", subscription=KEPT)
    answer = member_protocol(one, group(one, assignor=elected))
    assert answer.value is COOPERATIVE
    assert answer.evidence[0].source is Source.SUBSCRIPTION


def test_an_eager_assignor_that_the_probe_found_in_a_java_list_proves_eager():
    bounded = AssignorList(knowledge=Knowledge.BOUNDED, at_least=(COOP, "range"))
    assert runs(member("a", family="java", assignors=bounded)) is EAGER
    assert runs(member("a", family="franz-go", assignors=bounded)) is COOPERATIVE
    assert runs(member("a", assignors=bounded)) is CANNOT_TELL


@pytest.mark.parametrize("names", [(COOP, "range"), ("range",)])
def test_evidence_at_odds_is_cannot_tell(names):
    one = member("a", *names, family="java", subscription=KEPT)
    answer = member_protocol(one, group(one))
    assert answer.value is CANNOT_TELL
    assert "contradicts itself" in answer.why


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"state": GroupState.PREPARING_REBALANCE}, "PreparingRebalance"),
        ({"state": GroupState.EMPTY}, "no members"),
        ({"protocol_type": "connect"}, "Connect"),
        ({"type": GroupType.SHARE}, "share"),
        ({"assignor": None}, "no assignor"),
        ({"assignor": "com.acme.Mine"}, "com.acme.Mine is not known"),
        ({"assignor": "stream"}, "upgrade.from"),
    ],
)
def test_what_cannot_be_told_says_why(fields, why):
    answer = group_protocol(group(member("a"), **fields))
    assert answer.value is CANNOT_TELL
    assert why in answer.why


def test_a_group_is_mixed_only_where_both_are_proven():
    eager = member("a", COOP, "range", family="java")
    cooperative = member("b", COOP, family="java")
    unknown = member("c")
    assert group_protocol(group(eager, eager)).value is EAGER
    assert group_protocol(group(cooperative)).value is COOPERATIVE
    assert group_protocol(group(eager, cooperative, unknown)).value is MIXED
    answer = group_protocol(group(cooperative, unknown))
    assert answer.value is CANNOT_TELL
    assert answer.why.startswith("1 of 2 members")


def test_a_kip848_group_is_incremental_and_its_classic_members_are_named():
    native = member("a", protocol_type="consumer")
    classic = member("b", protocol_type="classic")
    eager = member("c", "range", protocol_type="classic", family="java")
    snapshot = group(native, classic, type=GroupType.CONSUMER, assignor="uniform")
    answer = group_protocol(snapshot)
    assert answer.value is COOPERATIVE
    assert "1 of 2 members" in answer.why
    assert group_protocol(group(native, eager, type=GroupType.CONSUMER)).value is MIXED


@pytest.mark.parametrize(
    ("lists", "value"),
    [
        ((("range",), ("range", COOP)), EAGER),
        (((COOP,), (COOP,)), COOPERATIVE),
        (((COOP,), ("range",)), MIXED),
        (((), ()), CANNOT_TELL),
        (((COOP,), ()), CANNOT_TELL),
    ],
)
def test_a_consumer_group_of_classic_members_alone_runs_what_their_lists_say(lists, value):
    members = [
        member(name, *names, protocol_type="classic", family="java")
        for name, names in zip("ab", lists, strict=True)
    ]
    answer = group_protocol(group(*members, type=GroupType.CONSUMER, assignor="uniform"))
    assert answer.value is value
    assert answer.why.startswith(
        "the group's type is consumer, and every member speaks the classic protocol: "
    )


def test_common_assignors_from_lists_and_the_vote():
    lists = member("a", COOP, "range"), member("b", "range", "sticky"), member("c", COOP)
    fields = {"probe": {"range": Tri.NO}, "rebalanced": Tri.NO, "contradictions": (AT_ODDS,)}
    common = common_assignors(group(*lists, assignor="range", **fields))
    assert common.supported == ("range",)
    assert set(common.unsupported) == {COOP, "sticky"}
    assert (common.doubtful, common.source) == ((), "elected")


def test_what_a_list_lacks_is_proven_by_its_own_evidence():
    said = (Evidence(source=Source.BROKER_LOG),)
    bounded = AssignorList(knowledge=Knowledge.BOUNDED, lacks=("sticky",), evidence=said)
    common = common_assignors(group(replace(member("a"), assignors=bounded), assignor="range"))
    assert (common.unsupported, common.source) == (("sticky",), "elected, broker log")


@pytest.mark.parametrize(
    ("rebalanced", "unsupported", "doubtful"),
    [(Tri.YES, ("sticky",), ()), (Tri.CANNOT_TELL, (), ("sticky",)), (Tri.NO, (), ("sticky",))],
)
def test_the_probe_s_no_counts_only_after_a_rebalance(rebalanced, unsupported, doubtful):
    probe = {"range": Tri.YES, "sticky": Tri.NO, "mine": Tri.CANNOT_TELL}
    common = common_assignors(group(member("a"), probe=probe, rebalanced=rebalanced))
    assert common.supported == (COOP, "range")
    assert (common.unsupported, common.doubtful) == (unsupported, doubtful)
    assert common.source == "elected, probe"


def test_common_assignors_of_a_group_without_lists():
    assert common_assignors(group(member("a"), type=GroupType.CONSUMER)).supported == ()
    assert common_assignors(group()).supported == ()


EAGER_NAMES = {"range", "roundrobin", "sticky", "RoundRobinAssigner"}


def truth(start: dict[str, Any], elected: str) -> RebalanceProtocol | None:
    """What Kafka's rules make of the list that was really configured (README of the captures).

    None: an assignor of the application's own decides it.
    """
    kind = family(start["software"])
    if kind == "streams":
        return COOPERATIVE
    names = {elected} if kind == "franz-go" else set(start["assignors"])
    if names & EAGER_NAMES:
        return EAGER
    return COOPERATIVE if names == {COOP} else None


@pytest.mark.parametrize("log", [True, False])
def test_no_captured_member_is_said_to_run_what_it_does_not(log: bool) -> None:
    answers: Counter[RebalanceProtocol] = Counter()
    for story in stories(log, FOLDER).values():
        for snapshot in story.snapshots:
            alive = story.running(snapshot.captured_at)
            expected = {
                member_.member_id: truth(alive[name], snapshot.group.assignor or "")
                for member_ in snapshot.members
                if (name := member_.client_id.partition("-StreamThread-")[0]) in alive
            }
            for member_ in snapshot.members:
                answer = member_protocol(member_, snapshot).value
                answers[answer] += 1
                if (value := expected.get(member_.member_id)) is not None:
                    assert answer in (value, CANNOT_TELL), (story.name, member_.client_id)
            whole = group_protocol(snapshot).value
            if whole is not CANNOT_TELL and len(expected) == len(snapshot.members):
                values = set(expected.values())
                assert whole is MIXED or whole in values, story.name
                assert (whole is MIXED) == (len(values) > 1), story.name
    assert min(answers[EAGER], answers[COOPERATIVE]) > (10 if FOLDER == BUNDLED else 0)


OWN = "com.acme.OwnAssignor"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
# A member's own log: its list, and the classes where one is not Kafka's.
printed = partial(joined, evidence=Evidence(source=Source.CLIENT_LOG))


def test_a_class_that_is_not_kafkas_borrows_the_name():
    seen = [printed("a", COOP, "range", classes=(OWN, RANGE)), printed("b", COOP)]
    merged = merge(group(member("a", family="java"), member("b", family="java")), seen)
    a, b = merged.members
    borrowed = borrowed_names(merged)
    assert borrowed == {COOP}
    assert class_of(a, COOP) == OWN
    assert (not_by_name(a, COOP, borrowed), not_by_name(a, "range", borrowed)) == (True, False)
    # The log of b was read, and its class is Kafka's own.
    assert not not_by_name(b, COOP, borrowed)
    unread = replace(b, assignors=replace(b.assignors, evidence=()))
    assert not_by_name(unread, COOP, borrowed)
    other = member("c", COOP, family="librdkafka")
    assert not not_by_name(other, COOP, borrowed)


def test_a_name_that_no_client_brings_is_not_borrowed():
    seen = [printed("a", "zone", classes=(OWN,))]
    assert borrowed_names(merge(group(member("a"), assignor="zone"), seen)) == frozenset()


def test_kept_partitions_exclude_no_eager_name_that_a_class_of_ones_own_has():
    kept = member("b", family="java", subscription=KEPT)
    seen = [printed("a", COOP, "range", classes=("org.apache.Coop", OWN))]
    merged = merge(group(member("a", family="java"), kept), seen)
    assert borrowed_names(merged) == {COOP, "range"}
    assert merged.members[1].assignors.lacks == ("roundrobin", "sticky")


def test_the_class_wins_over_the_name_and_kept_partitions_over_both():
    silent = merge(group(member("a", family="java")), [printed("a", COOP, classes=(OWN,))])
    answer = member_protocol(silent.members[0], silent)
    assert answer.value is RebalanceProtocol.CANNOT_TELL
    assert OWN in answer.why
    kept = member("a", family="java", subscription=KEPT)
    shown = merge(group(kept, assignor="range"), [printed("a", "range", classes=(OWN,))])
    assert member_protocol(shown.members[0], shown).value is RebalanceProtocol.COOPERATIVE
    assert shown.contradictions == ()
