"""What the election, the probe, kept partitions and the client's name say of a list nobody saw."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import AssignorList, GroupState, GroupType, Knowledge, Software, Source, Tri
from tests.groups.observed import COOP, JAVA, KEPT, MIXED, group, joined, lists, member


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
