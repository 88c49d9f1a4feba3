"""What configuration files declare: for which members, and how much it counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rebal.groups.evidence.merge import merge
from rebal.groups.model import Knowledge
from tests.groups.observed import COOP, JAVA, MIXED, declared, group, joined, lists, member


def test_a_file_never_overrides_a_seen_list_and_is_kept_beside_it():
    merged = merge(group(member("a")), [joined("a", "range"), declared("a.properties", *MIXED)])
    (one,) = merged.members
    assert (one.assignors.knowledge, one.assignors.list) == (Knowledge.EXACT, ("range",))
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
    assert [item.what for item in merged.unmatched if item.may_start] == ["pod.properties"]


def test_files_that_all_say_the_same_speak_for_every_member():
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
def test_other_settings_of_files_that_name_one_list_are_put_together(files, classic_only, surge):
    seen = [declared(f"file-{n}", "range", **more) for n, more in enumerate(files)]
    for one in merge(group(member("a"), member("b")), seen).members:
        assert (one.declared.list, one.declared.max_surge) == (("range",), surge)
        assert one.declared.classic_only == (("session.timeout.ms",) if classic_only else ())


def test_files_that_start_fewer_processes_than_there_are_members_speak_for_nobody():
    snapshot = group(member("pod", member_id="1"), member("pod", member_id="2"))
    merged = merge(snapshot, [declared("deploy.yaml", *MIXED, replicas=1)])
    assert [m.declared for m in merged.members] == [None, None]
    assert merged.unmatched[0].why.startswith("it names neither an instance id nor a client id, ")
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
    assert [(item.what, item.may_start) for item in merged.unmatched] == [("x", True), ("y", True)]


def test_files_that_name_no_group_are_one_line_where_they_fit_nobody():
    files = [declared(f"f{i}", "range", group_id=None, client_id=f"c{i}") for i in range(9)]
    (loose,) = merge(group(member("a")), files).unmatched
    assert (loose.what, loose.may_start) == ("f0, f1, f2 and 6 more", False)


def test_group_protocol_consumer_is_kept_and_its_list_means_nothing():
    merged = merge(group(member("a")), [declared("a", "range", group_protocol="consumer")])
    (one,) = merged.members
    assert one.assignors.knowledge is Knowledge.BOUNDED
    assert one.declared.group_protocol == "consumer"


def test_expected_members_are_the_replicas_of_all_files_when_all_say_them():
    files = [declared("x", "range", replicas=2), declared("y", "range", replicas=3)]
    assert merge(group(member("a")), files).expected_members == 5
    some = [*files, declared("z", "range")]
    assert merge(group(member("a")), some).expected_members is None
    told = replace(group(member("a")), expected_members=9)
    assert merge(told, files).expected_members == 9
