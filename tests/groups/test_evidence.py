"""Evidence merged: whose it is, what contradicts it, what it says of a list that nobody saw."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Declared, Introduced
from rebal.groups.model import (
    AssignorList,
    Evidence,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Software,
    Source,
    Subscription,
    Tri,
)
from tests.groups.observed import (
    COOP,
    JAVA,
    KEPT,
    MIXED,
    at,
    declared,
    group,
    joined,
    lists,
    member,
    refused,
)


def test_a_heartbeat_names_the_client_and_no_list():
    said = Software(
        family="franz-go",
        name="kgo",
        version="v1.22.2",
        evidence=(Evidence(source=Source.REQUEST_LOG, at=at(0)),),
    )
    told = Introduced(group_id="g", member_id="a-id", software=said, evidence=said.evidence[0])
    seen = merge(group(member("a"), member("b"), type=GroupType.CONSUMER), [told])
    by_id = {one.member_id: one for one in seen.members}
    assert by_id["a-id"].software == said
    assert by_id["a-id"].assignors.knowledge is Knowledge.UNKNOWN
    assert by_id["b-id"].software is None


def test_nothing_is_joined_on_a_client_id():
    seen = joined("a", *MIXED, member_id="a-earlier-id")
    merged = merge(group(member("a")), [seen])
    assert lists(merged)["a"].knowledge is Knowledge.BOUNDED
    (absent,) = merged.unmatched
    assert "no longer in the group" in absent.why


def test_joins_of_the_departed_are_one_line():
    seen = [joined(f"m{i}", "range", minute=i) for i in range(30)]
    merged = merge(group(member("a")), seen)
    (absent,) = merged.unmatched
    assert absent.what == "joins of 30 member ids (m0, m1, m10 and 27 more)"
    assert absent.evidence.at == at(29)


def test_another_group_s_observations_are_left_alone():
    merged = merge(group(member("a")), [joined("a", *MIXED, group_id="other")])
    assert lists(merged)["a"].list == ()
    assert merged.unmatched == ()


def test_two_lists_of_one_member_id_contradict_each_other_and_the_newest_stays():
    snapshot = group(member("a"))
    merged = merge(
        snapshot, [joined("a", "range", minute=1), joined("a", *MIXED, minute=9, reason="again")]
    )
    assert lists(merged)["a"].list == MIXED
    assert merged.members[0].join_reason == "again"
    (contradiction,) = merged.contradictions
    assert contradiction.member_id == "a-id"
    assert "[range]" in contradiction.what
    assert len(contradiction.evidence) == 2


def test_joined_at_is_of_an_accepted_join():
    given = joined("a", *MIXED, minute=5, accepted=False)
    alone = merge(group(member("a")), [given])
    assert (lists(alone)["a"].list, alone.members[0].joined_at) == (MIXED, None)
    both = merge(group(member("a")), [given, joined("a", *MIXED, minute=3)])
    assert both.members[0].joined_at == at(3)


@pytest.mark.parametrize("minutes", [(1, 2), (2, 1)])
def test_aiokafka_joins_with_a_growing_list_and_the_longest_counts(minutes):
    seen = [
        joined("a", "roundrobin", minute=minutes[0], software=None),
        joined("a", "roundrobin", "range", minute=minutes[1], software=None),
    ]
    merged = merge(group(member("a"), assignor="roundrobin"), seen)
    assert lists(merged)["a"].list == ("roundrobin", "range")
    assert merged.contradictions == ()
    named = [replace(one, software=JAVA) for one in seen]
    assert merge(group(member("a"), assignor="roundrobin"), named).contradictions


def test_classes_without_a_name_are_those_of_the_list_that_another_log_shows():
    classes = ("com.acme.Zone", "org.apache.kafka.clients.consumer.RangeAssignor")
    own = joined("a", minute=1, classes=classes, built_at=at(1))
    alone = lists(merge(group(member("a")), [own]))["a"]
    assert (alone.knowledge, alone.at_least, alone.classes) == (Knowledge.BOUNDED, ("range",), ())
    both = merge(group(member("a")), [own, joined("a", "zone", "range", minute=2)])
    assert both.contradictions == ()
    assert (lists(both)["a"].list, lists(both)["a"].classes) == (("zone", "range"), classes)
    assert lists(both)["a"].since == at(1)
    other = merge(group(member("a")), [own, joined("a", "range", "zone", minute=2)])
    assert (lists(other)["a"].classes, other.contradictions) == ((), ())


def test_a_refusal_that_a_longer_list_got_over_is_none():
    refusal = refused(1, list=("roundrobin",), client_id="a")
    later = joined("a", "roundrobin", "range", minute=2, software=None, client_id="a")
    assert merge(group(member("a")), [refusal, later]).refusals == ()
    for other in (
        replace(later, client_id="b"),
        replace(later, list=("range", "roundrobin")),
        replace(later, software=JAVA),
        joined("a", "roundrobin", "range", minute=0, software=None, client_id="a"),
    ):
        assert len(merge(group(member("a")), [refusal, other]).refusals) == 1


def test_the_handshake_beats_a_guess_and_streams_are_told_from_java():
    sent = Subscription(version=3, topics=("t",), owned_partitions={}, rack_id="", user_data=b"")
    a, b = member("a", subscription=sent), member("b")
    alone = merge(group(a), [])
    assert alone.members[0].software.family == "librdkafka"
    told = Software(family="librdkafka", name="confluent-kafka-python", version="2.16.1")
    merged = merge(alone, [joined("a", "range", software=told)])
    assert merged.members[0].software.version == "2.16.1"
    said = Software(name="apache-kafka-java", version="3.9.1")
    for name, type_, kind in (("stream", "consumer", "streams"), ("default", "connect", "connect")):
        seen = joined("b", name, software=said, protocol_type=type_)
        assert merge(group(b, assignor=name), [seen]).members[0].software.family == kind


def everything() -> tuple[GroupSnapshot, list]:
    snapshot = group(
        member("a", subscription=KEPT, software=JAVA),
        member("b", instance_id="b-1"),
        member("c"),
        member("pod", member_id="p1"),
        member("pod", member_id="p2"),
        assignor=COOP,
        probe={"range": Tri.NO, COOP: Tri.YES},
    )
    seen = [
        joined("a", *MIXED, minute=1, software=JAVA),
        joined("a", COOP, minute=2, software=JAVA, reason="x"),
        joined("b", COOP, minute=3),
        joined("b", COOP, minute=4, evidence=Evidence(source=Source.CLIENT_LOG, at=at(4))),
        joined("gone", "range", minute=5),
        joined("older", "range", minute=6),
        declared("x", COOP, client_id="c"),
        declared("y", "range", client_id="c"),
        declared("z", COOP, instance_id="b-1", replicas=3),
        declared("w", COOP, client_id="elsewhere", group_id=None),
        refused(60, list=("range",)),
    ]
    return snapshot, seen


def test_neither_the_order_of_observations_nor_merging_them_again_matters():
    snapshot, seen = everything()
    once = merge(snapshot, seen)
    assert once.contradictions
    assert once.unmatched
    assert merge(once, seen) == merge(once, []) == once
    for seed in range(30):
        random.Random(seed).shuffle(seen)
        assert merge(snapshot, seen) == once


def test_bit_by_bit_gives_the_same_lists_as_all_at_once():
    snapshot, seen = everything()
    expected = merge(snapshot, seen)
    for seed in range(10):
        random.Random(seed).shuffle(seen)
        bit_by_bit = snapshot
        for one in seen:
            if not isinstance(one, Declared):
                bit_by_bit = merge(bit_by_bit, [one])
        files = [one for one in seen if isinstance(one, Declared)]
        bit_by_bit = merge(bit_by_bit, files)
        assert bit_by_bit.members == expected.members
        assert bit_by_bit.refusals == expected.refusals


def test_a_fenced_process_is_not_missing_while_another_has_its_instance_id():
    """The coordinator keeps the client id and address of a static member's first process."""
    first = {"instance_id": "i-0", "client_id": "first"}
    second = {"instance_id": "i-0", "client_id": "second"}
    static = member("a", **first, host="/10.0.0.1")
    lost = refused(5, error="FENCED_INSTANCE_ID", **first, host="10.0.0.1")
    now = joined("a", "range", minute=4, **second, host="10.0.0.2")
    merged = merge(group(static), [lost, now])
    assert (merged.members[0].client_id, merged.members[0].host) == ("second", "/10.0.0.2")
    assert merged.refusals[0].rejoined_as == merged.members[0].member_id
    assert merged.refusals[0].rejoined_at == at(4)
    gone = merge(group(member("b")), [lost, now])
    assert gone.refusals[0].rejoined_as is None


@pytest.mark.parametrize(
    ("known", "seen", "said"),
    [
        (group(member("a")), joined("a", COOP), "range is elected"),
        (group(member("a"), probe={COOP: Tri.YES}), joined("a", "range"), "the probe says"),
        (
            group(member("a", subscription=KEPT, software=JAVA), assignor=COOP),
            joined("a", *MIXED, software=JAVA),
            "kept 2 partitions",
        ),
    ],
    ids=["elected", "probe", "kept partitions"],
)
def test_an_exact_list_that_other_evidence_excludes_is_a_contradiction(known, seen, said):
    merged = merge(known, [seen])
    assert [said in c.what for c in merged.contradictions] == [True]
    assert lists(merged)["a"].list == seen.list


@pytest.mark.parametrize(("rebalanced", "count"), [(Tri.YES, 1), (Tri.NO, 0), (Tri.CANNOT_TELL, 0)])
def test_the_probe_s_no_contradicts_complete_lists_only_after_a_rebalance(rebalanced, count):
    snapshot = group(member("a"), probe={COOP: Tri.NO}, rebalanced=rebalanced)
    assert len(merge(snapshot, [joined("a", *MIXED)]).contradictions) == count


def test_bounds_from_the_probe():
    merged = merge(group(member("a"), member("b"), probe={COOP: Tri.YES, "sticky": Tri.NO}), [])
    known = lists(merged)["a"]
    assert known.knowledge is Knowledge.BOUNDED
    assert known.at_least == (COOP, "range")
    assert known.lacks == ()
    assert {e.source for e in known.evidence} == {Source.DESCRIBE, Source.PROBE}


def test_a_void_probe_bounds_nothing():
    snapshot = group(member("a"), probe={COOP: Tri.YES})
    void = replace(snapshot, probe=replace(snapshot.probe, refused="the group changed"))
    assert lists(merge(void, []))["a"].at_least == ("range",)


@pytest.mark.parametrize(
    ("rebalanced", "others", "lacks"),
    [
        (Tri.YES, ("b", "c"), (COOP,)),
        (Tri.CANNOT_TELL, ("b", "c"), ()),
        (Tri.NO, ("b", "c"), ()),
        (Tri.YES, ("b",), ()),
    ],
)
def test_all_but_one_known_to_hold_it_leaves_the_one_that_lacks_it(rebalanced, others, lacks):
    snapshot = group(
        member("a"), member("b"), member("c"), probe={COOP: Tri.NO}, rebalanced=rebalanced
    )
    merged = merge(snapshot, [joined(name, *MIXED) for name in others])
    assert lists(merged)["a"].lacks == lacks
    assert merged.contradictions == ()


def test_the_probe_s_no_is_explained_by_a_member_that_is_known_to_lack_it():
    snapshot = group(member("a"), member("b"), probe={COOP: Tri.NO})
    assert lists(merge(snapshot, [joined("b", "range")]))["a"].lacks == ()


def test_kept_partitions_exclude_eager_assignors_where_the_client_fixes_its_protocol():
    java = member("java", subscription=KEPT, software=JAVA)
    go = Software(family="franz-go", name="kgo", version="v1.22.2")
    follows = member("go", subscription=KEPT, software=go)
    guessed = member("guess", subscription=KEPT)
    known = lists(merge(group(java, follows, guessed, assignor=COOP), []))
    assert known["java"].lacks == ("range", "roundrobin", "sticky")
    assert known["go"].lacks == known["guess"].lacks == ()


@pytest.mark.parametrize(
    ("software", "elected", "lacks"),
    [
        (Software(family="librdkafka", name="x", version="2.16"), "range", (COOP,)),
        (
            Software(family="librdkafka", name="x", version="2.16"),
            COOP,
            ("range", "roundrobin", "sticky"),
        ),
        (Software(family="java", name="apache-kafka-java", version="2.3.1"), "range", (COOP,)),
        (JAVA, "range", ()),
        (Software(family="librdkafka"), "range", ()),
    ],
)
def test_what_a_client_that_said_its_name_cannot_hold(software, elected, lacks):
    merged = merge(group(member("a", software=software), assignor=elected), [])
    assert lists(merged)["a"].lacks == lacks


@pytest.mark.parametrize(
    "fields", [{"state": GroupState.PREPARING_REBALANCE}, {"type": GroupType.CONSUMER}]
)
def test_only_a_stable_classic_group_bounds_anything(fields):
    merged = merge(group(member("a"), probe={COOP: Tri.YES}, **fields), [])
    assert lists(merged)["a"] == AssignorList()
