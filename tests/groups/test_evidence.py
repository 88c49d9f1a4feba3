"""Evidence: by design.md's rules, and on the captured groups against what was really run."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from rebal.groups.evidence import MOST_REFUSALS, merge
from rebal.groups.model import (
    AssignorList,
    Coordinator,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Probe,
    ProbeAnswer,
    Software,
    Source,
    Subscription,
    Tri,
)
from rebal.groups.observations import Declared, Introduced, Joined, Left, Rebalanced, Refused
from rebal.groups.partitions import Partitions

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
COOP = "cooperative-sticky"
MIXED = (COOP, "range")
JAVA = Software(family="java", name="apache-kafka-java", version="3.9.1")
KEPT = Subscription(version=3, topics=("t",), owned_partitions={"t": Partitions([0, 1])})


def member(name: str, **fields) -> Member:
    return Member(**{"member_id": f"{name}-id", "client_id": name, **fields})


def group(*members: Member, **fields) -> GroupSnapshot:
    rebalanced = fields.pop("rebalanced", Tri.YES)
    answers = fields.pop("probe", {})
    known = {
        "group_id": "g",
        "state": GroupState.STABLE,
        "type": GroupType.CLASSIC,
        "protocol_type": "consumer",
        "assignor": "range",
        "coordinator": Coordinator(broker_id=1, rebalanced_since_load=rebalanced),
        **fields,
    }
    probe = Probe(
        answers=tuple(ProbeAnswer(assignor=a, supported=s, at=NOW) for a, s in answers.items())
    )
    return GroupSnapshot(
        group=Group(**known),
        captured_at=NOW,
        members=members,
        probe=probe if answers else None,
    )


def at(minutes: int) -> datetime:
    return NOW - timedelta(minutes=60 - minutes)


def joined(name: str, *names: str, minute: int = 0, **fields) -> Joined:
    evidence = Evidence(source=Source.REQUEST_LOG, at=at(minute), detail="JOIN_GROUP")
    return Joined(
        **{
            "group_id": "g",
            "member_id": f"{name}-id",
            "client_id": name,
            "list": names,
            "at": at(minute),
            "evidence": evidence,
            **fields,
        }
    )


def declared(where: str, *names: str, **fields) -> Declared:
    evidence = Evidence(source=Source.CONFIG_FILE, detail=where)
    return Declared(
        **{
            "where": where,
            "group_id": "g",
            "list": names,
            "list_set": bool(names),
            "evidence": evidence,
            **fields,
        }
    )


def lists(snapshot: GroupSnapshot) -> dict[str, AssignorList]:
    return {m.client_id: m.assignors for m in snapshot.members}


def test_a_join_makes_the_list_of_its_member_id_exact():
    merged = merge(group(member("a"), member("b")), [joined("a", *MIXED)])
    known = lists(merged)
    assert known["a"].knowledge is Knowledge.EXACT
    assert known["a"].list == MIXED
    assert (known["a"].at_least, known["a"].lacks) == ((), ())
    assert known["a"].evidence[0].source is Source.REQUEST_LOG
    assert known["b"].knowledge is Knowledge.BOUNDED
    assert known["b"].at_least == ("range",)


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
    refusal = Refused(
        group_id="g", list=("roundrobin",), at=at(1), client_id="a",
        evidence=Evidence(source=Source.REQUEST_LOG),
    )  # fmt: skip
    later = joined("a", "roundrobin", "range", minute=2, software=None, client_id="a")
    assert merge(group(member("a")), [refusal, later]).refusals == ()
    for other in (
        replace(later, client_id="b"),
        replace(later, list=("range", "roundrobin")),
        replace(later, software=JAVA),
        joined("a", "roundrobin", "range", minute=0, software=None, client_id="a"),
    ):
        assert len(merge(group(member("a")), [refusal, other]).refusals) == 1


def test_an_exact_list_without_the_elected_assignor_is_a_contradiction():
    merged = merge(group(member("a")), [joined("a", COOP)])
    assert ["range is elected" in c.what for c in merged.contradictions] == [True]
    assert lists(merged)["a"].list == (COOP,)


def test_an_exact_list_without_what_the_probe_found_everywhere_is_a_contradiction():
    merged = merge(group(member("a"), probe={COOP: Tri.YES}), [joined("a", "range")])
    assert ["the probe says" in c.what for c in merged.contradictions] == [True]


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


def test_kept_partitions_contradict_a_list_with_an_eager_assignor():
    java = member("a", subscription=KEPT, software=JAVA)
    merged = merge(group(java, assignor=COOP), [joined("a", *MIXED, software=JAVA)])
    assert ["kept 2 partitions" in c.what for c in merged.contradictions] == [True]


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
        (Software(family="kafkajs", name="k", version="2"), "RoundRobinAssigner", (COOP,)),
        (JAVA, "range", ()),
        (Software(family="librdkafka"), "range", ()),
    ],
)
def test_what_a_client_that_said_its_name_cannot_hold(software, elected, lacks):
    merged = merge(group(member("a", software=software), assignor=elected), [])
    assert lists(merged)["a"].lacks == lacks


@pytest.mark.parametrize(
    "fields",
    [
        {"state": GroupState.PREPARING_REBALANCE},
        {"type": GroupType.CONSUMER},
    ],
)
def test_only_a_stable_classic_group_bounds_anything(fields):
    merged = merge(group(member("a"), probe={COOP: Tri.YES}, **fields), [])
    assert lists(merged)["a"] == AssignorList()


def test_a_file_never_overrides_a_seen_list_and_is_kept_beside_it():
    merged = merge(group(member("a")), [joined("a", "range"), declared("a.properties", *MIXED)])
    (one,) = merged.members
    assert (one.assignors.knowledge, one.assignors.list) == (Knowledge.EXACT, ("range",))
    assert one.declared is not None
    assert one.declared.list == MIXED
    assert merged.contradictions == ()


def test_a_file_alone_is_declared_and_keeps_the_bounds():
    merged = merge(group(member("a")), [declared("a.properties", *MIXED, client_id="a")])
    known = lists(merged)["a"]
    assert (known.knowledge, known.list) == (Knowledge.DECLARED, MIXED)
    assert known.at_least == ("range",)


def test_an_unset_list_is_the_default_of_a_version_that_the_client_said():
    unset = declared("a.properties")
    merged = merge(group(member("a", software=JAVA), member("b")), [unset])
    assert lists(merged)["a"].list == ("range", COOP)
    assert lists(merged)["b"].knowledge is Knowledge.BOUNDED
    assert merged.members[1].declared is not None
    assert merged.members[1].declared.list == ()


def test_files_are_bound_by_instance_id_then_by_a_client_id_that_one_member_has():
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


def test_files_that_all_say_the_same_speak_for_every_member():
    snapshot = group(member("pod", member_id="1"), member("pod", member_id="2"))
    merged = merge(snapshot, [declared("deploy.yaml", *MIXED, replicas=2)])
    assert [m.assignors.list for m in merged.members] == [MIXED, MIXED]
    assert merged.expected_members == 2


def test_files_that_start_fewer_processes_than_there_are_members_speak_for_nobody():
    snapshot = group(member("pod", member_id="1"), member("pod", member_id="2"))
    merged = merge(snapshot, [declared("deploy.yaml", *MIXED, replicas=1)])
    assert [m.declared for m in merged.members] == [None, None]
    assert "fewer processes" in merged.unmatched[0].why


def test_a_file_of_another_client_is_not_a_member_s():
    snapshot = group(member("a", software=JAVA), member("b"))
    merged = merge(snapshot, [declared("app.yaml", COOP, family="librdkafka")])
    assert [m.declared is not None for m in merged.members] == [False, True]


def test_two_files_that_claim_one_member_and_differ_bind_neither():
    merged = merge(
        group(member("a")),
        [declared("x", "range", client_id="a"), declared("y", *MIXED, client_id="a")],
    )
    assert merged.members[0].declared is None
    assert [item.what for item in merged.unmatched] == ["x", "y"]


def test_files_that_name_no_group_are_one_line_where_they_fit_nobody():
    files = [declared(f"f{i}", "range", group_id=None, client_id=f"c{i}") for i in range(9)]
    (loose,) = merge(group(member("a")), files).unmatched
    assert loose.what == "f0, f1, f2 and 6 more"


def test_group_protocol_consumer_is_kept_and_its_list_means_nothing():
    merged = merge(group(member("a")), [declared("a", "range", group_protocol="consumer")])
    (one,) = merged.members
    assert one.assignors.knowledge is Knowledge.BOUNDED
    assert one.declared is not None
    assert one.declared.group_protocol == "consumer"


def test_expected_members_are_the_replicas_of_all_files_when_all_say_them():
    files = [declared("x", "range", replicas=2), declared("y", "range", replicas=3)]
    assert merge(group(member("a")), files).expected_members == 5
    some = [*files, declared("z", "range")]
    assert merge(group(member("a")), some).expected_members is None
    told = replace(group(member("a")), expected_members=9)
    assert merge(told, files).expected_members == 9


def test_refusals_are_kept_newest_last_and_bounded():
    seen = [
        Refused(
            group_id="g",
            list=(COOP,),
            at=NOW + timedelta(seconds=i),
            client_id=f"c{i}",
            evidence=Evidence(source=Source.REQUEST_LOG, detail=str(i)),
        )
        for i in range(MOST_REFUSALS + 5)
    ]
    random.Random(1).shuffle(seen)
    merged = merge(group(member("a")), [*seen, *seen])
    assert len(merged.refusals) == MOST_REFUSALS
    assert merged.refusals[-1].client_id == f"c{MOST_REFUSALS + 4}"
    assert merge(merged, seen).refusals == merged.refusals


def test_the_handshake_beats_a_guess_and_streams_are_told_from_java():
    sent = Subscription(version=3, topics=("t",), owned_partitions={}, rack_id="", user_data=b"")
    a, b = member("a", subscription=sent), member("b")
    alone = merge(group(a), [])
    assert alone.members[0].software is not None
    assert alone.members[0].software.family == "librdkafka"
    told = Software(family="librdkafka", name="confluent-kafka-python", version="2.16.1")
    merged = merge(alone, [joined("a", "range", software=told)])
    assert merged.members[0].software is not None
    assert merged.members[0].software.version == "2.16.1"
    streams = merge(group(b, assignor="stream"), [joined("b", "stream", software=JAVA)])
    assert streams.members[0].software is not None
    assert streams.members[0].software.family == "streams"


def test_rebalances_and_leaves_do_not_touch_what_is_known_of_the_coordinator():
    evidence = Evidence(source=Source.REQUEST_LOG, at=NOW)
    snapshot = group(member("a"), rebalanced=Tri.CANNOT_TELL)
    merged = merge(
        snapshot,
        [
            Rebalanced(group_id="g", generation_id=7, at=NOW, evidence=evidence),
            Left(group_id="g", member_id="gone", at=NOW, evidence=evidence),
        ],
    )
    assert merged == merge(snapshot, [])
    assert merged.group.coordinator == snapshot.group.coordinator


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
    refused = Evidence(source=Source.REQUEST_LOG, at=NOW, detail="23")
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
        Refused(group_id="g", list=("range",), at=NOW, evidence=refused),
    ]
    return snapshot, seen


def test_merging_again_changes_nothing():
    snapshot, seen = everything()
    once = merge(snapshot, seen)
    assert once.contradictions
    assert once.unmatched
    assert merge(once, seen) == once
    assert merge(once, []) == once


def test_the_order_of_observations_does_not_matter():
    snapshot, seen = everything()
    expected = merge(snapshot, seen)
    for seed in range(30):
        random.Random(seed).shuffle(seen)
        assert merge(snapshot, seen) == expected


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
