"""Evidence merged: whose it is, what contradicts it, what it says of a list that nobody saw.

Files declare, and `--assume` fills gaps; neither overrules what was seen.
"""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.errors import AssumptionError
from rebal.groups.evidence.bounds import apply_assumptions
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
from tests.planner.builder import group_of
from tests.tables import table


def test_a_heartbeat_identifies_the_client_but_no_assignor_list():
    software = Software(
        family="franz-go",
        name="kgo",
        version="v1.22.2",
        evidence=(Evidence(source=Source.REQUEST_LOG, at=at(0)),),
    )
    heartbeat = Introduced(
        group_id="g", member_id="a-id", software=software, evidence=software.evidence[0]
    )
    seen = merge(group(member("a"), member("b"), type=GroupType.CONSUMER), [heartbeat])
    by_id = {one.member_id: one for one in seen.members}
    assert by_id["a-id"].software == software
    assert by_id["a-id"].assignors.knowledge is Knowledge.UNKNOWN
    assert by_id["b-id"].software is None


def test_evidence_is_bound_by_member_id_and_never_by_client_id():
    seen = joined("a", *MIXED, member_id="a-earlier-id")
    merged = merge(group(member("a")), [seen])
    assert lists(merged)["a"].knowledge is Knowledge.BOUNDED
    (absent,) = merged.unmatched
    assert "no longer in the group" in absent.why


def test_joins_of_departed_members_are_summarized_in_one_line():
    seen = [joined(f"m{i}", "range", minute=i) for i in range(30)]
    merged = merge(group(member("a")), seen)
    (absent,) = merged.unmatched
    assert absent.what == "joins of 30 member ids (m0, m1, m10 and 27 more)"
    assert absent.evidence.at == at(29)


def test_observations_of_another_group_are_ignored():
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


def test_joined_at_is_the_time_of_an_accepted_join():
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


def test_assignor_classes_of_a_client_log_are_matched_to_the_list_in_another_log():
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


def test_a_rejection_overcome_by_joining_with_a_longer_list_is_not_reported():
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


def test_the_reported_software_name_overrides_a_guess_and_identifies_streams_and_connect():
    sent = Subscription(version=3, topics=("t",), owned_partitions={}, rack_id="", user_data=b"")
    a, b = member("a", subscription=sent), member("b")
    alone = merge(group(a), [])
    assert alone.members[0].software.family == "librdkafka"
    python_client = Software(family="librdkafka", name="confluent-kafka-python", version="2.16.1")
    merged = merge(alone, [joined("a", "range", software=python_client)])
    assert merged.members[0].software.version == "2.16.1"
    java_client = Software(name="apache-kafka-java", version="3.9.1")
    for name, type_, kind in (("stream", "consumer", "streams"), ("default", "connect", "connect")):
        seen = joined("b", name, software=java_client, protocol_type=type_)
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


def test_merging_observations_in_any_order_or_repeatedly_gives_the_same_result():
    snapshot, seen = everything()
    once = merge(snapshot, seen)
    assert once.contradictions
    assert once.unmatched
    assert merge(once, seen) == merge(once, []) == once
    for seed in range(30):
        random.Random(seed).shuffle(seen)
        assert merge(snapshot, seen) == once


def test_merging_observations_one_by_one_gives_the_same_lists_as_all_at_once():
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
    unrelated = merge(group(member("b")), [lost, now])
    assert unrelated.refusals[0].rejoined_as is None


@pytest.mark.parametrize(
    ("known", "seen", "message"),
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
def test_an_exact_list_that_other_evidence_excludes_is_a_contradiction(known, seen, message):
    merged = merge(known, [seen])
    assert [message in c.what for c in merged.contradictions] == [True]
    assert lists(merged)["a"].list == seen.list


@pytest.mark.parametrize(("rebalanced", "count"), [(Tri.YES, 1), (Tri.NO, 0), (Tri.CANNOT_TELL, 0)])
def test_a_negative_probe_contradicts_exact_lists_only_after_a_rebalance(rebalanced, count):
    snapshot = group(member("a"), probe={COOP: Tri.NO}, rebalanced=rebalanced)
    assert len(merge(snapshot, [joined("a", *MIXED)]).contradictions) == count


def test_a_positive_probe_proves_an_assignor_in_each_list_and_a_negative_one_excludes_none():
    merged = merge(group(member("a"), member("b"), probe={COOP: Tri.YES, "sticky": Tri.NO}), [])
    known = lists(merged)["a"]
    assert known.knowledge is Knowledge.BOUNDED
    assert known.at_least == (COOP, "range")
    assert known.lacks == ()
    assert {e.source for e in known.evidence} == {Source.DESCRIBE, Source.PROBE}


def test_a_void_probe_proves_nothing_about_assignor_lists():
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
def test_a_negative_probe_shows_what_the_only_unknown_list_lacks(rebalanced, others, lacks):
    snapshot = group(
        member("a"), member("b"), member("c"), probe={COOP: Tri.NO}, rebalanced=rebalanced
    )
    merged = merge(snapshot, [joined(name, *MIXED) for name in others])
    assert lists(merged)["a"].lacks == lacks
    assert merged.contradictions == ()


def test_a_negative_probe_explained_by_a_known_list_excludes_nothing_from_others():
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
def test_a_known_client_version_excludes_assignors_that_it_lacks(software, elected, lacks):
    merged = merge(group(member("a", software=software), assignor=elected), [])
    assert lists(merged)["a"].lacks == lacks


@pytest.mark.parametrize(
    "fields", [{"state": GroupState.PREPARING_REBALANCE}, {"type": GroupType.CONSUMER}]
)
def test_only_a_stable_classic_group_gives_bounds_for_assignor_lists(fields):
    merged = merge(group(member("a"), probe={COOP: Tri.YES}, **fields), [])
    assert lists(merged)["a"] == AssignorList()


def test_a_configuration_file_never_overrides_an_exact_list_and_is_kept_beside_it():
    merged = merge(group(member("a")), [joined("a", "range"), declared("a.properties", *MIXED)])
    (one,) = merged.members
    assert (one.assignors.knowledge, one.assignors.list) == (Knowledge.EXACT, ("range",))
    assert one.declared.list == MIXED
    assert merged.contradictions == ()


def test_a_configuration_file_alone_gives_a_declared_list_and_keeps_the_bounds():
    merged = merge(group(member("a")), [declared("a.properties", *MIXED, client_id="a")])
    known = lists(merged)["a"]
    assert (known.knowledge, known.list) == (Knowledge.DECLARED, MIXED)
    assert known.at_least == ("range",)


def test_an_unset_assignor_list_is_the_default_of_the_reported_client_version():
    unset = declared("a.properties")
    merged = merge(group(member("a", software=JAVA), member("b")), [unset])
    assert lists(merged)["a"].list == ("range", COOP)
    assert lists(merged)["b"].knowledge is Knowledge.BOUNDED
    assert merged.members[1].declared.list == ()


def test_files_are_bound_to_members_by_instance_id_or_by_a_unique_client_id():
    snapshot = group(
        member("pod", member_id="1", instance_id="i-1"),
        member("pod", member_id="2", instance_id="i-2"),
        member("solo"),
    )
    merged = merge(
        snapshot,
        [
            declared("1.properties", "range", instance_id="i-1"),
            declared("solo.properties", *MIXED, client_id="solo", group_id=None),
            declared("pod.properties", COOP, client_id="pod"),
            declared("gone.properties", "sticky", instance_id="i-9"),
        ],
    )
    found = {m.member_id: m.declared and m.declared.list for m in merged.members}
    assert found == {"1": ("range",), "2": None, "solo-id": MIXED}
    whys = {item.what: item.why for item in merged.unmatched}
    assert "shared by 2 members" in whys["pod.properties"]
    assert "no member has its instance id" in whys["gone.properties"]
    assert [item.what for item in merged.unmatched if item.may_start] == ["pod.properties"]


def test_configuration_files_that_agree_apply_to_every_member():
    snapshot = group(member("pod", member_id="1"), member("pod", member_id="2"))
    merged = merge(snapshot, [declared("deploy.yaml", *MIXED, replicas=2)])
    assert [m.assignors.list for m in merged.members] == [MIXED, MIXED]
    assert merged.expected_members == 2


@pytest.mark.parametrize(
    ("files", "classic_only", "surge"),
    [
        ([{"classic_only": ("session.timeout.ms",)}, {"max_surge": "0"}], True, "0"),
        # Of two deployments the one that surges counts.
        ([{"max_surge": "0"}, {"max_surge": "1"}], False, "1"),
        ([{"classic_only": ("session.timeout.ms",), "max_surge": "25%"}], True, "25%"),
    ],
)
def test_other_settings_of_files_with_the_same_list_are_combined(files, classic_only, surge):
    seen = [declared(f"file-{n}", "range", **more) for n, more in enumerate(files)]
    for one in merge(group(member("a"), member("b")), seen).members:
        assert (one.declared.list, one.declared.max_surge) == (("range",), surge)
        assert one.declared.classic_only == (("session.timeout.ms",) if classic_only else ())


def test_configuration_files_with_fewer_replicas_than_members_apply_to_no_member():
    snapshot = group(member("pod", member_id="1"), member("pod", member_id="2"))
    merged = merge(snapshot, [declared("deploy.yaml", *MIXED, replicas=1)])
    assert [m.declared for m in merged.members] == [None, None]
    assert merged.unmatched[0].why.startswith("it names neither an instance id nor a client id, ")
    assert "fewer processes" in merged.unmatched[0].why


def test_a_configuration_file_of_another_client_family_is_not_bound_to_a_member():
    snapshot = group(member("a", software=JAVA), member("b"))
    merged = merge(snapshot, [declared("app.yaml", COOP, family="librdkafka")])
    assert [m.declared is not None for m in merged.members] == [False, True]


def test_two_differing_configuration_files_for_one_member_are_both_left_unbound():
    merged = merge(
        group(member("a")),
        [declared("x", "range", client_id="a"), declared("y", *MIXED, client_id="a")],
    )
    assert merged.members[0].declared is None
    assert [(item.what, item.may_start) for item in merged.unmatched] == [("x", True), ("y", True)]


def test_unbound_files_without_a_group_id_are_summarized_in_one_line():
    files = [declared(f"f{i}", "range", group_id=None, client_id=f"c{i}") for i in range(9)]
    (loose,) = merge(group(member("a")), files).unmatched
    assert (loose.what, loose.may_start) == ("f0, f1, f2 and 6 more", False)


def test_a_declared_group_protocol_consumer_is_kept_and_its_list_is_ignored():
    merged = merge(group(member("a")), [declared("a", "range", group_protocol="consumer")])
    (one,) = merged.members
    assert one.assignors.knowledge is Knowledge.BOUNDED
    assert one.declared.group_protocol == "consumer"


def test_expected_members_are_the_sum_of_replicas_if_every_file_states_them():
    files = [declared("x", "range", replicas=2), declared("y", "range", replicas=3)]
    assert merge(group(member("a")), files).expected_members == 5
    some = [*files, declared("z", "range")]
    assert merge(group(member("a")), some).expected_members is None
    expected = replace(group(member("a")), expected_members=9)
    assert merge(expected, files).expected_members == 9


def vouched(*members: dict[str, Any], **more: Any) -> GroupSnapshot:
    return group_of({"members": list(members), **more})


def assumed(snapshot: GroupSnapshot) -> list[tuple[str, ...]]:
    return [member.assignors.list for member in snapshot.members]


@pytest.mark.parametrize("text", table("assume", "ids"))
def test_an_assumption_selects_a_member_by_any_of_its_ids(text: str) -> None:
    seen = vouched({"id": "a", "client": "a=b:c,d", "instance": "pod-1"}, {"id": "b"})
    made, notes = apply_assumptions(seen, [text])
    assert assumed(made) == [("range", "cooperative-sticky"), ()]
    known = made.members[0].assignors
    assert known.knowledge is Knowledge.EXACT
    assert [item.source for item in known.evidence] == [Source.ASSUMED]
    assert made.members[1] == seen.members[1]
    assert len(notes) == 1
    assert notes[0].endswith("runs [range, cooperative-sticky]")


def test_an_assumption_may_apply_to_every_member_with_a_shared_client_id() -> None:
    seen = vouched({"id": "a", "client": "svc"}, {"id": "b", "client": "svc"}, {"id": "c"})
    made, notes = apply_assumptions(seen, ["every-client-id=svc:range"])
    assert assumed(made) == [("range",), ("range",), ()]
    assert notes == ("every member with client id svc (2) runs [range]",)


def test_an_assumption_that_equals_exact_evidence_changes_nothing() -> None:
    seen = vouched({"id": "a", "list": ["range"]})
    assert (
        apply_assumptions(seen, ["client-id=a:range"]) == apply_assumptions(seen, []) == (seen, ())
    )


@pytest.mark.parametrize(("spec", "texts", "why"), table("assume", "contradicted"))
def test_contradictory_assumptions_are_rejected(spec: dict[str, Any], texts: str, why: str) -> None:
    with pytest.raises(AssumptionError, match=why):
        apply_assumptions(group_of(spec), [f"client-id={text}" for text in texts.split()])


@pytest.mark.parametrize(("text", "why"), table("assume", "unreadable"))
def test_an_unreadable_assumption_is_reported_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(AssumptionError, match=why) as raised:
        apply_assumptions(vouched({"id": "a"}), [text])
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


def test_an_assumption_may_name_a_custom_assignor_that_the_group_runs() -> None:
    seen = vouched({"id": "a"}, elected="our-own")
    assert assumed(apply_assumptions(seen, ["client-id=a:our-own"])[0]) == [("our-own",)]
